"""Measures the inputs and outputs of events, each value once, and writes the statistics into the journal.

The session has a Measurer while a recording wants values. Both engines call it when an event opens and when it closes,
with recording off for the thread. A failure here loses the statistics of one value, and nothing else.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from threading import local
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import Parameter

from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.statistics.choosing import Chooser
from torchglass.capture.statistics.device import DeviceTallies
from torchglass.capture.statistics.memory import KINDS, MOST_SIZES, NoNumbers, layout_of, tally_of
from torchglass.capture.statistics.odd import tally_of_odd
from torchglass.capture.statistics.saver import Saver
from torchglass.capture.statistics.sketch import order_of, sketch_of
from torchglass.capture.statistics.tally import Tally
from torchglass.capture.transparency.graph_capture import (
    CAPTURING,
    holds_numbers,
    is_capturing_graph,
)
from torchglass.capture.transparency.ours import foreign
from torchglass.journal.layout import NUMBER_MASK, Numbers

if TYPE_CHECKING:
    from torchglass.capture.session import Session

SPARE = 4096
"""How many entries more than needed `Measurer._done` gets when it grows."""
WAITS = "stop_on waits for the device after each value that lies there: without it nothing waits"
LOST = "the device failed: the numbers of values that were still on their way from it are unknown"
MOST_SEEN = 16384
"""The most tensors to remember with their statistics; then all of them are forgotten."""


class Measurer:
    """Measures the values of one session, and keeps their contents if a recording wants that."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.on_bad: list[Callable[[], None]] = []
        """Functions to call after an event produced NaN or Inf; each raises the exception that stops the program."""
        self.saver: Saver | None = None
        """Keeps the contents of values, while a recording wants them."""
        self.choosers: list[Chooser] = []
        """One chooser for each recording that wants the values of only some events."""
        self.measures_all = self.keeps_all = True
        """Whether all values are measured, and whether all are kept if there is a saver."""
        self._now = local()
        """For each thread, whether to keep the values that are being measured (attribute ``keeps``)."""
        self._is_alarmed = False
        self._done = bytearray()
        """For each value, by number, whether it has been measured."""
        self._seen: dict[tuple[int, int, Any], tuple[weakref.ref[Any], int, Tally]] = {}
        """Keyed by address, size and dtype: the tensor that was measured there, its version, and its statistics."""
        self.sketches = False
        """Whether values are fingerprinted too."""
        self._sketched: dict[tuple[Any, ...], tuple[weakref.ref[Any], int, bytes]] = {}
        """Keyed by address, dtype, sizes and strides: the tensor sketched there, its version, and the sketch."""
        self._last: dict[int, int] = {}
        """Keyed by the ``id`` of a tensor: the number of the value that the tensor last had."""
        self._refused: set[str] = set()
        self.devices = DeviceTallies(session, self._write, self._raise_alarm)
        values = session.values
        forms = session.forms
        engine = session.engine
        self._value_of = values.value_of
        self._walk = forms.describing(lambda tensor: self._see(tensor, values.value_of(tensor)))
        self._walk_made = forms.describing(
            lambda tensor: self._see(tensor, values.value_after_op(tensor))
        )
        if engine is not None:
            self._engine_walk = forms.describing(
                lambda tensor: engine.see(tensor, values.value_of(tensor))
            )
            self._engine_walk_made = forms.describing(
                lambda tensor: engine.see(tensor, values.value_after_op(tensor))
            )

    def _write(self, number: int, numbers: Numbers, how: int) -> None:
        self._session.journal.measured.write(number, numbers, how)
        count, nans, posinf, neginf, *_ = numbers
        # -inf alone may be a mask. If it is not, it leads to NaN or +inf later, or the loss itself is -inf.
        if nans or posinf or (neginf and count == 1):
            self._is_alarmed = True

    def _raise_alarm(self) -> None:
        self._is_alarmed = True

    def _ask(self) -> None:
        self._is_alarmed = False
        for ask in list(self.on_bad):
            ask()

    # Called by both engines

    def took(
        self, log: ThreadLog, at: int, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> None:
        """Measure new inputs when an event opens, since the event may write into them."""
        try:
            if not self._is_meant(log, at):
                return
            for arg in args:
                cls = type(arg)
                if cls is Tensor or cls is Parameter:
                    self._see(arg, self._value_of(arg))
                elif (
                    cls is not int
                    and cls is not float
                    and cls is not str
                    and cls is not bool
                    and arg is not None
                ):
                    self._walk(arg, [])
            if kwargs:
                for arg in kwargs.values():
                    self._walk(arg, [])
        except BaseException as fault:
            self._session.forgive(fault)

    def gave(self, log: ThreadLog, at: int, tensor: Any, value: int) -> None:
        """Measure the single tensor that an event returned, which is this value."""
        try:
            if self._is_meant(log, at):
                self._see(tensor, value)
            if self._is_alarmed and self.on_bad:
                self._ask()
        except BaseException as fault:
            self._session.forgive(fault)

    def gave_several(self, log: ThreadLog, at: int, result: Any, from_op: bool) -> None:
        """Measure the tensors in a result that is not a single tensor."""
        try:
            if self._is_meant(log, at):
                (self._walk_made if from_op else self._walk)(result, [])
            if self._is_alarmed and self.on_bad:
                self._ask()
        except BaseException as fault:
            self._session.forgive(fault)

    def _is_meant(self, log: ThreadLog, at: int) -> bool:
        """Return whether to measure the inputs and outputs of this event; set whether to keep them, too."""
        if not self.choosers:
            self._now.keeps = self.keeps_all
            return True
        # Ask every chooser, not only until the first yes: each notes at the end if it selected nothing.
        chosen = [each.chooses(log, at) for each in self.choosers]
        keeps = self._now.keeps = self.keeps_all or any(chosen)
        return self.measures_all or keeps

    # Called by the compiled engine, which measures ordinary tensors itself

    @property
    def is_plain(self) -> bool:
        """Whether the compiled engine can measure values, and keep them if that is wanted.

        The compiled engine keeps every value that it measures. It therefore cannot be used if some values are only
        measured and others are also kept.
        """
        keeps = self.saver is not None and (self.keeps_all or bool(self.choosers))
        is_one_wish = True
        if self.measures_all:
            is_one_wish = self.keeps_all
        return not keeps or (is_one_wish and self.saved is not None)

    @property
    def saved(self) -> Any:
        """The saved bytes for all selected values; None if the selected values are not kept, or not all of them."""
        is_kept = self.keeps_all or (bool(self.choosers) and not self.measures_all)
        if self.saver is not None and is_kept:
            return self.saver.saved
        return None

    def means(self, log: ThreadLog, at: int) -> bool:
        """Return whether the values of an event are to be measured."""
        # Ask every chooser, not only until the first yes: each notes at the end if it selected nothing.
        chosen = [each.chooses(log, at) for each in self.choosers]
        return self.measures_all or any(chosen)

    def raise_alarm(self, is_sure: bool) -> None:
        """Call the functions in ``on_bad`` if the engine is sure of a bad value, or one was found in Python."""
        if (is_sure or self._is_alarmed) and self.on_bad:
            self._ask()

    def plan(self, tensor: Any) -> tuple[Any, ...] | None:
        """Return how to measure all tensors with the same metadata: element size, layout and order.

        On a GPU the device and the kernel follow. Return None if the tensor must be passed to ``measure``.
        """
        try:
            # The sizes may be symbols; comparing them would add guards to the program's graph.
            if not holds_numbers(tensor):
                return None
            kernel = ()
            if tensor.is_cuda:
                kernel = self.devices.plan(tensor)
            layout = None
            if kernel is not None:
                layout = layout_of(tensor)
            if (
                layout is None
                or kernel is None
                or sum(size != 1 for size in tensor.shape) > MOST_SIZES
            ):
                return None
            return tensor.element_size(), layout, order_of(tensor, KINDS[tensor.dtype]), *kernel
        except Exception as refusal:
            foreign(refusal)
            return None

    def measure(self, tensor: Any, number: int, changed: bool) -> None:
        """Measure a value of any kind."""
        if issubclass(type(tensor), Tensor):
            self._measure(tensor, number, changed)

    def keep(self, tensor: Any, value: int) -> None:
        """Keep a value of any kind."""
        if self.saver is not None:
            self.saver.save(tensor, value)

    def walk(self, found: Any, from_op: bool) -> None:
        """Report the tensors in a container to the compiled engine."""
        (self._engine_walk_made if from_op else self._engine_walk)(found, [])

    # Called by the session

    def choose(self, recorders: list[Any]) -> None:
        """Adapt to the options of these recordings.

        The chooser of a recording that has ended notes whether it selected nothing.
        """
        wanting = [each for each in recorders if each.options.chosen is not None]
        for chooser in self.choosers:
            if chooser.recorder not in wanting:
                chooser.finish()
        known = {id(each.recorder): each for each in self.choosers}
        self.choosers = [known.get(id(each)) or Chooser(each) for each in wanting]
        ways = {each.options.measures for each in recorders if each.options.chosen is None}
        self.measures_all = bool(ways - {""})
        self.keeps_all = "all" in ways
        self.sketches = "stats+sketch" in ways
        self.devices.choose(self.sketches)
        budgets = [
            each.options.max_bytes
            for each in recorders
            if each in wanting or each.options.measures == "all"
        ]
        if budgets and self.saver is None:
            if self.keeps_all:
                way = "record(values='all')"
            else:
                way = "record(values=select(…))"
            self.saver = Saver(self._session, max(budgets), way)
        if self.saver is not None:
            self.saver.choose_saved()

    def forget(self, *tensors: Any) -> None:
        """Drop weak references to these tensors, which are about to be swapped."""
        wanted = {id(each) for each in tensors}
        for place, (reference, _, _) in list(self._seen.items()):
            if id(reference()) in wanted:
                self._seen.pop(place, None)
        for place, (reference, _, _) in list(self._sketched.items()):
            if id(reference()) in wanted:
                self._sketched.pop(place, None)
        self.devices.forget(wanted)

    def finish(self) -> None:
        """Wait for results that a device has not delivered yet, when the recording ends."""
        try:
            self.devices.finish()
        except Exception as fault:
            self._session.note(LOST)
            self._session.fault(fault)
        if self.saver is not None:
            self.saver.finish()
        self._seen.clear()
        self._sketched.clear()
        self._last.clear()

    # Measuring one value

    def _see(self, tensor: Any, value: int) -> int:
        number = value & NUMBER_MASK
        done = self._done
        place = id(tensor)
        before = self._last.get(place, number)
        self._last[place] = number
        if number >= len(done):
            done.extend(bytes(number + SPARE - len(done)))
        is_new = not done[number]
        if is_new:
            done[number] = 1
            if issubclass(type(tensor), Tensor):
                self._measure(tensor, number, before != number)
        # A value first seen in an event that was not selected may belong to a selected event later.
        if self.saver is not None and (is_new or self.choosers) and self._now.keeps:
            self.saver.save(tensor, value)
        return value

    def _measure(self, tensor: Any, number: int, changed: bool) -> None:
        # The compiled engine calls `measure`, which adds nothing to `_last`.
        if max(len(self._last), len(self._seen), len(self._sketched)) >= MOST_SEEN:
            self._last.clear()
            self._seen.clear()
            self._sketched.clear()
        try:
            tally = self._of_plain(tensor, number, changed)
        except Exception as refusal:
            foreign(refusal)
            tally = self._of_odd(tensor)
        if tally is not None:
            self._write(number, tally.numbers(), tally.how)

    def _of_plain(self, tensor: Any, number: int, changed: bool) -> Tally | None:
        """Measure an ordinary tensor; raise an exception if the tensor is not ordinary.

        ``changed`` means that the tensor had another value before. Its version does not show that yet if an op has
        just written into it.
        """
        cls = type(tensor)
        if cls is not Tensor and cls is not Parameter:
            raise NoNumbers("it may refuse to be read")
        if not tensor.is_cpu:
            if not tensor.is_meta:
                if self.sketches and not tensor.numel() and tensor.dtype in KINDS:
                    self._sketch(tensor, number, Tally(), -1, changed)
                if is_capturing_graph() or not holds_numbers(tensor):
                    raise NoNumbers(CAPTURING)
                self.devices.measure(tensor, number, changed)
                if self.on_bad:
                    self._session.note(WAITS)
                    self.devices.finish()
            return None
        kind = KINDS.get(tensor.dtype)
        if kind is None or tensor.is_conj() or tensor.is_neg():
            raise NoNumbers("its bits are not its numbers")
        place = (tensor.data_ptr(), tensor.numel(), tensor.dtype)
        if tensor.is_inference():
            version = -1
        else:
            version = tensor._version
        found = None
        if not changed:
            found = self._seen.get(place)
        if (
            found is not None
            and found[1] == version
            and _shows_the_same(found[0](), tensor, version)
        ):
            tally = found[2]
        else:
            tally = tally_of(tensor, kind)
            if version >= 0 and place[1]:
                self._seen[place] = (weakref.ref(tensor), version, tally)
        if self.sketches:
            self._sketch(tensor, number, tally, version, changed)
        return tally

    def _sketch(self, tensor: Any, number: int, tally: Tally, version: int, changed: bool) -> None:
        """Write the fingerprint of a value; for a tensor that counts no versions, ``version`` is -1.

        ``changed`` means that the tensor had another value before, so that the cached fingerprint is of that.
        """
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        may_be_cached = version >= 0 and tensor.numel() > 0
        known = None
        if may_be_cached and not changed:
            known = self._sketched.get(place)
        alive = None
        if known is not None:
            alive = known[0]()
        if known is not None and alive is not None and known[1] == version == alive._version:
            sketch = known[2]
        else:
            try:
                sketch = sketch_of(tensor, KINDS[tensor.dtype], tally)
            except NoNumbers as reason:
                self._session.note(f"some values have no sketch: {reason}")
                return
            if may_be_cached:
                self._sketched[place] = (weakref.ref(tensor), version, sketch)
        self._session.journal.sketched.write(number, sketch)

    def _of_odd(self, tensor: Any) -> Tally | None:
        try:
            return tally_of_odd(tensor)
        except Exception as refusal:
            foreign(refusal)
            self._refuse(refusal if isinstance(refusal, NoNumbers) else None)
            return None

    def _refuse(self, reason: NoNumbers | None) -> None:
        """Note once why values were not measured, except for classes that never hold numbers."""
        text = str(reason or "")
        if text and "holds no numbers" not in text and text not in self._refused:
            self._refused.add(text)
            self._session.note(f"the numbers of some values were not measured: {text}")


def _shows_the_same(known: Any, tensor: Any, version: int) -> bool:
    """Return whether a tensor has the same numbers as a tensor that was measured before (``known``).

    That is so if ``known`` is still alive, so its memory has not been reused, and both views either have the same shape
    and strides or both fill the same memory.
    """
    if known is None or known._version != version or known.data_ptr() != tensor.data_ptr():
        return False
    if known.shape == tensor.shape and known.stride() == tensor.stride():
        return True
    return known.is_contiguous() and (tensor.is_contiguous() or _fills(tensor))


def _fills(tensor: Any) -> bool:
    expected = 1
    for step, size in sorted(
        (step, size) for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1
    ):
        if step != expected:
            return False
        expected *= size
    return True
