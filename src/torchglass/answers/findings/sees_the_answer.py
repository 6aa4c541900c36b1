"""A language model sees what it is to predict: no causal mask, reading backwards, or targets without a shift.

The target of each position is the next token. Attention without a mask, and the backward direction of a recurrent
layer, look it up in the input; where the targets are the inputs themselves, there is nothing to predict. The loss gets
small quickly, and the model cannot generate.

    x, y = tokens[:, :-1], tokens[:, 1:]
    y = F.scaled_dot_product_attention(q, k, v)          # wrong: is_causal=True
    x = data[i : i + n]; y = data[i : i + n]             # wrong: data[i + 1 : i + n + 1]

It is reported only where inputs and targets are slices of the same tokens; where they are the very same tokens, it is a
hint, since that is also a quick way to try out a model. Models that fill gaps, tag words or rebuild
a sequence from a summary are fine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from torchglass.answers.findings.facts import KEEPS_NUMBERS
from torchglass.answers.findings.suspicion import BUG, HINT, LIKELY, Facts, Suspicion, seen_at
from torchglass.events.tables import NONE

PASSES = KEEPS_NUMBERS | {"long", "int"}
ATTENDS = ("scaled_dot_product_attention", "multi_head_attention_forward")
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
SUMS = frozenset("matmul __matmul__ bmm einsum baddbmm".split())
MASKS = frozenset(
    "masked_fill masked_fill_ where tril triu add_ baddbmm add __add__ __iadd__".split()
)
COMPARES = frozenset("eq __eq__ ne __ne__ bool logical_not __invert__ lt __lt__ gt __gt__".split())
MOST_SEEN = 600
MOST_STEPS = 10


class Slice(NamedTuple):
    """Which part of a sequence was cut out."""

    source: int
    symbol: tuple[int, int]
    """What tensor is in its start, and which row of it, if the start is not a plain number."""
    start: int
    """The plain number in its start."""
    size: int


def find(facts: Facts) -> Iterator[Suspicion]:
    judged: set[tuple[str, int]] = set()
    for event, times in facts.calls("cross_entropy"):
        taken = facts.takes[event]
        if len(taken) < 2 or taken[0] not in facts.carries_gradient:
            continue
        target = _slice(facts, taken[1])
        if target is None:
            yield from _unshifted(facts, event, times)
            continue
        calls = _calls_before(facts, taken[0])
        embedded = [each for each in calls if facts.name(each) == "embedding"]
        for lookup in embedded:
            given = _slice(facts, facts.takes[lookup][0])
            if given is None or given._replace(start=target.start) != target:
                continue
            shift = target.start - given.start
            for found in _judge(facts, event, times, calls, shift, LIKELY):
                at = facts.location(found.event)
                key = (at.file, at.line) if at is not None else ("", found.event)
                if key not in judged:
                    judged.add(key)
                    yield found
            break


def _unshifted(facts: Facts, loss: int, times: int) -> Iterator[Suspicion]:
    """Find targets that are the very tokens that the model is given, without any slice."""
    tokens, _ = next(facts.sources(facts.takes[loss][1], PASSES))
    if "int" not in facts.dtype(tokens) or len(facts.shape(tokens)) < 2:
        return
    calls = _calls_before(facts, facts.takes[loss][0])
    for lookup in calls:
        if facts.name(lookup) == "embedding" and facts.takes[lookup][0] == tokens:
            yield from _judge(facts, loss, times, calls, 0, HINT)
            return


def _judge(
    facts: Facts, loss: int, times: int, calls: list[int], shift: int, severity: str
) -> Iterator[Suspicion]:
    if shift == 1:
        for each in calls:
            what = _looks_ahead(facts, each)
            if what:
                yield Suspicion(
                    severity=BUG,
                    event=each,
                    text=f"{facts.code(each)} {what}, and the target is the next token: "
                    "the model sees the answer",
                    evidence=(seen_at(facts, f"the loss: {facts.code(loss)}", loss),),
                    fix="is_causal=True, or a mask of what comes later"
                    if facts.name(each) not in RECURRENT
                    else "bidirectional=False",
                    times=times,
                )
                return
    if shift == 0 and _keeps_positions(facts, calls):
        yield Suspicion(
            severity=severity,
            event=loss,
            text=f"the targets of {facts.code(loss)} are the tokens that the model is given: "
            "there is nothing to predict",
            fix="shift the targets by one: logits[:, :-1] with tokens[:, 1:]",
            times=times,
        )


def _looks_ahead(facts: Facts, event: int) -> str:
    """Return how a call mixes a position with later ones, or "" if it does not."""
    name = facts.name(event)
    taken = list(facts.takes[event])
    if name == "scaled_dot_product_attention":
        has_mask = len(taken) > 3 or facts.argument(event, "attn_mask", 3) is not None
        is_causal = facts.argument(event, "is_causal", 5, False) is True
        if (
            not has_mask
            and not is_causal
            and facts.shape(taken[0])[-2:-1] == facts.shape(taken[1])[-2:-1]
        ):
            return "has no causal mask"
    if name == "softmax" and _is_attention(facts, event):
        if not _is_masked(facts, taken[0]):
            return "compares with later positions as well"
        if _is_open_by_one(facts, taken[0]):
            return "has a mask that lets each position see the next one"
    if name in RECURRENT and facts.argument(event, "bidirectional", 7) is True:
        return "reads the sequence backwards, too"
    return ""


def _is_attention(facts: Facts, event: int) -> bool:
    """Return whether a softmax compares the scores of all pairs of positions."""
    shape = facts.shape(facts.takes[event][0]) if facts.takes[event] else ()
    if len(shape) < 3 or shape[-1] != shape[-2] or shape[-1] < 3 or not facts.gives[event]:
        return False
    users = [user for _, user in facts.uses(facts.gives[event][0], KEEPS_NUMBERS | {"dropout"})]
    return any(facts.name(user) in SUMS for user in users)


def _is_masked(facts: Facts, scores: int) -> bool:
    for _ in range(6):
        maker = facts.maker(scores)
        if maker is None or not facts.takes[maker]:
            return False
        if facts.name(maker) in MASKS:
            return True
        if facts.name(maker) in SUMS:
            return False
        scores = facts.takes[maker][0]
    return True


def _is_open_by_one(facts: Facts, scores: int) -> bool:
    """Return whether the triangle of a mask begins one position too late: ``torch.tril(ones, diagonal=1)``."""
    for _ in range(6):
        maker = facts.maker(scores)
        if maker is None or not facts.takes[maker] or facts.name(maker) in SUMS:
            return False
        if facts.name(maker) in ("masked_fill", "masked_fill_") and len(facts.takes[maker]) > 1:
            for _, made in facts.sources(facts.takes[maker][1], PASSES | COMPARES):
                if made is None or facts.name(made) not in ("tril", "triu"):
                    continue
                diagonal = facts.argument(made, "diagonal", 1, 0)
                first_hidden = diagonal + 1 if facts.name(made) == "tril" else diagonal
                return type(diagonal) is int and first_hidden > 1
        scores = facts.takes[maker][0]
    return False


def _calls_before(facts: Facts, value: int) -> list[int]:
    """Return the calls that a value was computed by, in order."""
    found: set[int] = set()
    pending = [value]
    while pending and len(found) < MOST_SEEN:
        maker = facts.maker(pending.pop())
        if maker is None or maker in found:
            continue
        found.add(maker)
        pending.extend(each for each in facts.takes[maker] if not facts.is_parameter(each))
    return sorted(found)


def _keeps_positions(facts: Facts, calls: list[int]) -> bool:
    """Return whether all layers between the tokens and the scores have one result for each position."""
    sizes = {
        facts.shape(facts.gives[each][0])[:2]
        for each in calls
        if facts.name(each) in ("embedding", "linear", *RECURRENT) and facts.gives[each]
    }
    if any(
        facts.name(each) in RECURRENT and not _gives_steps(facts, each, calls) for each in calls
    ):
        return False
    mixes = {
        "cat",
        "dropout",
        "sum",
        "mean",
        "max",
        "masked_fill",
        "where",
        "bernoulli",
        "rand",
        "flip",
    }
    return len(sizes) == 1 and not any(facts.name(each) in mixes for each in calls)


def _gives_steps(facts: Facts, recurrent: int, calls: list[int]) -> bool:
    """Return whether the results of all steps are used, and not only the last state."""
    if not facts.gives[recurrent]:
        return False
    return any(user in calls for user in facts.users.get(facts.gives[recurrent][0], ()))


def _slice(facts: Facts, value: int) -> Slice | None:
    """Return the tokens that a value comes from, and its part of them. Look back to the last cut along the sequence."""
    for _ in range(MOST_STEPS):
        maker = facts.maker(value)
        if maker is None or not facts.takes[maker]:
            return None
        name = facts.name(maker)
        if name == "__getitem__":
            cut = _cut(facts, maker)
            if cut is not None:
                return cut
        elif name not in PASSES:
            return None
        value = facts.takes[maker][0]
    return None


def _cut(facts: Facts, event: int) -> Slice | None:
    """Return the part that a slice of the last axis takes; None if it takes something else."""
    taken = facts.takes[event]
    shape = facts.shape(taken[0])
    given = facts.arguments(event).positional
    if len(given) < 2 or not shape or not facts.gives[event]:
        return None
    size = facts.shape(facts.gives[event][0])[-1:]
    if not size:
        return None
    if len(taken) == 3 and len(shape) == 1:  # tokens[i : i + n] with a tensor i
        symbol, offset = _sum(facts, taken[1])
        return Slice(taken[0], _row(facts, symbol), offset, size[0])
    key: Any = given[1]
    parts = list(cast("tuple[Any, ...]", key)) if isinstance(key, tuple) else [key]
    if len(taken) != 1 or len(parts) != len(shape) or not isinstance(parts[-1], str):
        return None
    if any(part not in (":", "::") for part in parts[:-1]):
        return None
    start, colon, _ = parts[-1].partition(":")
    if not colon or not _is_number(start):
        return None
    first = int(start or 0)
    return Slice(taken[0], (NONE, 0), first + shape[-1] if first < 0 else first, size[0])


def _sum(facts: Facts, value: int) -> tuple[int, int]:
    """Return a tensor and the whole number that was added to it."""
    offset = 0
    for _ in range(MOST_STEPS):
        maker = facts.maker(value)
        if (
            maker is None
            or facts.name(maker) not in ("add", "__add__")
            or len(facts.takes[maker]) != 1
        ):
            break
        number = next(
            (each for each in facts.arguments(maker).positional if type(each) is int), None
        )
        if number is None:
            break
        offset += number
        value = facts.takes[maker][0]
    return value, offset


def _row(facts: Facts, value: int) -> tuple[int, int]:
    """Return the tensor and the row that a number comes from, as in ``for i in starts``."""
    maker = facts.maker(value)
    if maker is None or facts.name(maker) != "unbind":
        return value, NONE
    return facts.takes[maker][0], facts.gives[maker].index(value)


def _is_number(text: str) -> bool:
    return text.strip().lstrip("-").isdigit() or not text.strip()
