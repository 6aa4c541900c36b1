"""Keeps what values hold, each as it was at its event, until a number of bytes is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchglass.capture.transparency.ours import foreign
from torchglass.journal.layout import NUMBER_MASK

if TYPE_CHECKING:
    from torchglass.capture.session import Session

FULL = "{way} kept {kept:,} values of {size:,} bytes; of the others there are statistics: max_bytes=… keeps more"


class Saver:
    """The contents of one session's values, in a bundle's file or in memory."""

    def __init__(self, session: Session, most: int, way: str) -> None:
        self._session = session
        self._most = most
        self._way = way
        """How the user asked for it."""
        self._used = self._kept = 0
        self._is_full = False

    def save(self, tensor: Any, value: int) -> None:
        """Keep a value; what cannot be kept (sparse, nested, on the meta device) has statistics only."""
        copies = self._session.copies
        if value & NUMBER_MASK in copies.names:
            return
        try:
            size = tensor.numel() * tensor.element_size()
            if tensor.is_meta:
                return
            if self._used + size > self._most:
                self._is_full = True
                return
            copies.keep("", value, tensor, len(self._session.recorders))
            self._used += size
            self._kept += 1
        except Exception as refusal:
            foreign(refusal)

    def finish(self) -> None:
        """Say what is missing."""
        if self._is_full:
            self._session.note(FULL.format(way=self._way, kept=self._kept, size=self._used))
