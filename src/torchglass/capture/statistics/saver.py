"""Keeps the contents of values as they were at each event, up to a number of bytes (``max_bytes``)."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torchglass.capture.statistics.memory import is_there
from torchglass.capture.statistics.saved import Block, Region, SavedBytes
from torchglass.capture.torch import private
from torchglass.capture.transparency.graph_capture import (
    CAPTURING,
    as_plain_tensor,
    holds_numbers,
    is_capturing_graph,
    is_torch_class,
)
from torchglass.capture.transparency.ours import foreign
from torchglass.journal.layout import NUMBER_MASK, shard_place

if TYPE_CHECKING:
    from torchglass.capture.session import Session

FULL = "{way} kept {kept:,} values of {size:,} bytes; of the others only the statistics: max_bytes=… keeps more"
NOT_ASKED = (
    "tensors of classes of the program's own that hold others were not kept: "
    "only code of those classes could copy them"
)
FIRST = 1 << 20
LARGEST = 1 << 24
"""The sizes in bytes of the first region in memory and of the largest.

Each further region is twice as large as the one before it, but not larger than an eighth of the budget: a region is
dropped as a whole, after the ring has dropped the events of all values in the region.
"""
MOST_MAPPED = 32
"""The most regions of a file that are mapped at once, because each mapping takes a file descriptor."""


class Saver:
    """Keeps the contents of the values of one session, in the files of a bundle or in memory."""

    def __init__(self, session: Session, most: int, way: str) -> None:
        self._session = session
        self._most = most
        self._way = way
        """The option with which the user asked for contents, for messages."""
        self._elsewhere = self._elsewhere_bytes = 0
        """The number of values that were kept as tensors (``session.copies``) instead, and their size in bytes."""
        self._is_full = False
        self.saved: Any = None
        """Takes the copies for all recordings; None if each recording gets its own copies."""
        self._home: Any = None
        self._all_saved: list[Any] = []
        session.copies.on_forget.append(self.forget)
        self._mapped: list[tuple[mmap.mmap, int, int, Any]] = []
        """The mapped regions of a bundle, each with its place, the number to add to its offsets, and its owner."""

    def choose_saved(self) -> None:
        """Choose where the copies for all recordings go.

        They go to memory if no recording writes a folder, and to the folder if there is only one recording. Otherwise
        each recording gets its own copies.
        """
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
        self._home = home
        self.saved = None
        if home is not None:
            self.saved = SavedBytes(
                self._in_memory if home is session else self._in_folder, self._most - self.used
            )
            self._all_saved.append(self.saved)

    @property
    def used(self) -> int:
        """The number of bytes that are kept."""
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
        """Keep the content of a value. A tensor that cannot be copied, such as one on the meta device, is left out."""
        number = value & NUMBER_MASK
        cls = type(tensor)
        if number in self._session.copies.names:
            return
        try:
            if cls is Tensor or cls is Parameter:
                self._save(tensor, value)
                return
            with private.no_subclasses():
                if is_torch_class(cls):
                    self._save(tensor, value)
                else:
                    self._save_as_plain_tensor(tensor, value)
        except Exception as refusal:
            foreign(refusal)

    def _save_as_plain_tensor(self, tensor: Any, value: int) -> None:
        """Keep a tensor whose class the program defines, without calling code of that class."""
        if is_capturing_graph():
            self._session.note(f"some values were not kept: {CAPTURING}")
            return
        plain = as_plain_tensor(tensor)
        if plain.layout is torch.strided and plain.numel() and not is_there(plain, 1):
            self._session.note(NOT_ASKED)
            return
        self._save(plain, value)

    def _save(self, tensor: Any, value: int) -> None:
        if (
            not holds_numbers(tensor)
            or tensor.is_meta
            or self._is_saved(tensor, value & NUMBER_MASK)
        ):
            return
        if is_capturing_graph():
            self._session.note(f"some values were not kept: {CAPTURING}")
            return
        size = tensor.numel() * tensor.element_size()
        if self.used + size > self._most:
            self._is_full = True
            return
        self._session.copies.keep("", value, tensor, len(self._session.recorders))
        self._elsewhere += 1
        self._elsewhere_bytes += size
        if self.saved is not None:
            self.saved.most -= size

    def _is_saved(self, tensor: Any, number: int) -> bool:
        """Save the bytes of a tensor in CPU memory; return whether the tensor is dealt with.

        Also return True if there is no room for the tensor. Return False if it must be copied as a tensor.
        """
        saved = self.saved
        if saved is None or not tensor.is_cpu:
            return False
        if (
            tensor.layout is not torch.strided
            or tensor.is_quantized
            or tensor.is_conj()
            or tensor.is_neg()
        ):
            return False
        count = tensor.numel()
        item = tensor.element_size()
        span = 1 + sum(
            (size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)
        )
        if not count or not is_there(tensor, span):
            return False
        offset: int = tensor.storage_offset()
        address: int = tensor.data_ptr()
        words = saved.keep(
            number, address - offset * item, address, span * item, item, span > 2 * count
        )
        if words is None:
            return True
        if words is True:
            return False
        self._session.journal.kept.write(number, *words)
        return True

    def forget(self, before: int) -> None:
        """Drop the regions that hold only copies of values before this one."""
        for saved in self._all_saved:
            for place in saved.forget(before):
                self._session.copies.regions.pop(-1 - place, None)

    def finish(self) -> None:
        """Note which contents are missing, and release all regions, when the recording ends."""
        if self._is_full or any(each.is_full for each in self._all_saved):
            kept = self._elsewhere + sum(each.kept for each in self._all_saved)
            self._session.note(FULL.format(way=self._way, kept=kept, size=self.used))
        for saved in self._all_saved:
            saved.close()
        for mapping, _, _, home in self._mapped:
            home.release_region(mapping)
        self._mapped.clear()
