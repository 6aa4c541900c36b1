"""The values of a session if C keeps the table of living tensors; tensors that C cannot read are read here."""

from __future__ import annotations

from typing import Any

from torchglass.capture.engine.value_table import ValueTable, read_unseen
from torchglass.capture.torch.names import Tensor, no_functions
from torchglass.journal.layout import NONE, NUMBER_BITS, NUMBER_MASK
from torchglass.journal.writer import Journal

READ_IN_PYTHON = -4
"""A tensor that was read in Python at version ``v`` has ``READ_IN_PYTHON - 1 - v`` in the table of C; ``v`` is -1 or
more, so that is never CHANGED or PENDING."""


class FastValues(ValueTable):
    """The values of one session; the hot functions are in C."""

    def __init__(self, journal: Journal, engine: Any) -> None:
        self._engine = engine
        super().__init__(journal)

    def _bind(self) -> None:
        # Attributes of the instance: the hot path calls them without looking up a method.
        engine = self._engine
        self.value_of = engine.value_of
        self.plain_value_of = engine.plain_value_of
        self.value_after_op = engine.value_after_op
        self.value_of_unusual = self._value_of_unusual
        self.new_values_for_written = self._new_values_for_written
        self.mark_changed = engine.mark_changed

    def __len__(self) -> int:
        return self._engine.count()[2]

    def is_known(self, found: Any) -> bool:
        return self._engine.known(found) is not None

    def last_number(self, tensor: Any) -> int:
        known = self._engine.known(tensor)
        if known is None:
            return NONE
        return known[0] & NUMBER_MASK

    def living_objects(self) -> list[Any]:
        return self._engine.living_objects()

    def forget(self, *tensors: Tensor) -> None:
        for tensor in tensors:
            self._engine.forget(tensor)

    def clear(self) -> None:
        if self.from_ops:
            with no_functions():
                for tensor in self._engine.pending():
                    self.value_of(tensor)
        self._engine.clear_living()

    def _value_of_unusual(self, tensor: Tensor, cls: type) -> int:
        """Return the value of a tensor that C cannot read: a subclass, sparse, nested, …"""
        engine = self._engine
        meta, version, address = read_unseen(tensor, cls)
        meta_id = self.meta_id(meta)
        before = NONE
        marked_version = READ_IN_PYTHON - 1 - version
        known = engine.known(tensor)
        if known is not None:
            value, known_version = known
            before = value & NUMBER_MASK
            if known_version == marked_version and value >> NUMBER_BITS == meta_id:
                return value
        number = engine.next_value()
        value = number | meta_id << NUMBER_BITS
        engine.remember(tensor, value, marked_version)
        self._journal.values.write(number, version, address, before, meta_id)
        return value

    def _new_values_for_written(
        self, args: Any, kwargs: Any, positions: tuple[int, ...], names: tuple[str, ...]
    ) -> Any:
        """Make the arguments that an op wrote into new values."""
        written = [args[position] for position in positions if position < len(args)]
        if kwargs:
            written += [kwargs[name] for name in names if name in kwargs]
        for argument in written:
            tensors = argument if isinstance(argument, (list, tuple)) else (argument,)
            for tensor in tensors:
                if isinstance(tensor, Tensor) and not self._engine.begin_pending(tensor):
                    self.mark_changed(tensor)
        if written:
            return written[0]
        return None
