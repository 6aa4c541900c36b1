"""Vectors are normalised along another axis than the one over which their products are summed.

The cosine of two vectors is the product of vectors of length 1. `F.normalize(x)` takes axis 1, which is the sequence of
[batch, time, features], and `dim=0` is the batch: then the vectors that are multiplied have any length.

    z = F.normalize(encoder(x), dim=0)                   # wrong: dim=-1
    similarity = z @ z.T

    similarity = F.cosine_similarity(a, b)               # of [batch, time, features]; wrong: dim=-1

It is only reported where both sides of the product are normalised like that, or where `cosine_similarity` is given no
axis and both sides come from layers whose features are the last axis.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import normal
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

PRODUCTS = ("matmul", "__matmul__", "mm", "bmm")
PASSES = (
    "to",
    "float",
    "half",
    "contiguous",
    "clone",
    "detach",
    "dropout",
    "div",
    "__truediv__",
    "mul",
    "__mul__",
)
MOST_STEPS = 8


LAST = frozenset("linear embedding layer_norm rms_norm lstm gru rnn_tanh rnn_relu".split())
"""Functions that give features along the last axis."""
SAME = (
    *PASSES,
    "relu",
    "gelu",
    "silu",
    "tanh",
    "sigmoid",
    "leaky_relu",
    "elu",
    "add",
    "__add__",
    "normalize",
)


def find(facts: Facts) -> Iterator[Suspicion]:
    yield from _similarities(facts)
    wrong: dict[int, tuple[int, int]] = {}
    for name in (*PRODUCTS, "einsum"):
        for event, times in facts.calls(name):
            sides = [(each, _axis(facts, each)) for each in _sides(facts, event)]
            summed = _summed(facts, event)
            if len(sides) != 2 or len(summed) != 2:
                continue
            makers: list[int] = []
            for (_, found), axes in zip(sides, summed, strict=True):
                if found is None or found[1] in axes:
                    break
                makers.append(found[0])
            if len(makers) == 2:
                for maker in makers:
                    wrong.setdefault(maker, (event, times))
    for maker, (event, times) in wrong.items():
        value = facts.gives[maker][0]
        rank = len(facts.shape(value))
        axis = normal(facts.argument(maker, "dim", 2, 1), rank)
        yield Suspicion(
            severity=LIKELY,
            event=maker,
            text=f"normalised along axis {axis} of {facts.word(value)}, and the product sums over another axis: "
            "it is no cosine",
            evidence=(seen_at(facts, f"the product: {facts.code(event)}", event),),
            fix="F.normalize(…, dim=-1)",
            times=times,
        )


def _similarities(facts: Facts) -> Iterator[Suspicion]:
    """Find cosine similarities along axis 1, which nobody chose, of tensors with features along axis 2."""
    for event, times in facts.calls("cosine_similarity"):
        taken = facts.takes[event]
        if len(taken) != 2 or any(len(facts.shape(each)) != 3 for each in taken):
            continue
        if not facts.is_written(event) or facts.argument(event, "dim", 2) is not None:
            continue
        if facts.shape(taken[0])[1] < 2 or not all(
            _is_features_last(facts, each) for each in taken
        ):
            continue
        yield Suspicion(
            severity=LIKELY,
            event=event,
            text=f"{facts.code(event)} compares along axis 1 of {facts.word(taken[0])}, and the features are axis 2",
            fix="F.cosine_similarity(…, dim=-1)",
            times=times,
        )


def _is_features_last(facts: Facts, value: int) -> bool:
    for _ in range(MOST_STEPS):
        maker = facts.maker(value)
        if maker is None or not facts.takes[maker]:
            return False
        if facts.name(maker) in LAST:
            return True
        if facts.name(maker) not in SAME or facts.shape(facts.takes[maker][0]) != facts.shape(
            value
        ):
            return False
        value = facts.takes[maker][0]
    return False


def _sides(facts: Facts, event: int) -> tuple[int, ...]:
    return facts.takes[event][-2:]


def _summed(facts: Facts, event: int) -> list[set[int]]:
    """Return the axes over which a product sums, for its two sides."""
    sides = _sides(facts, event)
    if len(sides) != 2:
        return []
    ranks = [len(facts.shape(each)) for each in sides]
    if facts.name(event) != "einsum":
        if min(ranks) < 2:
            return []
        return [{ranks[0] - 1}, {ranks[1] - 2}]
    equation = facts.argument(event, "equation", 0)
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        return []
    terms, _, result = equation.replace(" ", "").partition("->")
    letters = terms.split(",")
    if len(letters) != 2 or [len(each) for each in letters] != ranks:
        return []
    return [
        {place for place, letter in enumerate(own) if letter in other and letter not in result}
        for own, other in (letters, letters[::-1])
    ]


def _axis(facts: Facts, value: int) -> tuple[int, int] | None:
    """Return the call that normalised a value, and the axis along which it did, counted in that value."""
    swaps: list[int] = []
    for _ in range(MOST_STEPS):
        maker = facts.maker(value)
        if maker is None or not facts.takes[maker]:
            return None
        name = facts.name(maker)
        rank = len(facts.shape(value))
        if name == "normalize":
            axis = normal(facts.argument(maker, "dim", 2, 1), rank)
            if axis is None or facts.argument(maker, "p", 1, 2.0) not in (2, 2.0):
                return None
            for swap in reversed(swaps):
                axis = _swapped(facts, swap, axis, rank)
                if axis is None:
                    return None
            return maker, axis
        if name in ("T", "t", "mT", "transpose", "swapaxes"):
            swaps.append(maker)
        elif name not in PASSES or facts.shape(facts.takes[maker][0]) != facts.shape(value):
            return None
        value = facts.takes[maker][0]
    return None


def _swapped(facts: Facts, event: int, axis: int, rank: int) -> int | None:
    """Return where an axis is after a transpose."""
    name = facts.name(event)
    pair = (rank - 2, rank - 1)
    if name in ("transpose", "swapaxes"):
        given = (facts.argument(event, "dim0", 1), facts.argument(event, "dim1", 2))
        found = [normal(each, rank) for each in given]
        if found[0] is None or found[1] is None:
            return None
        pair = (found[0], found[1])
    if axis == pair[0]:
        return pair[1]
    if axis == pair[1]:
        return pair[0]
    return axis
