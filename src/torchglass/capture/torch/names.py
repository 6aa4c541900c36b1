"""Defines the few names of torch that the recorder's core needs, with replacements if torch is not installed.

So torchglass can follow the variables of a program that only uses numpy, without torch. The code that listens to torch
is in other files, which are imported only if torch is installed (capture/torch/listeners.py).
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

    from torchglass.capture.torch import private

    no_functions, no_subclasses, no_dispatch = (
        private.no_functions,
        private.no_subclasses,
        private.no_dispatch,
    )
    worker_info = private.worker_info
    storage_address = private.storage_address
    schemas_named = private.schemas_named
    count_modes = private.count_function_modes
    next_node = private.next_node
    current_node = private.current_node
    get_tracing_state = private.get_tracing_state
    set_tracing_state = private.set_tracing_state
    HANDLER: Any = getattr(private.handle_torch_function, "__code__", None)
    """The code of torch's function that calls our handler for functions written in Python. The frame that called it is
    the torch function itself, so the place of the call is one frame further up."""
    CALL_IMPL: Any = getattr(private.call_impl, "__code__", None)
    """The code of torch's function that calls ``forward`` when a module is called."""
    SIZE: type = torch.Size
    WORDS: tuple[type, ...] = (torch.dtype, torch.layout, torch.memory_format)
    """Classes whose values are shown as their text."""
    DEVICE: type = torch.device

    def torch_version() -> str | None:
        """Return the version of torch that is running."""
        return str(torch.__version__)

else:
    # No object is of these classes, and the functions find nothing. Some of them are never called.

    class Tensor:
        """A tensor."""

    class Parameter(Tensor):
        """A tensor that is trained."""

    Module, SIZE, DEVICE = (type(name, (), {}) for name in ("Module", "Size", "device"))
    no_functions = no_subclasses = no_dispatch = nullcontext
    HANDLER = CALL_IMPL = None
    WORDS = ()

    def _no_number(*_: Any) -> int:
        return 0

    def _nothing(*_: Any) -> None:
        return None

    next_node = count_modes = storage_address = _no_number
    torch_version = worker_info = current_node = get_tracing_state = set_tracing_state = _nothing

    def schemas_named(name: str) -> list[Any]:
        """Return the schemas of an op. Without torch there are none."""
        return []
