"""Makes the journal rows of torch functions and ops: their public names, parameters and notes."""

from __future__ import annotations

from typing import Any

import torch

from torchglass.capture.torch.private import OpOverload
from torchglass.capture.torch.signatures import function_parameters, op_parameters
from torchglass.capture.transparency import modes
from torchglass.journal.rows import WhatRow, encoded

FUNCTION, OP = "function", "op"
_known: dict[tuple[int, bool], tuple[Any, bytes]] = {}
"""The rows of torch's own functions, cached for the process and keyed by (``id``, whether ops are recorded)."""


_known_ops: dict[tuple[int, str | None], tuple[Any, bytes]] = {}
"""The rows of ops in the namespaces of ``_KEPT``, cached for the process and keyed by (``id``, note)."""
_KEPT = ("aten", "prim", "prims")
"""The namespaces of ops that torch never frees."""


def function_bytes(func: Any, ops_recorded: bool) -> bytes:
    """Return the row of a torch function."""
    known = _known.get((id(func), ops_recorded))
    if known is None or known[0] is not func:
        known = (func, encoded(_function_row(func, ops_recorded)))
        if is_torchs_own(func):
            _known[id(func), ops_recorded] = known
    return known[1]


def is_torchs_own(func: Any) -> bool:
    """Return whether torch defines a function, and so never frees it."""
    return (getattr(func, "__module__", None) or "torch").startswith("torch")


def _function_row(func: Any, ops_recorded: bool) -> WhatRow:
    name = public_name(func)
    note = None
    if name in modes.FUSED:
        note = modes.FUSED_NOTE
    if ops_recorded and func in modes.sensitive_functions():
        note = modes.NOTE
    names, rest = function_parameters(func)
    return WhatRow(
        FUNCTION, name, note, "", list(names), rest, getattr(func, "__name__", "") == "__get__"
    )


def op_bytes(op: Any, note: str | None) -> bytes:
    """Return the row of an op."""
    known = _known_ops.get((id(op), note))
    if known is None or known[0] is not op:
        names, rest = op_parameters(op)
        known = (op, encoded(WhatRow(OP, op_name(op), note, "", list(names), rest, False)))
        if getattr(op, "namespace", None) in _KEPT:
            _known_ops[id(op), note] = known
    return known[1]


def op_name(op: Any) -> str:
    """Return the name of an op: ``aten::mm``, or ``aten::mul.Tensor`` with an overload that is not the default."""
    if isinstance(op, OpOverload):
        return op.name()
    if callable(getattr(op, "name", None)):
        name = op.name()
    else:
        name = getattr(op, "__name__", type(op).__name__)
    return f"{getattr(op, 'namespace', None) or 'higher_order'}::{name}"


# ---------------------------------------------------------------- naming

# Decides which torch functions are events, and under which names they are shown.

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
"""Functions that return a property of a tensor and compute nothing. Their calls are not events."""

SWITCHES = frozenset(
    """
    _set_grad_enabled set_grad_enabled retain_grad register_hook register_post_accumulate_grad_hook
    set_default_dtype set_default_device set_printoptions manual_seed seed initial_seed get_rng_state
    set_rng_state set_autocast_enabled set_autocast_cache_enabled autocast_increment_nesting
    autocast_decrement_nesting clear_autocast_cache set_autocast_dtype share_memory_ _clear_non_serializable_cached_data
    refine_names rename rename_ __setstate__ module_load
    """.split()
)
"""Functions that change a setting and neither make nor change a tensor. Their calls are not events."""

TENSOR_READS = frozenset(["T", "mT", "H", "mH", "real", "imag", "data", "grad"])
"""Attributes of a tensor whose reading makes a tensor. Reading any other attribute is not an event."""

TENSOR_WRITES = frozenset(["data"])

LEAVES = frozenset(["__repr__", "__format__", "__deepcopy__", "__reduce_ex__", "module_load"])
"""Python functions that are shown as one event, without the calls inside of them."""

_PREFIXES = {
    "torch._C._linalg": ("linalg_", "linalg."),
    "torch._C._fft": ("fft_", "fft."),
    "torch._C._special": ("special_", "special."),
    "torch._C._nested": ("nested_", "nested."),
    "torch._C._sparse": ("sparse_", "sparse."),
}


def is_event(func: Any) -> bool:
    """Return whether calls of this function are recorded. Queries, switches and plain attribute reads are not."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        return attribute in (TENSOR_READS if name == "__get__" else TENSOR_WRITES)
    return name not in QUERIES and name not in SWITCHES


def public_name(func: Any) -> str:
    """Return the public name without ``torch.``: ``cat``, ``Tensor.matmul``, ``F.softmax``, ``linalg.det``."""
    name = getattr(func, "__name__", None) or type(func).__name__
    owner = getattr(func, "__objclass__", None)
    if name in ("__get__", "__set__"):
        attribute = getattr(func.__self__, "__name__", "?")
        if name == "__get__":
            return f"Tensor.{attribute}"
        return f"Tensor.{attribute}.__set__"
    if owner is not None:
        if issubclass(torch.Tensor, owner):
            return f"Tensor.{name}"
        return f"{owner.__name__}.{name}"
    module = getattr(func, "__module__", None) or ""
    if module == "torch._tensor":
        return f"Tensor.{name}"
    if module in ("torch.nn.functional", "torch._C._nn"):
        if hasattr(torch.nn.functional, name):
            return f"F.{name}"
        return name
    # An op that is called as `torch.ops.aten.mm`, with or without an overload.
    if module.startswith("torch._ops."):
        return f"{module.removeprefix('torch._')}.{name}"
    if module in _PREFIXES:
        stem, prefix = _PREFIXES[module]
        return prefix + name.removeprefix(stem)
    if module in (
        "torch",
        "torch.functional",
        "torch._C",
        "torch._VF",
        "torch._C._VariableFunctions",
    ):
        return name
    return f"{module.removeprefix('torch.')}.{getattr(func, '__qualname__', name)}".lstrip(".")


def changes_its_input(func: Any) -> bool:
    """Return whether a function writes into an argument and may return None (``x[0] = 1``, ``_foreach_add_``)."""
    name = getattr(func, "__name__", "")
    return name in ("__setitem__", "__set__") or (name.endswith("_") and not name.endswith("__"))


def changes_metadata(func: Any) -> bool:
    """Return whether a function sets an attribute that changes the tensor, as ``p.requires_grad = False`` does.

    ``p.grad = None`` does not change the tensor: the parameter is still the same value.
    """
    if getattr(func, "__name__", "") != "__set__":
        return False
    return getattr(getattr(func, "__self__", None), "__name__", "") != "grad"
