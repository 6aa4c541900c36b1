"""Builds the program tree: finds the calls, loops and iterations that no event reports by reading the recorded stacks.

The stack of each event is compared with that of the event before it, frame by frame:

1. A frame that is at an earlier instruction than before, or at the same one again, has begun a new iteration of the
   innermost loop around both instructions.
2. It has not if one execution of that instruction made both events: then a deeper frame is at another instruction.
3. A frame of another function is another call.

For example, these four events, with their stacks, come from one call of ``forward`` and two iterations::

    for x in data:          # line 1        event 0   1:2
        y = forward(x)      # line 2        event 1   1:2, 5
        y.relu()            # line 3        event 2   1:3
    def forward(x):                         event 3   1:2      line 2 after line 3: the second iteration
        return x.exp()      # line 5

4. The recorder has noticed that the names in the head of an outer loop changed (``capture/engine/rounds.py``). That is
   a new iteration of it, also if nothing was recorded between it and the inner loop.

If it is not certain, nothing new begins: two calls may be taken for one, and an iteration may be missed. The count of
such a loop is an upper or a lower bound (``Count.at_most``, ``Count.at_least``).

Changes of followed variables carry the number that the recorder gave to their call. A new number is a new call. A
number that was there before says nothing, because the call may be of a coroutine that was resumed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.missing import Missing, is_gap, missing_of
from torchglass.events.types import Event, Location
from torchglass.program.dedup import DistinctEvents
from torchglass.program.frames import (
    EnteredLoop,
    Entry,
    FrameReader,
    RunningFrame,
    is_constructor,
    is_own,
)
from torchglass.program.running_loops import RunningLoop
from torchglass.program.sure_places import SurePlace, SurePlaces, find_sure_places
from torchglass.program.tree import CALL, ITERATION, LOOP, THREAD, ProgramTree, ScopeSite
from torchglass.source.iterations import calls_back, numbers_iterations, succession
from torchglass.source.places import Loop, Place, Succession

PROFILER_MARKS = "profiler::_record_function"
"""The ops with which torch marks the begin and the end of an optimizer step for its profiler."""


MODULE_LEVEL = "<module>"
"""The function that the code of a whole file is."""
_AUTOGRAD_ENGINE = frozenset(["autograd.backward", "autograd.grad"])
_CALL_ONCE = frozenset(["checkpoint", "Profile.runcall", "Thread.run"])
"""Functions of torch and the standard library that call the function that they are given once."""
_CALL_ONCE_FOR_EACH_NODE = frozenset(["apply", "backward", "recompute_fn"])
"""Functions of torch in a backward pass that call a function once for each node of the autograd graph."""


def build_tree(distinct: DistinctEvents, sources: Mapping[str, str]) -> ProgramTree:
    """Build the tree of a program from its events and the texts of its files."""
    return _Builder(distinct, sources).build()


class _AfterGap(enum.Enum):
    """What became of a running frame while events were dropped."""

    SAME_ITERATION = enum.auto()
    """Nothing shows that it left the iterations that it was in."""
    LOOP_ENDED = enum.auto()
    """It has left one of its loops."""
    IN_LOOP = enum.auto()
    """It is in another iteration of one of its loops, or may be."""


@dataclass(slots=True, eq=False)
class _State:
    """What was running, inside one event or directly in a thread, when the last event in it happened."""

    node: int
    """The event, or the thread."""
    is_step: bool = False
    """Whether the event is an optimizer's step. The program's functions in it were called by torch."""
    is_backward: bool = False
    """Whether the event is a call of the autograd engine, which runs nodes of the graph one after the other."""
    frames: list[RunningFrame] = field(default_factory=list[RunningFrame])
    forward: int = -1
    """For the autograd engine, the event of the forward pass whose node is running; -1 if that is not known."""
    direct: bool = False
    """Whether the program itself, and not torch, made the last event."""
    missing: Missing | None = None
    """What is known of the events that were dropped before the next one."""
    changed: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """The variables that changed since the frames last moved, each with the number of its call."""


class _OpenEvent(NamedTuple):
    """An event that has not ended (-1: the thread itself), and what is running in it."""

    event: int
    state: _State


class _Builder:
    """Builds the tree, event by event.

    ``event_id`` is always the id of the current event.
    """

    def __init__(self, distinct: DistinctEvents, sources: Mapping[str, str]) -> None:
        self._distinct = distinct
        self._tree = ProgramTree(distinct.parents)
        self._reader = FrameReader(sources)
        self._loops: dict[int, RunningLoop] = {}
        self._sites: dict[tuple[object, ...], int] = {}
        self._python_calls: set[int] = {-1}
        """The numbers of calls that were seen; -1 for events without one."""
        self._resumed: set[int] = set()
        """The events that began in a gap and went on after it."""
        self._states: dict[str, list[_OpenEvent]] = {}
        """By thread, the events that have not ended, outermost first."""
        self._sure_places = SurePlaces()
        """Needed only if events were dropped."""
        if any(map(is_gap, distinct.samples)):
            self._sure_places = find_sure_places(distinct.samples, self._reader)

    def build(self) -> ProgramTree:
        """Go through all events in order and build the tree."""
        distinct = self._distinct
        samples = self._distinct.samples
        nodes = self._tree.parent
        for event_id, (alike, parent) in enumerate(
            zip(distinct.alike, distinct.parents, strict=True)
        ):
            event = samples[alike]
            if is_gap(event):
                nodes[event_id] = self._note_gap(event, parent, event_id)
                continue
            state = self._state(event.thread, parent, event_id)
            if event.name.startswith(PROFILER_MARKS):
                # ``optimizer.step()`` in the program makes two such ops, at its begin and its end. Both have the place
                # of that call. They do not mean that the call was made twice.
                if state.frames:
                    nodes[event_id] = state.frames[-1].node
                else:
                    nodes[event_id] = state.node
                continue
            around = ()
            if parent >= 0:
                around = samples[distinct.alike[parent]].stack
            entries = self._reader.inside(event, around)
            if entries:
                nodes[event_id] = self._add(state, entries, event, event_id)
            else:
                nodes[event_id] = state.node
        for open_events in self._states.values():
            for _, state in open_events:
                self._end(state)
        self._tree.loops = {
            node: loop.run(self._is_one_execution(loop)) for node, loop in self._loops.items()
        }
        return self._tree

    def _is_one_execution(self, running: RunningLoop) -> bool:
        """Return whether the iterations of a loop are certain to be of one execution of it.

        In ::

            def train(data):
                for x in data:
                    loss(x)
                return model.norm()

        they are, because an event after the loop shows that the call has ended. Without it, and if torch or ``map``
        calls ``train``, the next call would look like more iterations. If ``train`` is called in a loop that has no
        other events, views write that loop, too (``_outer_loop``).
        """
        outer = running.outer
        frame = running.frame
        around = running.enclosing
        while True:
            if around >= 0:
                loop = self._loops[around]
                if loop.is_told_apart:
                    return True
                if around != outer or not loop.is_uncounted:
                    return False
                outer = loop.outer
                frame = loop.frame
                around = loop.enclosing
            elif frame.is_told_apart:
                return True
            elif not frame.is_called_once:
                return False
            elif frame.caller is None:
                return True
            else:
                around = frame.caller_loop
                frame = frame.caller

    def _state(self, thread: str, parent: int, event_id: int) -> _State:
        """Return what is running around an event, and forget the events that have ended.

        An event has ended when another one inside the same parent begins.
        """
        open_events = self._states.setdefault(thread, [])
        while open_events and open_events[-1].event > parent:
            self._end(open_events.pop().state)
        if not open_events or open_events[-1].event != parent:
            if parent >= 0:
                node = parent
            else:
                node = self._thread(thread, event_id)
            state = _State(node)
            if parent >= 0:
                around = self._distinct.sample(parent)
                state.is_step = around.kind == "step"
                state.is_backward = around.name in _AUTOGRAD_ENGINE
            if parent in self._resumed:
                state.missing = Missing()
            open_events.append(_OpenEvent(parent, state))
        return open_events[-1].state

    def _end(self, state: _State) -> None:
        """Note that what was running has ended. Events that were dropped before that may have been in its loops."""
        if state.missing is not None:
            self._cut_frames(state.frames)

    def _note_gap(self, gap: Event, parent: int, event_id: int) -> int:
        """Note that events were dropped, and return the node that they were in.

        ``parent`` was running all the time. Of what runs in the calls that began meanwhile, the beginning is missing.
        """
        for event, state in self._states.get(gap.thread, []):
            if event > parent:
                self._cut_frames(state.frames)
        missing = missing_of(gap)
        state = self._state(gap.thread, parent, event_id)
        state.missing = missing
        for resumed in range(event_id + 1, event_id + 1 + missing.still_open):
            self._resumed.add(resumed)
        return state.node

    def _thread(self, name: str, event_id: int) -> int:
        """Return the node of a thread; add it if this event is the first in it."""
        threads = self._tree.threads
        if name not in threads:
            threads[name] = self._tree.add(THREAD, -1, event_id)
        return threads[name]

    # ------------------------------------------------------------ from one event to the next

    def _add(
        self,
        state: _State,
        entries: list[Entry],
        event: Event,
        event_id: int,
        is_after_gap: bool = False,
    ) -> int:
        """Move the running frames to those of an event, and return the node that the event is in.

        ``entries`` are the frames in the event's stack. ``is_after_gap`` says that events before it were dropped.
        """
        forward = -1
        if state.is_backward:
            forward = self._distinct.forwards[event_id]
        if forward >= 0 and forward != state.forward and not self._is_in_two_passes(event, state):
            # Another node of the autograd graph is running, and all that the last one called has returned.
            state.forward = forward
            if state.missing is not None:
                self._cut_frames(state.frames)
            state.frames.clear()
        if state.missing is not None:
            missing = state.missing
            state.missing = None
            return self._add_after_gap(state, entries, event, event_id, missing)
        frames = state.frames
        python_call = self._python_call(event, entries, event_id)
        is_new_call = not is_after_gap and python_call not in self._python_calls
        if is_new_call and _is_numbered_call_running(frames, entries):
            self._repeat(frames, entries, len(entries) - 2, event_id)
            del frames[len(entries) - 1 :]
        if self._begin_noticed_round(frames, entries, event_id):
            self._enter(state, entries, event_id, is_after_gap)
            self._note_event(state, event, entries[-1])
            return frames[-1].node
        same = _count_same(frames, entries)
        unmoved = _frame_of_late_change(event, frames, entries, same)
        if unmoved is None:
            unmoved = _frame_that_calls_back(event, frames, entries, same)
        if unmoved is not None:
            return unmoved.node
        self._move_frames(state, entries, event, event_id, same, is_after_gap)
        self._enter(state, entries, event_id, is_after_gap)
        if python_call >= 0:
            frames[-1].python_call = python_call
            self._python_calls.add(python_call)
        self._note_event(state, event, entries[-1])
        return frames[-1].node

    def _enter(
        self, state: _State, entries: list[Entry], event_id: int, is_after_gap: bool
    ) -> None:
        """Enter the frames of an event that are not running yet."""
        for entry in entries[len(state.frames) :]:
            self._push(state, entry, event_id)
            state.frames[-1].is_partial = is_after_gap

    def _begin_noticed_round(
        self, frames: list[RunningFrame], entries: list[Entry], event_id: int
    ) -> bool:
        """Begin an iteration of the outermost loop of which the recorder noticed a new one; return False without one.

        An earlier event may have shown that iteration already.
        """
        rounds = self._distinct.new_rounds.get(event_id)
        if not rounds:
            return False
        for index, (frame, entry) in enumerate(zip(frames, entries, strict=False)):
            if frame.entry.function != entry.function:
                break
            loops = ()
            if entry.place is not None:
                loops = entry.place.loops
            for entered in frame.loops:
                if entered.loop not in loops:
                    break
                is_new = any(
                    each.file == entry.at.file
                    and entered.loop.assigns_at(each.line, each.column)
                    and self._tree.first(entered.iteration) <= each.before
                    for each in rounds
                )
                if is_new:
                    if numbers_iterations(entered.loop):
                        # Each of its iterations has another number, so the recorder noticed all of them.
                        self._loops[entered.node].is_told_apart = True
                    del frames[index + 1 :]
                    self._move_in_call(frame, entry, entered.loop, event_id)
                    return True
            if frame.place is not entry.place:
                break
        return False

    def _is_in_two_passes(self, event: Event, state: _State) -> bool:
        """Return whether an event is in a backward pass that has no event of its own, inside of the one around it."""
        inside = event.stack[len(self._distinct.sample(state.node).stack) :]
        return sum(at.function == "_engine_run_backward" for at in inside) > 1

    def _move_frames(
        self,
        state: _State,
        entries: list[Entry],
        event: Event,
        event_id: int,
        same: int,
        is_after_gap: bool,
    ) -> None:
        """Move the running frames to the places where an event says they are, and drop those that have returned.

        The outermost ``same`` frames are where they were. There are four cases::

            the last event    this event
            1:2, 5            1:2, 5        nothing moved: the innermost instruction ran once more
            1:2, 5            1:2           a function returned
            1:2               1:2, 5        a function was called
            1:2, 5            1:3           the first frame that is elsewhere moved on
        """
        frames = state.frames
        is_here = same == len(frames) == len(entries)
        executed_again = event.direct and not is_after_gap
        if executed_again and event.kind == "variable":
            executed_again = self._is_repeated_change(state, event, event_id, is_here)
        if is_here:
            if executed_again:
                self._repeat(frames, entries, same - 1, event_id)
        elif same == len(entries):
            # The arguments of a call are reported before the call itself.
            is_call_begun = event.kind == "call" and frames[same].entry.is_start
            if executed_again and not is_call_begun:
                self._repeat(frames, entries, same - 1, event_id)
            del frames[same:]
        elif same == len(frames):
            if state.direct and not entries[same].is_opaque and frames:
                self._repeat(frames, entries, same - 1, event_id)
        else:
            self._move(frames, entries, same, event_id)

    def _note_event(self, state: _State, event: Event, innermost: Entry) -> None:
        """Note what an event tells of the calls and loops that it is in."""
        frames = state.frames
        state.direct = event.direct
        if event.kind != "variable":
            state.changed = set()
        if event.kind == "module":
            self._note_module(frames, event)
        self._tell_apart(frames)
        if event.direct and innermost.place is not None:
            self._note_sure_place(frames)
        if event.error is not None or event.end_ns is None:
            self._note_failure(frames)

    def _python_call(self, event: Event, entries: list[Entry], event_id: int) -> int:
        """Return the number of the Python call that the innermost frame is; -1 if it is not known.

        The number of a change in place is not used, since the variable may be one of a caller. A comprehension that
        runs in a frame of its own is another call.
        """
        has_number = event.kind == "variable" and event.detail != "changed"
        if has_number and not entries[-1].is_opaque and entries[-1].index == len(event.stack) - 1:
            return self._distinct.python_calls[event_id]
        return -1

    def _add_after_gap(
        self, state: _State, entries: list[Entry], event: Event, event_id: int, missing: Missing
    ) -> int:
        """Add an event after dropped ones: find out which iterations of the running loops it is in.

        The frames that run the program (those of pytest, or of a notebook's kernel) are taken to be where they were.
        """
        own = [
            index
            for index, frame in enumerate(state.frames)
            if _is_in_file_of_program(frame.entry.at)
        ]
        first_own = 0
        if own:
            first_own = own[0]
        for index, (frame, entry) in enumerate(zip(state.frames, entries, strict=False)):
            if frame.entry.function != entry.function:
                self._cut_frames(state.frames[index:])
                break
            if index < first_own:
                continue
            if not frame.is_called_once:
                self._cut_frames(state.frames[index:])
                del state.frames[index:]
                break
            inside = [each.place for each in entries[index + 1 :]]
            is_elsewhere = frame.place is not entry.place
            change = self._move_after_gap(frame, entry, inside, event_id, missing)
            if change is _AfterGap.SAME_ITERATION and not is_elsewhere:
                continue
            self._cut_frames(state.frames[index + 1 :])
            if change is _AfterGap.IN_LOOP:
                del state.frames[index + 1 :]
                state.direct = False
            break
        else:
            self._cut_frames(state.frames[len(entries) :])
        node = self._add(state, entries, event, event_id, is_after_gap=True)
        for frame in state.frames:
            for entered in frame.loops:
                # A loop that this event is the first of may have begun before.
                if self._tree.first(entered.node) == event_id:
                    self._loops[entered.node].is_cut = True
        return node

    def _move_after_gap(
        self,
        frame: RunningFrame,
        entry: Entry,
        inside: Sequence[Place | None],
        event_id: int,
        missing: Missing,
    ) -> _AfterGap:
        """Find out in which iterations of its loops a frame is after a gap, outermost loop first.

        ``inside`` are the places in the functions that the frame has called. Stop at the first loop that has ended, or
        that is (or may be) in another iteration: nothing shows what happened in the loops inside it.
        """
        for depth, entered in enumerate(frame.loops):
            running = self._loops[entered.node]
            self._add_sure_places(running)
            inner_loops = frame.loops[depth + 1 :]
            if not _is_in_loop(entry.place, entered.loop, depth):
                _end_in_gap(running, missing)
                self._cut_loops(inner_loops)
                return _AfterGap.LOOP_ENDED
            index = running.index_after_gap(missing, entry.place, inside)
            if index is not None and index < running.begun:
                running.add_dropped(missing, running.begun)
                continue
            self._cut_loops(inner_loops)
            if index is None:
                running.is_cut = True
                stays = [entered, *self._stay_in_loop(entry, depth + 1, inner_loops, event_id)]
            else:
                iteration = self._begin_iteration_after_gap(entered.node, index, event_id, missing)
                stays = [entered._replace(iteration=iteration)]
            frame.loops[depth:] = stays
            frame.place = entry.place
            frame.entry = entry
            frame.stored.clear()
            self._enter_loops(frame, len(frame.loops), event_id)
            return _AfterGap.IN_LOOP
        return _AfterGap.SAME_ITERATION

    def _stay_in_loop(
        self, entry: Entry, depth: int, inner_loops: list[EnteredLoop], event_id: int
    ) -> list[EnteredLoop]:
        """Return the loop in which a frame still is, in a new iteration, if nothing counts those of the loop around it.

        In the second of two nested loops, it may be another execution of that loop. One node stands for all of them.
        """
        if not inner_loops or not _is_in_loop(entry.place, inner_loops[0].loop, depth):
            return []
        inner = inner_loops[0]
        return [inner._replace(iteration=self._begin_iteration(inner.node, event_id))]

    def _begin_iteration_after_gap(
        self, loop: int, index: int, event_id: int, missing: Missing
    ) -> int:
        """Begin the iteration ``index`` of a loop after a gap, and return its node.

        The gap cut off the end of the last iteration before it, and the beginning of this one.
        """
        running = self._loops[loop]
        self._tree.cut.update([(loop, running.begun - 1), (loop, index)])
        running.add_dropped(missing, index)
        return self._begin_iteration(loop, event_id)

    def _add_sure_places(self, running: RunningLoop) -> None:
        """Add all sure places of a loop, since events may have been dropped at those without a kept event."""
        for place, sure in self._sure_places.by_loop.get(running.loop, {}).items():
            running.sure_places.setdefault(place, SurePlace(sure.at, sure.counter))

    def _cut_frames(self, frames: list[RunningFrame]) -> None:
        """Note that an unknown number of iterations of the loops of these frames was dropped."""
        for each in frames:
            self._cut_loops(each.loops)

    def _cut_loops(self, loops: list[EnteredLoop]) -> None:
        """Note that an unknown number of iterations of these loops was dropped."""
        for entered in loops:
            self._loops[entered.node].is_cut = True

    def _is_repeated_change(
        self, state: _State, event: Event, event_id: int, is_here: bool
    ) -> bool:
        """Note that a variable changed, and return whether it changed at this place before.

        If not, the call that was made last at this place may have changed it.
        """
        change = (event.name, self._distinct.python_calls[event_id])
        is_repeated = is_here and change in state.changed
        if is_repeated or not is_here:
            state.changed = set()
        state.changed.add(change)
        return is_repeated

    def _move(
        self, frames: list[RunningFrame], entries: list[Entry], index: int, event_id: int
    ) -> None:
        """Move the first frame that is elsewhere: on in its iteration, to a new iteration, or to another call."""
        frame = frames[index]
        entry = entries[index]
        if frame.entry.function != entry.function:
            if not frame.entry.is_opaque and not entry.is_opaque:
                self._repeat(frames, entries, index - 1, event_id)
            del frames[index:]
            return
        if frame.entry.is_start and entry.place is not None:
            del frames[index + 1 :]
            self._move_in_call(frame, entry, None, event_id)
            return
        if entry.is_start:
            self._repeat(frames, entries, index - 1, event_id)
        if frame.place is None or entry.place is None:
            del frames[index:]
            return
        order = succession(frame.place, entry.place)
        if order is Succession.OTHER_CALL:
            self._repeat(frames, entries, index - 1, event_id)
            del frames[index:]
            return
        del frames[index + 1 :]
        new_iteration = None
        if isinstance(order, Loop):
            new_iteration = order
        self._move_in_call(frame, entry, new_iteration, event_id)

    def _repeat(
        self, frames: list[RunningFrame], entries: list[Entry], index: int, event_id: int
    ) -> None:
        """Note that the instruction of a frame ran once more: begin an iteration of the innermost loop around it.

        If its function has no loop around it, that is the innermost loop around the call of the function, and so on.
        """
        innermost = len(frames) - 1
        for outer in range(index, -1, -1):
            frame = frames[outer]
            if frame.entry.is_opaque or frame.place is None:
                break
            if outer < innermost and calls_back(frame.place):
                # One execution of this instruction may have made both calls.
                break
            order = succession(frame.place, frame.place)
            if isinstance(order, Loop):
                del frames[outer + 1 :]
                self._move_in_call(frame, entries[outer], order, event_id)
                return
        del frames[index + 1 :]

    def _move_in_call(
        self, frame: RunningFrame, entry: Entry, repeated: Loop | None, event_id: int
    ) -> None:
        """Move a frame to another place of the same call; begin an iteration of the loop ``repeated``, if given."""
        assert entry.place is not None
        frame.place = entry.place
        frame.entry = entry
        kept = 0
        for entered, loop in zip(frame.loops, entry.place.loops, strict=False):
            if entered.loop is not loop:
                break
            kept += 1
            if loop is repeated:
                break
        if repeated is not None:
            frame.stored.clear()
            del frame.loops[kept:]
            loop, node, _ = frame.loops.pop()
            frame.loops.append(EnteredLoop(loop, node, self._begin_iteration(node, event_id)))
        self._enter_loops(frame, kept, event_id)

    def _enter_loops(self, frame: RunningFrame, kept: int, event_id: int) -> None:
        """Leave all but the outermost ``kept`` loops, and enter the others that are around the frame's place."""
        place = frame.place
        del frame.loops[kept:]
        if place is None:
            return
        for loop in place.loops[kept:]:
            site = self._site(ScopeSite(frame.entry.at, place, loop=loop))
            node = self._tree.add(LOOP, frame.node, event_id, site, frame.entry.index)
            enclosing = -1
            if frame.loops:
                enclosing = frame.loops[-1].node
            self._loops[node] = RunningLoop(
                loop, self._outer_loop(frame, event_id), frame, enclosing
            )
            frame.loops.append(EnteredLoop(loop, node, self._begin_iteration(node, event_id)))
        innermost = len(frame.loops) - 1
        for index, entered in enumerate(frame.loops):
            is_in_head = place.is_head and index == innermost
            if not is_in_head:
                self._loops[entered.node].note_body()

    def _outer_loop(self, frame: RunningFrame, event_id: int) -> int:
        """Return the innermost loop that a frame is in, in its own function or in one of its callers; -1 if none.

        A loop of a caller counts only if nothing tells its iterations apart, and so the calls of this function. In ::

            for epoch in range(3):
                train()             # def train(): for batch in data: loss(batch)

        that is so, because the first event in the outer loop is already in the inner one. An event before
        ``train()`` would tell the epochs apart.
        """
        tree = self._tree
        node = frame.node
        while tree.kind(node) in (CALL, ITERATION):
            node = tree.parent[node]
        if tree.kind(node) != LOOP:
            return -1
        at = tree.site(node).at
        if frame.loops or at is None:
            return node
        if tree.first(node) == event_id and is_own(at) and is_own(frame.entry.at):
            return node
        return -1

    def _begin_iteration(self, loop: int, event_id: int) -> int:
        """Begin an iteration of a loop, and return its node."""
        index = self._loops[loop].begin_iteration()
        frame = self._tree.frame(loop)
        return self._tree.add(ITERATION, loop, event_id, frame=frame, number=index)

    def _push(self, state: _State, entry: Entry, event_id: int) -> None:
        """Enter a frame. It gets a node if the program made the call, or if one of its functions was called."""
        frames = state.frames
        if frames:
            around = frames[-1].node
        else:
            around = state.node
        call = -1
        is_called_back = entry.caller != len(frames) - 1
        caller = None
        if entry.caller >= 0 and not entry.is_opaque:
            caller = frames[entry.caller]
        if caller is not None and (is_called_back or _has_node(caller.entry.at, entry.at)):
            parent = self._recursion(frames, entry, caller.place)
            site = ScopeSite(
                caller.entry.at, caller.place, entry.at.function, is_own(entry.at), is_called_back
            )
            if parent is not None:
                around = parent
            call = self._tree.add(CALL, around, event_id, self._site(site), entry.index)
            around = call
        elif caller is None and state.is_step and _is_closure(entry):
            step = self._distinct.sample(state.node)
            site = ScopeSite(
                step.location, None, entry.at.function, is_own=True, is_called_back=True
            )
            call = self._tree.add(CALL, around, event_id, self._site(site), entry.index)
            around = call
        if state.node == self._tree.threads.get("MainThread") and not any(
            _is_in_file_of_program(frame.entry.at) for frame in frames
        ):
            caller = None  # whatever runs the program, such as pytest, runs it once
        frame = RunningFrame(entry, entry.place, around, call, caller)
        frame.is_called_once = self._is_called_once(state, entry, caller, event_id)
        if caller is not None and caller.loops:
            frame.caller_loop = caller.loops[-1].node
        frames.append(frame)
        self._enter_loops(frame, 0, event_id)

    def _is_called_once(
        self, state: _State, entry: Entry, caller: RunningFrame | None, event_id: int
    ) -> bool:
        """Return whether one execution of an instruction calls the function of a frame once.

        Torch and the standard library may call a function as often as they like, with few exceptions. Of a caller whose
        place is not known, such as a generator, nothing shows how often it makes the call.
        """
        if entry.is_opaque or entry.at.function == MODULE_LEVEL:
            return True
        stack = self._distinct.sample(event_id).stack
        function = ""
        if entry.index:
            function = stack[entry.index - 1].function
        if caller is not None:
            if entry.caller == len(state.frames) - 1:
                return caller.place is not None and not calls_back(caller.place)
            return function in _CALL_ONCE
        if state.node >= self._tree.events:
            is_main = state.node == self._tree.threads.get("MainThread")
            return is_main or not state.frames or function in _CALL_ONCE
        around = self._distinct.sample(state.node)
        if function.rpartition(".")[2] in _CALL_ONCE_FOR_EACH_NODE:
            return state.forward >= 0
        return around.kind in ("call", "module") or around.name.endswith(".apply")

    def _recursion(
        self, frames: list[RunningFrame], entry: Entry, caller: Place | None
    ) -> int | None:
        """Return the node around the first call of a function that calls itself from one place; None if it does not.

        All these calls become children of that node, side by side instead of one inside the other.
        """
        for frame in reversed(frames):
            if frame.call < 0 or caller is None:
                continue
            if (
                self._tree.site(frame.call).place is caller
                and frame.entry.function == entry.function
            ):
                return self._tree.parent[frame.call]
        return None

    def _tell_apart(self, frames: list[RunningFrame]) -> None:
        """Note that an event tells its iteration, or its call, from the next one, if each of them passes its place.

        If each call passes it, it also tells the callers' iterations or calls apart.
        """
        called = -1
        for index in range(len(frames) - 1, -1, -1):
            frame = frames[index]
            if frame.entry.is_opaque and called < 0:
                continue
            if called >= 0 and frames[called].entry.caller != index:
                return
            place = frame.place
            if place is None or not place.always:
                return
            if frame.loops:
                self._loops[frame.loops[-1].node].is_told_apart = True
                return
            frame.is_told_apart = True
            if not frame.is_called_once:
                return
            called = index

    def _note_sure_place(self, frames: list[RunningFrame]) -> None:
        """Note that an event happened at the innermost place, if every iteration of the loop around passes it.

        If every call of a function passes a place in it, the place where the function is called counts instead, once
        for each call.
        """
        innermost = frames[-1].place
        for index in range(len(frames) - 1, -1, -1):
            frame = frames[index]
            place = frame.place
            if place is None or not place.always:
                return
            if frame.loops:
                counter = None
                if index < len(frames) - 1:
                    counter = self._sure_places.counters.get(place)
                    if counter is not None and counter.path[-1] is not innermost:
                        counter.is_certain = False
                running = self._loops[frame.loops[-1].node]
                running.note_sure_place(place, frame.entry.at, counter)
                return
            counter = None
            if innermost is not None:
                counter = self._sure_places.counters_by_event.get(innermost)
            if frame.counted_by is not None:
                if frame.counted_by is innermost and counter is not None:
                    counter.is_certain = False
                return
            if frame.is_partial and counter is None:
                return  # the event that counts this call may have been dropped
            frame.counted_by = innermost
            if frame.entry.caller != index - 1 or not frame.is_called_once:
                return

    def _note_module(self, frames: list[RunningFrame], event: Event) -> None:
        """Note which module was called in the innermost loop. Another one than before means a loop over layers.

        The whole way from the loop to the call is compared, because a function that is called in the loop may call
        several modules, the same ones in each iteration.
        """
        index = next((at for at in range(len(frames) - 1, -1, -1) if frames[at].loops), -1)
        if index >= 0 and frames[index].place is not None:
            running = self._loops[frames[index].loops[-1].node]
            path = tuple([each.place or each.entry.function for each in frames[index:]])
            running.note_module(path, (event.root, event.module))

    def _note_failure(self, frames: list[RunningFrame]) -> None:
        """Note that an error left the current iterations of all loops."""
        for frame in frames:
            for entered in frame.loops:
                self._loops[entered.node].failed = True

    def _site(self, site: ScopeSite) -> int:
        """Return the number of a place in the tree; equal places share one.

        The parts are compared by ``id``, which is safe because the tree keeps each of them.
        """
        key = (
            id(site.at),
            id(site.place),
            site.function,
            site.is_own,
            site.is_called_back,
            id(site.loop),
        )
        site_id = self._sites.get(key)
        if site_id is None:
            site_id = self._tree.add_site(site)
            self._sites[key] = site_id
        return site_id


def _has_node(caller: Location, at: Location) -> bool:
    """Return whether a call gets a node: the program's functions made it or were called, or it makes an object.

    Calls among the functions of installed packages get none.
    """
    return is_own(at) or is_own(caller) or is_constructor(at.function)


def _is_in_file_of_program(at: Location) -> bool:
    """Return whether a frame is in a file of the program. The text of ``python -c`` may only start the program."""
    return is_own(at) and not at.file.startswith("<")


def _is_closure(entry: Entry) -> bool:
    """Return whether a frame inside an optimizer's step is of a closure that torch called, and not of ``step``."""
    return entry.caller < 0 and is_own(entry.at) and entry.at.function.rpartition(".")[2] != "step"


def _count_same(frames: list[RunningFrame], entries: list[Entry]) -> int:
    """Return how many of the outermost running frames are where the frames of an event are."""
    for index, (frame, entry) in enumerate(zip(frames, entries, strict=False)):
        if frame.entry is not entry and (
            frame.entry.function != entry.function or frame.place is not entry.place
        ):
            return index
    return min(len(frames), len(entries))


def _is_numbered_call_running(frames: list[RunningFrame], entries: list[Entry]) -> bool:
    """Return whether a call of the innermost function is running that has a number and the same callers."""
    innermost = len(entries) - 1
    return (
        len(frames) > innermost
        and frames[innermost].python_call >= 0
        and _count_same(frames, entries) >= innermost
    )


def _frame_of_late_change(
    event: Event, frames: list[RunningFrame], entries: list[Entry], same: int
) -> RunningFrame | None:
    """Return the frame in which a variable changed if that is reported later than it happened; otherwise None.

    The frame is at a later place by then, and stays there.
    """
    if event.kind != "variable" or same != len(entries) - 1 or same >= len(frames):
        return None
    if frames[same].note_change(entries[same]):
        return frames[same]
    return None


def _frame_that_calls_back(
    event: Event, frames: list[RunningFrame], entries: list[Entry], same: int
) -> RunningFrame | None:
    """Return the innermost frame of an event that happens between two of its calls of one function; otherwise None.

    For example, ``sum(f(x) for x in xs)`` adds a tensor between two steps of the generator. The frame of the generator
    is not in the stack of that addition, but it has not returned.
    """
    if same != len(entries) or same >= len(frames) or event.direct:
        return None
    caller = frames[same - 1]
    if caller.place is not None and calls_back(caller.place):
        return caller
    return None


def _is_in_loop(place: Place | None, loop: Loop, depth: int) -> bool:
    """Return whether a place is in a loop that is in ``depth`` others."""
    return place is not None and depth < len(place.loops) and place.loops[depth] is loop


def _end_in_gap(running: RunningLoop, missing: Missing) -> None:
    """Count the dropped events of a loop that ended in a gap, if they show how many iterations it had."""
    iterations = running.index_after_gap(missing, None)
    if iterations is None:
        running.is_cut = True
    else:
        running.add_dropped(missing, max(iterations, running.begun))
