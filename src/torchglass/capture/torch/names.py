"""The few names of torch that the recorder's core needs, with stand-ins where torch is not installed.

So the variables of a program that only uses numpy can be followed without torch; all that listens to torch itself
is in other files, which are not imported then (capture/torch/listeners.py).
"""

from __future__ import annotations

from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

HAS_TORCH = find_spec("torch") is not None

if TYPE_CHECKING or HAS_TORCH:
    import torch
    from torch import Tensor
    from torch.nn import Module, Parameter
    from torch.overrides import handle_torch_function

    from torchglass.capture.torch import private

    no_functions, no_subclasses, no_dispatch = private.no_functions, private.no_subclasses, private.no_dispatch
    worker_info = private.worker_info
    storage_address, schemas_named = private.storage_address, private.schemas_named
    count_modes = private.count_function_modes
    next_node, current_node = private.next_node, private.current_node
    HANDLER: Any = handle_torch_function.__code__
    """Below this frame stands the Python function that was called: the call itself, not a place that made it."""
    CALL_IMPL: Any = getattr(private.call_impl, "__code__", None)
    """Who calls ``forward`` when a module is called."""
    SIZE: type = torch.Size
    WORDS: tuple[type, ...] = (torch.dtype, torch.layout, torch.memory_format)
    """Classes whose values are shown as their text."""
    DEVICE: type = torch.device

    def torch_version() -> str | None:
        """Which torch runs."""
        return str(torch.__version__)

else:
    # Nothing is one of these classes, and the functions find nothing; some are never asked.

    class Tensor:
        """A tensor."""

    class Parameter(Tensor):
        """One that is trained."""

    Module, SIZE, DEVICE = (type(name, (), {}) for name in ("Module", "Size", "device"))
    no_functions = no_subclasses = no_dispatch = nullcontext
    HANDLER = CALL_IMPL = None
    WORDS = ()

    def _no_number(*_: Any) -> int:
        return 0

    def _nothing(*_: Any) -> None:
        return None

    next_node = count_modes = storage_address = _no_number
    torch_version = worker_info = current_node = _nothing

    def schemas_named(name: str) -> list[Any]:
        """Of an op; there are none."""
        return []
