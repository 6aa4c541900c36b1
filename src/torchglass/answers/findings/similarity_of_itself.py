"""A contrastive loss compares each sample with itself, too: the diagonal is not masked.

The similarity of a vector with itself is the largest of its row. As one of the classes of `cross_entropy` it takes
nearly all of the probability, whatever the pairs look like.

    z = F.normalize(torch.cat([z1, z2]), dim=1)
    logits = z @ z.T / 0.1
    loss = F.cross_entropy(logits, pairs)                # wrong: logits.fill_diagonal_(-inf) before

Products of two different tensors, as of images and texts, have no such diagonal. Where the similarities of two networks
are compared, as in distillation, the diagonal does no harm, and nothing is reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

PRODUCTS = ("matmul", "__matmul__", "mm")
SCALES = frozenset("div __truediv__ mul __mul__ __rmul__ float to div_ mul_".split())
TURNS = ("t", "T", "mT", "transpose", "permute", "unsqueeze", "__getitem__")
LOSSES = ("cross_entropy", "log_softmax")
PICKS = ("gather", "__getitem__", "nll_loss")
MOST_STEPS = 6


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in LOSSES:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if not taken or taken[0] not in facts.carries_gradient:
                continue
            shape = facts.shape(taken[0])
            if len(shape) != 2 or shape[0] != shape[1] or _is_diagonal(facts, event):
                continue
            product = _product(facts, taken[0])
            if product is None or not _picks_classes(facts, event):
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{name} compares each of {shape[0]} samples with itself as well: the diagonal of "
                f"{facts.code(product)} is not masked",
                evidence=(seen_at(facts, f"the similarities: {facts.code(product)}", product),),
                fix='mask it before: logits.masked_fill(torch.eye(n, dtype=torch.bool), float("-inf"))',
                times=times,
            )


def _product(facts: Facts, value: int) -> int | None:
    """Return the product of a tensor with its own transpose that is only scaled afterwards."""
    for _ in range(MOST_STEPS):
        maker = facts.maker(value)
        if maker is None or not facts.takes[maker]:
            return None
        if facts.name(maker) in PRODUCTS and len(facts.takes[maker]) == 2:
            one, other = facts.takes[maker]
            turned = facts.maker(other)
            is_own = (
                turned is not None and facts.name(turned) in TURNS and facts.takes[turned][0] == one
            )
            return maker if is_own else None
        if facts.name(maker) == "cosine_similarity" and len(facts.takes[maker]) > 1:
            sources = [next(facts.sources(each, TURNS))[0] for each in facts.takes[maker][:2]]
            return maker if sources[0] == sources[1] else None
        if facts.name(maker) not in SCALES:
            return None
        value = facts.takes[maker][0]
    return None


def _picks_classes(facts: Facts, event: int) -> bool:
    """Return whether each row has one right answer, rather than a distribution as in distillation."""
    if facts.name(event) == "cross_entropy":
        return len(facts.takes[event]) > 1 and "int" in facts.dtype(facts.takes[event][1])
    users = [user for given in facts.gives[event] for user in facts.users.get(given, ())]
    return any(facts.name(user) in PICKS for user in users)


def _is_diagonal(facts: Facts, event: int) -> bool:
    """Return whether the target of a loss is the diagonal: 0, 1, 2, …"""
    if len(facts.takes[event]) < 2:
        return False
    maker = facts.maker(facts.takes[event][1])
    return maker is not None and facts.name(maker) == "arange"
