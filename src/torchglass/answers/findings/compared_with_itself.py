"""Something is compared with itself: the difference is always 0.

Often the second name was meant to be a copy, and is the same tensor, or a wrong variable was passed to the loss.

    before = model.weight                                # wrong: model.weight.detach().clone()
    optimizer.step()
    print((model.weight - before).abs().max())           # always 0
    loss = F.mse_loss(output, output)                    # wrong: F.mse_loss(output, target)

`x - x.detach()`, which passes a gradient and changes no number, is not reported, nor is `x == x`, which finds NaN.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, LIKELY, Facts, Suspicion

LOSSES = (
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "kl_div", "cosine_similarity",
    "pairwise_distance",
)  # fmt: skip
DIFFERENCES = ("sub", "__sub__", "subtract", "allclose", "equal", "isclose", "dist")
SAME_NUMBERS = frozenset(
    "view reshape detach clone to float flatten squeeze unsqueeze data contiguous".split()
)


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in LOSSES:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if len(taken) >= 2 and _source(facts, taken[0]) == _source(facts, taken[1]):
                yield Suspicion(
                    severity=BUG,
                    event=event,
                    text=f"{name} compares a tensor with itself",
                    fix="pass the target",
                    times=times,
                )
    for name in DIFFERENCES:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if (
                not facts.is_written(event)
                or len(taken) < 2
                or taken[0] != taken[1]
                or facts.numel(taken[0]) == 0
            ):
                continue
            if _is_same_expression(facts, event):
                continue  # `x - x` says so itself
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{facts.code(event)} compares a tensor with itself: both names are the same memory",
                fix="keep a copy: x.detach().clone()",
                times=times,
            )


def _source(facts: Facts, value: int) -> tuple[int, tuple[int, ...]]:
    """Return where the numbers come from, and in which shape they arrive."""
    source, _ = next(facts.sources(value, SAME_NUMBERS))
    return source, facts.shape(value)


def _is_same_expression(facts: Facts, event: int) -> bool:
    operands = facts.event(event).operands
    return len(operands) >= 2 and operands[0] == operands[1]
