"""A causal mask is made, and nothing uses it: attention sees what comes later.

    mask = torch.triu(torch.ones(T, T), diagonal=1).bool()
    scores = q @ k.transpose(-2, -1)
    weights = scores.softmax(-1)                         # wrong: scores.masked_fill(mask, float("-inf"))

Training goes well, since each position can look up what it is to predict; generating does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion

CONVERTS = frozenset(
    "bool to float unsqueeze __getitem__ view expand masked_fill __invert__ eq __eq__ type transpose cuda "
    "masked_fill_ clone contiguous".split()
)


def find(facts: Facts) -> Iterator[Suspicion]:
    if facts.is_partial:
        return
    weights = _softmaxes(facts)
    for name in ("tril", "triu"):
        for events in facts.by_name.get(name, {}).values():
            event = events[0]
            if not _is_square(facts, event) or not facts.is_written(event):
                continue
            if len(facts.event(event).target) != 1:
                continue  # it was given to something that may have its reasons
            if any(_is_used(facts, each) for each in events):
                continue
            around = facts.module_around(event)
            if around is None or not any(around in facts.around(each) for each in weights):
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{facts.code(event)} is made and nothing uses it: attention is not masked",
                fix='scores.masked_fill(mask, float("-inf")) before the softmax, or attn_mask=mask',
                times=len(events),
            )


def _softmaxes(facts: Facts) -> list[int]:
    names = ("softmax", "scaled_dot_product_attention")
    return [event for name in names for events in facts.by_name.get(name, {}).values() for event in events]  # fmt: skip


def _is_square(facts: Facts, event: int) -> bool:
    if not facts.gives[event]:
        return False
    shape = facts.shape(facts.gives[event][0])
    return len(shape) >= 2 and shape[-1] == shape[-2] > 1


def _is_used(facts: Facts, event: int) -> bool:
    return any(True for given in facts.gives[event] for _ in facts.uses(given, CONVERTS))
