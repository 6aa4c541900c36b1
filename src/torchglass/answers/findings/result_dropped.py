"""The result of a call that changes nothing in place is not used.

`x.clamp(0, 1)`, `x.to(device)`, `x.squeeze(1)`, `F.relu(x)` give a new tensor; written as a statement of their own they
do nothing.

    x.clamp(0, 1)                                        # wrong: x = x.clamp(0, 1), or x.clamp_(0, 1)

That is right where only the work matters, as in warming up a device for a measurement.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, LIKELY, Facts, Suspicion, seen_at

PURE = frozenset(
    """
    clamp clip relu gelu silu tanh sigmoid softmax log_softmax dropout normalize detach to float half double long int
    bool cuda cpu squeeze unsqueeze view reshape transpose permute flatten contiguous expand repeat masked_fill
    scatter scatter_add index_add index_fill add sub mul div pow sqrt exp log abs neg round floor fill nan_to_num
    leaky_relu layer_norm pad where requires_grad t flip roll sort clone type bfloat16 clip_ masked_scatter
    """.split()
)


LAYERS = frozenset(
    "ReLU GELU SiLU Tanh Sigmoid LeakyReLU ELU Softmax LogSoftmax Dropout Dropout1d Dropout2d Flatten MaxPool2d "
    "AvgPool2d LayerNorm BatchNorm1d BatchNorm2d Hardtanh Softplus PReLU".split()
)


def find(facts: Facts) -> Iterator[Suspicion]:
    yield from _modules(facts)
    for name in PURE & set(facts.by_name):
        for event, times in facts.calls(name):
            if (
                not facts.is_written(event)
                or len(facts.gives[event]) != 1
                or not facts.takes[event]
            ):
                continue
            given = facts.gives[event][0]
            taken = facts.takes[event][0]
            if (
                name.endswith("_")
                or facts.argument(event, "inplace") is True
                or facts.argument(event, "out")
            ):
                continue
            if given != taken and facts.users.get(given):
                continue
            if not _is_statement(facts, event):
                continue
            later = next((user for user in facts.users.get(taken, ()) if user > event), None)
            yield Suspicion(
                severity=LIKELY if later is None else BUG,
                event=event,
                text=f"the result of {facts.code(event)} is not used: the call changes nothing",
                evidence=()
                if later is None
                else (seen_at(facts, f"the tensor is used as it was: {facts.code(later)}", later),),
                fix="assign the result, or use the variant that works in place",
                times=times,
            )


def _modules(facts: Facts) -> Iterator[Suspicion]:
    """Find layers without parameters that a module calls as a statement: ``self.relu(x)``."""
    at_line: dict[tuple[str, int], list[int]] = {}
    for event in facts.module_calls:
        if (
            facts.tables.modules[facts.tables.module[event]].name not in LAYERS
            or facts.tables.parent[event] < 0
        ):
            continue
        location = facts.location(event)
        if location is not None:
            at_line.setdefault((location.file, location.line), []).append(event)
    for events in at_line.values():
        event = events[0]
        if (
            len(facts.gives[event]) != 1
            or not _is_statement(facts, event)
            or _is_in_place(facts, event)
        ):
            continue
        if facts.gives[event][0] != facts.takes[event][0] and facts.users.get(
            facts.gives[event][0]
        ):
            continue
        yield Suspicion(
            severity=BUG,
            event=event,
            text=f"the result of {facts.code(event)} is not used: the call changes nothing",
            fix="assign the result",
            times=len(events),
        )


def _is_in_place(facts: Facts, event: int) -> bool:
    return "inplace=True" in facts.tables.modules[facts.tables.module[event]].detail


def _is_statement(facts: Facts, event: int) -> bool:
    """Return whether a call is a whole statement, so that its result goes nowhere."""
    record = facts.event(event)
    if not record.direct or record.target:
        return False
    statement = facts.program.statement(event)
    if statement is None or not isinstance(statement.node, ast.Expr):
        return False
    call = statement.node.value
    at = record.location
    if at is None or not isinstance(call, ast.Call):
        return False
    return (call.lineno, call.end_lineno) == (
        at.line,
        at.end_line,
    ) and call.end_col_offset == at.end_col
