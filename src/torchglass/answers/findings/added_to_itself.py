"""A tensor is added to itself where a residual connection was meant.

`x += x` doubles x. The input of the block was to be added, and the name that kept it is not used, or stands for the
same tensor.

    residual = x
    x = self.conv(x)
    x += x                                               # wrong: x += residual

`x + x`, which says so itself, is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion

SUMS = ("add_", "__iadd__", "add", "__add__")


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in SUMS:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if len(taken) != 2 or taken[0] != taken[1] or not facts.is_written(event):
                continue
            if not facts.shape(taken[0]) or taken[0] not in facts.carries_gradient:
                continue
            if not _is_meant_otherwise(facts, event):
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{facts.code(event)} adds a tensor to itself: it is doubled",
                fix="add the input of the block, which was kept under another name",
                times=times,
            )


def _is_meant_otherwise(facts: Facts, event: int) -> bool:
    """Return whether a sum of a tensor and itself is written as a step of a residual connection."""
    record = facts.event(event)
    operands = record.operands
    if len(operands) < 2 or not all(each.isidentifier() for each in operands[:2]):
        return False
    if operands[0] == operands[1]:
        return record.operator == "+="
    return facts.module_around(event) is not None
