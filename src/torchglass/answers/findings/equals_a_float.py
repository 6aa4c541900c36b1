"""Predictions that are not rounded are compared with labels by `==`.

A sigmoid or a layer practically never gives exactly 0 or 1, so the accuracy is 0.

    accuracy = (torch.sigmoid(logits) == y).float().mean()    # wrong: (logits > 0) == y.bool()
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

SCORES = ("sigmoid", "softmax", "linear", "conv1d", "conv2d", "tanh", "log_softmax", "sigmoid_")

EXTREMES = ("max", "amax", "min", "amin", "topk", "sort", "kthvalue", "median", "maximum", "clone")


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in ("eq", "__eq__", "ne", "__ne__"):
        for event, times in facts.calls(name):
            if not facts.is_written(event) or len(facts.takes[event]) < 2:
                continue
            if any(_is_extreme(facts, value) for value in facts.takes[event][:2]):
                continue  # `p == p.max(1, keepdim=True)[0]` asks which one is the largest
            for value in facts.takes[event][:2]:
                source, maker = next(facts.sources(value))
                if maker is None or facts.name(maker) not in SCORES or not facts.is_float(source):
                    continue
                if not facts.is_float(value):
                    continue  # it was made whole
                yield Suspicion(
                    severity=BUG,
                    event=event,
                    text=f"{facts.code(event)} asks whether unrounded numbers of {facts.name(maker)} are equal",
                    evidence=(seen_at(facts, facts.code(maker), maker),),
                    fix="round or threshold them first, or use argmax",
                    times=times,
                )
                break


def _is_extreme(facts: Facts, value: int) -> bool:
    """Return whether a tensor holds some of the numbers of another one, unchanged."""
    return any(
        maker is not None and facts.name(maker) in EXTREMES for _, maker in facts.sources(value)
    )
