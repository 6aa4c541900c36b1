"""A boolean mask is inverted: attention looks at what should be hidden, and hides the rest.

`masked_fill(mask, -inf)` hides where the mask is True; so do the masks of `nn.MultiheadAttention` and the Transformer
layers. `F.scaled_dot_product_attention(attn_mask=...)` and `torch.where(mask, scores, -inf)` keep what is True.

    causal = torch.tril(torch.ones(T, T)).bool()                      # True: may be seen
    scores.masked_fill(causal, float("-inf"))                         # wrong: masked_fill(~causal, float("-inf"))
    layer(x, src_key_padding_mask=tokens != PAD)                      # wrong: tokens == PAD
    F.scaled_dot_product_attention(q, k, v, attn_mask=tokens == PAD)  # wrong: tokens != PAD

A mask is judged only if its making shows what True means: a triangle of ones, tokens compared with a padding number,
or positions compared with lengths. That is right in models that read from right to left.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

KEEPS, HIDES = "keeps", "hides"
"""What a True in a mask means by the way it was made."""
OPPOSITE = {KEEPS: HIDES, HIDES: KEEPS}
VERY_NEGATIVE = -1000.0
RESHAPES = frozenset(
    "bool to float int long type byte unsqueeze __getitem__ expand expand_as repeat view reshape clone contiguous "
    "type_as cuda detach squeeze".split()
)
INVERTS = ("__invert__", "logical_not", "bitwise_not")
ORDERS = {
    "lt": KEEPS, "__lt__": KEEPS, "less": KEEPS,
    "ge": HIDES, "__ge__": HIDES, "greater_equal": HIDES,
}  # fmt: skip
"""What True means if the first operand is a position and the second one a length."""
MOST_STEPS = 20


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in ("masked_fill", "masked_fill_"):
        for event, times in facts.calls(name):
            if len(facts.takes[event]) >= 2 and is_very_negative(facts.argument(event, "value", 2)):
                yield from _judged(facts, event, times, facts.takes[event][1], HIDES)
    for event, times in facts.calls("where"):
        taken = facts.takes[event]
        if len(taken) < 2:
            continue
        if is_very_negative(facts.argument(event, "other", 2)):
            yield from _judged(facts, event, times, taken[0], KEEPS)
        elif is_very_negative(facts.argument(event, "input", 1)):
            yield from _judged(facts, event, times, taken[0], HIDES)
    for event, times in facts.calls("scaled_dot_product_attention"):
        mask = facts.tensor_argument(event, "attn_mask", 3)
        if mask is not None and facts.dtype(mask) == "bool":
            yield from _judged(facts, event, times, mask, KEEPS)


def is_very_negative(value: object) -> bool:
    """Return whether a score is so small that it hides what it is filled into."""
    if value in ("-inf", "-Infinity"):
        return True
    return isinstance(value, int | float) and value <= VERY_NEGATIVE


def _judged(facts: Facts, event: int, times: int, mask: int, wanted: str) -> Iterator[Suspicion]:
    meaning, origin = _meaning(facts, mask, MOST_STEPS)
    if meaning is None or meaning == wanted:
        return
    if wanted == HIDES:
        text = "the mask is True where attention may look, and what is True gets hidden here"
        fix = "invert the mask: masked_fill(~mask, ...)"
    else:
        text = "the mask is True where attention must not look, and only what is True is used here"
        fix = "invert the mask: attn_mask=~mask"
    evidence = ()
    if origin is not None:
        evidence = (seen_at(facts, f"made by {facts.code(origin)}", origin),)
    yield Suspicion(
        severity=LIKELY, event=event, text=text, fix=fix, evidence=evidence, times=times
    )


def _meaning(facts: Facts, mask: int, steps: int) -> tuple[str | None, int | None]:
    """Return what True in a mask means, and the call that shows it; None if nothing shows it."""
    maker = facts.maker(mask)
    if maker is None or steps == 0 or not facts.takes[maker]:
        return None, None
    name = facts.name(maker)
    taken = facts.takes[maker]
    if name in RESHAPES:
        return _meaning(facts, taken[0], steps - 1)
    if name in INVERTS or (name in ("__rsub__", "rsub") and facts.argument(maker, "other", 1) == 1):
        return _opposite(_meaning(facts, taken[0], steps - 1))
    if name in ("tril", "triu"):
        return _triangle(facts, maker), maker
    if name in ("eq", "__eq__", "ne", "__ne__"):
        return _compared(facts, maker, steps)
    if name in ("__and__", "logical_and", "__or__", "logical_or") and len(taken) > 1:
        return _both(facts, maker, steps)
    if (
        len(taken) > 1
        and name in ORDERS
        and _is_position(facts, taken[0])
        and not _is_position(facts, taken[1])
    ):
        return ORDERS[name], maker
    is_greater = name in ("gt", "__gt__", "greater")
    if (
        len(taken) > 1
        and is_greater
        and _is_position(facts, taken[1])
        and not _is_position(facts, taken[0])
    ):
        return KEEPS, maker
    return None, None


def _opposite(found: tuple[str | None, int | None]) -> tuple[str | None, int | None]:
    meaning, origin = found
    return (None if meaning is None else OPPOSITE[meaning]), origin


def _triangle(facts: Facts, maker: int) -> str | None:
    """Lower triangles of ones say what may be seen, upper ones without the diagonal what must not."""
    made = facts.maker(facts.takes[maker][0])
    if made is None or facts.name(made) not in (
        "ones",
        "ones_like",
        "full",
        "full_like",
        "new_ones",
    ):
        return None
    if facts.name(made).startswith("full") and facts.argument(made, "fill_value", 1) not in (
        1,
        1.0,
        True,
    ):
        return None
    diagonal = facts.argument(maker, "diagonal", 1, 0)
    if facts.name(maker) == "tril" and diagonal == 0:
        return KEEPS
    if facts.name(maker) == "triu" and diagonal == 1:
        return HIDES
    return None


def _compared(facts: Facts, maker: int, steps: int) -> tuple[str | None, int | None]:
    """Recognise tokens compared with a padding number, or another mask compared with 0 or 1."""
    number = facts.argument(maker, "other", 1)
    if not isinstance(number, int | float):
        return None, None
    is_equal = "eq" in facts.name(maker)
    before = facts.takes[maker][0]
    meaning, origin = _meaning(facts, before, steps - 1)
    if meaning is not None:
        if number not in (0, 1):
            return None, None
        return (meaning if is_equal == bool(number) else OPPOSITE[meaning]), origin
    if not _are_tokens(facts, before):
        return None, None
    return (HIDES if is_equal else KEEPS), maker


def _both(facts: Facts, maker: int, steps: int) -> tuple[str | None, int | None]:
    found = [_meaning(facts, value, steps // 2) for value in facts.takes[maker][:2]]
    known = {meaning for meaning, _ in found if meaning is not None}
    wanted = HIDES
    if "and" in facts.name(maker):
        wanted = KEEPS
    if known != {wanted}:
        return None, None
    return next(each for each in found if each[0] == wanted)


def _are_tokens(facts: Facts, value: int) -> bool:
    """Return whether whole numbers are looked up in an embedding, too."""
    if "int" not in facts.dtype(value):
        return False
    alike = {each for each, _ in facts.sources(value, RESHAPES)} | {value}
    return any(
        facts.name(user) == "embedding" for each in alike for _, user in facts.uses(each, RESHAPES)
    )


def _is_position(facts: Facts, value: int) -> bool:
    return any(
        maker is not None and facts.name(maker) == "arange"
        for _, maker in facts.sources(value, RESHAPES)
    )
