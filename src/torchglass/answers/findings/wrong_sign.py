"""The loss has the wrong sign: what is meant to become small grows with each step.

An optimizer goes downhill. A cross-entropy or an error with a minus before it is made as large as possible; so is the
divergence of a variational autoencoder without the minus of its formula.

    loss = -F.cross_entropy(model(x), y)                 # wrong: without the minus
    kl = 0.5 * torch.sum(1 + logvar - mu ** 2 - logvar.exp())     # wrong: -0.5 * …
    loss = F.log_softmax(scores, 1)[range(n), y].mean()  # wrong: -F.log_softmax(…)…

A negative loss is right against an adversary: errors are only reported where nothing else is minimised in the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torchglass.answers.findings.passes import LOSSES
from torchglass.answers.findings.suspicion import BUG, LIKELY, Facts, Suspicion, seen_at

SUMS = frozenset("add __add__ __radd__ __iadd__ add_ stack".split())
DIFFERENCES = frozenset("sub __sub__ __isub__ subtract sub_".split())
TURNED = ("rsub", "__rsub__")
NEGATIVES = ("neg", "__neg__", "negative", "neg_")
REDUCTIONS = frozenset("mean sum squeeze view reshape unsqueeze to float".split())
PRODUCTS = frozenset("mul __mul__ __rmul__ div __truediv__ mul_".split())
PICKS = ("gather", "__getitem__", "squeeze", "view", "reshape", "diagonal", "unsqueeze")
ERRORS = LOSSES - {"kl_div"}
MOST_SEEN = 60
MOST_ROOTS = 40


class Term(NamedTuple):
    """One of the things whose sum a loss is, after all factors."""

    value: int
    sign: int


def find(facts: Facts) -> Iterator[Suspicion]:
    losses: list[list[Term]] = []
    for root in list(facts.roots)[:MOST_ROOTS]:
        terms = list(_terms(facts, root))
        losses.append(terms)
    yield from _divergences(facts, losses)
    yield from _errors(facts, losses)


def _divergences(facts: Facts, losses: list[list[Term]]) -> Iterator[Suspicion]:
    """Find ``1 + logvar - mu ** 2 - logvar.exp()`` that is made large."""
    found: dict[int, list[int]] = {}
    for terms in losses:
        signs = {term.value: term.sign for term in terms}
        for value, sign in signs.items():
            maker = facts.maker(value)
            if sign >= 0 or maker is None or facts.name(maker) != "exp":
                continue
            logarithm = facts.takes[maker][0]
            squares = [each for each in signs if _is_square(facts, each) and signs[each] < 0]
            if signs.get(logarithm, 0) > 0 and squares:
                found.setdefault(facts.tables.stack[maker], []).append(maker)
    for events in found.values():
        yield Suspicion(
            severity=BUG,
            event=events[0],
            text="the divergence is added with the wrong sign: training makes it as large as possible",
            evidence=(seen_at(facts, f"{facts.code(events[0])} counts negatively", events[0]),),
            fix="-0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())",
            times=len(events),
        )


def _errors(facts: Facts, losses: list[list[Term]]) -> Iterator[Suspicion]:
    """Find errors that are made large, where no loss makes anything small."""
    if len(losses) < 2 or not facts.steps:
        return
    names: set[str] = set()
    for step in facts.steps:
        names.update(step.held.values())
    if not any(name.endswith(".weight") for name in names):
        return  # an attack changes its input
    found: dict[int, list[int]] = {}
    for terms in losses:
        wrong = [maker for term in terms if (maker := _maximised(facts, term)) is not None]
        if len(wrong) != len(terms):
            return
        for maker in wrong:
            found.setdefault(facts.tables.stack[maker], []).append(maker)
    for events in found.values():
        yield Suspicion(
            severity=LIKELY,
            event=events[0],
            text=f"{facts.code(events[0])} goes into the loss with the wrong sign: training makes it worse",
            fix="change the sign of the loss",
            times=len(events),
        )


def _maximised(facts: Facts, term: Term) -> int | None:
    """Return the error that a term makes large, or the log-probabilities of targets that it makes small."""
    maker = facts.maker(term.value)
    if maker is None:
        return None
    if term.sign < 0 and facts.name(maker) in ERRORS:
        return maker
    if term.sign > 0 and facts.name(maker) in PICKS:
        picked = [source for _, source in facts.sources(term.value, PICKS)]
        if picked and picked[0] is not None and facts.name(picked[0]) == "log_softmax":
            return picked[0]
    return None


def _terms(facts: Facts, root: int) -> Iterator[Term]:
    """Yield what a loss is the sum of, with signs; elementwise before a reduction, too."""
    pending = [Term(root, 1)]
    seen = 0
    while pending and seen < MOST_SEEN:
        value, sign = pending.pop()
        seen += 1
        maker = facts.maker(value)
        if maker is None or not facts.requires_grad(value):
            yield Term(value, sign)
            continue
        name = facts.name(maker)
        taken = facts.takes[maker]
        if name in SUMS:
            pending.extend(Term(each, sign) for each in taken if facts.requires_grad(each))
        elif name in DIFFERENCES and len(taken) == 2:
            signs = (sign, -sign)
            pending.extend(
                Term(each, one)
                for each, one in zip(taken, signs, strict=True)
                if facts.requires_grad(each)
            )
        elif name in DIFFERENCES and len(taken) == 1:
            pending.append(Term(taken[0], sign))
        elif (name in TURNED or name in NEGATIVES) and len(taken) == 1:
            pending.append(Term(taken[0], -sign))
        elif name in REDUCTIONS and len(taken) == 1:
            pending.append(Term(taken[0], sign))
        elif name in PRODUCTS and len(taken) == 1 and _number(facts, maker):
            number = _number(facts, maker)
            pending.append(Term(taken[0], sign if number > 0 else -sign))
        else:
            yield Term(value, sign)


def _number(facts: Facts, event: int) -> float:
    """Return the plain number that a tensor is multiplied with, or 0."""
    for each in (*facts.arguments(event).positional, *facts.arguments(event).named.values()):
        if isinstance(each, int | float) and not isinstance(each, bool):
            return float(each)
    return 0.0


def _is_square(facts: Facts, value: int) -> bool:
    maker = facts.maker(value)
    if maker is None:
        return False
    if facts.name(maker) in ("mul", "__mul__"):
        taken = facts.takes[maker]
        return len(taken) == 2 and taken[0] == taken[1]
    return facts.name(maker) in ("pow", "__pow__", "square")
