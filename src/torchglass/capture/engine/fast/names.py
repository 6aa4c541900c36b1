"""What the compiled engine takes from torch and Python, once for each process."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchglass.capture.engine.log import LEAVING, LOGS
from torchglass.capture.torch.names import HANDLER, HAS_TORCH

if TYPE_CHECKING or HAS_TORCH:
    import torch

    from torchglass.capture.torch import private

    NEEDED = (private.MODULES, private.FUNCTIONS, private.OPS, private.HIDDEN, private.SHARING)
    """What the names that C calls are for."""

GETTERS = ("_version", "shape", "dtype", "device", "requires_grad")
"""Attributes of tensors that are read by their C function."""
METHODS = ("stride", "data_ptr", "is_neg", "is_conj", "untyped_storage", "storage_offset")


def torch_names() -> dict[str, Any]:
    """Return what C calls, by the names that it has there; raise TypeError if this torch lacks something."""
    lacking = [name for name, feature in private.MISSING.items() if feature in NEEDED]
    if lacking:
        raise TypeError(f"it has no {', '.join(lacking)}")
    names: dict[str, Any] = {name: _attribute(name) for name in (*GETTERS, *METHODS)}
    names |= {
        "Tensor": torch.Tensor,
        "Parameter": torch.nn.Parameter,
        "Size": torch.Size,
        "device_type": torch.device,
        "constant_types": (torch.dtype, torch.layout, torch.memory_format),
        "storage_address": private.storage_address,
        "storage_bytes": torch.UntypedStorage.nbytes,
        "count_modes": private.count_function_modes,
        "push_mode": private.push_function_mode,
        "pop_mode": private.pop_function_mode,
        "mode_at": private.function_mode_at,
        "no_functions": private.no_functions,
        "call_boxed": private.call_boxed,
        "detach": torch.ops.aten.detach.default,
        "handle_torch_function": private.handle_torch_function,
        "handler_code": HANDLER,
        "next_node": private.next_node,
        "current_node": private.current_node,
        "get_tracing_state": private.get_tracing_state,
        "set_tracing_state": private.set_tracing_state,
        "warn": warnings.warn,
        "own_folder": f"{Path(__file__).parents[2]}{os.sep}",
        "logs": LOGS,
        "leaving": LEAVING,
    }
    return names


def _attribute(name: str) -> Any:
    """Return an attribute of torch's own base class; Tensor itself must not override it."""
    owners = [cls for cls in torch.Tensor.__mro__ if name in vars(cls)]
    if not owners or owners[0] is torch.Tensor:
        raise TypeError(f"Tensor.{name} is not torch's own")
    return vars(owners[0])[name]
