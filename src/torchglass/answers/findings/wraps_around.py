"""Whole numbers of 8 bits are subtracted or multiplied: what does not fit wraps around.

Pictures are often `uint8`, which holds 0 to 255. `image - 128` of a dark pixel is not negative, but above 128, and the
difference of two frames has large numbers where the second is a little brighter.

    x = (image - 128).float() / 128                      # image is uint8; wrong: (image.float() - 128) / 128
    motion = frames[1:] - frames[:-1]

It is only reported where the result becomes a fraction later: there numbers were meant, not bits. With statistics it is
reported only if the numbers really do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import KEEPS_NUMBERS
from torchglass.answers.findings.suspicion import BUG, LIKELY, Facts, Suspicion

SUBTRACTS = ("sub", "__sub__", "rsub", "__rsub__", "sub_", "__isub__")
MULTIPLIES = ("mul", "__mul__", "__rmul__")
CASTS = ("float", "to", "div", "__truediv__", "type", "double", "half", "bfloat16")
LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in (*SUBTRACTS, *MULTIPLIES):
        for event, times in facts.calls(name):
            if not facts.takes[event] or not facts.gives[event] or not facts.is_written(event):
                continue
            given = facts.gives[event][0]
            limits = LIMITS.get(facts.dtype(given))
            if limits is None or facts.numel(given) < 2 or not _becomes_a_fraction(facts, given):
                continue
            number = _number(facts, event)
            if number is None and len(facts.takes[event]) < 2:
                continue
            if number is not None and (number <= 0 or (number == 1 and name in MULTIPLIES)):
                continue
            if name in MULTIPLIES and number is None:
                continue  # a mask
            fits = _fits(facts, event, number, limits)
            if fits:
                continue
            yield Suspicion(
                severity=LIKELY if fits is None else BUG,
                event=event,
                text=f"{facts.code(event)} is computed in {facts.dtype(given)}, which holds {limits[0]} to "
                f"{limits[1]}: results that do not fit wrap around",
                fix="convert first: .float()",
                times=times,
            )


def _number(facts: Facts, event: int) -> int | None:
    """Return the whole number that a call takes beside its tensor."""
    for each in facts.arguments(event).positional:
        if type(each) is int:
            return each
    return None


def _becomes_a_fraction(facts: Facts, value: int) -> bool:
    passes = KEEPS_NUMBERS - set(CASTS)
    for _, user in facts.uses(value, passes):
        if facts.name(user) in CASTS and facts.gives[user] and facts.is_float(facts.gives[user][0]):
            return True
    return False


def _fits(facts: Facts, event: int, number: int | None, limits: tuple[int, int]) -> bool | None:
    """Return whether all results fit; None if that depends on numbers that were not measured."""
    if number is None:
        return None
    stats = facts.stats(facts.takes[event][0])
    ends: tuple[float, float] = limits
    if stats is not None and stats.count:
        ends = (stats.min, stats.max)
    results = [_result(facts.name(event), end, number) for end in ends]
    fits = limits[0] <= min(results) and max(results) <= limits[1]
    if not fits and stats is None:
        return None
    return fits


def _result(name: str, end: float, number: int) -> float:
    if name in MULTIPLIES:
        return end * number
    if name in ("rsub", "__rsub__"):
        return number - end
    return end - number
