"""Every private name of torch that we use, looked up with care: one that is missing costs its feature, not the import.

Torch changes what is behind an underscore without notice. Each name stands here once, with what is lost without it;
`torchglass doctor` and the notes of a trace say what this torch has not.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import nullcontext
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
SCRIPTED = "scripted functions as one step"
BITS = "the same bits from a few functions while ops are recorded"
HIDDEN = "that modes of the program do not see us read its tensors"
CONVERSIONS = "conversions between numpy and torch"
REPLACED = "that methods of tensors which the program has replaced run once"
LOOKUPS = "the short way to torch functions that are no methods"

NAMES: dict[str, str] = {}
"""All of them, and what each is needed for."""
MISSING: dict[str, str] = {}
"""Those that this torch does not have."""
_NOTHING = object()


class _Empty:
    """In the place of a module that is missing: has no names."""


def _find(name: str, needed_for: str, instead: Any = None) -> Any:
    """What is called so below ``torch``; the stand-in where there is no such thing."""
    NAMES[name] = needed_for
    found: Any = torch
    for part in name.split("."):
        found = getattr(found, part, _NOTHING)
        if found is _NOTHING:
            MISSING[name] = needed_for
            return instead
    return found


def _load(module: str, needed_for: str) -> Any:
    """A module of torch's; one without names where there is none."""
    try:
        return importlib.import_module(f"torch.{module}")
    except ImportError:
        NAMES[module] = MISSING[module] = needed_for
        return _Empty()


def has(*needed_for: str) -> bool:
    """Whether nothing is missing for these."""
    return not MISSING or not any(each in needed_for for each in MISSING.values())


def missing_notes() -> list[str]:
    """What to say in a trace of what this torch lacks."""
    return [
        f"this torch ({torch.__version__}) has no torch.{name}, which torchglass needs for {feature}: not recorded here"
        for name, feature in MISSING.items()
    ]


def _no(*_: Any) -> Any:
    return None


def _none(*_: Any) -> int:
    return 0


# ---------------------------------------------------------------- modes

push_function_mode: Callable[[Any], None] = _find("_C._push_on_torch_function_stack", FUNCTIONS, _no)
pop_function_mode: Callable[[], Any] = _find("_C._pop_torch_function_stack", FUNCTIONS, _no)
count_function_modes: Callable[[], int] = _find("_C._len_torch_function_stack", FUNCTIONS, _none)
function_mode_at: Callable[[int], Any] = _find("_C._get_function_stack_at", FUNCTIONS, _no)
push_op_mode: Callable[[Any], None] = _find("_C._push_on_torch_dispatch_stack", OPS, _no)
pop_op_mode: Callable[[Any], Any] = _find("_C._pop_torch_dispatch_stack", OPS, _no)
count_op_modes: Callable[[], int] = _find("_C._len_torch_dispatch_stack", OPS, _none)
op_mode_at: Callable[[int], Any] = _find("_C._get_dispatch_stack_at", OPS, _no)
_dispatch = _load("utils._python_dispatch", OPS)
TorchDispatchMode: type = _find("utils._python_dispatch.TorchDispatchMode", OPS, object)
no_functions: Callable[[], Any] = _find("_C.DisableTorchFunction", HIDDEN, nullcontext)
no_subclasses: Callable[[], Any] = _find("_C.DisableTorchFunctionSubclass", HIDDEN, nullcontext)
no_dispatch: Callable[[], Any] = _find("_C._DisableTorchDispatch", HIDDEN, nullcontext)
no_modes: Callable[[], Any] = _find("utils._python_dispatch._disable_current_modes", HIDDEN, nullcontext)
has_handler: Callable[[Any], bool] = _find("_C._has_torch_function", OPS, lambda _: False)
_pops = (
    _find("overrides._pop_mode_temporarily", INTERRUPTED),
    _find("utils._python_dispatch._pop_mode_temporarily", INTERRUPTED),
)
SWITCHES: tuple[Any, ...] = tuple(
    code for each in _pops if (code := getattr(getattr(each, "__wrapped__", None), "__code__", None)) is not None
)
"""The code by which torch takes a mode off for a while."""

# ---------------------------------------------------------------- tensors and functions

storage_address: Callable[[Any], int] = _find("_C._storage_address", SHARING, _none)
_schemas: Callable[[str], list[Any]] = _find("_C._jit_get_schemas_for_operator", SHAPED, lambda _: [])
get_schema: Callable[[str, str], Any] = _find("_C._get_schema", SHAPED, _no)
linalg: Any = _find("_C._linalg", BITS, _Empty())
nn_functions: Any = _find("_C._nn", BITS, _Empty())
functorch: Any = _find("_C._functorch", WRAPPED)
_pyfunctorch = _load("_functorch.pyfunctorch", WRAPPED)
without_transforms: Callable[[], Any] = getattr(_pyfunctorch, "temporarily_clear_interpreter_stack", nullcontext)


next_node: Callable[[], int] = _find("_C._autograd._get_sequence_nr", NODES, _none)
"""The number that this thread gives to its next autograd node."""
current_node: Callable[[], Any] = _find("_C._current_autograd_node", NODES, _no)
"""The node that the autograd engine runs in this thread."""


def schemas_named(name: str) -> list[Any]:
    """Torch's own descriptions of an operator; none when it has no such."""
    try:
        return _schemas(name)
    except RuntimeError:
        return []


# ---------------------------------------------------------------- ops

_ops = _load("_ops", OPS)
OpOverload: type = _find("_ops.OpOverload", OPS, type("OpOverload", (), {}))
find_dispatch_rule: Any = getattr(sys.modules.get("torch._library.simple_registry"), "find_torch_dispatch_rule", None)
"""Asked for each op on its way to a mode whether somebody wrote another handler for the two. Not among those that may
be missing: without it nothing is."""
_custom_ops = _load("_library.custom_ops", VERSIONS)
CustomOpDef: Any = _find("_library.custom_ops.CustomOpDef", VERSIONS, _Empty())
COUNTING_KEY: Any = _find("_C.DispatchKey.ADInplaceOrView", VERSIONS)
"""Where torch counts the versions of tensors that are written into."""
after_counting: Any = _find("_C._after_ADInplaceOrView_keyset", VERSIONS)
dispatch_keys: Callable[[Any], Any] = _find("_C._dispatch_keys", VERSIONS)
exclude_key: Callable[[Any, bool], None] = _find("_C._dispatch_tls_set_dispatch_key_excluded", VERSIONS)
is_key_excluded: Callable[[Any], bool] = _find("_C._dispatch_tls_is_dispatch_key_excluded", VERSIONS)
has_kernel: Callable[[str, str], bool] = _find("_C._dispatch_has_kernel_for_dispatch_key", VERSIONS)
TensorBase: Any = _find("_C.TensorBase", REPLACED, _Empty())
variable_functions: Any = _find("_C._VariableFunctions", LOOKUPS)
call_boxed: Callable[..., Any] | None = _find("_C._dispatch_call_boxed", OPS)

# ---------------------------------------------------------------- GPUs

_gpu = _load("cuda._utils", KERNELS)
nvrtc_compile: Callable[..., tuple[bytes, str]] = _find("cuda._utils._nvrtc_compile", KERNELS)
load_cuda_module: Callable[..., Any] = _find("cuda._utils._cuda_load_module", KERNELS)
cuda_library: Callable[[], Any] = _find("cuda._utils._get_cuda_library", KERNELS)
_has_gpus = torch.backends.cuda.is_built()
current_raw_stream: Callable[[int], int] = cast("Any", None)
current_device: Callable[[], int] = cast("Any", None)
is_capturing: Callable[[], bool] = torch.cuda.is_current_stream_capturing
if _has_gpus:
    current_raw_stream = _find("_C._cuda_getCurrentRawStream", KERNELS)
    current_device = _find("_C._cuda_getDevice", KERNELS)
    is_capturing = _find("_C._cuda_isCurrentStreamCapturing", KERNELS, is_capturing)

# ---------------------------------------------------------------- names that are replaced while something is recorded

wrapped_call: Any = _find("nn.Module._wrapped_call_impl", MODULES)
call_impl: Any = _find("nn.Module._call_impl", CALLS)
handle_torch_function: Any = torch.overrides.handle_torch_function
frombuffer: Callable[..., Any] = torch.frombuffer
"""As torch has them; public, but replaced too."""
jit_trace = _load("jit._trace", TRACING)
REPLACED = {
    "overrides.has_torch_function": "fused attention as it is without us",
    "jit.ScriptFunction.__call__": SCRIPTED,
    "utils.swap_tensors": "that torch.utils.swap_tensors works on tensors we have met",
    "autograd._engine_run_backward": BACKWARD,
    "from_numpy": CONVERSIONS,
    "frombuffer": CONVERSIONS,
    "from_dlpack": CONVERSIONS,
    "utils.dlpack.from_dlpack": CONVERSIONS,
    "jit._trace._trace_impl": TRACING,
    "jit._trace.trace_module": TRACING,
}
"""Of these the owner must have them as its own."""
for _name, _feature in REPLACED.items():
    _find(_name, _feature)


def worker_info() -> Any:
    """What a worker process of a DataLoader is; None elsewhere."""
    return getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None)
