"""Finds likely reasons why two regions differ: settings, constants, parameters, or numbers
reordered in only one run.

Everywhere in this file, ``a`` and ``b`` are the two runs, and ``one`` and ``other`` are the halves
of the region in A and in B.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from torchglass.answers.diff.matching import FEW, Matching
from torchglass.answers.diff.names import FILLED_WITH, FUSED, LAYOUT, MOVES, PARTS
from torchglass.answers.diff.regions import Difference, Half
from torchglass.answers.diff.side import RunSide, Thing
from torchglass.answers.diff.sketches import SAME, apart, orders_apart
from torchglass.events.tables import NONE
from torchglass.events.uninitialised import plain_name

# Matches a number of the program's text: not a part of a name, and not the whole index in ``x[0]``.
NUMBER = re.compile(r"(?<![\w.\[])-?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|\d+|inf|nan)(?![\w.\]])")
# Matches one ``name=value`` in the text that a module prints of itself, such as ``eps=1e-05``.
SETTING = re.compile(r"(\w+)=('[^']*'|\([^()]*\)|\[[^\[\]]*\]|[^,()\[\]\s]+)")
NOT_SETTINGS = frozenset(
    "dtype device layout pin_memory memory_format requires_grad generator out non_blocking copy input self other "
    "weight bias size_average reduce _stacklevel tensors params grads retain_graph create_graph inputs "
    "grad_tensors".split()
)
"""Arguments that do not decide the numbers, or that are tensors."""
TELLING = frozenset(
    "approximate is_causal scale mode align_corners p training alpha max_norm nesterov".split()
)
"""Settings worth reporting even if only one run has the operation. Others would be noise there."""
MOST = 6
"""How many settings, and how many constants of each run, are reported, so that a report stays readable."""


@dataclass(slots=True)
class Suspect:
    """One reason why a region may differ."""

    kind: str
    """The kind of reason: ``setting``, ``constant``, ``parameter``, ``moved``, ``exchanged``,
    ``random`` or ``fused``.
    """
    name: str
    """What differs, such as the name of a setting or of a parameter."""
    a: str
    """How it is in A, as text."""
    b: str
    """How it is in B, as text."""
    events_a: tuple[int, ...] = ()
    """The events of A that show it."""
    events_b: tuple[int, ...] = ()
    """The events of B that show it."""

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "kind": self.kind, "name": self.name, "a": self.a, "b": self.b, "events_a": list(self.events_a),
            "events_b": list(self.events_b),
        }  # fmt: skip


@dataclass(slots=True)
class SettingValue:
    """One argument of an operation that is no tensor, or a setting of a module."""

    text: str
    event: int
    """The event that took it."""
    is_lone: bool = True
    """Whether the operation occurs only once in the region."""


Settings = dict[str, dict[str, SettingValue]]
"""Keyed by operation or module, then by the name or the position of the argument."""


@dataclass(slots=True)
class Moves:
    """A thing that both runs have, but whose elements each run uses in another order."""

    a: int
    """The thing in A."""
    b: int
    """The thing in B."""
    events_a: list[int] = field(default_factory=list[int])
    """The events of A that only rearranged it, in order."""
    events_b: list[int] = field(default_factory=list[int])
    """The events of B that only rearranged it, in order."""


def suspects(a: RunSide, b: RunSide, difference: Difference, found: Matching) -> list[Suspect]:
    """Return the reasons that a region shows, the most informative first.

    Constants are reported only if no setting, parameter or order of elements explains the
    difference.
    """
    one, other = difference.a, difference.b
    made = [*_parameters(a, b, one, other, found)]
    made += _moved(a, b, one, other, found)
    made += _exchanged(a, b, one, other, found)
    made += _settings(a, b, one, other)
    made += _random(a, b, one, other)
    if not any(each.kind in ("setting", "parameter", "moved") for each in made):
        made += _constants(a, b, one, other)
    made += _fused(a, b, one, other)
    return made


# ---------------------------------------------------------------- parameters


def _parameters(a: RunSide, b: RunSide, one: Half, other: Half, found: Matching) -> list[Suspect]:
    """Return the leaves that only one of the halves uses, paired where two may stand for each
    other.

    Leaves without a name are left out if others have one. Otherwise at most two are returned.
    """
    mine = [a.things[each] for each in one.leaves]
    theirs = [b.things[each] for each in other.leaves]
    made: list[Suspect] = []
    paired: set[int] = set()
    for thing in mine:
        like = next(
            (
                each
                for each in theirs
                if each.number not in paired and _may_be_pair(a, b, thing, each)
            ),
            None,
        )
        if like is not None:
            paired.add(like.number)
            made.append(
                Suspect(
                    "parameter",
                    leaf_name(a, thing),
                    leaf_name(a, thing),
                    _against(a, b, thing, like),
                )
            )
        else:
            name = leaf_name(a, thing)
            made.append(Suspect("parameter", name, name, _instead(a, b, one, other, found)))
    for thing in theirs:
        if thing.number not in paired:
            made.append(Suspect("parameter", leaf_name(b, thing), "not in A", leaf_name(b, thing)))
    return [each for each in made if not each.name.startswith("tensor")] or made[:2]


def _may_be_pair(a: RunSide, b: RunSide, thing: Thing, other: Thing) -> bool:
    """Return whether two leaves have the same shape, perhaps transposed."""
    mine = sorted(a.sketches.sizes(thing.value))
    theirs = sorted(b.sketches.sizes(other.value))
    return thing.count == other.count and mine == theirs


def _against(a: RunSide, b: RunSide, thing: Thing, other: Thing) -> str:
    """Return the name of B's leaf and how far A's leaf is from it, such as ``0.w ≠ 0.31``."""
    name = leaf_name(b, other)
    first = a.sketches.row.get(thing.value)
    second = b.sketches.row.get(other.value)
    if first is None or second is None:
        return name
    if orders_apart(a.sketches.orders[first], b.sketches.orders[second]) < 10 * SAME:
        return f"{name}: the same numbers in another order"
    error = float(apart(a.sketches, first, b.sketches, np.array([second]))[0])
    sizes = a.sketches.sizes(thing.value)
    if len(sizes) > 1:
        turned = float(apart(a.sketches, first, b.sketches, np.array([second]), len(sizes))[0])
        error = min(error, turned)
    return f"{name} ≠ {error:.2g}"


def _instead(a: RunSide, b: RunSide, one: Half, other: Half, found: Matching) -> str:
    """Return what B uses in place of a parameter that it lacks. Often it is the parameter of
    another layer.
    """
    taken_a = {found.of_a[each].b for each in one.inputs if each in found.of_a}
    strangers = [
        b.things[each] for each in other.inputs if each not in taken_a and b.things[each].is_leaf
    ]
    for thing in strangers:
        match = found.of_b.get(thing.number)
        if match is not None and b.is_parameter(thing) | (thing.count >= FEW):
            return f"not in B, which takes {leaf_name(b, thing)}: that is A's {leaf_name(a, a.things[match.a])}"
    return "not in B"


def leaf_name(side: RunSide, thing: Thing) -> str:
    """Return the name of a leaf: the name of a parameter, the program's expression, or ``tensor
    N``.
    """
    storage = side.tables.value_storage[thing.value]
    if storage in side.parameters:
        return side.parameters[storage]
    for number in thing.users:
        user = side.things[number]
        if user.is_leaf:
            continue
        written = operand_text(side, user, thing.number)
        if written:
            return written
    return f"tensor {thing.value}"


def operand_text(side: RunSide, user: Thing, taken: int) -> str:
    """Return the source text of an argument of an event, or of the function around it. ``""`` if
    there is none.
    """
    event = user.maker
    tables = side.tables
    while event != NONE:
        texts = tables.operand_texts[tables.operands[event]]
        values = side.takes(event)
        for value, text in zip(values, texts, strict=False):
            if side.of_value.get(value) == taken and text and not text.startswith("("):
                return text
        event = tables.parent[event]
        if event != NONE and side.kind_of(event) not in ("function", "op"):
            return ""
    return ""


# ---------------------------------------------------------------- moved


def _moved(a: RunSide, b: RunSide, one: Half, other: Half, found: Matching) -> list[Suspect]:
    """Return a suspect for each thing whose elements the runs use in another order."""
    made: list[Suspect] = []
    for moves in moves_between(a, b, one, other, found):
        thing = a.things[moves.a]
        name = ""
        if thing.is_leaf:
            name = leaf_name(a, thing)
        if not moves.events_a and not moves.events_b:
            continue
        made.append(
            Suspect("moved", name, _steps(a, moves.events_a), _steps(b, moves.events_b), tuple(moves.events_a),
                    tuple(moves.events_b))
        )  # fmt: skip
    return made


def moves_between(a: RunSide, b: RunSide, one: Half, other: Half, found: Matching) -> list[Moves]:
    """Return the things that both halves use with the same shape, but with their elements in
    another order.

    An example is ``x.reshape(b, h, t)`` in place of ``x.transpose(1, 2)``.
    """
    made: list[Moves] = []
    used_b = _used(b, other)
    for number, values in _used(a, one).items():
        match = found.of_a.get(number)
        if match is None or match.b not in used_b:
            continue
        pairs = [(mine, theirs) for mine in values for theirs in used_b[match.b]]
        same_shape = [
            each for each in pairs if _plain_shape(a, each[0]) == _plain_shape(b, each[1])
        ]
        if not same_shape or any(_is_flat_equal(a, b, *each, match.tolerance) for each in pairs):
            continue
        mine, theirs = same_shape[0]
        made.append(
            Moves(
                number, match.b, steps_between(a, number, mine), steps_between(b, match.b, theirs)
            )
        )
    return made


def _used(side: RunSide, half: Half) -> dict[int, list[int]]:
    """Return for each input of a half the values, and so the layouts, in which it is used."""
    found: dict[int, list[int]] = {}
    numbers = [*half.things, *([half.after] if half.after != -1 else [])]
    for number in numbers:
        thing = side.things[number]
        for each, value in zip(thing.inputs, thing.taken, strict=True):
            found.setdefault(each, []).append(value)
    if not numbers and half.output != -1:
        found[half.output] = [side.last_value[half.output]]
    return found


def _plain_shape(side: RunSide, value: int) -> tuple[int, ...]:
    """Return the shape of a value without axes of size one."""
    return side.sketches.sizes(value)


def _is_flat_equal(a: RunSide, b: RunSide, mine: int, theirs: int, tolerance: float) -> bool:
    """Return whether two values agree element by element in flat order. True if one was not measured."""
    first = a.sketches.row.get(mine)
    second = b.sketches.row.get(theirs)
    if first is None or second is None:
        return True
    return float(apart(a.sketches, first, b.sketches, np.array([second]))[0]) <= max(
        4 * tolerance, 1e-6
    )


def steps_between(side: RunSide, thing: int, value: int) -> list[int]:
    """Return the events that led from the first value of a thing to the given one, in order.

    They only rearranged its numbers. There are at most 20, in case of long chains of views.
    """
    tables = side.tables
    events: list[int] = []
    first = side.things[thing].value
    while value != first and len(events) < 20:
        event = tables.value_producer[value]
        if event == NONE:
            break
        events.append(event)
        before = [
            each for each in side.takes(event) if side.of_value.get(each) == thing and each < value
        ]
        if not before:
            break
        value = before[0]
    return events[::-1]


def rearranging(side: RunSide, half: Half) -> list[int]:
    """Return the events that put the numbers of a half's inputs in another order before they are used."""
    events: list[int] = []
    for thing, values in _used(side, half).items():
        for value in values:
            events += [
                each for each in steps_between(side, thing, value) if side.name_of(each) in MOVES
            ]
    return events


def _steps(side: RunSide, events: list[int]) -> str:
    """Return events as text, such as ``transpose → reshape``, without those that keep the order."""
    names = [side.name_of(each) for each in events]
    names = [name for name in names if name not in ("_unsafe_view", "clone", "detach", "alias")]
    return " → ".join(names) or "as it is"


def _exchanged(a: RunSide, b: RunSide, one: Half, other: Half, found: Matching) -> list[Suspect]:
    """Return the first operation that has the same inputs in another order, as in ``q - k`` and ``k
    - q``.

    Sums and products are left out, because the order does not matter there.
    """
    for first in one.first[:3]:
        thing = a.things[first]
        for second in other.first[:3]:
            like = b.things[second]
            if like.op != thing.op or len(thing.inputs) != len(like.inputs):
                continue
            partners = [found.of_a[each].b if each in found.of_a else -1 for each in thing.inputs]
            if (
                sorted(partners) == sorted(like.inputs)
                and partners != list(like.inputs)
                and len(set(partners)) > 1
            ):
                if thing.op in ("add", "mul", "add_", "mul_"):
                    continue
                names_a = ", ".join(thing_name(a, a.things[each]) for each in thing.inputs)
                names_b = ", ".join(thing_name(b, b.things[each]) for each in like.inputs)
                makers_a = tuple(
                    a.things[each].maker for each in thing.inputs if not a.things[each].is_leaf
                )
                makers_b = tuple(
                    b.things[each].maker for each in like.inputs if not b.things[each].is_leaf
                )
                return [Suspect("exchanged", thing.op, names_a, names_b, makers_a, makers_b)]
    return []


def thing_name(side: RunSide, thing: Thing) -> str:
    """Return the name of a thing in the program: a parameter, the variable it was assigned to, or
    its expression.
    """
    if thing.is_leaf:
        return leaf_name(side, thing)
    event = shown_event(side, thing.maker)
    stack = side.tables.stack[event]
    user = NONE
    if stack != NONE:
        user = side.tables.stack_user[stack]
    if user == NONE:
        return thing.op
    site = side.tables.sites[user]
    if site.target and len(site.target) == 1 and side.tables.direct[event]:
        return site.target[0]
    if len(site.target) > thing.output and side.tables.direct[event]:
        return site.target[thing.output]
    return site.code or thing.op


def shown_event(side: RunSide, event: int) -> int:
    """Return the outermost function event of the same source line around an event, which has the
    expression.
    """
    tables = side.tables
    parent = tables.parent[event]
    while parent != NONE and side.kind_of(parent) == "function":
        if plain_name(tables.callees[tables.callee[parent]].name) in ("backward", "grad"):
            break
        if side.kind_of(event) != "op" and _site(side, event) != _site(side, parent):
            break
        event = parent
        parent = tables.parent[parent]
    return event


def _site(side: RunSide, event: int) -> int:
    stack = side.tables.stack[event]
    if stack != NONE:
        return side.tables.stack_user[stack]
    return NONE


def module_output(side: RunSide, thing: Thing) -> str:
    """Return the path of the outermost module that returned a thing, or ``""``."""
    event = thing.maker
    found = ""
    while event != NONE:
        if side.kind_of(event) == "module":
            if not any(side.of_value.get(each) == thing.number for each in side.gives(event)):
                break
            found = found or side.tables.modules[side.tables.module[event]].path
        event = side.tables.parent[event]
    return found


# ---------------------------------------------------------------- settings


def _settings(a: RunSide, b: RunSide, one: Half, other: Half) -> list[Suspect]:
    """Return the arguments of the same operations, and the settings of modules, that differ.

    Positional arguments are reported only if no named one differs, and only of an operation that each
    run has once: otherwise it is not clear which of them belong together.
    """
    mine = _arguments(a, one)
    theirs = _arguments(b, other)
    made: list[Suspect] = []
    seen: set[tuple[str, str, str]] = set()
    for op, settings in mine.items():
        for name, argument in settings.items():
            known = theirs.get(op, {}).get(name)
            if known is None or _equal_texts(argument.text, known.text) or name in NOT_SETTINGS:
                continue
            if name.isdecimal() and not (_is_telling(op) and argument.is_lone and known.is_lone):
                continue
            key = name, argument.text, known.text
            if key not in seen:
                seen.add(key)
                made.append(
                    Suspect(
                        "setting",
                        name,
                        argument.text,
                        known.text,
                        (argument.event,),
                        (known.event,),
                    )
                )
    named = [each for each in made if not each.name.isdecimal()]
    return (named or made or _settings_of_one(mine, theirs))[:MOST]


def _is_telling(op: str) -> bool:
    """Return whether the positional arguments of an operation are more than sizes and indices."""
    return op not in LAYOUT and op not in PARTS and op not in FILLED_WITH


def _settings_of_one(mine: Settings, theirs: Settings) -> list[Suspect]:
    """Return informative settings of operations that only one run has, unless they have the usual
    default.
    """
    made: list[Suspect] = []
    for op in sorted(mine.keys() ^ theirs.keys()):
        for name, argument in mine.get(op, theirs.get(op, {})).items():
            value = argument.text
            is_usual = value in ("None", "False", "0", "0.0", "-1")
            if name in NOT_SETTINGS or is_usual or name.isdecimal():
                continue
            if op in mine:
                texts = (f"{op}({name}={value})", "–")
            else:
                texts = ("–", f"{op}({name}={value})")
            if name in TELLING and not op.startswith("_"):
                made.append(Suspect("setting", name, *texts))
    return made


def _arguments(side: RunSide, half: Half) -> Settings:
    """Return for each operation and module of a half its arguments that are not tensors, by name or
    by position.
    """
    found: Settings = {}
    makers: dict[str, set[int]] = {}
    numbers = [*half.things, *([half.after] if half.after != -1 and not half.things else [])]
    for number in numbers:
        maker = side.things[number].maker
        event = maker
        while event != NONE and side.kind_of(event) in ("op", "function"):
            name = side.name_of(event)
            if name in ("backward", "grad"):
                break
            makers.setdefault(name, set()).add(event)
            known = found.setdefault(name, {})
            for key, value in side.arguments(event).items():
                known.setdefault(key, SettingValue(value, event))
            event = side.tables.parent[event]
        if event != NONE and side.kind_of(event) == "module":
            row = side.tables.modules[side.tables.module[event]]
            for key, value in SETTING.findall(row.detail):
                found.setdefault(row.name, {}).setdefault(key, SettingValue(value, maker))
    for name, events in makers.items():
        for argument in found[name].values():
            argument.is_lone = len(events) == 1
    return found


def _equal_texts(one: str, other: str) -> bool:
    """Return whether two texts are equal, or are numbers that are equal up to rounding: ``1e-5`` and ``0.00001``."""
    if one == other:
        return True
    try:
        first = float(one)
        second = float(other)
    except ValueError:
        return False
    return abs(first - second) <= 1e-9 * max(abs(first), abs(second))


# ---------------------------------------------------------------- constants


def _constants(a: RunSide, b: RunSide, one: Half, other: Half) -> list[Suspect]:
    """Return the numbers that appear as arguments in only one of the halves."""
    mine = _numbers(a, one)
    theirs = _numbers(b, other)
    only_a = [each for each in mine if not any(_equal_texts(each, known) for known in theirs)]
    only_b = [each for each in theirs if not any(_equal_texts(each, known) for known in mine)]
    if not only_a and not only_b:
        return []
    return [
        Suspect("constant", "", ", ".join(only_a[:MOST]) or "–", ", ".join(only_b[:MOST]) or "–")
    ]


def _numbers(side: RunSide, half: Half) -> list[str]:
    """Return the numbers among the arguments of a half, without axes, sizes and trivial ones (0, 1, -1)."""
    found: dict[str, None] = {}
    for number in half.things:
        event = side.things[number].maker
        if side.name_of(event) in (
            "slice",
            "select",
            "view",
            "transpose",
            "expand",
            "split",
            "cat",
            "sum",
            "mean",
        ):
            continue
        for value in side.arguments(event).values():
            if NUMBER.fullmatch(value) and value not in ("0", "1", "-1"):
                found.setdefault(value)
    return list(found)


def _random(a: RunSide, b: RunSide, one: Half, other: Half) -> list[Suspect]:
    """Return a suspect if one of the halves draws random numbers."""
    mine = [a.things[each] for each in one.things if a.things[each].is_random]
    theirs = [b.things[each] for each in other.things if b.things[each].is_random]
    if not mine and not theirs:
        return []
    name_a = "draws none"
    if mine:
        name_a = mine[0].op
    name_b = "draws none"
    if theirs:
        name_b = theirs[0].op
    return [Suspect("random", "random numbers", name_a, name_b)]


def _fused(a: RunSide, b: RunSide, one: Half, other: Half) -> list[Suspect]:
    """Return a suspect for each half that has a fused operation: what happens inside it was not
    recorded.
    """
    made: list[Suspect] = []
    for side, half, label in ((a, one, "A"), (b, other, "B")):
        name = next(
            (side.things[each].op for each in half.things if side.things[each].op in FUSED), ""
        )
        if name:
            if label == "A":
                texts = (name, "")
            else:
                texts = ("", name)
            made.append(Suspect("fused", name, *texts))
    return made
