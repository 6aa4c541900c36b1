"""A tensor is divided by (or reduced by) its own sum along the wrong axis: `keepdim=True` is missing.

`x.sum(1)` of a [N, N] tensor has shape [N]. In `x / x.sum(1)` it is aligned with the last axis: each *column* is
divided by the sum of a *row*. With other sizes this fails; with square ones it runs.

    attention = scores.exp() / scores.exp().sum(-1)      # wrong: .sum(-1, keepdim=True)

That is right only where the tensor is symmetric.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import normal
from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

REDUCES = frozenset(
    "sum mean amax amin norm std var max min logsumexp vector_norm median prod".split()
)
COMBINES = (
    "div",
    "true_divide",
    "__truediv__",
    "sub",
    "__sub__",
    "div_",
    "sub_",
    "__itruediv__",
    "__isub__",
)
PASSES = ("sqrt", "clamp", "add", "__add__", "exp", "detach", "abs")


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in COMBINES:
        for event, times in facts.calls(name):
            if len(facts.takes[event]) < 2 or not facts.is_written(event):
                continue
            whole, part = facts.takes[event][:2]
            if not 0 < len(facts.shape(part)) < len(facts.shape(whole)):
                continue
            for reduced, maker in facts.sources(part, PASSES):
                if maker is None or facts.name(maker) not in REDUCES or not facts.takes[maker]:
                    continue
                source = facts.takes[maker][0]
                shape = facts.shape(source)
                axis = normal(
                    facts.argument(maker, "dim", 2 if "norm" in facts.name(maker) else 1),
                    len(shape),
                )
                is_plain = len(facts.shape(reduced)) == len(shape) - 1 and shape == facts.shape(
                    whole
                )
                if (
                    not axis
                    or not is_plain
                    or max(facts.shape(part)) == 1
                    or not _are_related(facts, source, whole)
                ):
                    continue
                yield Suspicion(
                    severity=BUG,
                    event=event,
                    text=f"{facts.code(event)}: {facts.word(part)}, reduced over axis {axis}, is aligned with the last "
                    f"axis of {facts.word(whole)}, not with the one that it belongs to",
                    evidence=(seen_at(facts, facts.code(maker), maker),),
                    fix=f"{facts.name(maker)}(…, keepdim=True)",
                    times=times,
                )


def _are_related(facts: Facts, source: int, whole: int) -> bool:
    """Return whether both are the same tensor, or made of the same one by the same call."""
    if source == whole:
        return True
    makers = [facts.maker(each) for each in (source, whole)]
    if None in makers:
        return False
    taken = [facts.takes[maker] for maker in makers if maker is not None]
    return taken[0] == taken[1] or source in taken[1] or whole in taken[0]
