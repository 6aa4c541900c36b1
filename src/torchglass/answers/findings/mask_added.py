"""A mask does not mask: it is added to scores as True and False, fills in 0, or is multiplied with the weights.

True counts as 1 and False as 0. Added to scores they raise some of them a little; multiplied they make them 0, which
for a softmax is a score like any other. A mask that is added has to hold 0 and -inf.

Filled in, the number has to be very negative: 0, or 1e-9 where -1e9 was meant, is a score like any other. Multiplied
with the weights *after* the softmax, a mask leaves weights that do not add up to 1, and that know what they must not.

    weights = (scores + mask).softmax(-1)                # wrong: scores.masked_fill(mask, float("-inf"))
    weights = scores.masked_fill(mask, 0).softmax(-1)    # the same
    out = (scores.softmax(-1) * mask) @ v                # the same, unless the weights are divided by their sum
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, LIKELY, Facts, Suspicion, seen_at

REPAIRS = ("isnan", "isinf", "isneginf", "isposinf", "isfinite", "logical_not", "__invert__")
"""Masks that repair numbers rather than hide them; an inverted mask may be one."""
HIDES_FROM = -5.0
"""A score this small hides what it is filled into."""
COMBINES = (
    "add",
    "__add__",
    "__radd__",
    "mul",
    "__mul__",
    "__rmul__",
    "add_",
    "mul_",
    "__iadd__",
    "__imul__",
)
CONVERTS = (
    "float",
    "to",
    "type_as",
    "int",
    "long",
    "unsqueeze",
    "__getitem__",
    "view",
    "expand",
    "type",
    "half",
)
SCALES = ("div", "__truediv__", "mul", "__mul__", "dropout", "float", "to")


def find(facts: Facts) -> Iterator[Suspicion]:
    yield from _filled(facts)
    yield from _after_softmax(facts)
    for name in COMBINES:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if len(taken) < 2 or not facts.is_written(event) or not facts.gives[event]:
                continue
            masks = [each for each in taken[:2] if _is_mask(facts, each)]
            if len(masks) != 1 or not any(
                facts.is_float(each) for each in taken[:2] if each not in masks
            ):
                continue
            after = next((user for _, user in facts.uses(facts.gives[event][0], SCALES)), None)
            if after is None or facts.name(after) not in ("softmax", "log_softmax"):
                continue
            if "mul" in name and _is_masked_again(facts, after):
                continue  # the weights are masked afterwards, and normalised once more
            done = "added to"
            if "mul" in name:
                done = "multiplied with"
            yield Suspicion(
                severity=BUG,
                event=event,
                text=f"a mask of 1 and 0 is {done} scores that go into {facts.name(after)}: it masks nothing",
                evidence=(seen_at(facts, facts.code(after), after),),
                fix='use scores.masked_fill(~mask, float("-inf")), or a mask of 0 and -inf',
                times=times,
            )


def _filled(facts: Facts) -> Iterator[Suspicion]:
    """Find scores whose hidden entries are set to a number that is not small."""
    for event, times in (*facts.calls("masked_fill"), *facts.calls("masked_fill_")):
        number = _filled_number(facts, event)
        is_small = not isinstance(number, int | float) or number <= HIDES_FROM
        if (
            is_small
            or not facts.gives[event]
            or not facts.is_written(event)
            or len(facts.takes[event]) < 2
        ):
            continue
        maker = facts.maker(facts.takes[event][1])
        if maker is not None and facts.name(maker) in REPAIRS:
            continue
        after = next((user for _, user in facts.uses(facts.gives[event][0], SCALES)), None)
        if after is None or facts.name(after) not in ("softmax", "log_softmax"):
            continue
        yield Suspicion(
            severity=BUG,
            event=event,
            text=f"masked scores become {number:g}, a score like any other for {facts.name(after)}: it masks nothing",
            evidence=(seen_at(facts, facts.code(after), after),),
            fix='fill in float("-inf")',
            times=times,
        )


def _after_softmax(facts: Facts) -> Iterator[Suspicion]:
    """Find weights that are multiplied with a mask and go straight into a product."""
    for name in ("mul", "__mul__", "__rmul__", "masked_fill", "masked_fill_"):
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if len(taken) < 2 or not facts.is_written(event) or not facts.gives[event]:
                continue
            number = 0
            if name.startswith("masked"):
                number = _filled_number(facts, event)
            is_score = isinstance(number, int | float) and number <= HIDES_FROM
            if number != 0 and not is_score:
                continue
            weights = [each for each in taken[:2] if _is_softmax(facts, each)]
            masks = [
                each
                for each in taken[:2]
                if each not in weights and (is_score or _is_triangle(facts, each))
            ]
            if (
                len(weights) != 1
                or not masks
                or len(facts.users.get(facts.gives[event][0], ())) != 1
            ):
                continue
            after = next(
                (user for _, user in facts.uses(facts.gives[event][0], ("dropout",))), None
            )
            if after is None or facts.name(after) not in ("matmul", "__matmul__", "bmm"):
                continue
            text = "weights are masked after the softmax and not normalised again: they do not add up to 1"
            if is_score:
                text = (
                    f"weights are set to {number:g} after the softmax: that hides scores, before it"
                )
            yield Suspicion(
                severity=BUG if is_score else LIKELY,
                event=event,
                text=text,
                evidence=(seen_at(facts, facts.code(after), after),),
                fix='mask the scores before the softmax: scores.masked_fill(~mask, float("-inf"))',
                times=times,
            )


def _filled_number(facts: Facts, event: int) -> object:
    """Return what ``masked_fill`` fills in. The arguments have -inf as text."""
    number = facts.argument(event, "value", 2)
    if number == "-inf":
        return float("-inf")
    return number


def _is_softmax(facts: Facts, value: int) -> bool:
    maker = facts.maker(value)
    return maker is not None and facts.name(maker) == "softmax"


def _is_triangle(facts: Facts, value: int) -> bool:
    """Return whether a mask is a triangle of ones, as it is or compared with a number."""
    passes = (
        *CONVERTS,
        "eq",
        "__eq__",
        "ne",
        "__ne__",
        "bool",
        "__invert__",
        "gt",
        "__gt__",
        "lt",
        "__lt__",
    )
    return any(
        maker is not None and facts.name(maker) in ("tril", "triu")
        for _, maker in facts.sources(value, passes)
    )


def _is_masked_again(facts: Facts, event: int) -> bool:
    users = [user for given in facts.gives[event] for _, user in facts.uses(given)]
    return any(
        facts.name(user) in ("mul", "__mul__", "masked_fill", "mul_")
        and any(_is_mask(facts, each) or not facts.is_float(each) for each in facts.takes[user])
        for user in users
    )


def _is_mask(facts: Facts, value: int) -> bool:
    for source, maker in facts.sources(value, CONVERTS):
        if facts.dtype(source) == "bool":
            return True
        if maker is None or facts.name(maker) not in ("tril", "triu") or not facts.takes[maker]:
            continue
        made = facts.maker(facts.takes[maker][0])
        if made is not None and facts.name(made) in ("ones", "ones_like"):
            return True
    return False
