"""Scores of attention are multiplied by the root of the head's size: they are to be divided by it.

The product of two vectors grows with their length, so it is divided by `sqrt(d)`. Multiplied, scores are d times too
large, the softmax picks one position, and hardly any gradient is left.

    scores = q @ k.transpose(-2, -1) * math.sqrt(d)      # wrong: / math.sqrt(d)
    scores = q @ k.transpose(-2, -1) / d ** -0.5         # the same

A factor is only reported if it is just the root of the length of the vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose, sqrt

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

MULTIPLIES = ("mul", "__mul__", "__rmul__", "mul_", "__imul__")
DIVIDES = ("div", "__truediv__", "div_", "__itruediv__")
PRODUCTS = ("matmul", "__matmul__", "bmm", "einsum")
NORMS = ("normalize", *DIVIDES, "layer_norm", "rms_norm")
BETWEEN = frozenset(
    "masked_fill masked_fill_ where add __add__ add_ __iadd__ view reshape float to".split()
)


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in (*MULTIPLIES, *DIVIDES):
        for event, times in facts.calls(name):
            number = _factor(facts, event)
            if number is None or not facts.is_written(event):
                continue
            if name in DIVIDES:
                number = 1 / number
            product = facts.maker(facts.takes[event][0])
            if product is None or facts.name(product) not in PRODUCTS:
                continue
            if any(_is_normalised(facts, each) for each in facts.takes[product]):
                continue  # the cosine is at most 1, and is scaled up on purpose
            size = facts.shape(facts.takes[product][0])[-1:]
            if number <= 1 or not size or not isclose(number, sqrt(size[0]), rel_tol=1e-3):
                continue
            after = [user for _, user in facts.uses(facts.gives[event][0], BETWEEN)]
            if not any(facts.name(each) == "softmax" for each in after):
                continue
            yield Suspicion(
                severity=BUG,
                event=event,
                text=f"{facts.code(event)} multiplies scores by the root of {size[0]}: they are to be divided by it",
                evidence=(seen_at(facts, f"the scores: {facts.code(product)}", product),),
                fix=f"divide by math.sqrt({size[0]})",
                times=times,
            )


def _is_normalised(facts: Facts, value: int) -> bool:
    """Return whether vectors were brought to one length, or to a variance of one."""
    return any(
        maker is not None and facts.name(maker) in NORMS for _, maker in facts.sources(value)
    )


def _factor(facts: Facts, event: int) -> float | None:
    """Return the plain number that a tensor is multiplied with, or divided by."""
    if len(facts.takes[event]) != 1 or not facts.gives[event]:
        return None
    for each in (*facts.arguments(event).positional, *facts.arguments(event).named.values()):
        if isinstance(each, int | float) and not isinstance(each, bool) and each > 0:
            return float(each)
    return None
