"""The last activation cannot give the numbers that the loss compares it with.

A sigmoid lies between 0 and 1, tanh between -1 and 1, a ReLU is never negative. Targets outside of that can never be
reached, and the loss stays where it is.

    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.ReLU())
    loss = F.mse_loss(net(x), y)                         # y is negative, too: wrong, leave out the last ReLU
    loss = F.mse_loss(torch.sigmoid(decoder(z)), images) # images from -1 to 1: wrong, torch.tanh
    loss = F.binary_cross_entropy(x.softmax(1), tags)    # several tags at once: wrong, x.sigmoid()

It looks at numbers, so it needs `record(values="stats")` or `torchglass run --values stats`. Targets that are only a
little outside, as smoothed labels, are fine.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from torchglass.answers.findings.facts import KEEPS_NUMBERS
from torchglass.answers.findings.numbers import measured
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at
from torchglass.events.types import Stats

LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
FROM_0_TO_1 = (0.0, 1.0, "numbers between 0 and 1")
FROM_MINUS_1_TO_1 = (-1.0, 1.0, "numbers between -1 and 1")
FROM_0 = (0.0, inf, "no negative numbers")
RANGES = {
    "sigmoid": FROM_0_TO_1,
    "sigmoid_": FROM_0_TO_1,
    "softmax": FROM_0_TO_1,
    "tanh": FROM_MINUS_1_TO_1,
    "tanh_": FROM_MINUS_1_TO_1,
    "relu": FROM_0,
    "relu_": FROM_0,
    "softplus": FROM_0,
}
FAR = 0.25
"""How far outside a target lies at least, as a part of the spread of all targets."""
PASSES = KEEPS_NUMBERS - {"cat", "concat", "concatenate", "stack", "gather", "masked_select"}


def find(facts: Facts) -> Iterator[Suspicion]:
    if not facts.is_measured:
        return
    for name in LOSSES:
        for looks in facts.by_name.get(name, {}).values():
            event = looks[0]
            taken = facts.takes[event]
            if len(taken) < 2 or taken[0] not in facts.carries_gradient:
                continue
            _, maker = next(facts.sources(taken[0], PASSES), (0, None))
            if maker is None or facts.name(maker) not in RANGES:
                continue
            lowest, highest, words = RANGES[facts.name(maker)]
            found = measured(facts, [facts.takes[each][1] for each in looks])
            if not found or any(each.finite < each.count for each in found):
                continue
            least = min(each.min for each in found)
            most = max(each.max for each in found)
            margin = FAR * (most - least)
            activation = facts.name(maker).rstrip("_")
            rows = _sum_of_rows(facts, event, found) if activation == "softmax" else 1.0
            if abs(rows - 1) > FAR:
                yield Suspicion(
                    severity=LIKELY,
                    event=event,
                    text=f"the targets of a sample add up to {rows:.3g} on average, and what softmax gives to 1",
                    evidence=(seen_at(facts, f"the last activation: {facts.code(maker)}", maker),),
                    fix="use a sigmoid where several classes can be true at once",
                    times=len(looks),
                )
                continue
            if least >= lowest - margin and most <= highest + margin:
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"targets reach from {least:.3g} to {most:.3g}, and {activation} gives {words}",
                evidence=(seen_at(facts, f"the last activation: {facts.code(maker)}", maker),),
                fix=f"leave {activation} out, or bring the targets into its range",
                times=len(looks),
            )


def _sum_of_rows(facts: Facts, event: int, found: list[Stats]) -> float:
    """Return what the targets of a sample add up to, on average."""
    prediction, target = facts.takes[event][:2]
    shape = facts.shape(target)
    if len(shape) != 2 or facts.shape(prediction) != shape or not found:
        return 1.0
    return shape[1] * sum(each.mean for each in found) / len(found)
