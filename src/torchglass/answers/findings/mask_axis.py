"""A mask is the same for all scores that a softmax compares: it hides nothing.

A padding mask of attention has to say which *keys* are hidden, along the last axis of the scores. Put along the axis of
the queries it makes whole rows equally small, and the softmax of equal numbers is as if there was no mask.

    pad = (tokens != PAD).unsqueeze(1).unsqueeze(3)      # [B, 1, T, 1]: wrong, .unsqueeze(1).unsqueeze(2)
    scores = scores.masked_fill(pad == 0, -1e9)          # [B, heads, T, T]
    weights = scores.softmax(-1)

It is fine where another mask hides the keys as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import normal
from torchglass.answers.findings.mask_inverted import is_very_negative
from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

PASSES = frozenset("div __truediv__ mul __mul__ float to contiguous clone".split())
FILLS = ("masked_fill", "masked_fill_")


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in FILLS:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if len(taken) < 2 or not facts.gives[event]:
                continue
            if not is_very_negative(facts.argument(event, "value", 2)):
                continue
            after = next((user for _, user in facts.uses(facts.gives[event][0], PASSES)), None)
            if after is None or facts.name(after) not in ("softmax", "log_softmax"):
                continue
            shape = facts.shape(facts.gives[event][0])
            axis = normal(facts.argument(after, "dim", 1), len(shape))
            if axis is None or shape[axis] < 2 or not _is_same_along(facts, taken[1], shape, axis):
                continue
            if _hides_keys_before(facts, taken[0]):
                continue
            yield Suspicion(
                severity=BUG,
                event=event,
                text=f"the mask {facts.word(taken[1])} is the same along axis {axis} of the scores "
                f"[{', '.join(map(str, shape))}], which softmax compares: it hides nothing",
                evidence=(seen_at(facts, facts.code(after), after),),
                fix="put the axis of the mask where the keys are: mask[:, None, None, :]",
                times=times,
            )


def _is_same_along(facts: Facts, mask: int, shape: tuple[int, ...], axis: int) -> bool:
    """Return whether a mask has one entry along an axis, and more than one along others."""
    own = (1,) * (len(shape) - len(facts.shape(mask))) + facts.shape(mask)
    return own[axis] == 1 and facts.numel(mask) > 1


def _hides_keys_before(facts: Facts, scores: int) -> bool:
    """Return whether the scores were masked already."""
    for _ in range(4):
        maker = facts.maker(scores)
        if maker is None or not facts.takes[maker]:
            return False
        if facts.name(maker) in (*FILLS, "where", "add", "__add__", "__iadd__"):
            return True
        scores = facts.takes[maker][0]
    return False
