"""Looks up the private names of torch that torchglass uses, so that a missing name disables only one feature.

Torch changes private names without notice. Each name that ``_find`` or ``_load`` looks up is noted together with the
feature that needs it. `torchglass doctor` and the notes of a trace list those that the installed torch does not have.

Two kinds of private names are elsewhere: functions of torch that torchglass replaces are named by the modules that
replace them, and private attributes such as ``tensor._version`` are read where they are needed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import FunctionType, ModuleType
from typing import Any, cast

import torch

MODULES, FUNCTIONS, OPS = "calls of modules", "torch functions", "aten ops"
BACKWARD = "which events belong to backward"
CALLS = "that forward is not told twice where calls are recorded"
KERNELS = "statistics of tensors on a GPU by one kernel each"
NODES = "which forward step an event of backward belongs to"
VERSIONS = "the versions of tensors that custom ops write into, while ops are recorded"
INTERRUPTED = "that our modes go off when Ctrl-C falls into torch's own switching"
SHAPED = "the names of arguments"
WRAPPED = "marks inside of torch.func"
SHARING = "which tensors share memory"
COMPILED = "compiled regions as one step"
TRACING = "torch.jit.trace while ops are recorded"
GRAPHS = "that torch.export and make_fx do not see copies of values"
TRACED = "that torch.jit.trace does not see us read its tensors"
SCRIPTED = "scripted functions as one step"
BITS = "the same bits from a few functions while ops are recorded"
HIDDEN = "that modes of the program do not see us read its tensors"
CONVERSIONS = "conversions between numpy and torch"
REPLACED = "that methods of tensors which the program has replaced run once"

NAMES: dict[str, str] = {}
"""The private names that were looked up, each with the feature that needs it."""
MISSING: dict[str, str] = {}
"""The private names that the installed torch does not have, each with the feature that needs it."""
_NOTHING = object()
"""The result of looking up a name that does not exist."""


class _Empty:
    """Replaces a missing module or class. It has no attributes."""


def _find(
    name: str, needed_for: str, instead: Any = None, kind: Callable[[Any], bool] = callable
) -> Any:
    """Return what a name below ``torch`` refers to, or ``instead`` if it does not exist or ``kind`` rejects it."""
    NAMES[name] = needed_for
    found: Any = torch
    for part in name.split("."):
        found = getattr(found, part, _NOTHING)
        if found is _NOTHING:
            break
    if found is not _NOTHING and kind(found):
        return found
    MISSING[name] = needed_for
    return instead


def _load(module: str, needed_for: str) -> Any:
    """Import and return a module of torch, or return an ``_Empty`` if that fails."""
    try:
        return importlib.import_module(f"torch.{module}")
    except Exception:  # the import runs code of torch, which may raise anything
        NAMES[module] = MISSING[module] = needed_for
        return _Empty()


def _is_class(found: Any) -> bool:
    return isinstance(found, type)


def _is_module(found: Any) -> bool:
    return isinstance(found, ModuleType)


def _is_function(found: Any) -> bool:
    return isinstance(found, FunctionType)


def _is_dispatch_key(found: Any) -> bool:
    return type(found).__name__ in ("DispatchKey", "DispatchKeySet")


def has(*needed_for: str) -> bool:
    """Return whether this torch has all private names that the given features need."""
    return not MISSING or not any(each in needed_for for each in MISSING.values())


def missing_notes() -> list[str]:
    """Return a note for the trace about each private name that this torch does not have."""
    return [
        f"this torch ({torch.__version__}) has no torch.{name} of the kind that torchglass needs for {feature}"
        for name, feature in MISSING.items()
    ]


def _no(*_: Any) -> Any:
    return None


def _none(*_: Any) -> int:
    return 0


# ---------------------------------------------------------------- modes

push_function_mode: Callable[[Any], None] = _find(
    "_C._push_on_torch_function_stack", FUNCTIONS, _no
)
pop_function_mode: Callable[[], Any] = _find("_C._pop_torch_function_stack", FUNCTIONS, _no)
count_function_modes: Callable[[], int] = _find("_C._len_torch_function_stack", FUNCTIONS, _none)
function_mode_at: Callable[[int], Any] = _find("_C._get_function_stack_at", FUNCTIONS, _no)
push_op_mode: Callable[[Any], None] = _find("_C._push_on_torch_dispatch_stack", OPS, _no)
pop_op_mode: Callable[[Any], Any] = _find("_C._pop_torch_dispatch_stack", OPS, _no)
count_op_modes: Callable[[], int] = _find("_C._len_torch_dispatch_stack", OPS, _none)
op_mode_at: Callable[[int], Any] = _find("_C._get_dispatch_stack_at", OPS, _no)
_dispatch = _load("utils._python_dispatch", OPS)
TorchDispatchMode: type = _find("utils._python_dispatch.TorchDispatchMode", OPS, object, _is_class)
no_functions: Callable[[], Any] = _find("_C.DisableTorchFunction", HIDDEN, nullcontext)
no_subclasses: Callable[[], Any] = _find("_C.DisableTorchFunctionSubclass", HIDDEN, nullcontext)
no_dispatch: Callable[[], Any] = _find("_C._DisableTorchDispatch", HIDDEN, nullcontext)
no_modes: Callable[[], Any] = _find(
    "utils._python_dispatch._disable_current_modes", HIDDEN, nullcontext
)
infra_mode: Callable[[Any], Any] = _find("_C._get_dispatch_mode", GRAPHS, _no)
infra_keys: tuple[Any, ...] = tuple(
    getattr(_find("_C._TorchDispatchModeKey", GRAPHS, None, _is_class), "__members__", {}).values()
)
"""Keys of make_fx, FakeTensorMode and functionalize, which are special modes, one of each."""
count_early_modes: Callable[[], int] = _find(
    "_ops._len_torch_dispatch_stack_pre_dispatch", GRAPHS, _none
)
"""Returns how many pre-dispatch modes are on. They see calls before autograd does; ``torch.export`` uses them."""
is_functional: Callable[[Any], bool] = _find("_is_functional_tensor", GRAPHS, lambda _: False)
has_handler: Callable[[Any], bool] = _find("_C._has_torch_function", OPS, lambda _: False)
_pops = (
    _find("overrides._pop_mode_temporarily", INTERRUPTED),
    _find("utils._python_dispatch._pop_mode_temporarily", INTERRUPTED),
)
SWITCHES: tuple[Any, ...] = tuple(
    code
    for each in _pops
    if (code := getattr(getattr(each, "__wrapped__", None), "__code__", None)) is not None
)
"""The code objects of the functions by which torch turns a mode off for a while."""

# ---------------------------------------------------------------- tensors and functions

storage_address: Callable[[Any], int] = _find("_C._storage_address", SHARING, _none)
_schemas: Callable[[str], list[Any]] = _find(
    "_C._jit_get_schemas_for_operator", SHAPED, lambda _: []
)
get_schema: Callable[[str, str], Any] = _find("_C._get_schema", SHAPED, _no)
linalg: Any = _find("_C._linalg", BITS, _Empty(), _is_module)
nn_functions: Any = _find("_C._nn", BITS, _Empty(), _is_module)
functorch: Any = _find("_C._functorch", WRAPPED, None, _is_module)
_pyfunctorch = _load("_functorch.pyfunctorch", WRAPPED)
without_transforms: Callable[[], Any] = getattr(
    _pyfunctorch, "temporarily_clear_interpreter_stack", nullcontext
)


get_tracing_state: Callable[[], Any] = _find("_C._get_tracing_state", TRACED, _no)
set_tracing_state: Callable[[Any], None] = _find("_C._set_tracing_state", TRACED, _no)
next_node: Callable[[], int] = _find("_C._autograd._get_sequence_nr", NODES, _none)
"""Returns the number that this thread will give to its next autograd node."""
current_node: Callable[[], Any] = _find("_C._current_autograd_node", NODES, _no)
"""Returns the node that the autograd engine is running in this thread, or None."""


def schemas_named(name: str) -> list[Any]:
    """Return the schemas that torch registered for an operator, or [] if there are none."""
    try:
        return _schemas(name)
    except RuntimeError:
        return []


# ---------------------------------------------------------------- ops

_ops = _load("_ops", OPS)
OpOverload: type = _find("_ops.OpOverload", OPS, type("OpOverload", (), {}), _is_class)
find_dispatch_rule: Any = getattr(
    sys.modules.get("torch._library.simple_registry"), "find_torch_dispatch_rule", None
)
"""Torch calls this function for each op that reaches a mode, to find a handler that is registered for that pair."""
_custom_ops = _load("_library.custom_ops", VERSIONS)
CustomOpDef: Any = _find("_library.custom_ops.CustomOpDef", VERSIONS, _Empty(), _is_class)
COUNTING_KEY: Any = _find("_C.DispatchKey.ADInplaceOrView", VERSIONS, None, _is_dispatch_key)
"""The dispatch key at which torch counts the versions of tensors that an op writes into."""
after_counting: Any = _find("_C._after_ADInplaceOrView_keyset", VERSIONS, None, _is_dispatch_key)
dispatch_keys: Callable[[Any], Any] = _find("_C._dispatch_keys", VERSIONS)
exclude_key: Callable[[Any, bool], None] = _find(
    "_C._dispatch_tls_set_dispatch_key_excluded", VERSIONS
)
is_key_excluded: Callable[[Any], bool] = _find(
    "_C._dispatch_tls_is_dispatch_key_excluded", VERSIONS
)
has_kernel: Callable[[str, str], bool] = _find("_C._dispatch_has_kernel_for_dispatch_key", VERSIONS)
TensorBase: Any = _find("_C.TensorBase", REPLACED, _Empty(), _is_class)
call_boxed: Callable[..., Any] | None = _find("_C._dispatch_call_boxed", OPS)

# ---------------------------------------------------------------- GPUs

_gpu = _load("cuda._utils", KERNELS)
nvrtc_compile: Callable[..., tuple[bytes, str]] = _find("cuda._utils._nvrtc_compile", KERNELS)
load_cuda_module: Callable[..., Any] = _find("cuda._utils._cuda_load_module", KERNELS)
cuda_library: Callable[[], Any] = _find("cuda._utils._get_cuda_library", KERNELS)
_has_gpus = _find("backends.cuda.is_built", KERNELS, bool)()
current_raw_stream: Callable[[int], int] = cast("Any", None)
current_device: Callable[[], int] = cast("Any", None)
is_capturing: Callable[[], bool] = _find("cuda.is_current_stream_capturing", KERNELS, bool)
if _has_gpus:
    current_raw_stream = _find("_C._cuda_getCurrentRawStream", KERNELS)
    current_device = _find("_C._cuda_getDevice", KERNELS)
    is_capturing = _find("_C._cuda_isCurrentStreamCapturing", KERNELS, is_capturing)

# ---------------------------------------------------------------- names that are replaced while something is recorded

wrapped_call: Any = _find("nn.Module._wrapped_call_impl", MODULES, None, _is_function)
call_impl: Any = _find("nn.Module._call_impl", CALLS, None, _is_function)
handle_torch_function: Any = _find("overrides.handle_torch_function", FUNCTIONS, None, _is_function)
frombuffer: Callable[..., Any] = _find("frombuffer", CONVERSIONS)
"""The original ``torch.frombuffer``. The name is public, but recording replaces it too."""
_trace = _load("jit._trace", TRACING)


def worker_info() -> Any:
    """Return torch's description of this DataLoader worker process, or None in any other process."""
    return getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None)
