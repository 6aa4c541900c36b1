"""An activation in place overwrites the input of a block, which is added again at its end.

A residual block adds its input to its result. If the first layer of the block is `nn.ReLU(inplace=True)`, the input has
lost its negative numbers by then: what is added is not what came in.

    self.body = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, padding=1))      # wrong: nn.ReLU()
    def forward(self, x): return x + self.body(x)

It is fine where the activation belongs to what is added, and is applied before the block: `x = self.relu(x)`.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

ACTIVATIONS = (
    "relu", "relu_", "leaky_relu", "leaky_relu_", "elu", "elu_", "silu", "hardtanh", "relu6", "celu", "selu",
    "threshold", "hardswish", "mish",
)  # fmt: skip
SUMS = ("add", "__add__", "__radd__", "add_", "__iadd__")


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in ACTIVATIONS:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            given = facts.gives[event]
            if not taken or not given or taken[0] == given[0]:
                continue
            if facts.storage(taken[0]) != facts.storage(given[0]) or facts.storage(given[0]) < 0:
                continue
            added = _added_in_block(facts, event, taken[0], given[0])
            if added is None:
                continue
            yield Suspicion(
                severity=LIKELY,
                event=added,
                text=f"{facts.code(added)} adds the input of the block after {name} has overwritten it in place",
                evidence=(seen_at(facts, f"overwritten by {facts.code(event)}", event),),
                fix=f"{name} without inplace=True at the beginning of the block",
                times=times,
            )


def _added_in_block(facts: Facts, event: int, before: int, after: int) -> int | None:
    """Return the sum of a result of a block with its overwritten input.

    The block is a module that takes the input, and the activation runs inside another module in it.
    """
    modules = [each for each in facts.around(event) if facts.kind(each) == "module"]
    for user in facts.users.get(after, ()):
        if facts.name(user) not in SUMS or len(facts.takes[user]) != 2:
            continue
        block = facts.module_around(user)
        if block is None or block not in modules[1:] or before not in facts.takes[block]:
            continue
        inner = modules[modules.index(block) - 1]
        if before not in facts.takes[inner]:
            continue
        if after in facts.gives[inner] and not _has_other_name(facts, inner):
            continue
        return user
    return None


def _has_other_name(facts: Facts, event: int) -> bool:
    """Return whether a result is not kept under the name of what went in: ``x = self.relu(x)`` means it."""
    record = facts.event(event)
    return bool(record.operands) and record.operands[0] not in record.target
