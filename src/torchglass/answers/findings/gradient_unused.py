"""A gradient is computed so that it can be differentiated again, and no loss uses it.

`create_graph=True` keeps the graph of the gradient itself, for a penalty on it, or for weights that were adapted by it.
Where nothing of that reaches a loss, the loss was computed with something else.

    grads = torch.autograd.grad(loss, params, create_graph=True)
    fast = [p - 0.01 * g for p, g in zip(params, grads)]
    query_loss = criterion(net(x), y)                    # wrong: with the weights in `fast`

Nothing is reported if the gradient reaches a loss anywhere, or if there is no training.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion

ENOUGH = 2
"""How often it has to happen: a single call may be a look at something."""


def find(facts: Facts) -> Iterator[Suspicion]:
    if facts.is_partial or not facts.backwards:
        return
    for looks in _by_place(facts).values():
        given = [value for event in looks for value in facts.gives[event]]
        if len(looks) < ENOUGH or any(value in facts.in_loss for value in given):
            continue
        yield Suspicion(
            severity=LIKELY,
            event=looks[0],
            text=f"{facts.code(looks[0])} keeps the graph of the gradient, and no loss uses it",
            fix="compute the loss with what was made of the gradient; otherwise leave out create_graph=True",
            times=len(looks),
        )


def _by_place(facts: Facts) -> dict[tuple[str, int], list[int]]:
    """Return the calls of autograd.grad that keep the graph, by their place."""
    found: dict[tuple[str, int], list[int]] = {}
    for events in facts.by_name.get("grad", {}).values():
        for event in events:
            at = facts.location(event)
            if at is None or facts.argument(event, "create_graph", 4) is not True:
                continue
            if facts.is_written(event):
                found.setdefault((at.file, at.line), []).append(event)
    return found
