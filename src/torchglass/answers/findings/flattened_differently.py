"""Predictions and targets are flattened in different orders: [T, B] meets [B, T].

A recurrent layer gives [time, batch, classes], the targets are [batch, time]. Flattened, both have T * B rows, and each
prediction is compared with the target of another sample at another time. Nothing fails.

    scores = self.head(self.rnn(x)[0])                   # [T, B, V]
    F.cross_entropy(scores.view(-1, V), y.view(-1))      # y: [B, T]; wrong, scores.transpose(0, 1).reshape(-1, V)

It is only reported where T and B differ, since nothing can be told where they are equal.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.passes import LOSSES
from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

FLATTENS = ("view", "reshape", "flatten", "ravel")
KEEPS_ORDER = (
    "contiguous",
    "float",
    "long",
    "to",
    "detach",
    "clone",
    "squeeze",
    "log_softmax",
    "softmax",
    "sigmoid",
)


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in sorted(LOSSES):
        for event, times in facts.calls(name):
            if len(facts.takes[event]) < 2:
                continue
            flattened = [_flattened(facts, each) for each in facts.takes[event][:2]]
            if None in flattened:
                continue
            first, second = (each for each in flattened if each is not None)
            before = [facts.shape(facts.takes[each][0])[:2] for each in (first, second)]
            if before[0] != before[1][::-1] or before[0] == before[1] or 1 in before[0]:
                continue
            words = [facts.word(facts.takes[each][0]) for each in (first, second)]
            yield Suspicion(
                severity=BUG,
                event=event,
                text=f"{name} compares {words[0]} with {words[1]}, flattened: each row meets the one of another sample",
                evidence=(
                    seen_at(facts, facts.code(first), first),
                    seen_at(facts, facts.code(second), second),
                ),
                fix="swap the first two axes of one of them before it is flattened: .transpose(0, 1).reshape(…)",
                times=times,
            )


def _flattened(facts: Facts, value: int) -> int | None:
    """Return the call that merges the first two axes of what became a value."""
    for _ in range(6):
        maker = facts.maker(value)
        if maker is None or not facts.takes[maker]:
            return None
        source = facts.takes[maker][0]
        name = facts.name(maker)
        if name in FLATTENS:
            before = facts.shape(source)
            given = facts.gives[maker]
            if len(before) < 2 or not given:
                return None
            after = facts.shape(given[0])
            if after[:1] == (before[0] * before[1],):
                return maker
            return None
        if name not in KEEPS_ORDER:
            return None
        value = source
    return None
