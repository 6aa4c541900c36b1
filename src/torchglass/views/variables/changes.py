"""Changes of variables as a trace tells them: what each held before and after, and in which call it happened."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.spelling import tensor_text
from torchglass.events.tables import form_sizes
from torchglass.events.types import Event, Location, Value
from torchglass.views.digest import ById, Digest, HasTables, Key, Recorded, call_numbers, digest_of, shape_key
from torchglass.views.levels import Levels
from torchglass.views.stacks import is_own
from torchglass.views.text.cells import assigned_to

NOTHING, ONE, TEXT = "nothing", "one", "text"
NOWHERE = Location("", 0, 0, 0, 0, "", "", "user")


class Side(NamedTuple):
    """What a variable held: nothing, one tensor or array, or anything else as text."""

    kind: str
    text: str = ""
    value: Value | None = None
    form: Hashable = ""
    """Equal for what may share a row: one number stands for another, a list for a longer one."""


UNBOUND = Side(NOTHING)
PAST = Side("text", "<not known>")
"""What it held before is not known."""
NUMBER = "number"
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|.""", re.DOTALL)
"""A string, or one character."""
_COUNTED = re.compile(r"<\w+ of [\d,]+>")
"""What is told of long containers: ``<list of 10,000>``."""


@dataclass(slots=True)
class Change:
    """One event of a variable."""

    id: int
    event: Event
    """One that is alike: all but its id, parent, times and values are its own."""
    how: str
    """``argument``, ``assigned``, ``deleted`` or ``changed`` (in place)."""
    old: Side
    new: Side
    call: Call
    parent: int

    @property
    def at(self) -> Location:
        return self.event.location or NOWHERE

    @property
    def key(self) -> tuple[int, str]:
        """One event may be assigned to several names."""
        return (self.id, self.event.name)


@dataclass(slots=True, eq=False)
class Call:
    """One call of a function of the program, as far as changes inside of it tell of it."""

    frame: int
    """Equal for calls of one function from one place, with the same callers."""
    at: Location
    """Where it was when it was first seen."""
    caller: Call | None
    called_at: Location | None
    """The place in its caller."""
    is_seen: bool = False
    """Whether a variable of its own changed, and not only one of a function that it called."""
    module: tuple[str, str] | None = None
    """Root and path of the module under way."""


@dataclass(slots=True)
class ChangesRead:
    """All changes of a trace in order, and what is needed to say where their values come from."""

    digest: Digest
    changes: list[Change] = field(default_factory=list[Change])
    levels: Levels | None = None
    is_guessed: bool = False
    """Whether no variables were followed, so that these are read from what calls were assigned to."""
    elsewhere: int = 0
    """Of these how many were in installed packages, which are left out."""


def read_changes(trace: Recorded) -> ChangesRead:
    """Read a trace once; only events of variables that hold tensors are all made."""
    digest = digest_of(trace)
    reading, calls = ChangesRead(digest), Calls()
    sides = {number: _sides(event) for number, event in enumerate(digest.samples) if event.kind == "variable"}
    own_values, call_number = values_in(trace), call_numbers(trace)
    for number, alike in enumerate(digest.alike):
        if alike not in sides:
            continue
        event, parent = digest.samples[alike], digest.parents[number]
        old, new, how = sides[alike]
        if old.value is not None or new.value is not None:
            inputs, outputs = own_values(number)
            old, new = _with_value(old, inputs), _with_value(new, outputs)
        within: Hashable = call_number(number)
        if within == -1:  # from before calls were numbered
            reading.levels = reading.levels or Levels(digest)
            within = ("in", reading.levels.call_of(number, parent))
        call = calls.call_of(event, within)
        reading.changes.append(Change(number, event, how, old, new, call, parent))
    return reading


Values = Callable[[int], tuple[tuple[Value, ...], tuple[Value, ...]]]


def values_in(trace: Recorded) -> Values:
    """A function that gives what an event took and gave."""
    if not isinstance(trace, HasTables):
        return lambda number: (trace.event(number).inputs, trace.event(number).outputs)
    tables = trace.tables
    roles = form_sizes(tables)

    def values(number: int) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        args, first = tables.args[number], tables.first_io[number]
        return tables.values_of(args, first), tables.values_of(tables.result[number], first + roles[args])

    return values


def _sides(event: Event) -> tuple[Side, Side, str]:
    return side_of(event.args, event.inputs), side_of(event.result, event.outputs), event.detail or "assigned"


def _with_value(side: Side, values: tuple[Value, ...]) -> Side:
    return side._replace(value=values[0]) if side.value is not None else side


def side_of(text: str, values: tuple[Value, ...]) -> Side:
    """One tensor or array by itself is told apart from one inside a list."""
    if len(values) == 1 and text in ("", tensor_text(values[0].dtype, values[0].shape, values[0].kind)):
        return Side(ONE, text, values[0], (values[0].kind, *shape_key(values[0])))
    return Side(TEXT, text, None, _form(text)) if text else UNBOUND


def _form(text: str) -> str:
    first = text[0]
    if first.isdecimal() or (first == "-" and text[1:2].isdecimal()):
        return NUMBER
    if first in "'\"[({":
        return first
    return text.partition(" of ")[0] if first == "<" and _COUNTED.fullmatch(text) else text


# ---------------------------------------------------------------- calls


class Calls:
    """Finds the call that an event belongs to: by its number, or where the trace has none by what it happened in."""

    def __init__(self) -> None:
        self._frames = _Frames()
        self._threads: dict[tuple[int, str], int] = {}
        self._known: dict[tuple[Hashable, int], Call] = {}
        """With the frame: from Python 3.12 on a comprehension is no call of its own, but told apart."""
        self._open: dict[tuple[int, int], Call] = {}
        self._callers: dict[tuple[int, int], tuple[int, Call]] = {}
        """The call of a frame, as long as no other call began or went on."""
        self._begun = 0

    def call_of(self, event: Event, within: Hashable) -> Call:
        """``within``: equal for all that happens in one call of a function."""
        thread = self._threads.setdefault((event.process, event.thread), len(self._threads))
        frames = self._frames.of(event.stack)
        frame, at = frames[-1]
        running = self._open.get((thread, frame))
        if running is not None and event.detail == "changed" and self._is_of_a_caller(within, frames):
            return running
        call = self._known.get((within, frame))
        if call is None:
            caller, called_at = self._caller(thread, frames) if len(frames) > 1 else (None, None)
            call = running
            if call is None or call.is_seen or call.caller is not caller:
                call = Call(frame, at, caller, called_at)
            # Else it was known so far only because functions that it called changed something.
            self._known[within, frame] = call
        if self._open.get((thread, frame)) is not call:  # it began, or a generator or coroutine goes on
            self._go_on(thread, frame, call)
        if not call.is_seen:
            call.is_seen = True
            call.module = None if event.module is None else (event.root or "", event.module)
        return call

    def _is_of_a_caller(self, within: Hashable, frames: list[tuple[int, Location]]) -> bool:
        """Whether what was changed in place is a variable of a call around: that is no other call of the function."""
        return any((within, frame) in self._known for frame, _ in frames[:-1])

    def _caller(self, thread: int, frames: list[tuple[int, Location]]) -> tuple[Call, Location]:
        """The call around the innermost one; those around it are walked only when another call began."""
        frame, at = frames[-2]
        known = self._callers.get((thread, frame))
        if known is not None and known[0] == self._begun:
            return known[1], at
        caller: Call | None = None
        called_at: Location | None = None
        for each, place in frames[:-1]:
            call = self._open.get((thread, each))
            if call is None or (call.caller is not caller and not call.is_seen):
                call = Call(each, place, caller, called_at)
                self._go_on(thread, each, call)
            caller, called_at = call, place
        assert caller is not None
        self._callers[thread, frame] = (self._begun, caller)
        return caller, at

    def _go_on(self, thread: int, frame: int, call: Call) -> None:
        """A call is what runs at a frame from here on."""
        self._begun += 1
        self._open[thread, frame] = call


class _Frames:
    """Numbers for the frames of stacks."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._place = ById[Location, int](self._number)
        self.of = ById(self._read)
        """The program's own frames, outermost first; at least one."""

    def _read(self, stack: tuple[Location, ...]) -> list[tuple[int, Location]]:
        frames: list[tuple[int, Location]] = []
        above = -1
        for at in stack:
            if at.origin == "user" or at is stack[-1]:
                key: Key = ("frame", above, at.file, at.function)
                frames.append((self._number(key), at))
            above = self._number((above, self._place(at)))
        return frames or [(self._number("nowhere"), NOWHERE)]

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


# ---------------------------------------------------------------- targets

# Variables for nothing: every event knows the names that it was assigned to, which is the life of most tensors.


def read_targets(trace: Recorded) -> ChangesRead:
    """The changes that the events of a trace tell of, in the files of the program itself."""
    reading, calls, own_values = ChangesRead(digest_of(trace)), Calls(), values_in(trace)
    digest = reading.digest
    reading.is_guessed, reading.levels = True, Levels(digest)
    named: dict[tuple[int, int], list[tuple[int, Event]]] = {}
    assigned = [bool(event.target) for event in digest.samples]
    for number, alike in enumerate(digest.alike):
        if not assigned[alike]:
            continue
        parent = digest.parents[number]
        key = (alike, digest.alike[parent] if parent >= 0 else -1)
        if key not in named:
            named[key] = _by_target(digest.samples[alike], digest.sample(parent) if parent >= 0 else None)
        if named[key] and not is_own(named[key][0][1].location or NOWHERE):
            reading.elsewhere += 1
            continue
        for at, event in named[key]:
            new = side_of("", (own_values(number)[1][at],)) if at >= 0 else side_of(event.result, ())
            call = calls.call_of(event, reading.levels.call_of(number, parent))
            reading.changes.append(Change(number, event, "assigned", PAST, new, call, parent))
    return reading


def _by_target(event: Event, around: Event | None) -> list[tuple[int, Event]]:
    """For each name that was assigned to which of the results it got (-1: more than one), and a change like it."""
    got = _what_each_got(event)
    code = f"{', '.join(assigned_to(event))} = {event.code}"
    if event.operator is not None and event.operator in event.code and event.operator.endswith("="):
        code = event.code
    module, root = (around.module, around.root) if around is not None else (None, None)
    event = event._replace(kind="variable", code=code, detail="assigned", module=module, root=root)
    inner = next((at for at in range(len(event.stack), 0, -1) if event.stack[at - 1].origin == "user"), 0)
    event = event._replace(stack=event.stack[:inner])  # where it is assigned, not where torch made it
    return [(place, event._replace(name=name, result=result)) for name, place, result in got]


Got = tuple[str, int, str]
"""A name, the place of its tensor among the results, and the text of what it is where that is -1."""


def _what_each_got(event: Event) -> list[Got]:
    targets, outputs, result = event.target, event.outputs, event.result
    whole = 0 if len(outputs) == 1 else -1
    if len(targets) == 1 and not (outputs or result not in ("", "None")):
        return []
    if len(targets) == 1:
        return [(targets[0], whole, result)]
    if any(name.startswith("*") for name in targets):
        return []
    if len(assigned_to(event)) == 1 and "," not in assigned_to(event)[0]:  # a = b = f(x): one result for both
        return [(name, whole, result) for name in targets]
    got = _unpacked(targets, result, "out", {value.role: at for at, value in enumerate(outputs)})
    if not got and len(outputs) == len(targets):
        got = [(name, at, result) for at, name in enumerate(targets)]
    return got


def _unpacked(targets: Sequence[str], result: str, role: str, places: dict[str, int]) -> list[Got]:
    """Also ``out, hidden = lstm(x)``, where the second is a tuple, and ``out, (h, c) = lstm(x)``; [] if unclear."""
    items = _items(result)
    items = items if len(items) == len(targets) else [""] * len(targets)
    got: list[Got] = []
    for at, (name, item) in enumerate(zip(targets, items, strict=True)):
        place = places.get(f"{role}[{at}]", -1)
        if place < 0 and name[:1] in ("(", "["):
            inner = _unpacked(_items(name), item, f"{role}[{at}]", places)
        else:
            inner = [(name, place, item)] if place >= 0 or item else []
        if not inner:
            return []
        got += inner
    return got


def _items(text: str) -> list[str]:
    """``(f32[5], (f32[1], f32[1]))`` → ``f32[5]`` and ``(f32[1], f32[1])``; nothing where that cannot be told."""
    if text[:1] not in ("(", "[") or "…" in text:
        return []
    items, depth = [""], 0
    for each in _TOKEN.findall(text[1:-1]):
        depth += (each in "([{") - (each in ")]}")
        if each == "," and depth == 0:
            items.append("")
        else:
            items[-1] += each
    return [item.strip() for item in items]
