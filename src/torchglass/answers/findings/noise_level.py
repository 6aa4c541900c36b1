"""Noise is mixed into data by its variance, where its deviation is needed.

The signal has the factor `sqrt(a)`, so the noise needs `sqrt(1 - a)`: then data of variance 1 keeps it. With `1 - a`
there is less noise than the schedule says, and samples are later made from noise that the model has never seen.

    noisy = a.sqrt() * x + (1 - a) * noise               # wrong: (1 - a).sqrt() * noise

It is only reported where the noise comes from `randn`, and both factors from the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import KEEPS_NUMBERS
from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

NOISE = ("randn_like", "randn")
SUMS = ("add", "__add__", "__radd__")
PRODUCTS = ("mul", "__mul__", "__rmul__")
RESTS = ("rsub", "__rsub__")
POWERS = ("pow", "__pow__")
PASSES = KEEPS_NUMBERS - {"cat", "concat", "concatenate", "stack"}


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in SUMS:
        for event, times in facts.calls(name):
            if len(facts.takes[event]) != 2 or not facts.is_written(event):
                continue
            if any(map(facts.requires_grad, facts.takes[event])):
                continue
            for signal, noise in (facts.takes[event], facts.takes[event][::-1]):
                product = _wrong_product(facts, signal, noise)
                if product is not None:
                    yield Suspicion(
                        severity=BUG,
                        event=event,
                        text=f"the noise has the factor {_factor_code(facts, product)}, and the signal the root of its "
                        "counterpart: there is too little noise",
                        evidence=(seen_at(facts, f"the noise: {facts.code(product)}", product),),
                        fix="(1 - a).sqrt() * noise",
                        times=times,
                    )


def _wrong_product(facts: Facts, signal: int, noise: int) -> int | None:
    """Return the product of noise with ``1 - a``, where the signal is a product with the root of a."""
    one = facts.maker(signal)
    other = facts.maker(noise)
    if one is None or other is None:
        return None
    if facts.name(one) not in PRODUCTS or facts.name(other) not in PRODUCTS:
        return None
    makers = [facts.maker(each) for each in facts.takes[other]]
    if not any(each is not None and facts.name(each) in NOISE for each in makers):
        return None
    roots = {_root_of(facts, each) for each in facts.takes[one]} - {None}
    rests = {_rest_of(facts, each) for each in facts.takes[other]} - {None}
    if roots.isdisjoint(rests):
        return None
    return other


def _root_of(facts: Facts, value: int) -> int | None:
    """Return of what a value is the square root."""
    _, maker = next(facts.sources(value, PASSES), (0, None))
    if maker is None or not facts.takes[maker]:
        return None
    is_power = facts.name(maker) in POWERS and facts.argument(maker, "exponent", 1) == 0.5
    if facts.name(maker) == "sqrt" or is_power:
        return _numbers_of(facts, facts.takes[maker][0])
    return None


def _rest_of(facts: Facts, value: int) -> int | None:
    """Return what is subtracted from 1 to make a value."""
    _, maker = next(facts.sources(value, PASSES), (0, None))
    if maker is None or facts.name(maker) not in RESTS or len(facts.takes[maker]) != 1:
        return None
    return _numbers_of(facts, facts.takes[maker][0])


def _numbers_of(facts: Facts, value: int) -> int:
    """Return the value from which numbers are picked, as by the step of a schedule."""
    source, _ = next(facts.sources(value, PASSES), (value, None))
    return source


def _factor_code(facts: Facts, product: int) -> str:
    for each in facts.takes[product]:
        maker = facts.maker(each)
        if maker is not None and facts.name(maker) in RESTS:
            return facts.code(maker)
    return "1 - a"
