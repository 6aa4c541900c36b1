"""Fractions are written into an integer tensor, which cuts them off.

    rewards = torch.zeros(10, dtype=torch.long)
    rewards[3] = 0.5                                     # stores 0
    y = torch.tensor([1, 2, 3]); y[0] = prediction       # stores the whole part
    y = torch.tensor([0.2, 0.9, 0.5]).long()             # all 0

Casts are only looked at with statistics, and only reported where nothing but 0 is left. Pictures (`uint8`) are left
out: there it is what everybody means.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, LIKELY, Facts, Suspicion, seen_at

INTEGERS = ("int64", "int32", "int16", "int8")
WHOLE = ("round", "floor", "ceil", "trunc", "argmax", "float", "to")
ENOUGH = 3
"""From this many numbers on it is no accident that all are 0."""


CASTS = ("long", "int", "to", "type")


def find(facts: Facts) -> Iterator[Suspicion]:
    yield from _casts(facts)
    for name in (
        "__setitem__",
        "copy_",
        "fill_",
        "index_copy_",
        "scatter_",
        "masked_fill_",
        "index_put_",
    ):
        for event, times in facts.calls(name):
            if not facts.takes[event] or not facts.is_written(event):
                continue
            target = facts.takes[event][0]
            if facts.dtype(target) not in INTEGERS:
                continue
            given = facts.arguments(event).positional
            number = next(
                (each for each in given[1:] if isinstance(each, float) and each % 1), None
            )
            value = facts.takes[event][-1]
            if number is None and (value == target or not facts.is_float(value)):
                continue
            if number is None and any(
                maker is not None and facts.name(maker) in WHOLE
                for _, maker in facts.sources(value, ())
            ):
                continue
            if number is None:
                what = facts.typed_word(value)
            else:
                what = str(number)
            made = facts.maker(target)
            yield Suspicion(
                severity=BUG if number is not None else LIKELY,
                event=event,
                text=f"{what} is written into {facts.typed_word(target)}: what is behind the point is lost",
                evidence=()
                if made is None
                else (seen_at(facts, f"made by {facts.code(made)}", made),),
                fix="make the tensor with dtype=torch.float32",
                times=times,
            )


def _casts(facts: Facts) -> Iterator[Suspicion]:
    """Find fractions that are cast to whole numbers, and are all 0 after that."""
    if not facts.is_measured:
        return
    for name in CASTS:
        for event, times in facts.calls(name):
            if not facts.takes[event] or not facts.gives[event] or not facts.is_written(event):
                continue
            source = facts.takes[event][0]
            given = facts.gives[event][0]
            if facts.dtype(given) not in INTEGERS or not facts.is_float(source):
                continue
            before = facts.stats(source)
            after = facts.stats(given)
            if before is None or after is None or after.count < ENOUGH:
                continue
            if after.zeros < after.count or before.zeros > 0 or before.std == 0:
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{facts.code(event)} makes 0 of all {after.count} numbers, which lie between "
                f"{before.min:.3g} and {before.max:.3g}",
                fix="keep them as float32",
                times=times,
            )
