"""The same loss of the same tensors is added twice, where the second one was meant to be another.

    loss_image = F.cross_entropy(logits, labels)
    loss_text = F.cross_entropy(logits, labels)          # wrong: F.cross_entropy(logits.T, labels)
    (loss_image + loss_text).backward()

A loss that is computed again only to be printed is not reported, nor are parts that are weighted one by one: with mixup
switched off, both parts of its loss are the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.passes import LOSSES
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

OTHERS = (
    "triplet_margin_loss",
    "cosine_embedding_loss",
    "gaussian_nll_loss",
    "margin_ranking_loss",
)

PRODUCTS = ("mul", "__mul__", "__rmul__")


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in (*sorted(LOSSES), *OTHERS):
        known: dict[tuple[int, tuple[int, ...]], int] = {}
        found: dict[int, tuple[int, int]] = {}
        for events in facts.by_name.get(name, {}).values():
            for event in events:
                given = facts.gives[event]
                if not given or given[0] not in facts.carries_gradient:
                    continue
                if _is_weighted(facts, given[0]):
                    continue
                key = (facts.tables.args[event], tuple(facts.takes[event]))
                earlier = known.setdefault(key, event)
                if earlier != event:
                    stack = facts.tables.stack[event]
                    first, count = found.get(stack, (event, 0))
                    found[stack] = (first, count + 1)
        for event, times in found.values():
            earlier = known[facts.tables.args[event], tuple(facts.takes[event])]
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{name} of the same two tensors is computed twice, and both go into the loss",
                evidence=(seen_at(facts, f"before: {facts.code(earlier)}", earlier),),
                fix="pass what the second one is meant to compare, or leave it out",
                times=times,
            )


def _is_weighted(facts: Facts, value: int) -> bool:
    """Return whether a loss is multiplied with something before it is added."""
    return any(facts.name(user) in PRODUCTS for user in facts.users.get(value, ()))
