"""Which torch functions are events, and by what name people know them."""

from __future__ import annotations

from typing import Any

import torch

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
