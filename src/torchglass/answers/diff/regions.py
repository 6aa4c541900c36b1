"""Finds the regions in which two matched runs differ: from where they still agree to where both
come together again.

A thing that has no counterpart in the other run does not yet mean a difference: it may be another
way to compute the same result. So only things without a counterpart that lead to a differing result
count (``Reach``). A region begins at the first of these that were made from things that agree. It
ends where both runs use the same weight again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from torchglass.answers.diff.matching import FEW, Match, Matching, sum_of
from torchglass.answers.diff.names import PARTS
from torchglass.answers.diff.side import ACTIVATION, EXACT, RunSide, Thing
from torchglass.answers.diff.sketches import apart
from torchglass.answers.diff.tolerance import HOPELESS, expected_error, is_exact
from torchglass.events.gradients import ACCUMULATE

MOST_REGIONS = 10
"""How many regions are reported, so that a report stays readable."""
MOST_IN_REGION = 24
"""How many things a region has at most if no weight that both runs use marks its end."""


@dataclass(slots=True)
class Half:
    """What one run does in a region. Things are given by their numbers."""

    things: list[int] = field(default_factory=list[int])
    """The things that the run computed in the region, in order."""
    first: list[int] = field(default_factory=list[int])
    """Those of ``things`` that were made only from things that agree with the other run."""
    inputs: list[int] = field(default_factory=list[int])
    """The things that agree with the other run and from which ``things`` were made."""
    leaves: list[int] = field(default_factory=list[int])
    """Leaves (such as parameters) used in the region that do not agree with a thing of the other
    run."""
    output: int = -1
    """The thing that the run uses after the region, or -1 if the run ends in the region."""
    after: int = -1
    """The thing made from ``output`` with a weight that both runs use, or -1."""


@dataclass(slots=True)
class Difference:
    """A region in which the runs differ, as seen in each run."""

    a: Half
    b: Half
    both_draw: bool = False
    """Whether both runs draw random numbers there, which would explain the difference."""


class Reach:
    """The things of one run that agree with nothing in the other run and lead to one of the run's
    ends (``counts``).
    """

    def __init__(self, side: RunSide, agrees: set[int], solid: set[int], results: set[int]) -> None:
        """Find the things that count.

        ``agrees`` are the things that have a counterpart. ``solid`` are those that agree so
        precisely that what they were made from must be right. ``results`` are the results, with the
        counterparts of the other run's results.
        """
        self.side = side
        self._effects: dict[int, int] = {}
        self.agrees = agrees
        self.proven = _proven(side, agrees, solid)
        self.healed = _healed(side, agrees, solid, results)
        self.ends = [each for each in side.ends() if each.number not in agrees]
        self.counts = self._upstream(self._telling_ends() + self._neutral())

    def _telling_ends(self) -> list[int]:
        """Return the ends that agree with nothing, without counters, such as the steps that a layer
        counts (unless there are no others).
        """
        found = [each.number for each in self.ends if each.bits < EXACT or each.count >= FEW]
        return found or [each.number for each in self.ends]

    def _neutral(self) -> list[int]:
        """Return things that had no effect but belong to a region: a product with zeros still shows
        which weight is used.

        In backward they only show another way to compute a gradient.
        """
        if not self.ends:
            return []
        return [
            thing.number for thing in self.side.things
            if thing.is_neutral and not thing.is_leaf and thing.count >= FEW and thing.bits < EXACT
            and not _is_backward(self.side, thing.number)
        ]  # fmt: skip

    def _upstream(self, ends: Iterable[int]) -> set[int]:
        """Return the things that lead to the ends, stopping at things that agree or are proven
        right.
        """
        found: set[int] = set()
        pending = list(ends)
        while pending:
            number = pending.pop()
            if number in found or number in self.agrees or number in self.proven:
                continue
            found.add(number)
            pending += self.side.things[number].inputs
        return found

    def borders(self, number: int) -> set[int]:
        """Return the nearest things upstream that agree with the other run."""
        found: set[int] = set()
        seen: set[int] = set()
        pending = [number]
        while pending:
            each = pending.pop()
            if each in seen:
                continue
            seen.add(each)
            if each in self.agrees:
                found.add(each)
            else:
                pending += self.side.things[each].inputs
        return found

    def frontier(self) -> list[int]:
        """Return the things that count and were made only from things that agree, in the order in
        which they take effect.
        """
        found = [number for number in sorted(self.counts) if self.is_first(number)]
        return sorted(found, key=self.effect)

    def effect(self, number: int) -> int:
        """Return the number of the first activation that depends on a thing.

        A table of angles or a mask is often made long before it is used, so the place where it was
        made says little.
        """
        if not self._effects:
            for each in sorted(self.counts, reverse=True):
                thing = self.side.things[each]
                self._effects[each] = each
                users = [self._effects[user] for user in thing.users if user in self._effects]
                if thing.origin != ACTIVATION and users:
                    self._effects[each] = min(users)
        return self._effects.get(number, number)

    def is_first(self, number: int) -> bool:
        """Return whether no computed input of a thing differs."""
        thing = self.side.things[number]
        if thing.is_leaf:
            return False
        return not any(
            each in self.counts and not self.side.things[each].is_leaf for each in thing.inputs
        )

    def between(self, last: int) -> list[int]:
        """Return ``last`` and all things that count and lead to it, in order."""
        found: set[int] = set()
        pending = [last]
        while pending:
            number = pending.pop()
            if number in found or number not in self.counts:
                continue
            found.add(number)
            pending += self.side.things[number].inputs
        return sorted(found)

    def below(self, first: int, most: int) -> list[int]:
        """Return a thing and the things that count and were made from it, in order, ``most`` at the
        most.
        """
        found = {first}
        for number in sorted(self.counts):
            if len(found) >= most:
                break
            thing = self.side.things[number]
            if number > first and not found.isdisjoint(thing.inputs):
                found.add(number)
        return sorted(found)

    def soon_below(self, first: int) -> list[int]:
        """Return a thing and what was made from it in the same optimizer step: a region that no
        shared weight ends.
        """
        step = self.side.things[first].step
        return [
            each
            for each in self.below(first, MOST_IN_REGION)
            if self.side.things[each].step == step
        ]


def _proven(side: RunSide, agrees: set[int], solid: set[int]) -> set[int]:
    """Return things without a counterpart that must be right all the same: one made from them agrees.

    An example is a mask that already did its work in the previous layer. An extra output that an op
    keeps for the backward pass is right, too, if the main output agrees. A thing of which only a
    part was used is not proven: the rest may be wrong.
    """
    found: set[int] = set()
    sound: set[int] = set()
    """Things that lead only to things that agree."""
    main = {thing.maker for thing in side.things if thing.number in solid and thing.output == 0}
    for thing in reversed(side.things):
        if thing.number in agrees:
            continue
        forward = [each for each in thing.users if not _is_backward(side, each)]
        if forward and all(each in solid or each in sound for each in forward):
            sound.add(thing.number)
        if thing.output > 0 and thing.maker in main and thing.op not in PARTS:
            found.add(thing.number)
        if thing.origin == ACTIVATION:
            continue
        if any(
            (each in solid or each in found or each in sound)
            and not _takes_a_part(side, thing, each)
            for each in thing.users
        ):
            found.add(thing.number)
    return found


def _users_that_prove(side: RunSide, thing: Thing) -> list[int]:
    """Return the users of a thing that prove it right if they agree.

    What a forward pass keeps for the backward pass proves nothing about its result.
    """
    if _is_backward(side, thing.number):
        return thing.users
    return [each for each in thing.users if not _is_backward(side, each)]


def _takes_a_part(side: RunSide, thing: Thing, user: int) -> bool:
    """Return whether a user takes only some of the numbers of a thing, such as a slice."""
    other = side.things[user]
    return other.op in PARTS and other.count < thing.count


def _healed(side: RunSide, agrees: set[int], solid: set[int], results: set[int]) -> set[int]:
    """Return things that differ although the next result that is made from them agrees.

    They are another way to compute the same result, not a mistake: padded positions that hold other
    numbers in another kernel, or what a normalisation keeps for the backward pass.
    """
    found: set[int] = set()
    next_result: dict[int, int] = {}
    for thing in reversed(side.things):
        number = thing.number
        if number in results:
            next_result[number] = number
            continue
        users = _users_that_prove(side, thing)
        reached = [next_result[each] for each in users if each in next_result]
        if reached:
            next_result[number] = min(reached)
        if number in agrees or (thing.bits >= EXACT and thing.origin == ACTIVATION):
            continue
        is_healed = bool(users) and all(each in solid or each in found for each in users)
        if reached and min(reached) in agrees:
            is_healed = True
        if is_healed:
            found.add(number)
    return found


def reaches(a: RunSide, b: RunSide, found: Matching) -> tuple[Reach, Reach]:
    """Return for each run the things that agree with nothing and lead to a result."""
    agrees_a = {thing.number for thing in a.things if found.agrees_a(thing.number)}
    agrees_b = {thing.number for thing in b.things if found.agrees_b(thing.number)}
    solid_a = {match.a for match in found.of_a.values() if _is_solid(a.things[match.a], match)}
    solid_b = {match.b for match in found.of_b.values() if _is_solid(b.things[match.b], match)}
    results_a = {thing.number for thing in a.things if thing.is_last}
    results_b = {thing.number for thing in b.things if thing.is_last}
    shared = [
        match for match in found.of_a.values() if match.a in results_a or match.b in results_b
    ]
    results_a.update(match.a for match in shared)
    results_b.update(match.b for match in shared)
    return (
        Reach(a, agrees_a, solid_a, results_a),
        Reach(b, agrees_b, solid_b, results_b),
    )


def are_equal(
    a: Reach, b: Reach, found: Matching, is_cut_a: bool = False, is_cut_b: bool = False
) -> bool:
    """Return whether both runs come to the same results.

    Things that only one run computes besides the results do not count. If the recording of a run
    was cut off, everything that it has must agree. What the other run has besides then proves
    nothing.
    """
    if is_cut_a or is_cut_b:
        return (is_cut_a and not a.ends) or (is_cut_b and not b.ends)
    if _leaves_a_result(a, b) or _leaves_a_result(b, a):
        return False
    if _share_an_end(a, b, found):
        return False
    partners_a = {number: match.b for number, match in found.of_a.items()}
    partners_b = {number: match.a for number, match in found.of_b.items()}
    if _adds_to_a_gradient(a, b, partners_a) or _adds_to_a_gradient(b, a, partners_b):
        return False
    modules_a = [thing for thing in a.side.things if thing.is_last]
    modules_b = [thing for thing in b.side.things if thing.is_last]
    if not modules_a and not modules_b:
        return not (a.ends and b.ends)
    stops_a = [] if modules_b else modules_a
    stops_b = [] if modules_a else modules_b
    stops_a += _stops(a.side)
    stops_b += _stops(b.side)
    goes_on_a = any(_goes_on(a, found.of_b.get(each.number), False) for each in stops_b)
    goes_on_b = any(_goes_on(b, found.of_a.get(each.number), True) for each in stops_a)
    return not goes_on_a and not goes_on_b


def rearranged_ends(a: RunSide, b: RunSide, found: Matching) -> list[Match]:
    """Return the ends that hold the same numbers in the same shape, but in another order.

    A forgotten or a wrong permutation causes this. If the whole batch was in another order all the
    way, it is not reported.
    """
    made: list[Match] = []
    ends_b = {each.number for each in b.ends()}
    for end in a.ends():
        match = found.of_a.get(end.number)
        if match is None or match.b not in ends_b or end.count < FEW or end.bits >= EXACT:
            continue
        if match.how == "order":
            continue  # the batch was in another order all the way
        mine = a.last_value[end.number]
        theirs = b.last_value[match.b]
        if a.meta(mine)[0] != b.meta(theirs)[0]:
            continue
        first = a.sketches.row.get(mine)
        second = b.sketches.row.get(theirs)
        if first is None or second is None:
            continue
        error = float(apart(a.sketches, first, b.sketches, np.array([second]))[0])
        if error > max(4 * match.tolerance, HOPELESS):
            made.append(Match(end.number, match.b, error, match.tolerance, "differs", mine, theirs))
    return made


def arrangements(moved: list[Match]) -> list[Difference]:
    """Return one region for each end whose numbers are only in another order."""
    return [Difference(Half(output=each.a), Half(output=each.b)) for each in moved]


def _leaves_a_result(reach: Reach, other: Reach) -> bool:
    """Return whether a result that agrees with nothing leads to an end.

    A loss does not count if the other run has no loss left that it could be: a program may sum its losses before it
    computes gradients, or compute the gradients without the loss. It does not count either if only its sign differs.
    """
    results = [each for each in _left_results(reach) if not each.is_loss]
    losses = [each for each in _left_results(reach) if each.is_loss]
    rivals = [each for each in _left_results(other) if each.is_loss]
    losses = [
        each
        for each in losses
        if not any(_is_negated(reach.side, each, other.side, rival) for rival in rivals)
    ]
    return bool(results or (losses and rivals))


def _is_negated(side: RunSide, loss: Thing, other_side: RunSide, other: Thing) -> bool:
    """Return whether a loss is another one with the opposite sign: one program minimises what the other maximises."""
    if loss.count != 1 or other.count != 1 or loss.is_unknown or other.is_unknown:
        return False
    one = sum_of(side, loss)
    two = sum_of(other_side, other)
    bits = min(loss.bits, other.bits)
    return abs(one + two) <= expected_error(bits, loss.step, 1.0, 0.0) * abs(one)


def _left_results(reach: Reach) -> list[Thing]:
    """Return the results that agree with nothing."""
    things = [reach.side.things[each] for each in reach.counts]
    return [each for each in things if each.is_last]


def _share_an_end(a: Reach, b: Reach, found: Matching) -> bool:
    """Return whether both runs have an end of the same kind with different numbers, such as a last
    image or a printed sum.
    """
    ends_b = {each.number for each in b.ends}
    for each in a.ends:
        place = found.places.get(each.number)
        if place is not None and place.b in ends_b:
            return True
        if any(_is_alike(each, other) for other in b.ends):
            return True
    return False


def _is_alike(one: Thing, other: Thing) -> bool:
    """Return whether two ends could be the same result. If they hold few numbers, the same
    operation must have made them.
    """
    if one.count != other.count or (one.bits >= EXACT) != (other.bits >= EXACT):
        return False
    return one.count >= FEW or one.op == other.op


def _stops(side: RunSide) -> list[Thing]:
    """Return the ends of a run that computes further after its last module, as a sampler does that
    scales its last image.
    """
    ends = [each for each in side.ends() if each.bits < EXACT and not each.leaves_torch]
    if any(each.is_last for each in ends):
        return []
    return ends


def _goes_on(reach: Reach, match: Match | None, to_b: bool) -> bool:
    """Return whether one run computes further from something that is a result of the other run."""
    if match is None:
        return False
    if to_b:
        here = match.b
    else:
        here = match.a
    below = {here}
    for thing in reach.side.things[here + 1 :]:
        if not below.isdisjoint(thing.inputs) and thing.number not in reach.agrees:
            below.add(thing.number)
    ends = {each.number for each in reach.ends if each.bits < EXACT}
    return not ends.isdisjoint(below)


def _adds_to_a_gradient(reach: Reach, other: Reach, partners: dict[int, int]) -> bool:
    """Return whether a run adds something to what is a final gradient or update in the other run.

    An example is the gradient of a penalty that only one run has. ``partners`` are the counterparts
    of the run's things.
    """
    finals = {each.number for each in other.side.ends() if _is_gradient(other.side, each)}
    for end in reach.ends:
        if not _is_gradient(reach.side, end):
            continue
        for number in reach.borders(end.number):
            is_as_large = reach.side.things[number].count == end.count
            if is_as_large and partners.get(number) in finals:
                return True
    return False


def _is_gradient(side: RunSide, thing: Thing) -> bool:
    """Return whether a thing is a gradient or a parameter after its update."""
    if _is_backward(side, thing.number) or thing.op == ACCUMULATE:
        return True
    return thing.is_last and side.tables.value_storage[thing.value] in side.parameters


def _is_solid(thing: Thing, match: Match) -> bool:
    """Return whether a match proves that the inputs of the thing are right.

    A match of few numbers or of integers does not: they may agree by chance.
    """
    if thing.count < FEW or thing.bits >= EXACT or thing.is_leaf:
        return False
    return match.how in ("bits", "close", "transposed") and is_exact(match.error, thing.bits)


def differences(a: Reach, b: Reach, found: Matching) -> list[Difference]:
    """Return the regions in which the runs differ, in order. There are several only if they are
    independent of each other.
    """
    frontier_a = _telling(a)
    frontier_b = _telling(b)
    if all(each in a.healed for each in frontier_a) and not b.healed.issuperset(frontier_b):
        return [_difference(None, frontier_b[0], a, b, found)]
    made: list[Difference] = []
    covered_a: set[int] = set()
    covered_b: set[int] = set()
    for first in frontier_a:
        is_made_up = a.side.things[first].origin != ACTIVATION
        if first in covered_a or (made and is_made_up):
            continue
        partner = _partner(first, frontier_b, covered_b, a, b, found)
        one = _difference(first, partner, a, b, found)
        if not made or covered_a.isdisjoint(one.a.things):
            made.append(one)
        covered_a.update(one.a.things)
        covered_b.update(one.b.things)
        if len(made) >= MOST_REGIONS:
            break
    if not made:
        for first in frontier_b[:1]:
            made.append(_difference(None, first, a, b, found))
    return made


def _telling(reach: Reach) -> list[int]:
    """Return the frontier of a run, without things that only lead to results that agree (unless
    there are no others).
    """
    found = reach.frontier()
    return [each for each in found if each not in reach.healed] or found


def _partner(
    first: int, frontier: list[int], covered: set[int], a: Reach, b: Reach, found: Matching
) -> int | None:
    """Return the thing of B's frontier that best corresponds to ``first``, a thing of A's frontier.

    If both are at the same place in the data flow, that decides. Otherwise the best score wins:
    shared inputs count most, then the same operation and the same size. Without any score above
    zero, it is the first of the frontier.
    """
    placed = found.places.get(first)
    if placed is not None and placed.b in b.counts:
        return placed.b
    mine = a.side.things[first]
    anchors = {found.of_a[each].b for each in mine.inputs if each in found.of_a}
    flowing = {each for each in anchors if not b.side.things[each].is_leaf}
    best: int | None = None
    best_score = 0.0
    frontier = [
        each for each in frontier if _is_backward(b.side, each) == _is_backward(a.side, first)
    ]
    for number in frontier:
        other = b.side.things[number]
        shared = len(flowing.intersection(other.inputs)) * 2.0 + len(
            anchors.intersection(other.inputs)
        )
        shared += 1.0 * (other.op == mine.op) + 0.5 * (other.count == mine.count)
        if not anchors.intersection(other.inputs):
            shared -= 2.0
        shared -= 0.5 * (number in covered)
        if shared > best_score:
            best, best_score = number, shared
    if best is None and frontier:
        return frontier[0]
    return best


def _is_backward(side: RunSide, number: int) -> bool:
    return bool(side.tables.backward[side.things[number].maker])


def _difference(
    first: int | None, partner: int | None, a: Reach, b: Reach, found: Matching
) -> Difference:
    """Return the region that begins at ``first`` in A and at ``partner`` in B, either of which may be missing."""
    meeting = _meeting(first, partner, a, b, found)
    one = _half(a, first, *(meeting[0] if meeting else (-1, -1)))
    other = _half(b, partner, *(meeting[1] if meeting else (-1, -1)))
    taken_by_a = {found.of_a[each].b for each in one.inputs if each in found.of_a}
    taken_by_b = {found.of_b[each].a for each in other.inputs if each in found.of_b}
    _add_beside(b, other, taken_by_a)
    _add_beside(a, one, taken_by_b)
    return Difference(one, other, _draws(a.side, one) and _draws(b.side, other))


def _meeting(
    first: int | None, partner: int | None, a: Reach, b: Reach, found: Matching
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return where both runs use the same weight again after the difference, or None.

    For each run that is a pair: the thing that is combined with the weight, and the thing that
    results. The weight's k-th use in A is compared with its k-th use in B.
    """
    users: dict[int, list[int]] = {}
    for number in sorted(b.counts):
        for each in b.side.things[number].inputs:
            if _is_weight(b, each) and number >= (partner or 0):
                users.setdefault(each, []).append(number)
    if first is not None:
        leads_a = set(a.below(first, len(a.counts)))
    else:
        leads_a = set[int]()
    if partner is not None:
        leads_b = set(b.below(partner, len(b.counts)))
    else:
        leads_b = set[int]()
    taken: dict[int, int] = {}
    for number in sorted(a.counts):
        if first is not None and number < first:
            continue
        for each in a.side.things[number].inputs:
            if not _is_weight(a, each) or each not in found.of_a:
                continue
            theirs = users.get(found.of_a[each].b, [])
            place = taken.get(each, 0)
            if place >= len(theirs):
                continue
            other = theirs[place]
            taken[each] = place + 1
            for mine in _flowing(a, number):
                for his in _flowing(b, other):
                    is_new = mine in a.counts or his in b.counts
                    leads = mine in leads_a or his in leads_b
                    same_size = a.side.things[mine].count == b.side.things[his].count
                    if is_new and leads and same_size:
                        return (mine, number), (his, other)
    return None


def _is_weight(reach: Reach, number: int) -> bool:
    """Return whether a thing is a weight, not just a few numbers, that both runs have."""
    thing = reach.side.things[number]
    return thing.is_weight and thing.count >= FEW and number in reach.agrees


def _flowing(reach: Reach, number: int) -> list[int]:
    """Return the computed inputs of a thing that are not weights: what the operation applies a
    weight to.
    """
    things = reach.side.things
    return [
        each
        for each in things[number].inputs
        if not things[each].is_leaf and not _is_weight(reach, each)
    ]


def _half(reach: Reach, first: int | None, output: int, after: int) -> Half:
    """Return what one run does in a region: up to ``output``, or, if that is -1, what follows from ``first``."""
    things: list[int] = []
    if output != -1 and output in reach.counts:
        things = reach.between(output)
    elif output == -1 and first is not None:
        things = reach.soon_below(first)
    side = reach.side
    made = Half(
        [each for each in things if not side.things[each].is_leaf], output=output, after=after
    )
    made.things = [each for each in made.things if each not in reach.healed] or made.things
    made.first = [each for each in made.things if reach.is_first(each)]
    if not made.first:
        inside = set(made.things)
        made.first = [each for each in made.things if inside.isdisjoint(side.things[each].inputs)]
    inputs: dict[int, None] = {}
    leaves: dict[int, None] = {}
    for number in made.things:
        for each in side.things[number].inputs:
            if each in reach.agrees:
                inputs.setdefault(each)
            elif side.things[each].is_leaf:
                leaves.setdefault(each)
    made.inputs = list(inputs)
    made.leaves = list(leaves)
    return made


def _add_beside(reach: Reach, half: Half, taken: set[int]) -> None:
    """Add to a region what this run computes from inputs that only the other run uses there.

    For example, a norm over all gradients leads to the update of each parameter, but clipping
    gradients one by one changes only some of them.
    """
    things = reach.side.things
    left = {each for each in taken.difference(half.inputs) if not things[each].is_leaf}
    if half.after == -1 or not left:
        return
    beside = [
        number
        for number in reach.frontier()
        if number < half.after
        and number not in half.things
        and not left.isdisjoint(things[number].inputs)
    ]
    half.things = sorted({*half.things, *beside})
    half.first = sorted({*half.first, *beside})


def _draws(side: RunSide, half: Half) -> bool:
    """Return whether a run draws random numbers in a region."""
    return any(side.things[each].is_random for each in half.things)
