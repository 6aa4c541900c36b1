"""Measures what events took and gave, once for each value, and writes it into the journal.

The session has one while a recording asks for values; both engines call it where an event opens and closes, with
recording off for the thread. Whatever fails here costs the statistics of a value, nothing else.
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
from torchglass.capture.transparency.ours import foreign
from torchglass.journal.layout import NUMBER_MASK, Numbers

if TYPE_CHECKING:
    from torchglass.capture.session import Session

SPARE = 4096
WAITS = "stop_on waits for the device after each value that lies there: without it nothing waits"
LOST = "the device failed: the numbers of values that were still on their way from it are unknown"
MOST_SEEN = 16384
"""Tensors of which it is known what was measured."""


class Measurer:
    """The statistics of one session's values."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.on_bad: list[Callable[[], None]] = []
        """Asked when an event gave something that is not finite; they raise what is to stop the program."""
        self.saver: Saver | None = None
        """Keeps the values themselves, while a recording asks for that."""
        self.choosers: list[Chooser] = []
        """Of recordings that want the values of some events only."""
        self.measures_all = self.keeps_all = True
        """Whether all values are measured, and whether all are kept where there is a saver."""
        self._now = local()
        """By thread: whether the values that are looked at now are to be kept."""
        self._is_alarmed = False
        self._done = bytearray()
        """For each value whether it was looked at."""
        self._seen: dict[tuple[int, int, Any], tuple[weakref.ref[Any], int, Tally]] = {}
        """By address, size and dtype: the tensor that was measured there, its version, and what was found."""
        self.sketches = False
        """Whether it is also kept by what the numbers are known again."""
        self._sketched: dict[tuple[Any, ...], tuple[weakref.ref[Any], int, bytes]] = {}
        """By address, dtype, sizes and strides: the tensor that was sketched there, its version, and the sketch."""
        self._last: dict[int, int] = {}
        """By ``id`` of a tensor: the value that it was when it was last seen."""
        self._refused: set[str] = set()
        self.devices = DeviceTallies(session, self._write, self._raise_alarm)
        values, forms, engine = session.values, session.forms, session.engine
        self._value_of = values.value_of
        self._walk = forms.describing(lambda tensor: self._see(tensor, values.value_of(tensor)))
        self._walk_made = forms.describing(lambda tensor: self._see(tensor, values.made(tensor)))
        if engine is not None:
            self._engine_walk = forms.describing(lambda tensor: engine.see(tensor, values.value_of(tensor)))
            self._engine_walk_made = forms.describing(lambda tensor: engine.see(tensor, values.made(tensor)))

    def _write(self, number: int, numbers: Numbers, how: int) -> None:
        self._session.journal.measured.write(number, numbers, how)
        count, nans, posinf, neginf, *_ = numbers
        # -inf alone may be a mask; where it is not, something becomes NaN or +inf, or the loss itself is -inf.
        if nans or posinf or (neginf and count == 1):
            self._is_alarmed = True

    def _raise_alarm(self) -> None:
        self._is_alarmed = True

    def _ask(self) -> None:
        self._is_alarmed = False
        for ask in list(self.on_bad):
            ask()

    # What the engines call

    def took(self, log: ThreadLog, at: int, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        """An event opens: what was not seen before is measured now, since the event may write into it."""
        try:
            if not self._is_meant(log, at):
                return
            for arg in args:
                cls = type(arg)
                if cls is Tensor or cls is Parameter:
                    self._see(arg, self._value_of(arg))
                elif cls is not int and cls is not float and cls is not str and cls is not bool and arg is not None:
                    self._walk(arg, [])
            if kwargs:
                for arg in kwargs.values():
                    self._walk(arg, [])
        except BaseException as fault:
            self._session.forgive(fault)

    def gave(self, log: ThreadLog, at: int, tensor: Any, value: int) -> None:
        """An event closes that gave one tensor, which is this value."""
        try:
            if self._is_meant(log, at):
                self._see(tensor, value)
            if self._is_alarmed and self.on_bad:
                self._ask()
        except BaseException as fault:
            self._session.forgive(fault)

    def gave_several(self, log: ThreadLog, at: int, result: Any, from_op: bool) -> None:
        """An event closes that gave anything else."""
        try:
            if self._is_meant(log, at):
                (self._walk_made if from_op else self._walk)(result, [])
            if self._is_alarmed and self.on_bad:
                self._ask()
        except BaseException as fault:
            self._session.forgive(fault)

    def _is_meant(self, log: ThreadLog, at: int) -> bool:
        """Whether what this event takes and gives is to be looked at, and kept."""
        if not self.choosers:
            self._now.keeps = self.keeps_all
            return True
        chosen = [each.chooses(log, at) for each in self.choosers]  # all: each says at the end if it met nothing
        keeps = self._now.keeps = self.keeps_all or any(chosen)
        return self.measures_all or keeps

    # What the compiled engine asks, where it measures what it can itself

    @property
    def is_plain(self) -> bool:
        """Whether the compiled engine can measure, and keep what is to be kept.

        It keeps all that it measures: not where some values are only measured, and others kept as well.
        """
        keeps = self.saver is not None and (self.keeps_all or bool(self.choosers))
        is_one_wish = self.keeps_all if self.measures_all else True
        return not keeps or (is_one_wish and self.saved is not None)

    @property
    def saved(self) -> Any:
        """Where all values that are meant are kept; None where they are not, or not all."""
        is_kept = self.keeps_all or (bool(self.choosers) and not self.measures_all)
        return self.saver.saved if self.saver is not None and is_kept else None

    @property
    def choosing(self) -> int:
        """How it is said which events are meant: 0 all are, else for which others an answer holds (Chooser.way)."""
        return min((each.way for each in self.choosers), default=0)

    def means(self, log: ThreadLog, at: int) -> bool:
        """Whether the values of an event are meant."""
        chosen = [each.chooses(log, at) for each in self.choosers]  # all: each says at the end if it met nothing
        return self.measures_all or any(chosen)

    def raise_alarm(self, is_sure: bool) -> None:
        """Something is not finite; or it was measured in Python, where that is known."""
        if (is_sure or self._is_alarmed) and self.on_bad:
            self._ask()

    def plan(self, tensor: Any) -> tuple[Any, ...] | None:
        """Of all tensors with the same metadata the size of an element, how they lie, and in which order.

        On a GPU also which one it is, and the kernel there. None: ``measure`` it.
        """
        try:
            kernel = self.devices.plan(tensor) if tensor.is_cuda else ()
            layout = None if kernel is None else layout_of(tensor)
            if layout is None or kernel is None or sum(size != 1 for size in tensor.shape) > MOST_SIZES:
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
        """Go through a container that may hold tensors."""
        (self._engine_walk_made if from_op else self._engine_walk)(found, [])

    # What else is asked of it

    def choose(self, recorders: list[Any]) -> None:
        """Look at what these recordings want; those that have ended say what they missed."""
        wanting = [each for each in recorders if each.options.chosen is not None]
        for chooser in self.choosers:
            if chooser.recorder not in wanting:
                chooser.finish()
        known = {id(each.recorder): each for each in self.choosers}
        self.choosers = [known.get(id(each)) or Chooser(each) for each in wanting]
        ways = {each.options.measures for each in recorders if each.options.chosen is None}
        self.measures_all, self.keeps_all = bool(ways - {""}), "all" in ways
        self.sketches = "stats+sketch" in ways
        self.devices.choose(self.sketches)
        budgets = [each.options.max_bytes for each in recorders if each in wanting or each.options.measures == "all"]
        if budgets and self.saver is None:
            way = "record(values='all')" if self.keeps_all else "record(values=select(…))"
            self.saver = Saver(self._session, max(budgets), way)
        if self.saver is not None:
            self.saver.choose_saved()

    def forget(self, *tensors: Any) -> None:
        """Drop weak references to these tensors: they are about to be swapped."""
        wanted = {id(each) for each in tensors}
        for place, (reference, _, _) in list(self._seen.items()):
            if id(reference()) in wanted:
                self._seen.pop(place, None)
        for place, (reference, _, _) in list(self._sketched.items()):
            if id(reference()) in wanted:
                self._sketched.pop(place, None)
        self.devices.forget(wanted)

    def finish(self) -> None:
        """The recording ends: wait for what is still on its way from a device."""
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

    # One value

    def _see(self, tensor: Any, value: int) -> int:
        number = value & NUMBER_MASK
        done, place = self._done, id(tensor)
        before, self._last[place] = self._last.get(place, number), number
        if number >= len(done):
            done.extend(bytes(number + SPARE - len(done)))
        is_new = not done[number]
        if is_new:
            done[number] = 1
            if issubclass(type(tensor), Tensor):
                self._measure(tensor, number, before != number)
        # What an event that was not meant has shown may be asked for by a later one.
        if self.saver is not None and (is_new or self.choosers) and self._now.keeps:
            self.saver.save(tensor, value)
        return value

    def _measure(self, tensor: Any, number: int, changed: bool) -> None:
        if len(self._last) >= MOST_SEEN:
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
        """Of a tensor like most; raises where it is not.

        ``changed``: it was another value before. An op that wrote into it has not counted that as a new version yet.
        """
        cls = type(tensor)
        if cls is not Tensor and cls is not Parameter:
            raise NoNumbers("it may refuse to be read")
        if not tensor.is_cpu:
            if not tensor.is_meta:
                if self.sketches and not tensor.numel() and tensor.dtype in KINDS:
                    self._sketch(tensor, number, Tally(), -1)
                self.devices.measure(tensor, number, changed)
                if self.on_bad:
                    self._session.note(WAITS)
                    self.devices.finish()
            return None
        kind = KINDS.get(tensor.dtype)
        if kind is None or tensor.is_conj() or tensor.is_neg():
            raise NoNumbers("its bits are not its numbers")
        place = (tensor.data_ptr(), tensor.numel(), tensor.dtype)
        version = -1 if tensor.is_inference() else tensor._version
        found = None if changed else self._seen.get(place)
        if found is not None and found[1] == version and _shows_the_same(found[0](), tensor, version):
            tally = found[2]
        else:
            tally = tally_of(tensor, kind)
            if version >= 0 and place[1]:
                self._seen[place] = (weakref.ref(tensor), version, tally)
        if self.sketches:
            self._sketch(tensor, number, tally, -1 if changed else version)
        return tally

    def _sketch(self, tensor: Any, number: int, tally: Tally, version: int) -> None:
        """Write by what the numbers are known again; ``version`` -1: what was found before may not be true any more."""
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        known = self._sketched.get(place) if version >= 0 and tensor.numel() else None
        alive = None if known is None else known[0]()
        if known is not None and alive is not None and known[1] == version == alive._version:
            sketch = known[2]
        else:
            try:
                sketch = sketch_of(tensor, KINDS[tensor.dtype], tally)
            except NoNumbers as reason:
                self._session.note(f"some values have no sketch: {reason}")
                return
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
        """Say once why something was not measured; classes that hold no numbers go without saying."""
        text = str(reason or "")
        if text and "holds no numbers" not in text and text not in self._refused:
            self._refused.add(text)
            self._session.note(f"the numbers of some values were not measured: {text}")


def _shows_the_same(known: Any, tensor: Any, version: int) -> bool:
    """Whether a living tensor, already measured, lies where this one does: a view of it in another order or shape.

    Both fill their memory, or have the same strides; it is alive, so the memory is still the same.
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
