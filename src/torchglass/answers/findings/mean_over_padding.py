"""A mean over the sequence counts the padding: masked steps are zeros, and are divided by as well.

`(h * mask).mean(1)` divides by the length of the longest sequence of the batch. What a short sequence gives gets
smaller with the sequences it happens to be padded with.

    mask = tokens != PAD
    pooled = (h * mask.unsqueeze(-1)).mean(1)            # wrong: .sum(1) / mask.sum(1, keepdim=True)

Only masks are reported that were made by comparing tokens with a padding index, or positions with lengths.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import KEEPS_NUMBERS, normal
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

PRODUCTS = ("mul", "__mul__", "__rmul__", "mul_", "__imul__")
FILLS = ("masked_fill", "masked_fill_")
COMPARES = frozenset("lt __lt__ le __le__ gt __gt__ ge __ge__ ne __ne__ eq __eq__".split())
PASSES = KEEPS_NUMBERS | {"bool", "long", "int", "__invert__", "logical_not"}


def find(facts: Facts) -> Iterator[Suspicion]:
    for event, times in facts.calls("mean"):
        if not facts.takes[event] or not facts.is_written(event):
            continue
        value = facts.takes[event][0]
        shape = facts.shape(value)
        axis = normal(facts.argument(event, "dim", 1), len(shape))
        if (
            axis is None
            or len(shape) != 3
            or shape[axis] < 2
            or value not in facts.carries_gradient
        ):
            continue
        masked = facts.maker(value)
        if masked is None or len(facts.takes[masked]) != 2:
            continue
        mask = _mask(facts, masked, shape, axis)
        if mask is None:
            continue
        yield Suspicion(
            severity=LIKELY,
            event=event,
            text=f"{facts.code(event)} divides by all {shape[axis]} steps, "
            f"those that {facts.code(masked)} hides included",
            evidence=(seen_at(facts, f"the mask is made by {facts.code(mask)}", mask),),
            fix="divide the sum by the number of steps that count: x.sum(1) / mask.sum(1, keepdim=True)",
            times=times,
        )


def _mask(facts: Facts, masked: int, shape: tuple[int, ...], axis: int) -> int | None:
    """Return the comparison by which the mask of a product, or of a fill with 0, was made."""
    name = facts.name(masked)
    if name in FILLS:
        if facts.argument(masked, "value", 2) not in (0, 0.0):
            return None
        sides = facts.takes[masked][1:]
    elif name in PRODUCTS:
        sides = facts.takes[masked]
    else:
        return None
    for side in sides:
        own = facts.shape(side)
        if facts.requires_grad(side) or len(own) != len(shape):
            continue
        if own[axis] != shape[axis] or own[-1] != 1 or axis == len(shape) - 1:
            continue
        _, maker = next(facts.sources(side, PASSES))
        if maker is not None and facts.name(maker) in COMPARES and _is_of_positions(facts, maker):
            return maker
    return None


def _is_of_positions(facts: Facts, event: int) -> bool:
    """Return whether a comparison is of whole numbers, such as positions with lengths, or tokens with an index."""
    return all(facts.dtype(value) in ("int64", "int32") for value in facts.takes[event])
