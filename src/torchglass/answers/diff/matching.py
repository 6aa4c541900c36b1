"""Matches the things of two runs that hold the same numbers: by content, then by place in the flow.

Names of modules, variables and files play no part, because the two programs may have only their
numbers in common. Contents are compared by their sketches (diff/sketches.py). How far two things
may be apart follows from their dtypes and from the errors of what they were made from
(diff/tolerance.py). The steps, in this order:

1. For each thing of A, in program order: try the next thing of B, then search B for equal contents,
   then look for the same operation on inputs that are already matched.
2. Match what is left with the tolerance that B's way to compute it has.
3. Match what B computes twice and A once.
4. Drop a match that is much worse than those of the same line in other layers or iterations.
5. Match a thing of one run with several things of the other that together hold its numbers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torchglass.answers.diff.names import DIVIDED_UPDATES, FILLED_WITH, LAYOUT, PARTS
from torchglass.answers.diff.side import CONSTANT, EXACT, PARAMETER, RunSide, Thing
from torchglass.answers.diff.sketches import apart, orders_apart
from torchglass.answers.diff.tolerance import (
    COPIED,
    HOPELESS,
    amplification,
    divided_update,
    epsilon,
    expected_error,
    leaf_tolerance,
)

WINDOW = 48
"""How many candidates of equal size are compared: those with the nearest norm, and those nearest in
program order. It limits the time on long runs.
"""
FEW = 5
"""Things with fewer elements may agree by chance, so they must also have been made from things that
agree.
"""
PEERS = 6
"""How many times worse a match may be than those of the same line in other layers before it is
dropped.
"""
SURE = 1.5
"""How many times as far apart as rounding explains two things may be if both runs did the same with
inputs that agree. The error is an estimate, so it may be too large.
"""
SURE_COARSE = 1.1
"""The same for half precisions, whose rounding is so large that a wider limit would hide mistakes."""
WIDER = 300
"""How many times as wide as A's tolerance the search may be when B's way to compute a thing sets
the tolerance.
"""
MOST_UNPROVEN = 20
"""The most that an operation is assumed to amplify errors of unmatched inputs. They may differ for
another reason than rounding, so a large amplification must not excuse them.
"""
MOST_PIECES = 64
"""How many things are tried as the pieces of another one. Leaves have no such limit."""
MOST_ANCESTORS = 40
"""How many ancestors of a thing are searched for matches. It limits the time if little agrees."""


@dataclass(slots=True)
class Match:
    """A thing of A and its counterpart in B."""

    a: int
    b: int
    error: float
    """About how far apart the two are, relative to their norm."""
    tolerance: float
    """How far apart they may be to count as equal."""
    how: str
    """How they agree.

    ``bits``: the bits are equal. ``close``: equal up to rounding. ``transposed``: equal with the axes in another order.
    ``order``: the same numbers in any order. ``place``: the same place in the data flow, with numbers that cannot be
    compared. ``differs``: the same place, with different numbers.
    """
    value_a: int
    value_b: int
    """The values of A and of B that were compared, because their layouts fit."""


@dataclass(slots=True)
class Matching:
    """All matches, and the pairs that are at the same place in the data flow but differ."""

    of_a: dict[int, Match] = field(default_factory=dict[int, Match])
    """Keyed by thing of A: its match."""
    of_b: dict[int, Match] = field(default_factory=dict[int, Match])
    """Keyed by thing of B: its match."""
    places: dict[int, Match] = field(default_factory=dict[int, Match])
    """Keyed by thing of A: the thing of B at the same place, which differs."""
    places_b: dict[int, Match] = field(default_factory=dict[int, Match])
    """The same, keyed by thing of B."""
    pieces_a: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    """Keyed by thing of A: the things of B that together hold its numbers, or the one of which it
    is a piece.
    """
    pieces_b: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    """The same, keyed by thing of B."""

    def agrees_a(self, thing: int) -> bool:
        return thing in self.of_a or thing in self.pieces_a

    def agrees_b(self, thing: int) -> bool:
        return thing in self.of_b or thing in self.pieces_b


class Matcher:
    """Finds for the things of A, in program order, their counterparts in B."""

    def __init__(self, a: RunSide, b: RunSide, noise: dict[int, float] | None = None) -> None:
        self._a = a
        self._b = b
        self._noise = noise or {}
        self.found = Matching()
        self._allowed_a: list[float] = []
        self._bits_a: list[int] = []
        """By thing of A: the bits of the coarsest dtype that it or the matched things of B upstream have."""
        self._allowed_b: dict[int, float] = {}
        self._amplified = [amplification(a, thing) for thing in a.things]
        self._coarsest_leaf = min((each.bits for each in b.things if each.is_leaf), default=EXACT)
        self._index = _Index(b)
        self._twins = _twins(b)
        self._last = 0
        self._next = 0
        """The number of the thing of B that follows the last match."""
        self._differing: set[int] = set()
        """Things of A that differ a little, but by more than rounding explains.

        If they were treated as noise, the tolerances of all that follows would grow and hide the
        mistake.
        """
        self._used: dict[int, int] = defaultdict(int)
        """Keyed by thing of B: how many things of A it was matched with."""

    def match(self) -> Matching:
        """Match all things. The module's docstring lists the steps."""
        for thing in self._a.things:
            self._bits_a.append(min(thing.bits, self._bits_upstream(thing)))
            self._allowed_a.append(self._allowed(thing))
            match = self._by_order(thing, self._allowed_a[-1])
            if match is None:
                match = self._by_content(thing, self._allowed_a[-1])
            if match is None:
                match = self._by_place(thing)
            if match is not None:
                self._keep(match)
            self._note_difference(thing)
        self._judge_from_b()
        self._find_repeats_of_b()
        self._drop_what_peers_refute()
        self._find_pieces()
        return self.found

    def _note_difference(self, thing: Thing) -> None:
        """Remember a thing that differs a little from its counterpart at the same place, and what
        is made from such a thing.
        """
        if thing.number in self.found.of_a or thing.is_leaf:
            return
        place = self.found.places.get(thing.number)
        if (place is not None and place.tolerance < place.error < SMALL) or any(
            each in self._differing for each in thing.inputs
        ):
            self._differing.add(thing.number)

    def allowed(self, thing: int) -> float:
        """Return how far apart a thing of A and its counterpart may be."""
        return self._allowed_a[thing]

    # ------------------------------------------------------------ tolerances

    def _allowed(self, thing: Thing) -> float:
        """Return the tolerance of a thing of A, from the errors of its inputs and what its operation adds to them.

        It is at least three times the noise that was measured for this thing, if there is such a measurement.
        """
        noise = 3 * self._noise.get(thing.number, 0.0)
        if thing.is_leaf:
            return max(leaf_tolerance(thing.bits), noise)
        known = unknown = 0.0
        for each in thing.inputs:
            match = self.found.of_a.get(each)
            if match is not None:
                known = max(known, match.error)
            elif each not in self._differing:  # an input that differs must not widen the tolerance
                unknown = max(unknown, self._allowed_a[each])
        bits = min(thing.bits, self._bits_upstream(thing))
        amplified = self._amplified[thing.number]
        if unknown:
            amplified = min(amplified, MOST_UNPROVEN)
        if any(each in self._differing for each in thing.inputs):
            # Any larger error comes from the input that differs, so allow for rounding only.
            amplified = 1.0
        found = expected_error(bits, thing.step, amplified, known, unknown)
        if thing.op in DIVIDED_UPDATES:
            found = max(found, self._allowed_of_update(thing, bits))
        return max(found, noise)

    def _allowed_of_update(self, thing: Thing, bits: int) -> float:
        """Return how far apart a weight may be after an update by a quotient, as in Adam.

        Adam divides by the size of each gradient. If a gradient is nothing but rounding, as for the
        bias of the keys in attention, the update is as large as any other, and its direction is
        random.
        """
        weight = self.found.of_a.get(thing.inputs[0])
        before = self._allowed_a[thing.inputs[0]]
        if weight is not None:
            before = weight.error
        matches = [self.found.of_a[each] for each in thing.inputs[1:] if each in self.found.of_a]
        if len(matches) < len(thing.inputs) - 1:
            return 0.0
        known = max((match.error for match in matches), default=0.0)
        share, spread = divided_update(self._a, thing)
        return before + share * min(2.0, 2 * spread * expected_error(bits, thing.step, 1.0, known))

    def _bits_upstream(self, thing: Thing) -> int:
        """Return the bits of the coarsest dtype that B used upstream of a thing of A, as far as matches tell.

        An input without a counterpart has the bits of what it was made from: if B computes in another order, the
        counterparts are further up.
        """
        found = EXACT
        for each in thing.inputs:
            match = self.found.of_a.get(each)
            if match is not None:
                found = min(found, self._b.things[match.b].bits)
            else:
                found = min(found, self._bits_a[each])
        return found

    # ------------------------------------------------------------ by order

    def _by_order(self, thing: Thing, allowed: float) -> Match | None:
        """Match a thing with the one that follows the last match in B, or return None.

        If both runs are of the same program, this makes all searches unnecessary.
        """
        number = self._next
        if number >= len(self._b) or number in self.found.of_b or thing.is_unknown:
            return None
        other = self._b.things[number]
        if (other.op, other.count, other.output) != (thing.op, thing.count, thing.output):
            return None
        if not self._pair_up(thing.inputs, other.inputs):
            return None
        value, partner = thing.value, other.value
        mine = self._a.sketches
        theirs = self._b.sketches
        if mine.sizes(value) != theirs.sizes(partner):
            return None
        error = self._error(thing, other)
        if not error <= self._tolerance(thing, other, min(allowed, HOPELESS)):
            return None
        is_equal = theirs.hash_of(partner) == mine.hash_of(value) != 0
        how = "close"
        if is_equal:
            how = "bits"
        if thing.is_leaf and not (is_equal and thing.count >= FEW):
            return None
        return Match(thing.number, number, 0.0 if is_equal else error, allowed, how, value, partner)

    def _pair_up(self, mine: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
        """Return whether the inputs of a thing of A are matched one by one with those of a thing of
        B.
        """
        if len(mine) != len(theirs):
            return False
        matches = [self.found.of_a.get(each) for each in mine]
        return all(
            match is not None and each in self._alike(match.b)
            for match, each in zip(matches, theirs, strict=True)
        )

    def _alike(self, thing: int) -> tuple[int, ...]:
        """Return a thing of B with those that stand for it: a copy of a tied weight, or what a cast rounded."""
        return self._twins.get(thing, (thing,))

    def _users_of(self, partner: int) -> set[int]:
        return {user for each in self._alike(partner) for user in self._b.things[each].users}

    # ------------------------------------------------------------ by content

    def _by_content(self, thing: Thing, allowed: float) -> Match | None:
        """Return the best match among the things of B with about the same numbers, or None."""
        if thing.is_unknown:
            return None
        best: Match | None = None
        best_score = -1e9
        origins = self._origins(thing)
        wide = min(allowed, HOPELESS)
        if thing.is_leaf and thing.bits < EXACT:
            wide = max(wide, leaf_tolerance(self._coarsest_leaf))
        for number, error, how, mine, theirs in self._index.candidates(
            self._a, thing, wide, self._last
        ):
            other = self._b.things[number]
            tolerance = self._tolerance(thing, other, allowed)
            if error > tolerance:
                continue
            fits = self._origin_fits(thing, other, origins)
            if thing.count < FEW and not fits and not self._is_lone_small(thing, other):
                continue
            if how in ("order", "transposed") and not self._may_be_moved(
                thing, other, how, fits, (mine, theirs), error
            ):
                continue
            score = self._score(thing, other, origins, how)
            if score > best_score:
                best_score = score
                best = Match(thing.number, number, error, tolerance, how, mine, theirs)
        return best

    def _may_be_moved(
        self,
        thing: Thing,
        other: Thing,
        how: str,
        fits: bool,
        values: tuple[int, int],
        error: float,
    ) -> bool:
        """Return whether two things may be the same although their numbers are in another order.

        ``values`` are the values of A and B that agree. Computed things must have been made from
        things that agree. If both have the same shape, the shape does not explain the other order:
        then an input must be reordered in the same way.
        """
        if not fits:
            return False
        if thing.is_leaf:
            return True
        sizes = self._a.sketches.sizes(values[0])
        theirs = self._b.sketches.sizes(values[1])
        if how == "order" and self._holds_two_numbers(thing):
            return False
        if sizes != theirs and not (how == "order" and _turns(sizes, theirs)):
            is_sure = how != "order" or error <= SURE_IN_ORDER
            return is_sure and not self._came_from_others(thing, other)
        matches = self._nearest_matches(thing)
        return any(each.how == how and self._is_moved(each) for each in matches)

    def _holds_two_numbers(self, thing: Thing) -> bool:
        """Return whether a thing has so few distinct numbers, as a mask does, that any order of
        them looks alike.
        """
        return self._a.sketches.holds_two_numbers(thing.value)

    def _came_from_others(self, thing: Thing, other: Thing) -> bool:
        """Return whether two things were made from things that are at the same place and differ."""
        places = [self.found.places.get(each) for each in thing.inputs]
        return any(place is not None and place.b in other.inputs for place in places)

    def _is_moved(self, match: Match) -> bool:
        """Return whether a match pairs activations of the same shape: then their numbers are in
        another order in one run.
        """
        if self._a.things[match.a].origin == PARAMETER:
            return False
        return self._a.sketches.sizes(match.value_a) == self._b.sketches.sizes(match.value_b)

    def _tolerance(self, thing: Thing, other: Thing, allowed: float) -> float:
        """Return the tolerance for a pair, which is wider than ``allowed`` if B's dtype is coarser than A's."""
        if thing.is_leaf and other.is_leaf:
            return max(leaf_tolerance(min(thing.bits, other.bits)), allowed if self._noise else 0.0)
        if other.bits < thing.bits:
            return max(
                allowed, expected_error(other.bits, other.step, self._amplified[thing.number], 0.0)
            )
        return allowed

    def _origins(self, thing: Thing) -> set[int]:
        """Return the things of B that match the nearest matched ancestors of a thing of A."""
        return {match.b for match in self._nearest_matches(thing)}

    def _nearest_matches(self, thing: Thing) -> list[Match]:
        """Return the matches of the nearest matched ancestors of a thing of A."""
        found: list[Match] = []
        pending = list(thing.inputs)
        seen: set[int] = set()
        while pending and len(seen) < MOST_ANCESTORS:
            each = pending.pop(0)
            if each in seen:
                continue
            seen.add(each)
            match = self.found.of_a.get(each)
            if match is not None:
                found.append(match)
            else:
                pending += self._a.things[each].inputs
        return found

    def _origin_fits(self, thing: Thing, other: Thing, origins: set[int]) -> bool:
        """Return whether two things were made from things that match.

        Two leaves always fit. Without any matched ancestor, the operations must be the same.
        """
        if thing.is_leaf or other.is_leaf:
            return thing.is_leaf and other.is_leaf
        if not origins:
            return thing.op == other.op
        if thing.is_loss and other.is_loss and thing.step == other.step:
            return True
        return not origins.isdisjoint(self._ancestors_b(other))

    def _ancestors_b(self, thing: Thing) -> set[int]:
        """Return the ancestors of a thing of B, up to the nearest ones that are matched."""
        found: set[int] = set()
        pending = list(thing.inputs)
        while pending and len(found) < MOST_ANCESTORS:
            each = pending.pop(0)
            if each not in found:
                found.add(each)
                if each not in self.found.of_b:
                    pending += self._b.things[each].inputs
        return found

    def _is_lone_small(self, thing: Thing, other: Thing) -> bool:
        """Return whether both things are leaves or literals of the program, rather than computed."""
        written = thing.is_leaf or thing.op in FILLED_WITH
        return written and (other.is_leaf or other.op in FILLED_WITH)

    def _score(self, thing: Thing, other: Thing, origins: set[int], how: str) -> float:
        """Return how well a candidate of B fits a thing of A.

        Common ancestors count most. The same operation adds to the score. Another order, earlier matches of the
        candidate and its distance from the last match reduce it.
        """
        score = 0.0
        if origins:
            shared = len(origins & self._ancestors_b(other))
            score += 4.0 * shared / len(origins)
        score += 1.5 * (thing.op == other.op)
        score += 1.0 * (thing.is_leaf == other.is_leaf)
        score -= 2.0 * min(self._used[other.number], 2)
        score -= {"order": 3.0, "transposed": 0.5}.get(how, 0.0)
        distance = abs(other.number - self._last) / max(len(self._b), 1)
        return score - distance

    def _keep(self, match: Match) -> None:
        """Add a match to the result, or to the differing places if the numbers differ."""
        if match.how == "differs":
            self.found.places[match.a] = match
            self.found.places_b.setdefault(match.b, match)
            return
        self.found.of_a[match.a] = match
        known = self.found.of_b.get(match.b)
        if known is None or known.how == "place":
            self.found.of_b[match.b] = match
        self._next = match.b + 1
        self._used[match.b] += 1
        if self._a.things[match.a].count >= FEW:
            self._last = match.b

    # ------------------------------------------------------------ by place

    def _by_place(self, thing: Thing) -> Match | None:
        """Return the pair of a thing and what B made by the same operation from the counterparts of
        its inputs, or None.

        The pair counts as agreeing if its numbers cannot be compared, and as differing otherwise.
        """
        if thing.is_leaf:
            return None
        partners: list[int] = []
        for each in thing.inputs:
            match = self.found.of_a.get(each) or self.found.places.get(each)
            if match is None:
                return None
            partners.append(match.b)
        if not partners:
            return None
        shared = self._users_of(partners[0])
        for each in partners[1:]:
            shared &= self._users_of(each)
        for number in sorted(shared):
            other = self._b.things[number]
            if other.op == thing.op and other.count == thing.count and other.output == thing.output:
                if number in self.found.of_b and not other.is_random:
                    continue
                return self._judged(thing, other)
        return None

    def _judged(self, thing: Thing, other: Thing) -> Match:
        """Return a pair at one place as a match: ``place`` if nothing speaks against it, else ``differs``."""
        error = self._error(thing, other)
        how_equal = "close"
        if not thing.is_unknown and not other.is_unknown:
            turned = self._turned_error(thing, other)
            if turned == turned:
                error = turned
                how_equal = "transposed"
        allowed = self._allowed_a[thing.number]
        agrees_on = all(each in self.found.of_a for each in thing.inputs)
        is_open = thing.is_unknown or other.is_unknown or allowed >= HOPELESS
        how = "differs"
        if is_open and agrees_on:
            how = "place"
        elif self._is_same_step(thing, other):
            sure = SURE if min(self._bits_a[thing.number], other.bits) > 10 else SURE_COARSE
            if error <= sure * allowed:
                how = how_equal
                allowed *= sure
        return Match(thing.number, other.number, error, allowed, how, thing.value, other.value)

    def _is_same_step(self, thing: Thing, other: Thing) -> bool:
        """Return whether both runs did the same with inputs that agree: then nothing can be wrong there.

        A weight that was stored in the same dtype must have equal bits.
        """
        if not self._pair_up(thing.inputs, other.inputs):
            return False
        for each in thing.inputs:
            match = self.found.of_a[each]
            is_changed = (
                match.how != "bits" and self._a.things[each].bits == self._b.things[match.b].bits
            )
            if self._a.things[each].is_leaf and is_changed:
                return False
        return self._a.arguments(thing.maker) == self._b.arguments(other.maker)

    def _error(self, thing: Thing, other: Thing) -> float:
        """Return how far apart the first values of two things are, relative to their norm. NaN if not measured."""
        mine = self._a.sketches
        theirs = self._b.sketches
        first = mine.row.get(thing.value)
        second = theirs.row.get(other.value)
        if first is None or second is None:
            return float("nan")
        return float(apart(mine, first, theirs, np.array([second]))[0])

    def _turned_error(self, thing: Thing, other: Thing) -> float:
        """Return how far apart the first values of two things are if one has its axes in another order.

        NaN if that is not so.
        """
        sizes = self._a.sketches.sizes(thing.value)
        others = self._b.sketches.sizes(other.value)
        if len(sizes) < 2 or sizes == others or not _turns(sizes, others):
            return float("nan")
        first = self._a.sketches.row[thing.value]
        second = np.array([self._b.sketches.row[other.value]])
        return float(apart(self._a.sketches, first, self._b.sketches, second, len(sizes))[0])

    # ------------------------------------------------------------ second looks

    def _judge_from_b(self) -> None:
        """Match the remaining things with the tolerance that B's way to compute them has.

        For example, B may compute a variance by a formula that loses more digits than A's.
        """
        amplified: dict[int, float] = {}
        for other in self._b.things:
            amplified[other.number] = amplification(self._b, other)
        expected: list[float] = []
        for other in self._b.things:
            known = unknown = 0.0
            for each in other.inputs:
                match = self.found.of_b.get(each)
                if match is not None:
                    known = max(known, match.error)
                else:
                    unknown = max(unknown, expected[each])
            found = leaf_tolerance(other.bits)
            if not other.is_leaf:
                found = expected_error(
                    other.bits, other.step, amplified[other.number], known, unknown
                )
            expected.append(found)
        for thing in self._a.things:
            if thing.number in self.found.of_a or thing.is_leaf or thing.is_unknown:
                continue
            if any(each in self._differing for each in thing.inputs):
                continue
            allowed = self._allowed(thing)
            origins = self._origins(thing)
            wide = self._index.candidates(
                self._a, thing, min(HOPELESS, WIDER * allowed), max(origins, default=0)
            )
            for number, error, how, mine, theirs in sorted(wide, key=lambda each: each[1]):
                other = self._b.things[number]
                if number in self.found.of_b or other.is_leaf or how == "order":
                    continue
                if error > max(allowed, expected[number]):
                    continue
                fits = self._origin_fits(thing, other, origins)
                if how == "transposed" and not self._may_be_moved(
                    thing, other, how, fits, (mine, theirs), error
                ):
                    continue
                if fits:
                    tolerance = max(allowed, expected[number])
                    self.found.places.pop(thing.number, None)
                    self._keep(Match(thing.number, number, error, tolerance, how, mine, theirs))
                    break

    def _find_repeats_of_b(self) -> None:
        """Match things that B has twice and A once: a checkpointed forward pass that is run again, or
        the copy of a weight, which may be tied or belong to another rank.
        """
        known: dict[int, list[Match]] = defaultdict(list)
        for match in self.found.of_b.values():
            hashed = self._b.sketches.hash_of(self._b.things[match.b].value)
            if hashed:
                known[hashed].append(match)
        for other in self._b.things:
            if other.number in self.found.of_b:
                continue
            for match in known.get(self._b.sketches.hash_of(other.value), ()):
                like = self._b.things[match.b]
                if like.count == other.count and self._is_repeat(like, other):
                    again = Match(
                        match.a,
                        other.number,
                        match.error,
                        match.tolerance,
                        match.how,
                        match.value_a,
                        other.value,
                    )
                    self.found.of_b[other.number] = again
                    break

    def _is_repeat(self, one: Thing, other: Thing) -> bool:
        """Return whether a thing of B with the same bits as another one was made like it or is its copy."""
        if other.is_leaf:
            return one.is_weight and self._tells(other)
        if one.op != other.op or not self._made_alike(one, other):
            return False
        return bool(other.inputs) or other.count >= FEW

    def _tells(self, thing: Thing) -> bool:
        """Return whether the numbers of a thing of B are not all equal, as those of an empty bias are."""
        row = self._b.sketches.row[thing.value]
        low, high = self._b.sketches.orders[row][5:7]
        return bool(low != high)

    def _made_alike(self, one: Thing, other: Thing) -> bool:
        """Return whether the inputs of two things of B are the same, or agree with A in the same way."""
        if len(one.inputs) != len(other.inputs):
            return False
        return all(map(self._are_alike, one.inputs, other.inputs))

    def _are_alike(self, one: int, other: int) -> bool:
        """Return whether two things of B stand for the same thing of A, or are the same constants.

        Equal constants are, for example, the zeros in which moments begin.
        """
        if one == other:
            return True
        first = self._b.things[one]
        second = self._b.things[other]
        is_equal = self._b.sketches.equal_bits(first.value, second.value)
        if first.origin == CONSTANT and second.origin == CONSTANT:
            return is_equal
        match = self.found.of_b.get(one)
        other_match = self.found.of_b.get(other)
        if match is None or other_match is None:
            return False
        return is_equal or match.a == other_match.a

    def _drop_what_peers_refute(self) -> None:
        """Drop a match that is much worse than all others of the same line, in other layers or
        iterations.
        """
        groups: dict[tuple[Any, ...], list[Match]] = defaultdict(list)
        for match in self.found.of_a.values():
            thing = self._a.things[match.a]
            if thing.op in DIVIDED_UPDATES:
                continue
            if not thing.is_leaf and match.how in ("bits", "close", "transposed"):
                groups[_site(self._a, thing)].append(match)
        for matches in groups.values():
            if len(matches) < 3:
                continue
            errors = sorted(match.error for match in matches)
            match = max(matches, key=lambda each: each.error)
            thing = self._a.things[match.a]
            known = [
                self.found.of_a[each].error for each in thing.inputs if each in self.found.of_a
            ]
            least = 3 * epsilon(min(thing.bits, self._b.things[match.b].bits))
            if match.error > PEERS * max(errors[-2], least, *known):
                self._take_back(match)

    def _take_back(self, match: Match) -> None:
        """Turn a match into a pair at the same place that differs."""
        self.found.of_a.pop(match.a, None)
        if self.found.of_b.get(match.b) is match:
            del self.found.of_b[match.b]
        match.how = "differs"
        self.found.places[match.a] = match
        self.found.places_b[match.b] = match

    # ------------------------------------------------------------ pieces

    def _find_pieces(self) -> None:
        """Match what one run computes at once and the other in pieces, such as fused projections or
        micro-batches.
        """
        _Pieces(self._a, self._b, self.found, True).find()
        _Pieces(self._b, self._a, self.found, False).find()


SMALL = 0.05
"""The largest difference that may be a mistake that tolerances would hide.

Larger ones may be intended: masks of -inf and of -1e4 differ by more than this.
"""
MOST_IN_ORDER = 3e-2
"""How far apart sums may be that prove the same numbers in another order. Sums of other numbers can be
about equal, so they prove nothing at the tolerance of a half precision.
"""
SURE_IN_ORDER = 1e-4
"""The same where no input shows that the numbers are in another order."""
_WAYS = {"bits": 0, "close": 0, "transposed": 1, "order": 2}
"""Rank of each way in which numbers agree. The search prefers the smallest."""


class _Index:
    """Finds things of B with about the same numbers: the layouts of all things, grouped by size and
    sorted by norm.
    """

    def __init__(self, side: RunSide) -> None:
        self._side = side
        by_count: dict[int, list[tuple[float, int, int]]] = defaultdict(list)
        sketches = side.sketches
        for thing in side.things:
            if thing.is_unknown:
                continue
            for value in thing.layouts:
                row = sketches.row.get(value)
                if row is not None:
                    by_count[sketches.count(value)].append(
                        (float(sketches.norm[row]), value, thing.number)
                    )
        self._groups: dict[int, tuple[Any, Any, Any, Any]] = {}
        for count, members in by_count.items():
            members.sort()
            norms = np.array([each[0] for each in members])
            values = np.array([each[1] for each in members])
            things = np.array([each[2] for each in members])
            rows = np.array([sketches.row[each[1]] for each in members])
            self._groups[count] = (norms, values, things, rows)

    def candidates(
        self, side: RunSide, thing: Thing, allowed: float, about: int
    ) -> list[tuple[int, float, str, int, int]]:
        """Return the things of B whose numbers may agree with those of a thing of A, each once.

        If very many have about the same norm, those near the thing ``about`` of B come first.
        Each is a tuple: (thing, error, how, value of A, value of B).
        """
        found: dict[int, tuple[int, float, str, int, int]] = {}
        for value in thing.layouts:
            for each in self._of_value(side, value, allowed, about):
                known = found.get(each[0])
                if known is None or (_WAYS[each[2]], each[1]) < (_WAYS[known[2]], known[1]):
                    found[each[0]] = each
            if any(each[2] == "bits" for each in found.values()):
                break
        return list(found.values())

    def _of_value(
        self, side: RunSide, value: int, allowed: float, about: int
    ) -> list[tuple[int, float, str, int, int]]:
        """Return the candidates for one value of a thing, in the form of ``candidates``."""
        mine = side.sketches
        row = mine.row.get(value)
        group = self._groups.get(mine.count(value))
        if row is None or group is None:
            return []
        norms, values, things, rows = group
        norm = float(mine.norm[row])
        margin = norm * (2 * allowed + COPIED) + 1e-30
        low, high = np.searchsorted(norms, [norm - margin, norm + margin])
        if low >= high:
            return []
        chosen = self._nearest(group, norm, low, high, mine.hash[row], about)
        near = rows[chosen]
        theirs = self._side.sketches
        flat = apart(mine, row, theirs, near)
        bits = (theirs.hash[near] == mine.hash[row]) & (mine.hash[row] != 0)
        sizes = mine.sizes(value)
        found: list[tuple[int, float, str, int, int]] = []
        alike = np.zeros(len(chosen), bool)
        of_order = min(allowed, MOST_IN_ORDER)
        if mine.count(value) >= FEW:
            sums = np.abs(theirs.orders[near, 0] - mine.orders[row, 0])
            alike = sums <= of_order * np.maximum(theirs.orders[near, 2], mine.orders[row, 2])
        turned = None
        if len(sizes) > 1:
            turned = apart(mine, row, theirs, near, len(sizes))
        for place, index in enumerate(chosen):
            other = int(values[index])
            number = int(things[index])
            error = float(flat[place])
            if bits[place]:
                found.append((number, 0.0, "bits", value, other))
            elif error <= allowed:
                found.append((number, error, "close", value, other))
            elif (
                turned is not None
                and float(turned[place]) <= allowed
                and _turns(sizes, theirs.sizes(other))
            ):
                found.append((number, float(turned[place]), "transposed", value, other))
            elif alike[place]:
                error = orders_apart(mine.orders[row], theirs.orders[near[place]])
                if error <= of_order and mine.odd[row] == theirs.odd[near[place]]:
                    found.append((number, error, "order", value, other))
        return found

    def _nearest(
        self,
        group: tuple[Any, Any, Any, Any],
        norm: float,
        low: int,
        high: int,
        wanted: Any,
        about: int,
    ) -> Any:
        """Return the places of at most ``WINDOW`` candidates.

        If there are more, half of them are around equal bits or else around the nearest norm. The others are near the
        thing ``about``, since all results of a normalisation have the same norm.
        """
        if high - low <= WINDOW:
            return np.arange(low, high)
        norms, _, things, rows = group
        equal = np.flatnonzero(self._side.sketches.hash[rows[low:high]] == wanted)
        if len(equal):
            middle = low + int(equal[0])
        else:
            middle = int(np.searchsorted(norms, norm))
        by_norm = np.arange(max(low, middle - WINDOW // 4), min(high, middle + WINDOW // 4))
        distances = np.abs(things[low:high] - about)
        by_order = low + np.argpartition(distances, WINDOW // 2)[: WINDOW // 2]
        return np.union1d(by_norm, by_order)


def _twins(side: RunSide) -> dict[int, tuple[int, ...]]:
    """Return for each thing that has some: itself with its copies.

    A copy is a leaf with the same bits, or what a cast to a coarser dtype made of the thing.
    """
    copies: dict[int, list[int]] = defaultdict(list)
    leaves: dict[tuple[int, int], list[int]] = defaultdict(list)
    for thing in side.things:
        if thing.op in LAYOUT and len(thing.inputs) == 1:
            source = thing.inputs[0]
            if side.things[source].count == thing.count:
                copies[source].append(thing.number)
        hashed = side.sketches.hash_of(thing.value)
        if thing.is_leaf and hashed and thing.count >= FEW:
            leaves[hashed, thing.count].append(thing.number)
    for group in leaves.values():
        for each in group:
            copies[each] += [other for other in group if other != each]
    return {each: (each, *others) for each, others in copies.items() if others}


def _turns(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether two shapes have the same sizes, perhaps in another order."""
    return sorted(one) == sorted(other)


def _site(side: RunSide, thing: Thing) -> tuple[Any, ...]:
    """Return a key of the place in the code where a thing was made. It is the same for all layers
    of a model.
    """
    tables = side.tables
    stack = tables.stack[thing.maker]
    site = -1
    if stack >= 0:
        site = tables.stack_user[stack]
    return site, thing.op, thing.count, thing.output, tables.backward[thing.maker]


def _is_loss(side: RunSide, thing: Thing) -> bool:
    """Return whether a thing is a loss, or another result with one element, and was measured."""
    return thing.is_last and thing.count == 1 and thing.value in side.sketches.row


def _losses_by_step(side: RunSide) -> list[list[Thing]]:
    """Return the losses of a run, grouped by the optimizer steps between them.

    Several optimizers may make their steps one after the other, so the number of steps says little.
    """
    by_step: dict[int, list[Thing]] = defaultdict(list)
    for thing in side.things:
        if _is_loss(side, thing):
            by_step[thing.step].append(thing)
    return [by_step[step] for step in sorted(by_step)]


def sum_of(side: RunSide, thing: Thing) -> float:
    """Return the sum of the elements of a thing."""
    return float(side.sketches.orders[side.sketches.row[thing.value], 0])


class _Pieces:
    """Finds things of one run (``whole``) whose numbers several things of the other run (``parts``)
    hold together.

    The same operation must have made each of the parts. ``forward`` is true if the whole things are
    those of A.
    """

    def __init__(self, whole: RunSide, parts: RunSide, found: Matching, forward: bool) -> None:
        self._whole = whole
        self._parts = parts
        self._found = found
        if forward:
            self._matches = found.of_a
            self._matched_parts = found.of_b
        else:
            self._matches = found.of_b
            self._matched_parts = found.of_a
        self._forward = forward
        self._lone_leaves: list[Thing] = []
        self.pieces: dict[int, tuple[int, ...]] = found.pieces_a if forward else found.pieces_b
        if forward:
            self._others = found.pieces_b
        else:
            self._others = found.pieces_a

    def find(self) -> None:
        self._lone_leaves = [
            each
            for each in self._parts.things
            if each.is_leaf and each.count >= FEW and each.number not in self._matched_parts
        ]
        for thing in self._whole.things:
            if thing.number in self._matches or thing.is_unknown or thing.count < 2:
                continue
            made_up = self._of_parts(thing)
            if made_up:
                self.pieces[thing.number] = made_up
                for each in made_up:
                    if each not in self._matched_parts:
                        self._others.setdefault(each, (thing.number,))
        self._find_losses()

    def _find_losses(self) -> None:
        """Match a loss of one run with losses of micro-batches in the other, if it is their sum or
        their mean.
        """
        losses = _losses_by_step(self._whole)
        parts_by_step = _losses_by_step(self._parts)
        for place, group in enumerate(losses):
            parts = parts_by_step[place] if place < len(parts_by_step) else []
            for thing in group:
                is_open = thing.number not in self._matches and len(parts) > 1
                if is_open and self._is_sum_or_mean(thing, parts):
                    self.pieces[thing.number] = tuple(each.number for each in parts)
                    for each in parts:
                        self._others.setdefault(each.number, (thing.number,))

    def _is_sum_or_mean(self, thing: Thing, parts: list[Thing]) -> bool:
        whole = sum_of(self._whole, thing)
        sums = [sum_of(self._parts, each) for each in parts]
        bits = min(thing.bits, *(each.bits for each in parts))
        allowed = max(expected_error(bits, thing.step, 2.0, 4 * epsilon(bits)), COPIED) * sum(
            map(abs, sums)
        )
        return min(abs(sum(sums) - whole), abs(sum(sums) / len(sums) - whole)) <= allowed

    def _of_parts(self, thing: Thing) -> tuple[int, ...]:
        """Return the parts that together hold the numbers of a thing. Empty if there are none."""
        row = self._whole.sketches.row.get(thing.value)
        if row is None:
            return ()
        for candidates in self._candidates(thing):
            found = self._fitting(thing, row, candidates)
            if found:
                return found
        return ()

    def _candidates(self, thing: Thing) -> list[list[Thing]]:
        """Return groups of smaller things of the other run that may be pieces of a thing.

        They were made by the same operation from a counterpart (or a piece) of one of its inputs.
        """
        parts = self._parts.things
        near: set[int] = set()
        if thing.is_leaf:
            near.update(self._leaves_like(thing))
        for each in thing.inputs:
            for partner in self._partners(each):
                near.update(parts[partner].users)
                # The other run may cut its input, or a weight, and compute with each part.
                cuts = [each for each in parts[partner].users if parts[each].op in PARTS]
                near.update(user for each in cuts for user in parts[each].users)
        smaller = [parts[each] for each in sorted(near) if parts[each].count < thing.count]
        by_op: dict[tuple[str, int], list[Thing]] = defaultdict(list)
        for each in smaller:
            if each.is_leaf == thing.is_leaf and each.op == thing.op:
                by_op[each.op, each.output].append(each)
        return list(by_op.values())

    def _leaves_like(self, thing: Thing) -> list[int]:
        """Return smaller unmatched leaves that may be rows or columns of a leaf."""
        sizes = set(self._whole.sketches.sizes(thing.value))
        return [
            each.number
            for each in self._lone_leaves
            if each.count < thing.count
            and each.bits < EXACT
            and sizes.issuperset(self._parts.sketches.sizes(each.value)[1:])
        ]

    def _partners(self, thing: int) -> tuple[int, ...]:
        """Return the counterpart of a whole thing, or its pieces."""
        match = self._matches.get(thing)
        if match is not None:
            return (match.b if self._forward else match.a,)
        return self.pieces.get(thing, ())

    def _fitting(self, thing: Thing, row: int, candidates: list[Thing]) -> tuple[int, ...]:
        """Return consecutive candidates whose numbers of elements and whose sums add up to those of
        a thing.

        A candidate that would exceed the number of elements is skipped.
        """
        sketches = self._parts.sketches
        known = [each for each in candidates if each.value in sketches.row]
        if not thing.is_leaf:
            known = known[:MOST_PIECES]
        for first in range(len(known)):
            total = 0
            chosen = list[Thing]()
            for each in known[first:]:
                if total + each.count <= thing.count:
                    chosen.append(each)
                    total += each.count
                if total == thing.count:
                    break
            if total != thing.count or len(chosen) < 2:
                continue
            rows = [sketches.row[each.value] for each in chosen]
            sums = sketches.orders[rows].sum(axis=0)
            sums[5] = sketches.orders[rows, 5].min()
            sums[6] = sketches.orders[rows, 6].max()
            error = orders_apart(self._whole.sketches.orders[row], sums)
            bits = min(thing.bits, *(each.bits for each in chosen))
            if error <= max(expected_error(bits, thing.step, 2.0, 4 * epsilon(bits)), COPIED):
                return tuple(each.number for each in chosen)
        return ()
