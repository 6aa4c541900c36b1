"""Pictures go into the first layer with numbers from 0 to 255.

Layers are initialised for inputs around 0 with a spread of about 1. With larger ones the first steps are far too large,
activations saturate, and training is slow or fails.

    x = torch.from_numpy(picture).float()                # wrong: ... / 255, and mostly normalised after that
    model(x)

It looks at numbers, so it needs `record(values="stats")` or `torchglass run --values stats`. It is fine where a model
normalises its inputs itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import KEEPS_NUMBERS
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion
from torchglass.events.types import Stats

FIRST_LAYERS = ("conv2d", "linear")
FEWEST_NUMBERS = 64


def find(facts: Facts) -> Iterator[Suspicion]:
    if not facts.is_measured:
        return
    for name in FIRST_LAYERS:
        for event, times in facts.calls(name):
            if not facts.takes[event]:
                continue
            value = facts.takes[event][0]
            stats = facts.stats(value)
            if stats is None or not _is_bytes(stats) or not _is_input(facts, value):
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"the input of {facts.code(event)} is a picture with numbers from {stats.min:g} to {stats.max:g}",
                fix="divide by 255, and normalise",
                times=times,
            )


def _is_bytes(stats: Stats) -> bool:
    """Return whether numbers look like bytes."""
    if stats.finite < stats.count or stats.count < FEWEST_NUMBERS:
        return False
    return stats.min >= 0 and 200 <= stats.max <= 255 and stats.mean > 20


def _is_input(facts: Facts, value: int) -> bool:
    """Return whether numbers come from outside, and not from another layer."""
    for _, maker in facts.sources(value, KEEPS_NUMBERS):
        if maker is not None and facts.module_around(maker) is not None:
            return False
    return True
