"""Keeps what values hold, each as it was at its event, until a number of bytes is reached."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torchglass.capture.statistics.saved import Block, Region, SavedBytes
from torchglass.capture.transparency.ours import foreign
from torchglass.journal.layout import NUMBER_MASK, shard_place

if TYPE_CHECKING:
    from torchglass.capture.session import Session

FULL = "{way} kept {kept:,} values of {size:,} bytes; of the others there are statistics: max_bytes=… keeps more"
FIRST, LARGEST = 1 << 20, 1 << 24
"""Bytes of the first region in memory; each further one has twice as many as the one before, up to the second number
and to an eighth of the budget: a region goes as a whole when the ring has dropped the events of all that is in it."""
MOST_MAPPED = 32
"""Regions of a file that are mapped at once: each takes a descriptor."""


class Saver:
    """The contents of one session's values, in a bundle's file or in memory."""

    def __init__(self, session: Session, most: int, way: str) -> None:
        self._session = session
        self._most = most
        self._way = way
        """How the user asked for it."""
        self._elsewhere = self._elsewhere_bytes = 0
        """What lies elsewhere, and how large that is."""
        self._is_full = False
        self.saved: Any = None
        """Where copies lie; None where each recording must be given its own."""
        self._home: Any = None
        self._all_saved: list[Any] = []
        session.copies.on_forget.append(self.forget)
        self._mapped: list[tuple[mmap.mmap, int, int, Any]] = []
        """Regions of a folder: each with its place, what is to add to offsets in it, and whose it is."""

    def choose_saved(self) -> None:
        """One home serves all recordings: memory where none has a folder, or the folder of the only one."""
        session = self._session
        folders = [each for each in session.homes if each.write in session.copies.writers]
        home = self._home
        if not folders:
            home = session
        elif len(session.recorders) == 1:
            home = folders[0]
        elif session.recorders:
            home = None
        if home is self._home and self.saved is not None:
            return
        self._home, self.saved = home, None
        if home is not None:
            self.saved = SavedBytes(self._in_memory if home is session else self._in_folder, self._most - self.used)
            self._all_saved.append(self.saved)

    @property
    def used(self) -> int:
        """Bytes that are kept."""
        return self._elsewhere_bytes + sum(each.used for each in self._all_saved)

    def _in_memory(self, size: int, unused: int) -> Region:
        regions = self._session.copies.regions
        wanted = max(min(FIRST << min(len(regions), 8), LARGEST, self._most // 8), size)
        if size > wanted // 4:
            wanted = size
        region = Block(wanted)
        number = self._session.copies.add_region(region)
        return region, -1 - number, 0, 1 << 40, -1

    def _in_folder(self, size: int, unused: int) -> Region | None:
        found = self._home.new_region(size, unused)
        if found is None:
            return None
        mapping, recording, shard, offset, copies, file = found
        place = shard_place(recording, shard)
        while len(self._mapped) >= MOST_MAPPED and self.saved.drop(*self._mapped[0][1:3]):
            oldest = self._mapped.pop(0)
            oldest[3].release_region(oldest[0])
        self._mapped.append((mapping, place, offset, self._home))
        return mapping, place, offset, copies, file

    def save(self, tensor: Any, value: int) -> None:
        """Keep a value; what cannot be kept (sparse, nested, on the meta device) has statistics only."""
        copies, number = self._session.copies, value & NUMBER_MASK
        if number in copies.names:
            return
        try:
            if tensor.is_meta or self._is_saved(tensor, number):
                return
            size = tensor.numel() * tensor.element_size()
            if self.used + size > self._most:
                self._is_full = True
                return
            copies.keep("", value, tensor, len(self._session.recorders))
            self._elsewhere += 1
            self._elsewhere_bytes += size
            if self.saved is not None:
                self.saved.most -= size
        except Exception as refusal:
            foreign(refusal)

    def _is_saved(self, tensor: Any, number: int) -> bool:
        """Whether a tensor like most lies among the saved bytes now, or there is no room for it."""
        cls, saved = type(tensor), self.saved
        if saved is None or (cls is not Tensor and cls is not Parameter) or not tensor.is_cpu:
            return False
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
            return False
        count, item, address = tensor.numel(), tensor.element_size(), tensor.data_ptr()
        span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        offset: int = tensor.storage_offset()
        if not count or not address or (offset + span) * item > tensor.untyped_storage().nbytes():
            return False
        words = saved.keep(number, address - offset * item, address, span * item, item, span > 2 * count)
        if words is None:
            return True
        if words is True:
            return False
        self._session.journal.kept.write(number, *words)
        return True

    def forget(self, before: int) -> None:
        """Values before this one are gone, and what only they showed."""
        for saved in self._all_saved:
            for place in saved.forget(before):
                self._session.copies.regions.pop(-1 - place, None)

    def finish(self) -> None:
        """Say what is missing; let go of what was handed out."""
        if self._is_full or any(each.is_full for each in self._all_saved):
            kept = self._elsewhere + sum(each.kept for each in self._all_saved)
            self._session.note(FULL.format(way=self._way, kept=kept, size=self.used))
        for saved in self._all_saved:
            saved.close()
        for mapping, _, _, home in self._mapped:
            home.release_region(mapping)
        self._mapped.clear()
