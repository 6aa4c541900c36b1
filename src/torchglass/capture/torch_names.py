"""The few names of torch that the recorder's core needs, with stand-ins where torch is not installed.

So the variables of a program that only uses numpy can be followed without torch; all that listens to torch itself
is in other files, which are not imported then (capture/listeners.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

HAS_TORCH = find_spec("torch") is not None

if TYPE_CHECKING or HAS_TORCH:
    import torch
    from torch import Tensor
    from torch.nn import Module, Parameter
    from torch.overrides import handle_torch_function

    no_functions: Callable[[], Any] = torch._C.DisableTorchFunction
    no_subclasses: Callable[[], Any] = torch._C.DisableTorchFunctionSubclass
    storage_address: Callable[[Any], int] = torch._C._storage_address  # pyright: ignore[reportAttributeAccessIssue]
    HANDLER: Any = handle_torch_function.__code__
    """Below this frame stands the Python function that was called: the call itself, not a place that made it."""
    SIZE: type = torch.Size
    WORDS: tuple[type, ...] = (torch.dtype, torch.layout, torch.memory_format)
    """Classes whose values are shown as their text."""
    DEVICE: type = torch.device

    def torch_version() -> str | None:
        """Which torch runs."""
        return str(torch.__version__)

    def schemas_named(name: str) -> list[Any]:
        """Torch's own descriptions of an operator; none when it has no such."""
        try:
            return torch._C._jit_get_schemas_for_operator(name)
        except RuntimeError:
            return []
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

    no_functions = no_subclasses = nullcontext
    HANDLER = None
    WORDS = ()

    def storage_address(tensor: Any) -> int:
        """Never asked."""
        return 0

    def torch_version() -> str | None:
        """None is there."""
        return None

    def schemas_named(name: str) -> list[Any]:
        """Never asked."""
        return []
