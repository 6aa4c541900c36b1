"""Levels that no event tells of, read from the stacks: calls of the program's functions, loops and their rounds.

A frame whose instruction goes back, or comes again, while the call is the same has begun a new round of the
innermost loop that holds both places, unless one execution made both events (then a deeper frame goes on). What
cannot be told apart is one: two calls may look like one, a round may go unnoticed, and a count says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torchglass.events.types import Event, Location
from torchglass.source.loops import Loop, Place
from torchglass.source.rounds import calls_back, next_round
from torchglass.views.digest import Digest, call_numbers
from torchglass.views.stacks import Entry, RunningFrame, Stacks, is_constructor, is_own

CALL, LOOP, ROUND = "call", "loop", "round"
MARKS = "profiler::_record_function"
"""Ops by which torch tells its profiler where an optimizer begins and ends: before and behind what it does there."""

_Way = tuple[object, ...]
"""The place in a loop, and those in the functions called there, down to the call of a module."""
_Module = tuple[str | None, str | None]


@dataclass(slots=True, eq=False)
class Level:
    """A call, a loop, or one of its rounds."""

    kind: str
    parent: int
    """The span around it in the same event; -1: none."""
    owner: int
    """The event that it happened in; -1: none."""
    first: int
    """The first event in it."""
    at: Location | None = None
    """Where the call was written, or a place in the loop."""
    place: Place | None = None
    function: str = ""
    """Of a call: the qualified name of what was called."""
    is_own: bool = False
    """Of a call: whether what was called is in a file of the program itself."""
    is_called_back: bool = False
    """Of a call: whether torch or the standard library made it, for what is written at that place."""
    loop: Loop | None = None
    number: int = 0
    """Of a round: which one, from 0."""
    rounds: _Rounds | None = None
    """Of a loop."""
    around: Level | None = None
    """Of a loop: the one just around it, in the same call or in those that led to it."""
    frame: int = 0
    """Its frame's place in the stack of the events in it."""

    @property
    def is_laid_over(self) -> bool | None:
        """Of a loop whether its rounds may be laid over each other; False: they are layers. None: no loop."""
        return None if self.rounds is None else not self.rounds.over_layers


@dataclass(slots=True, eq=False)
class _Rounds:
    """What is known of the rounds of a loop."""

    begun: int = 0
    with_body: int = 0
    """Rounds in which something happened behind the head."""
    in_body: bool = False
    """Whether that holds for the last one."""
    failed: bool = False
    """Whether an error left the last one."""
    seen: dict[Place, tuple[int, int]] = field(default_factory=dict[Place, tuple[int, int]])
    """Places that every round passes: how often each was seen, and in which round last."""
    layers: dict[_Way, _Module] = field(default_factory=dict["_Way", "_Module"])
    """The modules called in it, by the places on the way there."""
    over_layers: bool = False
    """Whether one way led to several modules: then each round is a layer, and like no other."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many rounds there were, or at least were."""

    number: int
    exact: bool


def count_of(span: Level) -> Count:
    """A count is exact only where something happened in every round at a place that every round passes.

    A ``next`` or a ``while`` test after which nothing happened in the body may have ended the loop: it is no round.
    """
    rounds, loop = span.rounds, span.loop
    assert rounds is not None
    assert loop is not None
    number = rounds.with_body
    for place, (times, last) in rounds.seen.items():
        if not place.is_head:
            if times == number or (rounds.failed and times == number - 1 == last + 1):
                return Count(number, True)
        elif times == rounds.begun and number:
            ended = not rounds.in_body and not loop.breaks and loop.text.startswith("while")
            if rounds.begun == number + ended:
                return Count(number, True)
    return Count(number, False)


# ---------------------------------------------------------------- frames


@dataclass(slots=True, eq=False)
class _State:
    """What was last under way in an event."""

    frames: list[RunningFrame] = field(default_factory=list[RunningFrame])
    direct: bool = False
    changed: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """The variables, with the calls they are in, that are known to have changed where it is now."""


class Levels:
    """The innermost span of each event, and all spans."""

    def __init__(self, digest: Digest) -> None:
        self.digest = digest
        self.spans: list[Level] = []
        self.span_of: list[int] = []
        """By event; -1: it is directly in the event around it."""
        self._stacks = Stacks(digest.trace.sources)
        self._call_number = call_numbers(digest.trace)
        self._under_way: dict[str, list[tuple[int, _State]]] = {}
        self._read()

    def _read(self) -> None:
        digest, samples = self.digest, self.digest.samples
        for number, (alike, parent) in enumerate(zip(digest.alike, digest.parents, strict=True)):
            event = samples[alike]
            state = self._state(event.thread, parent)
            if event.name.startswith(MARKS):
                # It stands at the place of the call that it is part of, before and behind that: no round by itself.
                self.span_of.append(state.frames[-1].span if state.frames else -1)
                continue
            around = samples[digest.alike[parent]].stack if parent >= 0 else ()
            entries = self._stacks.inside(event, around)
            self.span_of.append(self._add(state, entries, event, number, parent) if entries else -1)

    def call_of(self, event: int, parent: int) -> int:
        """A number for the call that an event is in: that of a function where it is nearer than the event around."""
        number = self.span_of[event]
        while number >= 0 and self.spans[number].kind != CALL:
            number = self.spans[number].parent
        return parent if number < 0 else -2 - number

    def by_frame(self, event: int, called_back: bool = False) -> dict[int, list[int]]:
        """The loops and rounds around an event, outermost first, by the frame they are in; and calls by torch."""
        found: dict[int, list[int]] = {}
        while event >= 0:
            number = self.span_of[event]
            while number >= 0:
                span = self.spans[number]
                if span.kind != CALL or (called_back and span.is_called_back):
                    found.setdefault(span.frame, []).insert(0, number)
                number = span.parent
            event = self.digest.parents[event]
        return found

    def _state(self, thread: str, parent: int) -> _State:
        """Events that end are left behind: their children come before the next event of the one around them."""
        under_way = self._under_way.setdefault(thread, [])
        while under_way and under_way[-1][0] > parent:
            under_way.pop()
        if not under_way or under_way[-1][0] != parent:
            under_way.append((parent, _State()))
        return under_way[-1][1]

    # ------------------------------------------------------------ from one event to the next

    def _add(self, state: _State, entries: list[Entry], event: Event, number: int, owner: int) -> int:
        """Go on to the frames of an event; its innermost span."""
        frames = state.frames
        same = _common(frames, entries)
        is_within = same == len(entries) - 1 < len(frames)
        if event.kind == "variable" and is_within and frames[same].is_told_late(entries[same]):
            return frames[same].span
        last, is_here = entries[-1], same == len(frames) == len(entries)
        is_made = event.direct and not (event.kind == "variable" and self._is_effect(state, event, number, is_here))
        if is_here:
            if is_made:
                self._again(frames, entries, same - 1, number, owner)
        elif same == len(entries):
            place = frames[same - 1].place
            if not event.direct and place is not None and calls_back(place):
                return frames[same - 1].span  # as ``sum`` does between two steps of the generator that it goes through
            if is_made and not (event.kind == "call" and frames[same].entry.is_start):  # its arguments were told of
                self._again(frames, entries, same - 1, number, owner)
            del frames[same:]
        elif same == len(frames):
            if state.direct and not entries[same].is_opaque and frames:
                self._again(frames, entries, same - 1, number, owner)
        else:
            self._move(frames, entries, same, number, owner)
        for entry in entries[len(frames) :]:
            self._push(frames, entry, number, owner)
        state.direct, state.changed = event.direct, state.changed if event.kind == "variable" else set()
        if event.kind == "module":
            self._note_layer(frames, event)
        if event.direct and last.place is not None:
            self._make_certain(frames, len(frames) - 1)
        if event.error is not None or event.end_ns is None:
            self._fail(frames)
        return frames[-1].span

    def _is_effect(self, state: _State, event: Event, number: int, is_here: bool) -> bool:
        """Whether a variable changed by what was called last; the same one once more tells of another call."""
        changed = (event.name, self._call_number(number))
        is_again = is_here and changed in state.changed
        state.changed = {changed, *(state.changed if is_here and not is_again else ())}
        return not is_again

    def _move(self, frames: list[RunningFrame], entries: list[Entry], at: int, number: int, owner: int) -> None:
        """The first frame that is elsewhere: further on, in a new round, or in another call."""
        frame, entry = frames[at], entries[at]
        if frame.entry.function != entry.function:
            if not frame.entry.is_opaque and not entry.is_opaque:
                self._again(frames, entries, at - 1, number, owner)
            del frames[at:]
            return
        if frame.entry.is_start and entry.place is not None:
            del frames[at + 1 :]
            self._go_on(frame, entry, None, number, owner)
            return
        if entry.is_start:
            self._again(frames, entries, at - 1, number, owner)
        if frame.place is None or entry.place is None:
            del frames[at:]
            return
        found = next_round(frame.place, entry.place)
        if found is False:
            self._again(frames, entries, at - 1, number, owner)
            del frames[at:]
            return
        del frames[at + 1 :]
        self._go_on(frame, entry, None if found is True else found, number, owner)

    def _again(self, frames: list[RunningFrame], entries: list[Entry], at: int, number: int, owner: int) -> None:
        """An instruction was executed once more: a new round of the innermost loop around it, here or further out."""
        innermost = len(frames) - 1
        for index in range(at, -1, -1):
            frame = frames[index]
            if frame.entry.is_opaque or frame.place is None:
                break
            if index < innermost and calls_back(frame.place):
                break  # one execution of it may have made both calls
            found = next_round(frame.place, frame.place)
            if isinstance(found, Loop):
                del frames[index + 1 :]
                self._go_on(frame, entries[index], found, number, owner)
                return
        del frames[at + 1 :]

    def _go_on(self, frame: RunningFrame, entry: Entry, again: Loop | None, number: int, owner: int) -> None:
        """Be at another place of the same call; in a new round of the loop ``again``."""
        assert entry.place is not None
        frame.place, frame.entry = entry.place, entry
        kept = 0
        for (loop, _, _), other in zip(frame.loops, entry.place.loops, strict=False):
            if loop is not other:
                break
            kept += 1
            if loop is again:
                break
        if again is not None:
            frame.told.clear()
            del frame.loops[kept:]
            loop, span, _ = frame.loops.pop()
            frame.loops.append((loop, span, self._begin_round(span, number, owner)))
        self._enter_loops(frame, kept, number, owner)

    def _enter_loops(self, frame: RunningFrame, kept: int, number: int, owner: int) -> None:
        """Leave the loops that do not hold the place, enter those that do, and note what happened in them."""
        place = frame.place
        del frame.loops[kept:]
        if place is None:
            return
        for loop in place.loops[kept:]:
            loop_span = Level(LOOP, frame.span, owner, number, frame.entry.at, place, loop=loop, rounds=_Rounds())
            loop_span.around = self._loop_around(frame, number)
            span = self._new(loop_span, frame.entry.index)
            frame.loops.append((loop, span, self._begin_round(span, number, owner)))
        innermost = len(frame.loops) - 1
        for index, (_, span, _) in enumerate(frame.loops):
            rounds = self._rounds(span)
            if not rounds.in_body and not (place.is_head and index == innermost):
                rounds.in_body = True
                rounds.with_body += 1

    def _loop_around(self, frame: RunningFrame, number: int) -> Level | None:
        """The innermost loop that a frame is in: its own, or of the program's where nothing tells its calls apart."""
        at = frame.span
        while at >= 0 and self.spans[at].kind != LOOP:
            at = self.spans[at].parent
        found = self.spans[at] if at >= 0 else None
        if found is None or found.at is None or frame.loops:
            return found
        return found if found.first == number and is_own(found.at) and is_own(frame.entry.at) else None

    def _rounds(self, loop: int) -> _Rounds:
        rounds = self.spans[loop].rounds
        assert rounds is not None
        return rounds

    def _begin_round(self, span: int, number: int, owner: int) -> int:
        rounds = self._rounds(span)
        rounds.begun += 1
        rounds.in_body = rounds.failed = False
        return self._new(Level(ROUND, span, owner, number, number=rounds.begun - 1), self.spans[span].frame)

    def _push(self, frames: list[RunningFrame], entry: Entry, number: int, owner: int) -> None:
        around = frames[-1].span if frames else -1
        call = -1
        is_called_back = entry.caller != len(frames) - 1
        caller = frames[entry.caller] if entry.caller >= 0 and not entry.is_opaque else None
        if caller is not None and (is_called_back or _is_level(caller.entry.at, entry.at)):
            parent = self._recursion(frames, entry, caller.place)
            span = Level(CALL, around if parent is None else parent, owner, number, caller.entry.at, caller.place)
            span.function, span.is_called_back, span.is_own = entry.at.function, is_called_back, is_own(entry.at)
            around = call = self._new(span, entry.index)
        frame = RunningFrame(entry, entry.place, around, call)
        frames.append(frame)
        self._enter_loops(frame, 0, number, owner)

    def _recursion(self, frames: list[RunningFrame], entry: Entry, caller: Place | None) -> int | None:
        """Where a function calls itself from one place again and again, all these calls are beside each other."""
        for frame in reversed(frames):
            span = self.spans[frame.call] if frame.call >= 0 else None
            is_same = span is not None and span.place is caller and frame.entry.function == entry.function
            if span is not None and is_same and caller is not None:
                return span.parent
        return None

    def _make_certain(self, frames: list[RunningFrame], at: int) -> None:
        """Something happened at a place: if every round, or every call, passes it, these can be counted."""
        while at >= 0:
            frame = frames[at]
            place = frame.place
            if place is None or not place.always:
                return
            if frame.loops:
                rounds = self._rounds(frame.loops[-1][1])
                times, last = rounds.seen.get(place, (0, -1))
                if last < rounds.begun - 1:
                    rounds.seen[place] = (times + 1, rounds.begun - 1)
                return
            if frame.is_certain:
                return
            frame.is_certain = True
            if frame.entry.caller != at - 1:
                return
            at -= 1

    def _note_layer(self, frames: list[RunningFrame], event: Event) -> None:
        """A module was called: in the innermost loop around, by another name than in the rounds before?

        A function that is called in the loop may call several modules, the same in each round.
        """
        at = next((at for at in range(len(frames) - 1, -1, -1) if frames[at].loops), -1)
        if at >= 0 and frames[at].place is not None:
            rounds = self._rounds(frames[at].loops[-1][1])
            way = tuple([each.place or each.entry.function for each in frames[at:]])
            module = (event.root, event.module)
            if rounds.layers.setdefault(way, module) != module:
                rounds.over_layers = True

    def _fail(self, frames: list[RunningFrame]) -> None:
        for frame in frames:
            for _, span, _ in frame.loops:
                self._rounds(span).failed = True

    def _new(self, span: Level, frame: int) -> int:
        span.frame = frame
        self.spans.append(span)
        return len(self.spans) - 1


def _is_level(caller: Location, at: Location) -> bool:
    """Whether a call is a level of its own: of or by the program's own functions, and what makes objects.

    What installed packages call among themselves is theirs.
    """
    return is_own(at) or is_own(caller) or is_constructor(at.function)


def _common(frames: list[RunningFrame], entries: list[Entry]) -> int:
    for at, (frame, entry) in enumerate(zip(frames, entries, strict=False)):
        if frame.entry is not entry and (frame.entry.function != entry.function or frame.place is not entry.place):
            return at
    return min(len(frames), len(entries))
