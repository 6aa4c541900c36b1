"""`argmax` or `max` over the output of a layer with one output: the index is always 0.

A binary classifier with one logit decides by its sign; `argmax(1)` of [N, 1] is 0 for each sample, so the accuracy is
the share of class 0, whatever the model learns.

    predicted = model(x).argmax(1)                       # model(x): [64, 1]; wrong: (model(x) > 0).squeeze(1)
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import normal
from torchglass.answers.findings.softmax_of_one import PASSES, one_output
from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

ALSO = frozenset(("sigmoid", "softmax", "exp"))


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in ("argmax", "max", "topk"):
        for event, times in facts.calls(name):
            if not facts.takes[event] or not facts.is_written(event):
                continue
            value = facts.takes[event][0]
            shape = facts.shape(value)
            axis = normal(facts.argument(event, "dim", 1), len(shape))
            if axis is None or shape[axis] != 1 or facts.numel(value) < 2:
                continue
            source = next(iter(facts.sources(value, PASSES | ALSO)), (value, None))[0]
            layer = None
            if facts.shape(source) == shape:
                layer = one_output(facts, source, axis)
            if layer is None:
                continue
            yield Suspicion(
                severity=BUG,
                event=event,
                text=f"{facts.code(event)} looks for the largest of one number: the index is always 0",
                evidence=(seen_at(facts, f"one output: {facts.code(layer)}", layer),),
                fix="compare the logit with 0, or the probability with 0.5",
                times=times,
            )
