"""Offers torchspy's ``TensorSaver`` and ``spy_save``, which write each tensor to a file when they are called."""

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

# Not the saver's own: a model that holds a saver is still to be copied and pickled.
_counting = threading.Lock()


class CannotSave(Exception):
    """Raised if a tensor cannot be written. This file turns it into a warning."""


class TensorSaver(BaseDebugger):
    """Writes tensors into ``output_dir`` as ``{name}.call{n}.pt``. ``call_counts`` counts ``n`` for each name.

    The whole file is written when ``save`` returns, and ``torch.load(file, weights_only=True)`` reads it. It holds a
    plain tensor on the CPU, and for a view only the part that the view shows. If a tensor cannot be saved (it has no
    values, or the disk is full), a warning in the log gives the reason, once for each name and reason, and the program
    continues.

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
        """Register the paths of a model's modules, for ``spy_save(name, tensor, module)``.

        A module is registered if it is of one of the classes, one of ``target_names`` is part of its path (None allows
        any path), and none of ``exclude_names`` is. If a module has two paths, the first is used.
        """
        for path, module in Filter.of(target_classes, target_names, exclude_names).of_model(model):
            self._register(module, path)

    def save(
        self, name: str, tensor: Tensor, call_idx: int | None = None, norm_only: bool = False
    ) -> None:
        """Write a tensor now. With ``norm_only``, write the L2 norm of each batch item (first dimension) instead.

        If ``call_idx`` is given, it is not counted, and a file of the same name and number is replaced.
        """
        if not self.enabled:
            return
        if call_idx is None:
            call_idx = self._count(str(name))
        path = self.output_dir / file_name(str(name), f".call{call_idx}.pt")
        try:
            # Neither a running trace nor the program's modes should see how we copy.
            with unseen():
                if norm_only:
                    kept = _norms(tensor)
                else:
                    kept = _kept(tensor)
                with whole_file(path) as draft, draft.open("wb") as stream:
                    torch.save(kept, stream)
        except Exception as error:  # whatever torch or the disk raises, the program must continue
            self._warn(str(name), _reason(error))

    def reset_counts(self) -> None:
        """Count from 0 again for every name, so that later files replace earlier ones."""
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
    """Save a tensor from inside a forward: ``spy_save("q", q, self)``. Outside a DebugContext, do nothing.

    The file is ``{prefix}.{module_path}.{name}.call{n}.pt``. Without a module the path is ``manual``. A module that the
    saver does not know causes a warning. In a compiled region, a call breaks the graph.
    """
    contexts = contexts_here()
    if contexts:
        contexts[-1]._save(name, tensor, module)


def _kept(tensor: Any) -> Tensor:
    """Return the tensor to write: plain, detached, on the CPU, and without the rest of the memory that a view uses."""
    plain = _plain(tensor)
    if plain.is_meta:
        return plain
    if plain.device.type != "cpu":
        return plain.cpu()
    if plain.layout is not torch.strided or plain.is_nested or plain.is_quantized:
        if plain.is_mkldnn:
            return plain.to_dense()
        return plain.clone()
    # `torch.save` writes the whole storage of a view.
    if plain.untyped_storage().nbytes() > plain.numel() * plain.element_size():
        return plain.clone()
    return plain


def _norms(tensor: Any) -> Tensor:
    """Return the L2 norm of each item of the first dimension.

    It is computed at least in float32, because the square of a float16 number may overflow.
    """
    plain = _plain(tensor)
    if not (plain.dtype.is_complex or plain.dtype == torch.float64):
        plain = plain.float()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    if plain.dim() > 1:
        rows = plain.flatten(1)
    else:
        rows = plain.unsqueeze(-1)
    return _kept(torch.linalg.vector_norm(rows, dim=-1))


def _plain(tensor: Any) -> Tensor:
    """Return a detached torch.Tensor for a Parameter or subclass. Raise ``CannotSave`` if it has no readable memory."""
    if not isinstance(tensor, Tensor):
        raise CannotSave(f"it is no tensor but of type {clean(type(tensor).__name__)}")
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        raise CannotSave(
            "a CUDA graph is being captured, in which nothing can be copied to the CPU"
        )
    if type(tensor) in (Tensor, nn.Parameter) or tensor.is_nested:
        return tensor.detach()
    with private.no_dispatch():  # otherwise a subclass may turn the result into its class again
        plain = tensor.detach()
    if not _has_values(plain, tensor.device):
        raise CannotSave(
            f"a {clean(type(tensor).__name__)} has no memory of its own; save the tensors it is made of"
        )
    return plain


def _has_values(plain: Tensor, device: torch.device) -> bool:
    """Return whether a tensor has memory on the device of its class. A wrapper or a fake tensor has none."""
    try:
        memory = plain.untyped_storage()
        return memory.device == device and (
            device.type == "meta" or not plain.numel() or memory.data_ptr() != 0
        )
    except RuntimeError:  # torch raises this for the memory of a wrapper
        return False


def _reason(error: BaseException) -> str:
    """Return an error as one line. Prefer the system's error text, which torch hides in an error of its own."""
    if isinstance(error, CannotSave):
        return str(error)
    system = system_error(error)
    if system is not None:
        if system.filename:
            return f"{system.strerror} ({clean(str(system.filename))})"
        return str(system.strerror)
    first = str(error).strip().partition("\n")[0]
    return clean(f"{type(error).__name__}: {first}" if first else type(error).__name__)[:300]
