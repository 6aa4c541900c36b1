"""A `WeightedRandomSampler` is given a weight for each class, and not for each sample.

It draws *indices* from 0 to the number of weights: with three weights, only the first three samples of the data set are
ever seen.

    weights = 1 / torch.bincount(y)                      # one for each class
    sampler = WeightedRandomSampler(weights, len(y))     # wrong: weights[y]

It is reported where many more samples are drawn than there are weights, and so many are in the data.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

SAMPLER = "sampler.py"
FACTOR = 4
"""How many times more samples have to be drawn than there are weights."""


def find(facts: Facts) -> Iterator[Suspicion]:
    for event, times in facts.calls("multinomial"):
        if not facts.takes[event] or not _is_in_sampler(facts, event):
            continue
        weights = facts.takes[event][0]
        drawn = facts.argument(event, "num_samples", 1)
        if type(drawn) is not int or drawn < FACTOR * facts.numel(weights):
            continue
        picked = _picked_from(facts, drawn)
        if picked is None:
            continue
        yield Suspicion(
            severity=BUG,
            event=event,
            text=f"the sampler has {facts.numel(weights)} weights, and the data {drawn} samples: "
            f"only the first {facts.numel(weights)} are ever drawn",
            evidence=(seen_at(facts, facts.code(picked), picked),),
            fix="give each sample the weight of its class: weights[labels]",
            times=times,
        )


def _is_in_sampler(facts: Facts, event: int) -> bool:
    frames = facts.tables.stack_locations(facts.tables.stack[event])
    return bool(frames) and frames[-1].file.endswith(SAMPLER) and frames[-1].origin == "torch"


def _picked_from(facts: Facts, samples: int) -> int | None:
    """Return a call that picks one sample of so many."""
    for event, _ in facts.calls("__getitem__"):
        taken = facts.takes[event]
        if taken and facts.shape(taken[0])[:1] == (samples,):
            return event
    return None
