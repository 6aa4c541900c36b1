"""Compares two traces and describes where they first differ and why.

The result depends on the recorded data only. diff/side.py reads each run as a graph of things,
diff/matching.py pairs the things of both, diff/regions.py finds where they differ, and
diff/suspects.py looks for reasons.
"""

# Answers may use what a trace keeps private from users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
from collections.abc import Container, Sequence

import numpy as np

from torchglass.answers.diff.matching import FEW, Match, Matcher, Matching
from torchglass.answers.diff.names import ADDS, FILLED_ALIKE, FUSED, NORMS, PERIODIC, PRODUCTS
from torchglass.answers.diff.regions import (
    Difference,
    Half,
    Reach,
    are_equal,
    arrangements,
    differences,
    reaches,
    rearranged_ends,
)
from torchglass.answers.diff.result import (
    BITS,
    DIFFERENT,
    ROUNDING,
    STRUCTURE,
    UNRELATED,
    AlignedValue,
    Diff,
    DifferingRegion,
    RunPlace,
)
from torchglass.answers.diff.side import CONSTANT, EXACT, RunSide, Thing
from torchglass.answers.diff.sketches import apart
from torchglass.answers.diff.structure import compare_structure
from torchglass.answers.diff.suspects import (
    Suspect,
    module_output,
    rearranging,
    shown_event,
    suspects,
    thing_name,
)
from torchglass.events.tables import NONE, Tables
from torchglass.program.recorded import HasTables

NO_NUMBERS = (
    "{which} recorded no fingerprints, so numbers cannot be compared, only what ran: record(values='stats+sketch') "
    "keeps them"
)
NO_OPS = "{which} recorded without ops: functions and modules are compared; record(ops=True) finds the operation"
CUT = "{which} did not come to its end: it is compared as far as it goes"
FAILED = "{which} was left by {error}: it is compared up to there"
ACTIVATIONS = frozenset(
    "gelu relu silu tanh sigmoid leaky_relu elu softplus mish hardswish glu relu6 selu tanh_ sigmoid_".split()
)
LOSSES = re.compile(r"loss|cross_entropy")
ATTENTION = frozenset(
    "bmm softmax _softmax _safe_softmax scaled_dot_product_attention masked_fill tril triu".split()
)


def compare(
    a: HasTables,
    b: HasTables,
    again: Sequence[HasTables] = (),
    other_again: Sequence[HasTables] = (),
) -> Diff:
    """Return how two runs compare.

    The programs need share nothing but their numbers. ``again`` holds further runs of A, ``other_again`` further runs
    of B: what differs between runs of the same program is noise, and tolerances rise with it.
    """
    notes = _notes(a._tables, b._tables)
    missing = [name for name, each in (("A", a), ("B", b)) if not each._tables.sketches]
    if missing:
        notes.insert(0, NO_NUMBERS.format(which=_both(missing)))
        return Diff(
            verdict=STRUCTURE, structure=compare_structure(a._tables, b._tables), notes=tuple(notes)
        )
    one = RunSide(a._tables)
    other = RunSide(b._tables)
    noise = _noise(one, again)
    if other_again:
        _add_noise_of_b(noise, Matcher(one, other).match(), _noise(other, other_again))
    found = Matcher(one, other, noise).match()
    return _Result(one, other, found, notes).diff()


def _both(names: list[str]) -> str:
    return " and ".join(names)


def _notes(a: Tables, b: Tables) -> list[str]:
    found: list[str] = []
    for name, tables in (("A", a), ("B", b)):
        if tables.left_by:
            found.append(FAILED.format(which=name, error=tables.left_by[0].partition(":")[0]))
        elif not tables.complete:
            found.append(CUT.format(which=name))
    kinds = [{tables.callees[each].kind for each in set(tables.callee)} for tables in (a, b)]
    without = [name for name, each in zip(("A", "B"), kinds, strict=True) if "op" not in each]
    if without and a.sketches and b.sketches:
        found.append(NO_OPS.format(which=_both(without)))
    return found


def _noise(side: RunSide, again: Sequence[HasTables]) -> dict[int, float]:
    """Return how far apart runs of the same program are, by thing of the first run."""
    noise: dict[int, float] = {}
    for each in again:
        found = Matcher(side, RunSide(each._tables)).match()
        for match in _with_places(found):
            if match.error == match.error:
                noise[match.a] = max(noise.get(match.a, 0.0), match.error)
    return noise


def _add_noise_of_b(noise: dict[int, float], found: Matching, noise_of_b: dict[int, float]) -> None:
    """Add the noise of B's things to that of A's things at the same place."""
    for match in _with_places(found):
        measured = noise_of_b.get(match.b, 0.0)
        noise[match.a] = max(noise.get(match.a, 0.0), measured)


def _with_places(found: Matching) -> list[Match]:
    """Return the pairs that agree and the pairs at the same place that differ."""
    return [*found.of_a.values(), *found.places.values()]


class _Result:
    """Turns matches and regions into a ``Diff``."""

    def __init__(self, a: RunSide, b: RunSide, found: Matching, notes: list[str]) -> None:
        self._a = a
        self._b = b
        self._found = found
        self._notes = notes
        self._reach_a, self._reach_b = reaches(a, b, found)
        self._rearranged: list[Match] = []
        """Ends that hold the same numbers in another order."""

    def diff(self) -> Diff:
        """Return the verdict, with the regions if the runs differ."""
        a, found = self._a, self._found
        compared = [thing for thing in a.things if _counts(thing)]
        agreeing = [thing for thing in compared if found.agrees_a(thing.number)]
        rows = tuple(self._rows())
        tables = a.tables, self._b.tables
        if not any(_tells(a, thing) for thing in agreeing) and any(
            _tells(a, thing) for thing in compared
        ):
            self._notes.append(f"A: {_what_ran(tables[0])}; B: {_what_ran(tables[1])}")
            return Diff(
                verdict=UNRELATED, rows=rows, compared=len(compared), notes=tuple(self._notes)
            )
        is_cut = [bool(each.left_by) or not each.complete for each in tables]
        errors = [match.error for match in found.of_a.values() if _is_error(match)]
        moved = self._rearranged
        is_equal = are_equal(self._reach_a, self._reach_b, found, *is_cut)
        if is_equal:
            moved += rearranged_ends(a, self._b, found)
        if is_equal and not moved:
            largest = max(errors, default=0.0)
            verdict = ROUNDING
            if self._are_bits():
                verdict = BITS
            return Diff(
                verdict=verdict, rows=rows, compared=len(compared), agree=len(agreeing), largest=largest,
                result=self._last_row(), notes=tuple(self._notes + self._extras()),
            )  # fmt: skip
        split = arrangements(moved) or differences(self._reach_a, self._reach_b, found)
        regions = _distinct([self._region(each) for each in split])
        first = self._first_number(split[0] if split else None)
        before = [thing for thing in agreeing if thing.number < first]
        after = [thing for thing in compared if thing.number >= first and not thing.is_leaf]
        early = [
            match.error for match in found.of_a.values() if match.a < first and _is_error(match)
        ]  # fmt: skip
        return Diff(
            verdict=DIFFERENT, regions=tuple(regions), rows=rows, compared=len(compared), agree=len(agreeing),
            largest=max(early, default=0.0), before=len(before), after=len(after),
            differ_after=sum(not found.agrees_a(thing.number) for thing in after),
            result=self._row(moved[-1]) if moved else self._last_row(), notes=tuple(self._notes),
        )  # fmt: skip

    def _first_number(self, difference: Difference | None) -> int:
        """Return the number of the first thing of A that differs."""
        if difference is not None:
            numbers = difference.a.things
        else:
            numbers = []
        if not numbers:
            numbers = [each for each in self._reach_a.counts if not self._a.things[each].is_leaf]
        return min(numbers, default=len(self._a.things))

    # ------------------------------------------------------------ rows

    def _rows(self) -> list[AlignedValue]:
        return [
            self._row(match) for match in sorted(_with_places(self._found), key=lambda each: each.a)
        ]

    def _row(self, match: Match, name: str = "") -> AlignedValue:
        thing = self._a.things[match.a]
        other = self._b.things[match.b]
        shape, dtype = self._a.meta(match.value_a)
        return AlignedValue(
            name or _shown_name(self._a, thing), match.value_a, match.value_b,
            None if thing.is_leaf else thing.maker, None if other.is_leaf else other.maker, shape, dtype,
            match.error, match.tolerance, match.how,
        )  # fmt: skip

    def _compared_row(self, mine: Thing, theirs: Thing, name: str) -> AlignedValue | None:
        """Return a row for two things whether or not they agree. None if their numbers of elements
        differ.
        """
        known = self._found.of_a.get(mine.number)
        if known is not None and known.b == theirs.number:
            return self._row(known, name)
        if mine.count != theirs.count:
            return None
        error = _error(self._a, mine, self._b, theirs)
        place = self._found.places.get(mine.number)
        if place is not None:
            tolerance = place.tolerance
        else:
            tolerance = 14 * 2.0 ** -min(mine.bits, theirs.bits, 23)
        return self._row(
            Match(
                mine.number, theirs.number, error, tolerance, "differs", mine.value, theirs.value
            ),
            name,
        )

    def _last_row(self) -> AlignedValue | None:
        """Return a row for the last result of both runs, or None."""
        ends_a = [each for each in self._a.ends() if each.bits < EXACT]
        ends_b = [each for each in self._b.ends() if each.bits < EXACT]
        results_a = [each for each in ends_a if each.is_last] or ends_a
        results_b = [each for each in ends_b if each.is_last] or ends_b
        for mine in reversed(results_a):
            match = self._found.of_a.get(mine.number)
            if match is not None:
                return self._row(match)
            for theirs in reversed(results_b):
                if theirs.count == mine.count:
                    return self._compared_row(mine, theirs, _shown_name(self._a, mine))
        return None

    def _are_bits(self) -> bool:
        """Return whether every result holds equal bits in both runs."""
        for end in self._a.ends():
            match = self._found.of_a.get(end.number)
            if match is None:
                continue
            if (
                match.how != "bits"
                or self._a.meta(match.value_a)[1] != self._b.meta(match.value_b)[1]
            ):
                return False
        return any(end.number in self._found.of_a for end in self._a.ends())

    def _extras(self) -> list[str]:
        """Return a note for each run that computes results that the other run does not have."""
        found: list[str] = []
        for name, reach in (("A", self._reach_a), ("B", self._reach_b)):
            ends = [each for each in reach.ends if each.bits < EXACT]
            if ends:
                what = _shown_name(reach.side, ends[0])
                found.append(
                    f"only {name} computes {what}"
                    + (f" and {len(ends) - 1} more" if len(ends) > 1 else "")
                )
        return found

    # ------------------------------------------------------------ regions

    def _region(self, difference: Difference) -> DifferingRegion:
        reasons = suspects(self._a, self._b, difference, self._found)
        one, other = difference.a, difference.b
        places_a = self._places(self._a, one, [each.events_a for each in reasons])
        places_b = self._places(self._b, other, [each.events_b for each in reasons])
        if not places_b:
            places_b = self._instead(self._b, other, one, True)
        if not places_a:
            places_a = self._instead(self._a, one, other, False)
        inputs = self._inputs(one, other)
        return DifferingRegion(
            self._title(one, other, places_a, places_b, reasons), places_a, places_b, tuple(inputs),
            self._output(one, other), self._after(one, other), tuple(reasons),
            tuple(dict.fromkeys(self._a.things[each].maker for each in one.things)),
            tuple(dict.fromkeys(self._b.things[each].maker for each in other.things)),
        )  # fmt: skip

    def _places(
        self, side: RunSide, half: Half, telling: list[tuple[int, ...]]
    ) -> tuple[RunPlace, ...]:
        """Return the source lines of a region: first those that a suspect names, then those that
        begin it, then the others, then those that only rearranged its inputs.
        """
        events = [event for each in telling for event in each]
        leaves = set(half.leaves)
        with_leaf = [
            each for each in half.things if not leaves.isdisjoint(side.things[each].inputs)
        ]
        if any(side.is_parameter(side.things[each]) for each in leaves):
            events += [side.things[each].maker for each in with_leaf]
        if side is self._a:
            ranked = _ranked(self._reach_a, half, self._found.places)
        else:
            ranked = _ranked(self._reach_b, half, self._found.places_b)
        events += [side.things[each].maker for each in ranked]
        events += [side.things[each].maker for each in half.things]
        if half.things:
            events += rearranging(side, half)
        found: dict[tuple[str, int], RunPlace] = {}
        for event in events:
            if event == NONE:
                continue
            place = place_of(side, event)
            if place.location is not None:
                key = (place.location.file, place.location.line)
            else:
                key = ("", event)
            found.setdefault(key, place)
        return tuple(found.values())

    def _instead(self, side: RunSide, half: Half, other: Half, is_b: bool) -> tuple[RunPlace, ...]:
        """Return, for a run that does nothing in a region, the line that follows or the last line
        that agrees.
        """
        if half.after != -1:
            return (place_of(side, side.things[half.after].maker),)
        for each in other.inputs:
            if is_b:
                match = self._found.of_a.get(each)
            else:
                match = self._found.of_b.get(each)
            if match is None:
                continue
            thing = side.things[match.b if is_b else match.a]
            if not thing.is_leaf:
                return (place_of(side, thing.maker),)
        return ()

    def _inputs(self, one: Half, other: Half) -> list[AlignedValue]:
        numbers = [each for each in one.inputs if each in self._found.of_a]
        if not numbers:
            numbers = [
                self._found.of_b[each].a for each in other.inputs if each in self._found.of_b
            ]
        things = [self._a.things[each] for each in dict.fromkeys(numbers)]
        chosen = [
            each
            for each in things
            if not each.is_leaf and each.count >= FEW and each.origin != CONSTANT
        ]
        chosen += [
            each
            for each in things
            if each not in chosen and (each.is_leaf or each.origin == CONSTANT)
        ]
        return [self._row(self._found.of_a[each.number]) for each in chosen]

    def _output(self, one: Half, other: Half) -> AlignedValue | None:
        for match in self._rearranged:
            if match.a == one.output:
                return self._row(match)
        mine = _last_of(one)
        theirs = _last_of(other)
        if mine is None or theirs is None:
            return None
        return self._compared_row(self._a.things[mine], self._b.things[theirs], "")

    def _after(self, one: Half, other: Half) -> str:
        for side, half in ((self._a, one), (self._b, other)):
            if half.after != -1:
                thing = side.things[half.after]
                module = _module_of(side, thing.maker)
                return module or thing_name(side, thing)
        return ""

    def _title(
        self,
        one: Half,
        other: Half,
        a: tuple[RunPlace, ...],
        b: tuple[RunPlace, ...],
        reasons: list[Suspect],
    ) -> str:
        if a and one.things:
            side = self._a
            half = one
            place = a[0]
        else:
            side = self._b
            half = other
            place = None
            if b:
                place = b[0]
        if place is None:
            return "their results"
        if not one.things and not other.things:
            return "how the same numbers are arranged" + _layer_of(place)
        names = set(side.parameters.values())
        parameter = next(
            (each for each in reasons if each.kind == "parameter" and each.name in names), None
        )
        what = _what(side, half, place, parameter)
        step = 0
        if half.things:
            step = side.things[half.things[0]].step
        event = half.things and side.things[half.things[0]].maker
        is_backward = (
            isinstance(event, int) and side.tables.backward[event] and "optimizer" not in what
        )
        where = ""
        if not what.startswith("the parameter"):
            where = _layer_of(place)
        if half.things and not _in_step(side, side.things[half.things[0]].maker):
            step += 1
        times = ""
        if _steps_in(side):
            times = f" at step {step}"
        return f"{what}{where}{', in backward' if is_backward else ''}{times}"


def _what(side: RunSide, half: Half, place: RunPlace, parameter: Suspect | None) -> str:
    """Return what the first lines of a region do, such as ``the activation`` or ``the parameter
    fc.weight``.
    """
    ops = [side.things[each].op for each in half.things]
    op = place.op
    if _in_step(side, place.event):
        return "the optimizer's update"
    if parameter is not None:
        return f"the parameter {parameter.name}"
    if LOSSES.search(op) or any(LOSSES.search(each) for each in ops[:6]):
        return "the loss"
    if "clip_grad" in place.code:
        return "the clipping of gradients"
    if any(side.things[each].is_random for each in half.things[:4]):
        return "random numbers"
    if any(each in ACTIVATIONS for each in ops) and not any(each in PRODUCTS for each in ops):
        return "the activation"
    if any(each in NORMS or each == "rsqrt" for each in ops[:4]):
        return "the normalisation"
    if any(each in ATTENTION or each in FUSED for each in ops):
        return "attention"
    if op in PRODUCTS:
        return "a product with weights"
    if op in ADDS:
        return "a sum"
    if op in PERIODIC:
        return f"{op}"
    return f"{op}"


def _distinct(regions: list[DifferingRegion]) -> list[DifferingRegion]:
    """Drop regions of lines that an earlier region has: the same line in the next layer adds
    nothing new.
    """
    found: list[DifferingRegion] = []
    seen: set[tuple[str, int]] = set()
    for region in regions:
        places = [each.location for each in (*region.a, *region.b) if each.location is not None]
        lines = {(each.file, each.line) for each in places}
        if not found or seen.isdisjoint(lines):
            found.append(region)
        seen |= lines
    return found


def _shown_name(side: RunSide, thing: Thing) -> str:
    """Return ``h.0.mlp.c_fc output`` for the output of a module, or the name of a thing in the
    program.
    """
    path = module_output(side, thing)
    if path:
        return f"{path} output"
    return thing_name(side, thing)


def _ranked(reach: Reach, half: Half, places: Container[int]) -> list[int]:
    """Return the things that begin a region, the most informative first.

    Best are things with a counterpart at the same place: the same operation gave a different
    result. Last are memory filled with zeros or ones and things of few numbers.
    """

    def rank(number: int) -> tuple[bool, bool, bool, int, int]:
        thing = reach.side.things[number]
        is_filled = thing.op in FILLED_ALIKE
        return number not in places, is_filled, thing.count < FEW, reach.effect(number), number

    return sorted(half.first, key=rank)


def _last_of(half: Half) -> int | None:
    if half.output != -1:
        return half.output
    if half.things:
        return half.things[-1]
    return None


def place_of(side: RunSide, event: int) -> RunPlace:
    """Return the module, the code and the source line of an event, or of the forward event if it
    ran in backward.
    """
    tables = side.tables
    forward = NONE
    if tables.backward[event]:
        forward = tables.forward[event]
    shown = shown_event(side, event if forward == NONE else forward)
    stack = tables.stack[shown]
    user = NONE
    if stack != NONE:
        user = tables.stack_user[stack]
    site = None
    if user != NONE:
        site = tables.sites[user]
    code = ""
    if site is not None:
        code = site.code
    if site is not None and site.target and tables.direct[shown] and site.operator != "[]=":
        code = f"{', '.join(site.target)} = {code}"
    if forward != NONE:
        code = f"the gradient of {code}"
    location = None
    if site is not None:
        location = site.location
    module = _module_of(side, shown)
    return RunPlace(event, module, code, location, side.name_of(shown), side.caller_of(stack))


def _module_of(side: RunSide, event: int) -> str:
    row = side.tables.module[event]
    if row != NONE:
        return side.tables.modules[row].path
    return ""


def _layer_of(place: RunPlace) -> str:
    found = re.search(r"(?:^|\.)(\d+)(?:\.|$)", place.module)
    if found:
        return f" of layer {found[1]}"
    if place.module:
        return f" of {place.module}"
    return ""


def _in_step(side: RunSide, event: int) -> bool:
    while event != NONE:
        if side.kind_of(event) == "step":
            return True
        event = side.tables.parent[event]
    return False


def _steps_in(side: RunSide) -> bool:
    return any(callee.kind == "step" for callee in side.tables.callees)


def _counts(thing: Thing) -> bool:
    return not thing.is_unknown and thing.count > 0


def _tells(side: RunSide, thing: Thing) -> bool:
    """Return whether finding a thing in both runs proves anything: not for few, constant or all
    equal numbers.
    """
    row = side.sketches.row.get(thing.value)
    if thing.count < FEW or thing.origin == CONSTANT or row is None:
        return False
    orders = side.sketches.orders[row]
    return bool(orders[5] != orders[6])


def _is_error(match: Match) -> bool:
    return match.how in ("close", "transposed", "order") and match.error == match.error


def _error(a: RunSide, mine: Thing, b: RunSide, theirs: Thing) -> float:
    """Return the smallest error over the layouts of two things that have the same shape."""
    best = float("nan")
    for value in mine.layouts:
        for other in theirs.layouts:
            first = a.sketches.row.get(value)
            second = b.sketches.row.get(other)
            if (
                first is None
                or second is None
                or a.sketches.sizes(value) != b.sketches.sizes(other)
            ):
                continue
            error = float(apart(a.sketches, first, b.sketches, np.array([second]))[0])
            if not best <= error:
                best = error
    return best


def _what_ran(tables: Tables) -> str:
    kinds: dict[str, int] = {}
    for each in tables.callee:
        kind = tables.callees[each].kind
        kinds[kind] = kinds.get(kind, 0) + 1
    counted = ", ".join(
        f"{number:,} {kind}s"
        for kind, number in sorted(kinds.items(), key=lambda each: -each[1])[:3]
    )
    return f"{counted or 'nothing'}, {len(tables.sketches):,} fingerprints"
