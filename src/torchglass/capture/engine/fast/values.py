"""Which tensor is which, where C keeps the living ones; what is read with care is read as in Python."""

from __future__ import annotations

from typing import Any

from torchglass.capture.engine.values import ValueTable, read_unseen
from torchglass.capture.torch.names import Tensor, no_functions
from torchglass.journal.layout import NONE, NUMBER_BITS, NUMBER_MASK
from torchglass.journal.writer import Journal

ODD = -4
"""Versions from here downwards belong to what was read with care: ODD - 1 - the version."""


class FastValues(ValueTable):
    """The table of one session's values; its hot functions are C's."""

    def __init__(self, journal: Journal, engine: Any) -> None:
        self._engine = engine
        super().__init__(journal)

    def _bind(self) -> None:
        engine = self._engine
        self.value_of, self.plain_value_of, self.made = engine.value_of, engine.plain_value_of, engine.made
        self.reluctant, self.renew = self._reluctant, self._renew
        self.touch = engine.touch

    def __len__(self) -> int:
        return self._engine.count()[2]

    def is_known(self, found: Any) -> bool:
        return self._engine.known(found) is not None

    def last_number(self, tensor: Any) -> int:
        known = self._engine.known(tensor)
        return NONE if known is None else known[0] & NUMBER_MASK

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

    def _reluctant(self, tensor: Tensor, cls: type) -> int:
        engine = self._engine
        meta, version, address = read_unseen(tensor, cls)
        meta_id, before, odd = self.meta_id(meta), NONE, ODD - 1 - version
        known = engine.known(tensor)
        if known is not None:
            value, known_version = known
            before = value & NUMBER_MASK
            if known_version == odd and value >> NUMBER_BITS == meta_id:
                return value
        number = engine.next_value()
        value = number | meta_id << NUMBER_BITS
        engine.remember(tensor, value, odd)
        self._journal.values.write(number, version, address, before, meta_id)
        return value

    def _renew(self, args: Any, kwargs: Any, positions: tuple[int, ...], names: tuple[str, ...]) -> Any:
        """The arguments that an op wrote into are new values."""
        written = [args[position] for position in positions if position < len(args)]
        written += [kwargs[name] for name in names if name in kwargs] if kwargs else []
        for found in written:
            for tensor in found if isinstance(found, (list, tuple)) else (found,):
                if isinstance(tensor, Tensor) and not self._engine.begin(tensor):
                    self.touch(tensor)
        return written[0] if written else None
