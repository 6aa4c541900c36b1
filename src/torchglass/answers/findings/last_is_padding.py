"""The last step of padded sequences is taken: for all but the longest one that is padding.

`pad_packed_sequence` fills shorter sequences up with zeros, so `out[:, -1]` is zero for them: the model learns from the
longest sequences only.

    out, _ = pad_packed_sequence(packed, batch_first=True)
    return self.head(out[:, -1])                         # wrong: h[-1] of the layer, or out[range(B), lengths - 1]

It is only reported where the sequences have different lengths, or where all are shorter than `total_length`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import cast

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

PASSES = ("index_select", "dropout", "contiguous", "layer_norm", "to", "float", "relu", "tanh")


def find(facts: Facts) -> Iterator[Suspicion]:
    for event, times in facts.calls("_pad_packed_sequence"):
        if len(facts.takes[event]) < 2 or not facts.gives[event]:
            continue
        given = facts.gives[event][0]
        padded = facts.shape(given)
        rows = facts.shape(facts.takes[event][0])[:1]
        longest = facts.shape(facts.takes[event][1])[:1]  # there is a batch size for each step
        if len(padded) < 3 or not longest:
            continue
        is_first = facts.argument(event, "batch_first", 2) is True
        steps = padded[int(is_first)]
        if steps > longest[0]:
            whose = "all sequences"
        elif prod(padded[:2]) > prod(rows):
            whose = "all shorter sequences"
        else:
            continue  # all have the same length
        for _, user in facts.uses(given, PASSES):
            if _last_of(facts, user) != int(is_first):
                continue
            yield Suspicion(
                severity=BUG,
                event=user,
                text=f"{facts.code(user)} takes the last of {steps} steps, which is padding in {whose} "
                f"({rows[0]} steps of {prod(padded[:2])} are no padding)",
                evidence=(seen_at(facts, facts.code(event), event),),
                fix="use the last hidden state of the layer, or out[torch.arange(len(out)), lengths - 1]",
                times=times,
            )
            break


def _last_of(facts: Facts, event: int) -> int | None:
    """Return the axis whose last entry is taken."""
    if facts.name(event) != "__getitem__":
        return None
    given = facts.arguments(event).positional
    if len(given) < 2:
        return None
    key = given[1]
    if key == -1:
        return 0
    if isinstance(key, tuple):
        parts = cast("tuple[object, ...]", key)
        if len(parts) >= 2 and parts[1] == -1 and isinstance(parts[0], str):
            return 1
    return None
