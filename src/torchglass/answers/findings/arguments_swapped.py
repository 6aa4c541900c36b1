"""A loss is given its target first: the prediction stands where the target belongs.

`cross_entropy(input, target)` takes the logarithm of its first argument only. With the two swapped it still runs where
the target is a tensor of probabilities, and it learns something else.

    loss = F.cross_entropy(one_hot, model(x))            # wrong: F.cross_entropy(model(x), one_hot)
    loss = nn.BCELoss()(y, model(x))                     # wrong: nn.BCELoss()(model(x), y)

Only calls are reported in which the second argument has a gradient and the first one has none. Losses that are the same
both ways, as `mse_loss`, are not.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, LIKELY, Facts, Suspicion

LOSSES = ("cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits")
CUTS = ("detach", "data", "clone")


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in LOSSES:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if len(taken) < 2 or taken[1] not in facts.carries_gradient:
                continue
            first, second = taken[:2]
            if facts.requires_grad(first) or facts.is_parameter(second):
                continue
            maker = facts.maker(first)
            severity = BUG
            if maker is not None and facts.name(maker) in CUTS:
                severity = LIKELY
            yield Suspicion(
                severity=severity,
                event=event,
                text=f"{name} is given the prediction as its target: only the second argument has a gradient",
                fix=f"{name}(prediction, target)",
                times=times,
            )
