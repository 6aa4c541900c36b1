"""A sigmoid or tanh is saturated: all of its inputs are so large that it gives 0 or 1 (tanh: -1 or 1) and no gradient.

Inputs were not normalised, or weights are far too large.

    h = torch.tanh(self.fc(x))                           # x from 0 to 255: wrong, x / 255

It looks at numbers, so it needs `record(values="stats")` or `torchglass run --values stats`. Sigmoids after the last
layer of a classifier that has learned its data are not reported, as long as some inputs are small.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.numbers import ENOUGH_CALLS, calls_by_place, measured, place_word
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion
from torchglass.events.types import Stats

FLAT_FROM = {"sigmoid": 12.0, "sigmoid_": 12.0, "tanh": 6.0, "tanh_": 6.0}
"""From here on the slope is below 3e-5."""


def find(facts: Facts) -> Iterator[Suspicion]:
    if not facts.is_measured:
        return
    for name, flat_from in FLAT_FROM.items():
        for events in calls_by_place(facts, name):
            stats = measured(
                facts, [facts.takes[event][0] for event in events if facts.takes[event]]
            )
            if len(stats) < ENOUGH_CALLS or not all(_is_flat(each, flat_from) for each in stats):
                continue
            yield Suspicion(
                severity=LIKELY,
                event=events[0],
                text=f"{name} in {place_word(facts, events[0])} is saturated: its inputs are around "
                f"{stats[0].mean:.3g}, where it has no slope",
                fix="normalise the inputs, or initialise the layer before it with smaller weights",
                times=len(stats),
            )


def _is_flat(stats: Stats, flat_from: float) -> bool:
    """Return whether practically all numbers are beyond a bound, on one side or on both."""
    if stats.finite < stats.count:
        return False
    if stats.min > flat_from or stats.max < -flat_from:
        return True
    typical = (stats.norm**2 / stats.count) ** 0.5
    return stats.count > 1 and typical > 20 * flat_from
