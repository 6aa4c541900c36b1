"""Dropout with a probability of 1: all numbers become 0.

`F.dropout(x, self.training)` looks right and is not: the second parameter is the probability, and True counts as 1.

    x = F.dropout(x, self.training)                      # wrong: F.dropout(x, 0.5, training=self.training)
    nn.Dropout(1.0)

That is never what you want; `p=0` switches dropout off.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion

NAMES = (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
    "dropout_",
)


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in NAMES:
        for event, times in facts.calls(name):
            probability = facts.argument(event, "p", 1, 0.5)
            if not isinstance(probability, bool | int | float):
                continue
            if isinstance(probability, bool):
                text = f"{name} is given {probability} as its probability, not as training="
            elif probability >= 1:
                text = f"{name} drops all numbers (p={probability})"
            else:
                continue
            yield Suspicion(
                severity=BUG,
                event=event,
                text=text,
                fix="pass a probability below 1, and training=self.training by its name",
                times=times,
            )
