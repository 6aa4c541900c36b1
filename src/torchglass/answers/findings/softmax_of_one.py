"""A softmax, or a cross-entropy, over an axis of size one: the result is always 1, the loss always 0.

A head with a single output needs `sigmoid` and `binary_cross_entropy_with_logits`; softmax over its one score gives 1
whatever the score is, and no gradient.

    self.head = nn.Linear(64, 1)
    p = F.softmax(self.head(x), dim=1)                 # wrong: all ones

Attention over a bag or a sequence that happens to have one element is fine, so only axes are reported whose size is
fixed by a layer with one output.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import KEEPS_NUMBERS, normal
from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

LAYERS = ("linear", "conv1d", "conv2d", "conv3d")
PASSES = KEEPS_NUMBERS | {"relu", "tanh", "dropout", "leaky_relu", "add", "mul", "div", "__add__"}


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in ("softmax", "log_softmax", "cross_entropy"):
        for event, times in facts.calls(name):
            if not facts.takes[event]:
                continue
            value = facts.takes[event][0]
            shape = facts.shape(value)
            if name == "cross_entropy":
                dim = (len(shape) > 1) * 1
            else:
                dim = facts.argument(event, "dim", 1)
            axis = normal(dim, len(shape))
            if axis is None or shape[axis] != 1 or facts.numel(value) < 2:
                continue
            layer = one_output(facts, value, axis)
            if layer is None:
                continue
            yield Suspicion(
                severity=BUG,
                event=event,
                text=f"{name} over axis {dim} of {facts.word(value)}, which has size one: "
                + (
                    "the loss is always 0"
                    if name == "cross_entropy"
                    else "the result does not depend on the input"
                ),
                evidence=(seen_at(facts, f"one output: {facts.code(layer)}", layer),),
                fix="use sigmoid and binary_cross_entropy_with_logits for one output, or give the layer two",
                times=times,
            )


def one_output(facts: Facts, value: int, axis: int) -> int | None:
    """Return the layer with a single output whose output axis this is."""
    for source, maker in facts.sources(value, PASSES):
        if maker is None or facts.name(maker) not in LAYERS or len(facts.takes[maker]) < 2:
            return None
        weight = facts.takes[maker][1]
        rank = len(facts.shape(value))
        outputs = facts.shape(weight)[:1]
        is_last = facts.name(maker) == "linear" and axis == rank - 1
        is_channel = facts.name(maker) != "linear" and axis == 1
        if outputs == (1,) and (is_last or is_channel) and len(facts.shape(source)) == rank:
            return maker
        return None
    return None
