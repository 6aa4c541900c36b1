"""A ReLU gives only zeros, call after call: nothing that comes before it can learn.

Its inputs are all negative, so its gradient is 0 too. Usually the learning rate was too high for a few steps, the bias
starts far below 0, or two ReLUs with a sign between them follow each other.

    h = F.relu(self.fc(x))                               # always 0: a smaller learning rate, or F.leaky_relu

It looks at numbers, so it needs `record(values="stats")` or `torchglass run --values stats`.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.numbers import ENOUGH_CALLS, calls_by_place, measured, place_word
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion

FEWEST_NUMBERS = 4
"""With fewer numbers all may be 0 by chance."""


def find(facts: Facts) -> Iterator[Suspicion]:
    if not facts.is_measured:
        return
    for events in calls_by_place(facts, "relu", "relu_", "relu6"):
        stats = measured(facts, [facts.gives[event][0] for event in events if facts.gives[event]])
        is_dead = [each.zeros == each.count for each in stats]
        first_dead = next((at for at in range(len(is_dead)) if all(is_dead[at:])), None)
        if first_dead is None or len(stats) - first_dead < ENOUGH_CALLS:
            continue
        if stats[-1].count < FEWEST_NUMBERS:
            continue
        since = ""
        if first_dead != 0:
            which, of = first_dead + 1, len(stats)
            if facts.times(events) > len(events):
                which, of = facts.program.totals.which(events[first_dead]), facts.times(events)
            since = f" from call {which} of {of} on"
        yield Suspicion(
            severity=LIKELY,
            event=events[first_dead],
            text=f"all units of {place_word(facts, events[0])} are dead{since}: it gives only zeros",
            fix="use a smaller learning rate, another initialisation, or leaky_relu",
            times=len(stats) - first_dead,
        )
