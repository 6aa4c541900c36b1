"""Saves tensors, one file each, at the moment they are handed over."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchglass.capture.torch import private
from torchglass.capture.transparency.ours import unseen
from torchglass.compat.torchspy._base import BaseDebugger, Classes, Filter, Names, file_name
from torchglass.compat.torchspy.context import contexts_here
from torchglass.events.spelling import clean
from torchglass.store.layout import system_error, whole_file

logger = logging.getLogger(__name__)

_counting = threading.Lock()  # not the saver's own: a model that holds a saver is still to be copied and pickled


class CannotSave(Exception):
    """Why a tensor is not written; becomes a warning, and never leaves this file."""


class TensorSaver(BaseDebugger):
    """Writes tensors into ``output_dir``, as ``{name}.call{n}.pt``, n counted per name in ``call_counts``.

    The file is whole and there when ``save`` returns, and ``torch.load(file, weights_only=True)`` reads
    it. It holds a plain tensor on the CPU, and of a view only the view. What cannot be saved (a tensor
    without values, a full disk) is a warning in the log that says why, once for each name and reason;
    the program goes on.

    In file names, slashes, NUL, newlines and the like are spelt as in URLs (``%2F``), and what is too long
    is cut and marked by ``~`` and a digest: no name leaves the folder or takes another one's file.
    """

    def __init__(self, output_dir: str | Path, enabled: bool = True) -> None:
        super().__init__(output_dir, enabled)
        self.call_counts: dict[str, int] = defaultdict(int)
        self._warned: set[tuple[str, str]] = set()

    def register_modules(
        self,
        model: nn.Module,
        target_classes: Classes = (nn.Module,),
        target_names: Names = None,
        exclude_names: Names = None,
    ) -> None:
        """Learn the paths of a model's modules, for ``spy_save(name, tensor, module)``.

        A module is registered when it is of one of the classes, one of ``target_names`` is part of its
        path (None: any path), and none of ``exclude_names`` is. Under two paths, the first counts.
        """
        for path, module in Filter.of(target_classes, target_names, exclude_names).of_model(model):
            self._register(module, path)

    def save(self, name: str, tensor: Tensor, call_idx: int | None = None, norm_only: bool = False) -> None:
        """Write a tensor now; ``norm_only`` keeps the L2 norm of each batch item (first dimension) instead.

        A ``call_idx`` of one's own is not counted, and replaces what has the same name and number.
        """
        if not self.enabled:
            return
        if call_idx is None:
            call_idx = self._count(str(name))
        path = self.output_dir / file_name(str(name), f".call{call_idx}.pt")
        try:
            # Neither a running trace nor the program's own modes should see how we copy.
            with unseen():
                kept = _norms(tensor) if norm_only else _kept(tensor)
                with whole_file(path) as draft, draft.open("wb") as stream:
                    torch.save(kept, stream)
        except Exception as error:  # whatever torch or the disk says, the program goes on
            self._warn(str(name), _reason(error))

    def reset_counts(self) -> None:
        """Count from 0 again, for every name; later files replace earlier ones."""
        with _counting:
            self.call_counts.clear()

    def _count(self, name: str) -> int:
        with _counting:
            number = self.call_counts[name]
            self.call_counts[name] = number + 1
            return number

    def _warn(self, name: str, reason: str) -> None:
        if (name, reason) not in self._warned:
            self._warned.add((name, reason))
            logger.warning("tensor %r was not saved: %s", clean(name), reason)


def spy_save(name: str, tensor: Tensor, module: nn.Module | None = None) -> None:
    """Save a tensor from inside a forward: ``spy_save("q", q, self)``; does nothing outside a DebugContext.

    The file is ``{prefix}.{module_path}.{name}.call{n}.pt``. Without a module the path is ``manual``; a
    module that the saver does not know is a warning. In a compiled region it breaks the graph.
    """
    contexts = contexts_here()
    if contexts:
        contexts[-1]._save(name, tensor, module)


def _kept(tensor: Any) -> Tensor:
    """The tensor as it is to be written: plain, detached, on the CPU, in no more memory than its own."""
    plain = _plain(tensor)
    if plain.is_meta:
        return plain
    if plain.device.type != "cpu":
        return plain.cpu()
    if plain.layout is not torch.strided or plain.is_nested or plain.is_quantized:
        return plain.to_dense() if plain.is_mkldnn else plain.clone()
    # torch.save writes all of the memory that a view looks into.
    return plain.clone() if plain.untyped_storage().nbytes() > plain.numel() * plain.element_size() else plain


def _norms(tensor: Any) -> Tensor:
    """The L2 norm of each item of the first dimension, not in less than float32: a half's square overflows."""
    plain = _plain(tensor)
    if not (plain.dtype.is_complex or plain.dtype == torch.float64):
        plain = plain.float()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    rows = plain.flatten(1) if plain.dim() > 1 else plain.unsqueeze(-1)
    return _kept(torch.linalg.vector_norm(rows, dim=-1))


def _plain(tensor: Any) -> Tensor:
    """A detached torch.Tensor of a Parameter or subclass; refuses what is no tensor or is one in name only."""
    if not isinstance(tensor, Tensor):
        raise CannotSave(f"it is no tensor but of type {clean(type(tensor).__name__)}")
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        raise CannotSave("a CUDA graph is being captured, in which nothing can be copied to the CPU")
    if type(tensor) in (Tensor, nn.Parameter) or tensor.is_nested:
        return tensor.detach()
    with private.no_dispatch():  # or a subclass would make its own of it again
        plain = tensor.detach()
    if not _has_values(plain, tensor.device):
        raise CannotSave(f"a {clean(type(tensor).__name__)} has no memory of its own; save the tensors it is made of")
    return plain


def _has_values(plain: Tensor, device: torch.device) -> bool:
    """Whether there is memory where a subclass says that it is: a wrapper or a fake tensor has none."""
    try:
        memory = plain.untyped_storage()
        return memory.device == device and (device.type == "meta" or not plain.numel() or memory.data_ptr() != 0)
    except RuntimeError:  # torch's word for the memory of a wrapper
        return False


def _reason(error: BaseException) -> str:
    """What to say of an error: the disk's own words, which torch hides behind its own, in one line."""
    if isinstance(error, CannotSave):
        return str(error)
    said = system_error(error)
    if said is not None:
        return f"{said.strerror} ({clean(str(said.filename))})" if said.filename else str(said.strerror)
    first = str(error).strip().partition("\n")[0]
    return clean(f"{type(error).__name__}: {first}" if first else type(error).__name__)[:300]
