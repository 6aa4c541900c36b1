"""Our modes on this thread's stacks: on and off without touching the others', and off where they would change results.

Some of torch's C++ functions ask "may something override this?" and branch when any dispatch mode, even an empty one,
is on: other kernels and other bits, other version counters, a check that is left out. Torch keeps no list of them; the
one here was found by running all of torch's own operator samples, and the conformance tests hold it. Functions on the
list run with our dispatch mode off, as one step whose ops are not seen; for three backward formulas hooks on their
node take it off for as long as the node runs. Any function mode switches the fused attention path off: it is kept.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from threading import get_ident
from types import GeneratorType
from typing import Any

import torch

from torchglass.capture.engine import fast
from torchglass.capture.engine.log import LOGS
from torchglass.capture.torch import private


class ModeStack:
    """One of torch's two stacks of modes, by its raw calls.

    Not by ``with mode``: in two threads at once that leaves a process-wide flag of torch's set for good.
    """

    def __init__(self, push: Callable[[Any], None], pop: Callable[[], Any], count: Callable[[], int]) -> None:
        self.push = push
        self.pop = pop
        self.count = count

    def take(self, wanted: Any) -> tuple[Any, int]:
        """Take this mode off, wherever it stands: the mode (None: it is not there) and how many stood above it."""
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

    def insert(self, mode: Any, below: int) -> None:
        """Put a mode back with ``below`` others above it."""
        above = [self.pop() for _ in range(min(below, self.count()))]
        self.push(mode)
        for each in reversed(above):
            self.push(each)

    def drop(self, unwanted: Callable[[Any], bool]) -> None:
        """Take off all modes of which this is true."""
        kept: list[Any] = []
        for _ in range(self.count()):
            mode = self.pop()
            if not unwanted(mode):
                kept.append(mode)
        while kept:
            self.push(kept.pop())


FUNCTION_MODES = ModeStack(private.push_function_mode, private.pop_function_mode, private.count_function_modes)
OP_MODES = ModeStack(private.push_op_mode, lambda: private.pop_op_mode(None), private.count_op_modes)


class OpMode(private.TorchDispatchMode):
    """What all our dispatch modes are; each session has one, which is on the stacks of all its threads."""

    session: Any
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise the handler is wrapped so that the first op imports dynamo, for two seconds."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code may run below us: the door of compiled regions takes this mode off anyway."""
        return True


@cache
def compiled_op_mode() -> type[OpMode]:
    """The class of those whose handler is C's; made once, as a class takes as long as thirty events."""
    return type("OpMode", (fast.extension.OpMode, OpMode), {})


def take_op_mode() -> tuple[Any, int]:
    """Take our dispatch mode off, whichever session's: the mode (None: there is none) and how many stood above."""
    stack = [private.op_mode_at(index) for index in range(OP_MODES.count())]
    ours = next((each for each in stack if isinstance(each, OpMode)), None)
    return (None, 0) if ours is None else OP_MODES.take(ours)


def finish_pops(error: BaseException) -> None:
    """End the generators by which torch takes a mode off for a while, where Ctrl-C left them half way.

    They would put our mode back when they are collected: after the recording, with nobody to take it off.
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
_NODES = frozenset(["ProdBackward0", "ProdBackward1", "CumprodBackward0", "LinalgEigBackward0", "LinalgEighBackward0"])
_NEAR, _FAR = 16, 100_000
"""How many nodes behind a result are looked at: a composite puts a few between, a script any number."""
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
    """The functions on the list that this torch has."""
    found = [getattr(owner, name, None) for owner, names in _SENSITIVE.items() for name in names.split()]
    return frozenset(each for each in found if each is not None)


def without_ops(func: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run with our dispatch mode off this thread's stack."""

    def bare(*args: Any, **kwargs: Any) -> Any:
        mode, above = take_op_mode()
        try:
            return func(*args, **kwargs)
        finally:
            args = kwargs = None  # type: ignore[assignment]  # a traceback keeps this frame, not the tensors
            if mode is not None:
                OP_MODES.insert(mode, above)

    return bare


# ---------------------------------------------------------------- backward formulas

_away: dict[int, list[tuple[Any, int]]] = {}
"""By thread: modes that a hook took off and that are not back yet."""


def guard_backward(result: Any) -> None:
    """Hook the nodes behind a function's result whose formula would see our mode."""
    if not _guard(result, _NEAR):
        _missed.add(get_ident())


def guard_roots(roots: Any) -> None:
    """The same where backward begins, for nodes that no function's result led to: a script or a custom op made them."""
    if get_ident() in _missed:
        _missed.discard(get_ident())
        _guard(roots, _FAR)


_missed: set[int] = set()
"""Threads in which an op ran whose node was not found."""


def _guard(result: Any, most: int) -> int:
    found = 0
    with private.no_functions():  # the program's modes must not see that we ask for ``grad_fn``
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
    put_back(0 if not (gone := _away.get(get_ident())) else len(gone) - 1)


def away() -> int:
    """How many modes are off in this thread."""
    return len(_away.get(get_ident(), ()))


def put_back(count: int) -> None:
    """Put modes back until this many are off: a node that raises never gets to its second hook.

    On its way out the engine may have put the whole stack back already.
    """
    gone = _away.get(get_ident())
    while gone and len(gone) > count:
        mode, above = gone.pop()
        if not any(private.op_mode_at(each) is mode for each in range(OP_MODES.count())):
            OP_MODES.insert(mode, above)
    if not gone:
        _away.pop(get_ident(), None)


def _nodes_behind(result: Any, most: int) -> Iterator[Any]:
    tensors = result if isinstance(result, (list, tuple)) else [result]
    pending = deque(each.grad_fn for each in tensors if isinstance(each, torch.Tensor) and each.grad_fn is not None)
    seen: set[Any] = set()
    while pending and len(seen) < most:
        node = pending.popleft()
        if node not in seen:
            seen.add(node)
            yield node
            pending.extend(each for each, _ in node.next_functions if each is not None)


# ---------------------------------------------------------------- fused

# Keeps the fused attention path that any function mode would switch off.

ASKING = ("torch.nn.modules.activation", "torch.nn.modules.transformer")
FUSED = frozenset(["_native_multi_head_attention", "_transformer_encoder_layer_fwd"])
FUSED_NOTE = 'fused: one step, its inside is not seen; record(fused="open") takes the unfused path and shows it'


def make_has_torch_function(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The replacement for ``torch.overrides.has_torch_function``."""

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
