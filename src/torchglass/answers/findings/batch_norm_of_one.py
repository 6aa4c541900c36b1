"""Batch norm learns from one sample at a time: its statistics are those of single samples.

In training each sample is normalised by its own mean and variance; in eval mode the running averages are used, which
fit none of them. Loss in training is fine, results in evaluation are not.

    loader = DataLoader(dataset, batch_size=1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), …)      # wrong: nn.GroupNorm, or larger batches

It is only a hint where the model is never evaluated in eval mode, as in image translation with instances of one.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.passes import Pass, Switch, by_root, passes_of
from torchglass.answers.findings.suspicion import HINT, LIKELY, Facts, Suspicion

ENOUGH = 2


def find(facts: Facts) -> Iterator[Suspicion]:
    for root, passes in by_root(passes_of(facts)).items():
        trained = [
            switch for each in passes if each.is_trained for switch in _norms(each) if switch.is_on
        ]
        of_one = [
            switch for switch in trained if facts.shape(facts.takes[switch.event][0])[:1] == (1,)
        ]
        if len(of_one) < ENOUGH or len(of_one) < len(trained):
            continue
        is_evaluated = any(
            not switch.is_on for each in passes if not each.is_trained for switch in _norms(each)
        )
        yield Suspicion(
            severity=LIKELY if is_evaluated else HINT,
            event=of_one[0].event,
            text=f"the batch norm of {root} is trained on batches of one sample",
            fix="use larger batches, or nn.GroupNorm or nn.LayerNorm",
            times=len(of_one),
        )


def _norms(one: Pass) -> list[Switch]:
    return [switch for switch in one.switches if not switch.is_dropout]
