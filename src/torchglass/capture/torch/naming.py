"""What torch calls its functions and ops: names, parameters and notes, as rows of the journal."""

from __future__ import annotations

from typing import Any

import torch

from torchglass.capture.torch.private import OpOverload
from torchglass.capture.torch.signatures import function_parameters, op_parameters
from torchglass.capture.transparency import modes
from torchglass.journal.rows import WhatRow, encoded

FUNCTION, OP = "function", "op"
_known: dict[tuple[int, bool], tuple[Any, bytes]] = {}
"""By ``id`` of a function of torch's own, and whether ops are recorded: kept for the process."""


_known_ops: dict[tuple[int, str | None], tuple[Any, bytes]] = {}
"""The same for ops, by their notes …"""
_KEPT = ("aten", "prim", "prims")
"""… of these names, which torch keeps for ever, too."""


def function_bytes(func: Any, ops_recorded: bool) -> bytes:
    """The row of a torch function."""
    known = _known.get((id(func), ops_recorded))
    if known is None or known[0] is not func:
        known = (func, encoded(_function_row(func, ops_recorded)))
        if is_torchs_own(func):
            _known[id(func), ops_recorded] = known
    return known[1]


def is_torchs_own(func: Any) -> bool:
    """Whether a function belongs to torch, which keeps it for ever."""
    return (getattr(func, "__module__", None) or "torch").startswith("torch")


def _function_row(func: Any, ops_recorded: bool) -> WhatRow:
    name = public_name(func)
    note = modes.FUSED_NOTE if name in modes.FUSED else None
    if ops_recorded and func in modes.sensitive_functions():
        note = modes.NOTE
    names, rest = function_parameters(func)
    return WhatRow(FUNCTION, name, note, "", list(names), rest, getattr(func, "__name__", "") == "__get__")


def op_bytes(op: Any, note: str | None) -> bytes:
    """The row of an op."""
    known = _known_ops.get((id(op), note))
    if known is None or known[0] is not op:
        names, rest = op_parameters(op)
        known = (op, encoded(WhatRow(OP, op_name(op), note, "", list(names), rest, False)))
        if getattr(op, "namespace", None) in _KEPT:
            _known_ops[id(op), note] = known
    return known[1]


def op_name(op: Any) -> str:
    """``aten::mm``, with the overload unless it is the default one: ``aten::mul.Tensor``."""
    if isinstance(op, OpOverload):
        return op.name()
    name = op.name() if callable(getattr(op, "name", None)) else getattr(op, "__name__", type(op).__name__)
    return f"{getattr(op, 'namespace', None) or 'higher_order'}::{name}"


# ---------------------------------------------------------------- naming

# Which torch functions are events, and by what name people know them.

QUERIES = frozenset(
    """
    __len__ __hash__ __dir__ _is_view _cdata dim ndimension ndim size shape stride storage_offset
    numel nelement element_size itemsize nbytes data_ptr get_device dense_dim sparse_dim
    is_coalesced is_complex is_conj is_contiguous is_distributed is_floating_point is_inference is_neg
    is_pinned is_same_size is_set_to is_shared is_signed is_tensor is_storage is_autocast_enabled
    has_names names storage storage_type untyped_storage _typed_storage q_scale q_zero_point qscheme
    q_per_channel_axis result_type can_cast promote_types broadcast_shapes dim_order
    get_default_dtype is_grad_enabled is_inference_mode_enabled __dlpack_device__ _nested_tensor_size
    _nested_tensor_strides _nested_tensor_storage_offsets _has_compatible_shallow_copy_type _use_cudnn_ctc_loss
    """.split()
)
"""They ask about a tensor and compute nothing."""

SWITCHES = frozenset(
    """
    _set_grad_enabled set_grad_enabled retain_grad register_hook register_post_accumulate_grad_hook
    set_default_dtype set_default_device set_printoptions manual_seed seed initial_seed get_rng_state
    set_rng_state set_autocast_enabled set_autocast_cache_enabled autocast_increment_nesting
    autocast_decrement_nesting clear_autocast_cache set_autocast_dtype share_memory_ _clear_non_serializable_cached_data
    refine_names rename rename_ __setstate__ module_load
    """.split()
)
"""They set something up and neither make nor change a tensor."""

TENSOR_READS = frozenset(["T", "mT", "H", "mH", "real", "imag", "data", "grad"])
"""Attributes whose reading makes a tensor; all others are plain reads."""

TENSOR_WRITES = frozenset(["data"])

LEAVES = frozenset(["__repr__", "__format__", "__deepcopy__", "__reduce_ex__", "module_load"])
"""Python functions that are one step to the user: what they do inside is not shown."""

_PREFIXES = {
    "torch._C._linalg": ("linalg_", "linalg."),
    "torch._C._fft": ("fft_", "fft."),
    "torch._C._special": ("special_", "special."),
    "torch._C._nested": ("nested_", "nested."),
    "torch._C._sparse": ("sparse_", "sparse."),
}


def is_event(func: Any) -> bool:
    """Whether calls of this function are recorded; queries, switches and plain attribute reads are not."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        return attribute in (TENSOR_READS if name == "__get__" else TENSOR_WRITES)
    return name not in QUERIES and name not in SWITCHES


def public_name(func: Any) -> str:
    """The name without ``torch.``: ``cat``, ``Tensor.matmul``, ``F.softmax``, ``linalg.det``."""
    name = getattr(func, "__name__", None) or type(func).__name__
    owner = getattr(func, "__objclass__", None)
    if name in ("__get__", "__set__"):
        attribute = getattr(func.__self__, "__name__", "?")
        return f"Tensor.{attribute}" if name == "__get__" else f"Tensor.{attribute}.__set__"
    if owner is not None:
        return f"Tensor.{name}" if issubclass(torch.Tensor, owner) else f"{owner.__name__}.{name}"
    module = getattr(func, "__module__", None) or ""
    if module == "torch._tensor":
        return f"Tensor.{name}"
    if module in ("torch.nn.functional", "torch._C._nn"):
        return f"F.{name}" if hasattr(torch.nn.functional, name) else name
    if module.startswith("torch._ops."):  # an op called by its own name: torch.ops.aten.mm, with or without overload
        return f"{module.removeprefix('torch._')}.{name}"
    if module in _PREFIXES:
        stem, prefix = _PREFIXES[module]
        return prefix + name.removeprefix(stem)
    if module in ("torch", "torch.functional", "torch._C", "torch._VF", "torch._C._VariableFunctions"):
        return name
    return f"{module.removeprefix('torch.')}.{getattr(func, '__qualname__', name)}".lstrip(".")


def changes_its_input(func: Any) -> bool:
    """Whether the function writes into an argument and may return nothing (``x[0] = 1``, ``_foreach_add_``)."""
    name = getattr(func, "__name__", "")
    return name in ("__setitem__", "__set__") or (name.endswith("_") and not name.endswith("__"))
