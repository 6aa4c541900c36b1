"""Turns our modes on and off on this thread's mode stacks, and off wherever they would change the program's results.

Some C++ functions of torch behave differently if any dispatch mode is on, even an empty one: they run other kernels,
which give other bits, count versions differently or leave out a check. Torch has no list of these functions. The list
here was found by running all operator samples of torch, and the conformance tests verify it. We handle three cases:

- A function on the list runs with our dispatch mode off, as one event whose ops are not recorded.
- The backward formulas of prod, linalg.eig and linalg.eigh get hooks that turn our dispatch mode off meanwhile.
- Any function mode makes attention layers leave their fused path. We take our function mode off for that check.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from types import GeneratorType
from typing import Any

import torch

from torchglass.capture.engine import fast
from torchglass.capture.engine.log import LOGS
from torchglass.capture.torch import private
from torchglass.system import get_ident


class ModeStack:
    """One of torch's two mode stacks, changed by torch's low-level functions.

    ``with mode:`` is not used, because in two threads at once it leaves a process-wide flag of torch set forever.
    """

    def __init__(
        self, push: Callable[[Any], None], pop: Callable[[], Any], count: Callable[[], int]
    ) -> None:
        self.push = push
        self.pop = pop
        self.count = count

    def take(self, wanted: Any) -> tuple[Any, int]:
        """Remove a mode from anywhere on the stack. Return the mode and how many modes were above it.

        Return (None, count of all modes) if it is not on the stack.
        """
        above: list[Any] = []
        found = None
        while found is None and self.count():
            mode = self.pop()
            if mode is wanted:
                found = mode
            else:
                above.append(mode)
        for mode in reversed(above):
            self.push(mode)
        return found, len(above)

    def insert(self, mode: Any, above: int) -> None:
        """Put a mode on the stack so that ``above`` other modes are above it."""
        modes_above = [self.pop() for _ in range(min(above, self.count()))]
        self.push(mode)
        for each in reversed(modes_above):
            self.push(each)

    def drop(self, unwanted: Callable[[Any], bool]) -> None:
        """Remove all modes for which ``unwanted`` returns true."""
        kept: list[Any] = []
        for _ in range(self.count()):
            mode = self.pop()
            if not unwanted(mode):
                kept.append(mode)
        while kept:
            self.push(kept.pop())


FUNCTION_MODES = ModeStack(
    private.push_function_mode, private.pop_function_mode, private.count_function_modes
)
OP_MODES = ModeStack(
    private.push_op_mode, lambda: private.pop_op_mode(None), private.count_op_modes
)


class OpMode(private.TorchDispatchMode):
    """The base class of our dispatch modes. Each session has one mode, which is on the stacks of all its threads."""

    session: Any
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Prevent torch from wrapping the handler. The wrapper would import dynamo at the first op (two seconds)."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Allow compiled code below this mode, because ``CompileDoor`` removes the mode there anyway."""
        return True


@cache
def compiled_op_mode() -> type[OpMode]:
    """Return the mode class whose handler is in C. Make it only once, since that takes as long as thirty events."""
    return type("OpMode", (fast.extension.OpMode, OpMode), {})


def take_op_mode() -> tuple[Any, int]:
    """Remove our dispatch mode of any session. Return the mode (None if there is none) and how many were above it."""
    stack = [private.op_mode_at(index) for index in range(OP_MODES.count())]
    ours = next((each for each in stack if isinstance(each, OpMode)), None)
    if ours is None:
        return (None, 0)
    return OP_MODES.take(ours)


def finish_pops(error: BaseException) -> None:
    """Close the generators by which torch turns a mode off for a while, if Ctrl-C interrupted them.

    Otherwise such a generator puts our mode back when it is garbage collected, which may be after the recording. Then
    no code would remove the mode again.
    """
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == contextlib.__file__:
            generator = getattr(trace.tb_frame.f_locals.get("self"), "gen", None)
            if isinstance(generator, GeneratorType) and generator.gi_code in private.SWITCHES:
                generator.close()
        trace = trace.tb_next


# ---------------------------------------------------------------- where any dispatch mode changes results

NOTE = "its ops are not seen: this function gives other bits when any dispatch mode is on, so ours was off"
NOTE_IN_BACKWARD = (
    "ops in the backward of prod, linalg.eig and linalg.eigh were not seen: they do something else when any dispatch "
    "mode is on, so ours was off"
)
BRANCHING_IN_BACKWARD = frozenset(
    ["aten::prod", "aten::prod.dim_int", "aten::cumprod", "aten::linalg_eig", "aten::_linalg_eigh"]
)
_NODES = frozenset(
    [
        "ProdBackward0",
        "ProdBackward1",
        "CumprodBackward0",
        "LinalgEigBackward0",
        "LinalgEighBackward0",
    ]
)
_NEAR, _FAR = 16, 100_000
"""How many autograd nodes to check, starting at a result. A composite function has a few nodes between its result and
the sensitive node. A script or a custom op may have any number, so the second limit only bounds the time."""
_SENSITIVE = {
    private.linalg: (
        "linalg_svdvals linalg_eigvalsh linalg_cond linalg_matrix_norm linalg_norm linalg_pinv linalg_matrix_rank "
        "linalg_tensorinv linalg_lstsq"
    ),
    private.nn_functions: "one_hot pad_sequence",
    torch: "pinverse nuclear_norm ctc_loss _pad_packed_sequence _dim_arange",
    torch.Tensor: "pinverse",
    torch.nn.functional: "linear_cross_entropy",
}


def sensitive_functions() -> frozenset[Any]:
    """Return the functions on the list that this torch has."""
    found = [
        getattr(owner, name, None) for owner, names in _SENSITIVE.items() for name in names.split()
    ]
    return frozenset(each for each in found if each is not None)


def without_ops(func: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it runs while our dispatch mode is off this thread's stack."""

    def bare(*args: Any, **kwargs: Any) -> Any:
        mode, above = take_op_mode()
        try:
            return func(*args, **kwargs)
        finally:
            # A traceback keeps this frame, which must not keep the tensors alive.
            args = kwargs = None  # type: ignore[assignment]
            if mode is not None:
                OP_MODES.insert(mode, above)

    return bare


# ---------------------------------------------------------------- backward formulas

_away: dict[int, list[tuple[Any, int]]] = {}
"""Keyed by thread: the modes that a hook removed and that have not been put back, each with the count above it."""


def guard_backward(result: Any) -> None:
    """Add hooks to the autograd nodes of a function's result whose formula would see our mode.

    If no such node is found, ``guard_roots`` searches again when backward begins.
    """
    if not _guard(result, _NEAR):
        _missed.add(get_ident())


def guard_roots(roots: Any) -> None:
    """Search for nodes that ``guard_backward`` did not find, from where backward begins.

    Scripts and custom ops make such nodes.
    """
    if get_ident() in _missed:
        _missed.discard(get_ident())
        _guard(roots, _FAR)


_missed: set[int] = set()
"""The threads in which an op ran whose node ``guard_backward`` did not find."""


def _guard(result: Any, most: int) -> int:
    found = 0
    with private.no_functions():  # the program's modes must not see that we read `grad_fn`
        for node in _nodes_behind(result, most):
            if node.name() in _NODES:
                found += 1
                if "torchglass" not in node.metadata:
                    node.metadata["torchglass"] = True
                    node.register_prehook(_before_node)
                    node.register_hook(_after_node)
    return found


def _before_node(*_: Any) -> None:
    mode, above = take_op_mode()
    if mode is not None:
        mode.session.note(NOTE_IN_BACKWARD)
        _away.setdefault(get_ident(), []).append((mode, above))


def _after_node(*_: Any) -> None:
    put_back(max(away() - 1, 0))


def away() -> int:
    """Return how many modes are off in this thread."""
    return len(_away.get(get_ident(), ()))


def put_back(count: int) -> None:
    """Put modes back until ``count`` are off.

    This is also called after an exception, because a node that raises never runs its second hook. The autograd engine
    may then have restored the mode stack already, so a mode that is on the stack is not added again.
    """
    gone = _away.get(get_ident())
    while gone and len(gone) > count:
        mode, above = gone.pop()
        if not any(private.op_mode_at(each) is mode for each in range(OP_MODES.count())):
            OP_MODES.insert(mode, above)
    if not gone:
        _away.pop(get_ident(), None)


def _nodes_behind(result: Any, most: int) -> Iterator[Any]:
    tensors = result
    if not isinstance(result, (list, tuple)):
        tensors = [result]
    pending = deque(
        each.grad_fn
        for each in tensors
        if isinstance(each, torch.Tensor) and each.grad_fn is not None
    )
    seen: set[Any] = set()
    while pending and len(seen) < most:
        node = pending.popleft()
        if node not in seen:
            seen.add(node)
            yield node
            pending.extend(each for each, _ in node.next_functions if each is not None)


# ---------------------------------------------------------------- fused

# Keeps attention layers on their fused path, which they would leave if any function mode is on.

ASKING = ("torch.nn.modules.activation", "torch.nn.modules.transformer")
FUSED = frozenset(["_native_multi_head_attention", "_transformer_encoder_layer_fwd"])
FUSED_NOTE = 'fused: one step, its inside is not seen; record(fused="open") takes the unfused path and shows it'


def make_has_torch_function(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Make the replacement for ``torch.overrides.has_torch_function``."""

    def has_torch_function(relevant_args: Any) -> bool:
        log = LOGS.get(get_ident())
        if (
            log is None
            or log.session.fused != "keep"
            or private.count_function_modes() != 1
            or sys._getframe(1).f_globals.get("__name__") not in ASKING
            or private.function_mode_at(0) is not log.session.function_mode
        ):
            return original(relevant_args)
        mode = private.pop_function_mode()
        try:
            return original(relevant_args)
        finally:
            private.push_function_mode(mode)

    return has_torch_function
