"""Attention runs over the heads instead of the sequence: the axes were not swapped after splitting into heads.

`x.view(B, T, H, D)` puts the heads after the sequence. `F.scaled_dot_product_attention`, and `q @ k.transpose(-2, -1)`,
attend along the last axis but one, so it has to be the sequence: [B, H, T, D].

    q = self.q(x).view(B, T, H, D)                       # wrong: .view(B, T, H, D).transpose(1, 2)
    out = F.scaled_dot_product_attention(q, k, v)        # each position attends to its own heads only

That is right where a layer mixes groups of channels on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

PASSES = frozenset(
    "contiguous to float half type_as mul __mul__ div __truediv__ unbind chunk split __getitem__ clone".split()
)
SPLITS = ("view", "reshape", "unflatten")
PRODUCTS = ("matmul", "__matmul__")
SCALES = frozenset("mul __mul__ __rmul__ div __truediv__ masked_fill add __add__ to float".split())


def find(facts: Facts) -> Iterator[Suspicion]:
    for event, times in facts.calls("scaled_dot_product_attention"):
        taken = facts.takes[event]
        if len(taken) >= 3:
            yield from _judged(facts, event, times, taken[0], taken[1])
    for name in PRODUCTS:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if len(taken) < 2 or not facts.gives[event]:
                continue
            keys = _transposed(facts, taken[1])
            if keys is not None and _goes_into_softmax(facts, facts.gives[event][0]):
                yield from _judged(facts, event, times, taken[0], keys)


def _judged(facts: Facts, event: int, times: int, queries: int, keys: int) -> Iterator[Suspicion]:
    split = _split_into_heads(facts, queries)
    if split is None or _split_into_heads(facts, keys) is None:
        return
    shape = facts.shape(queries)
    yield Suspicion(
        severity=LIKELY,
        event=event,
        text=f"attention over axis {len(shape) - 2} of {facts.word(queries)}, which are the {shape[-2]} heads that the "
        "last axis was split into: positions of the sequence never meet",
        evidence=(seen_at(facts, f"split by {facts.code(split)}", split),),
        fix="swap the axes after splitting: .transpose(1, 2)",
        times=times,
    )


def _split_into_heads(facts: Facts, value: int) -> int | None:
    """Return the call that split the last axis into the last two, with no swap of axes after it."""
    if len(facts.shape(value)) != 4:
        return None
    for source, maker in facts.sources(value, PASSES):
        if maker is None or facts.name(maker) not in SPLITS or not facts.takes[maker]:
            return None
        before = facts.shape(facts.takes[maker][0])
        after = facts.shape(source)
        if len(after) != 4 or len(before) != 3 or before[:2] != after[:2]:
            return None
        if min(after[1:]) < 2 or before[-1] != after[-2] * after[-1]:
            return None
        return maker
    return None


def _transposed(facts: Facts, value: int) -> int | None:
    """Return what was transposed in its last two axes to make the keys."""
    maker = facts.maker(value)
    if maker is None or not facts.takes[maker]:
        return None
    if facts.name(maker) == "mT":
        return facts.takes[maker][0]
    if facts.name(maker) not in ("transpose", "swapaxes", "swapdims"):
        return None
    axes = {facts.argument(maker, "dim0", 1), facts.argument(maker, "dim1", 2)}
    rank = len(facts.shape(value))
    if {each % rank for each in axes if isinstance(each, int)} != {rank - 2, rank - 1}:
        return None
    return facts.takes[maker][0]


def _goes_into_softmax(facts: Facts, value: int) -> bool:
    return any(facts.name(user) == "softmax" for _, user in facts.uses(value, SCALES))
