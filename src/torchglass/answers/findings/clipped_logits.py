"""The last layer of a classifier is followed by ReLU: its logits cannot be negative.

`cross_entropy` and `binary_cross_entropy_with_logits` take any number. After a ReLU half of them are 0 and get no
gradient; with one logit the probability is never below one half.

    nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3), nn.ReLU())   # wrong: leave out the last ReLU
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

CUTS = ("relu", "relu_", "relu6")


def find(facts: Facts) -> Iterator[Suspicion]:
    for loss in ("cross_entropy", "binary_cross_entropy_with_logits"):
        for event, times in facts.calls(loss):
            if facts.takes[event]:
                yield from _judged(facts, event, times, facts.takes[event][0], loss)
    for event, times in facts.calls("binary_cross_entropy"):
        if not facts.takes[event]:
            continue
        sigmoid = next((maker for _, maker in facts.sources(facts.takes[event][0])), None)
        if (
            sigmoid is not None
            and facts.name(sigmoid) in ("sigmoid", "sigmoid_")
            and facts.takes[sigmoid]
        ):
            yield from _judged(facts, event, times, facts.takes[sigmoid][0], "sigmoid")


def _judged(facts: Facts, event: int, times: int, value: int, taker: str) -> Iterator[Suspicion]:
    for _, maker in facts.sources(value):
        if maker is None or facts.name(maker) not in CUTS:
            return
        yield Suspicion(
            severity=LIKELY,
            event=event,
            text=f"{taker} is given the output of {facts.name(maker)}: logits cannot be negative",
            evidence=(seen_at(facts, f"{facts.name(maker)}: {facts.code(maker)}", maker),),
            fix="leave out the activation behind the last layer",
            times=times,
        )
        return
