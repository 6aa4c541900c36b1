"""Dropout that does not follow the mode of the model: it stays active after `model.eval()`.

`F.dropout(x, 0.5)` has `training=True` by default; `F.scaled_dot_product_attention(…, dropout_p=0.1)` knows no mode.

    x = F.dropout(x, 0.5)                                # wrong: F.dropout(x, 0.5, training=self.training)
    x = nn.Dropout(0.5)(x)                               # the same: made in forward, eval() does not reach it

That is right in Monte Carlo dropout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from torchglass.answers.findings.passes import is_judged, passes_of, repeated_passes
from torchglass.answers.findings.suspicion import BUG, LIKELY, Facts, Suspicion, seen_at


def find(facts: Facts) -> Iterator[Suspicion]:
    seen: dict[int, list[int]] = defaultdict(list)
    proof: dict[int, int] = {}
    passes = passes_of(facts)
    repeated = repeated_passes(passes)
    for each in passes:
        if each.is_trained or each.event in repeated:
            continue
        others_off = [switch for switch in each.switches if not switch.is_on]
        for switch in each.switches:
            if not (switch.is_on and switch.is_dropout):
                continue
            if switch.stray is None and not facts.is_written(switch.event):
                continue
            if "training" in facts.code(switch.event):
                continue
            if not others_off and (
                any(map(facts.requires_grad, each.outputs)) or not is_judged(facts, each)
            ):
                continue
            location = facts.location(switch.event)
            key = 0
            if location is not None:
                key = location.line
            seen[key].append(switch.event if switch.stray is None else switch.stray)
            if others_off:
                proof[key] = others_off[0].event
    for line, events in seen.items():
        yield Suspicion(
            severity=BUG if line in proof else LIKELY,
            event=events[0],
            text=f"{facts.code(events[0])} drops numbers while the model is evaluated: it does not follow model.eval()",
            evidence=(seen_at(facts, "in eval mode at the same time", proof[line]),)
            if line in proof
            else (),
            fix="pass training=self.training, or make an nn.Dropout in __init__",
            times=len(events),
        )
    yield from _attention(facts)


def _attention(facts: Facts) -> Iterator[Suspicion]:
    for event, times in facts.calls("scaled_dot_product_attention"):
        rate = facts.argument(event, "dropout_p", 4, 0.0)
        if (
            not rate
            or not facts.is_written(event)
            or any(map(facts.requires_grad, facts.gives[event]))
        ):
            continue
        if any(value in facts.in_loss for value in facts.gives[event]) or "training" in facts.code(
            event
        ):
            continue
        if not any(_has_grad_parameter(facts, each) for each in facts.around(event)):
            continue
        yield Suspicion(
            severity=LIKELY,
            event=event,
            text=f"attention drops weights (dropout_p={rate}) in a pass without gradients",
            fix="pass dropout_p=self.dropout if self.training else 0.0",
            times=times,
        )


def _has_grad_parameter(facts: Facts, event: int) -> bool:
    row = facts.tables.module[event]
    if row < 0:
        return False
    root = facts.tables.modules[row].root
    rows = (each for each in facts.tables.modules if each.root == root)
    return any(facts.requires_grad(value) for each in rows for _, value in each.parameters)
