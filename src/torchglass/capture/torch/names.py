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

    class Tensor:
        """Nothing is one."""

    class Parameter(Tensor):
        """Nothing is one."""

    class Module:
        """Nothing is one."""

    class SIZE:
        """Nothing is one."""

    class DEVICE:
        """Nothing is one."""

    no_functions = no_subclasses = no_dispatch = nullcontext
    HANDLER = CALL_IMPL = None
    WORDS = ()

    def storage_address(tensor: Any) -> int:
        """Never asked."""
        return 0

    def torch_version() -> str | None:
        """None is there."""
        return None

    def worker_info() -> Any:
        """There are none."""
        return None

    def next_node() -> int:
        """There are none."""
        return 0

    def current_node() -> Any:
        """There is none."""
        return None

    def count_modes() -> int:
        """There are none."""
        return 0

    def schemas_named(name: str) -> list[Any]:
        """Never asked."""
        return []
