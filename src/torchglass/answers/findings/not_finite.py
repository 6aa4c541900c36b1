"""Backward is called on a loss that is NaN or infinite.

From then on all weights that the step updates are NaN. `torchglass run --first-bad`, or `trace.first_bad()`, names the
operation in which the first such number appears.

    loss = -(p.log() * target).sum()                     # wrong where p is 0: use log_softmax

It looks at numbers, so it needs `record(values="stats")` or `torchglass run --values stats`. Steps that a GradScaler
skips are fine.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion


def find(facts: Facts) -> Iterator[Suspicion]:
    if not facts.is_measured:
        return
    losses = list(facts.roots.items())
    bad = [at for at, (value, _) in enumerate(losses) if _is_bad(facts, value)]
    if not bad:
        return
    value, runs = losses[bad[0]]
    stats = facts.stats(value)
    word = "infinite"
    if stats is not None and stats.nan:
        word = "NaN"
    which, of = bad[0] + 1, len(losses)
    totals = facts.program.totals
    if totals.is_needed:
        which, of = totals.which(runs[0]), totals.times(runs[0], len(facts.backwards))
    times = len(bad)
    if len(losses) - bad[0] == len(bad):
        times = of - which + 1
    yield Suspicion(
        severity=BUG,
        event=runs[0],
        text=f"the loss is {word} from call {which} of {of} of backward on",
        fix="torchglass show TRACE first-bad names where it comes from",
        times=times,
    )


def _is_bad(facts: Facts, value: int) -> bool:
    stats = facts.stats(value)
    return stats is not None and stats.finite < stats.count
