"""Backward is called on a tensor that is not connected to the model: nothing is learned.

`torch.tensor(loss)`, `loss.data`, `loss.item()` and `loss.detach()` make a new number; `requires_grad=True` on it only
silences the error that backward would raise.

    loss = torch.tensor(criterion(model(x), y).item(), requires_grad=True)    # wrong
    loss.backward()                                                          # reaches no parameter

That is right only in exercises on autograd itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at


def find(facts: Facts) -> Iterator[Suspicion]:
    got = {each.run: each for each in facts.accumulations}
    seen: set[int | None] = set()
    if not facts.steps:
        return
    held = {parameter for step in facts.steps for parameter in step.held}
    for value, runs in facts.roots.items():
        given = got.get(runs[0])
        if (
            given is None
            or set(given.names) != {facts.parameter(value)}
            or facts.parameter(value) in held
        ):
            continue
        if facts.is_parameter(value):
            continue
        location = facts.location(runs[0])
        line = None
        if location is not None:
            line = location.line
        if line in seen:
            continue
        seen.add(line)
        maker = facts.maker(value)
        made = ()
        if maker is not None:
            made = (seen_at(facts, f"made anew by {facts.code(maker)}", maker),)
        yield Suspicion(
            severity=BUG,
            event=runs[0],
            text="backward is called on a tensor that nothing leads to: no parameter gets a gradient",
            evidence=made,
            fix="call backward on the loss itself, without torch.tensor(), .item(), .data or .detach() in between",
            times=len(facts.roots),
            about=frozenset(held),
        )
