"""A loss counts the padding: positions that `pad_sequence` has filled in are learned like all others.

Most of a batch may be padding, which is easily predicted: the loss gets small, and the accuracy high, without learning
anything else.

    tags = pad_sequence(tags, batch_first=True)          # filled up with 0
    loss = F.cross_entropy(logits, tags.flatten())       # wrong: ignore_index=0, or padding_value=-100

That is right where padding is to be predicted, as an end of text. Losses that are masked afterwards, or have a weight
for each class, are not reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import KEEPS_NUMBERS
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

IGNORED = -100
"""What cross_entropy ignores unless it is told otherwise."""
CUTS = frozenset(
    ("masked_select", "gather", "index_select", "cat", "concat", "concatenate", "stack")
)


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in ("cross_entropy", "nll_loss"):
        for event, times in facts.calls(name):
            if len(facts.takes[event]) != 2 or not facts.takes[event]:
                continue  # it has weights
            if facts.takes[event][0] not in facts.carries_gradient:
                continue
            if facts.argument(event, "reduction", None, "mean") == "none":
                continue
            padded = _padded(facts, facts.takes[event][1])
            if padded is None:
                continue
            value = facts.argument(padded, "padding_value", 2, 0.0)
            ignored = facts.argument(event, "ignore_index", None, IGNORED)
            if not isinstance(value, int | float) or value == ignored:
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{name} counts the padding ({value:g}) of {_filled(facts, padded)} of "
                f"{facts.numel(facts.gives[padded][0])} positions",
                evidence=(seen_at(facts, f"padded by {facts.code(padded)}", padded),),
                fix=f"ignore_index={value:g}",
                times=times,
            )


def _padded(facts: Facts, target: int) -> int | None:
    """Return the call that padded a target, if nothing was selected from it and it has padding."""
    value = target
    for _ in range(12):
        maker = facts.maker(value)
        if maker is None or not facts.takes[maker]:
            return None
        if facts.name(maker) == "pad_sequence":
            if _filled(facts, maker) > 0 and facts.gives[maker]:
                return maker
            return None
        if facts.name(maker) not in KEEPS_NUMBERS - CUTS or _is_masked(facts, maker):
            return None
        value = facts.takes[maker][0]
    return None


def _is_masked(facts: Facts, event: int) -> bool:
    """Return whether a call selects by a tensor, such as ``target[mask]``."""
    return facts.name(event) == "__getitem__" and len(facts.takes[event]) > 1


def _filled(facts: Facts, padded: int) -> int:
    """Return how many positions are padding."""
    return facts.numel(facts.gives[padded][0]) - sum(map(facts.numel, facts.takes[padded]))
