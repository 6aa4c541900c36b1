"""A part of the loss has no gradient: it changes the number that is printed, and nothing that is learned.

What it is computed from was detached, taken through numpy, compared (`p > 0.5`), or computed under
`torch.no_grad()`. The other parts have gradients, so backward runs as if nothing was wrong. A part may also have
gradients only for another network than the one that the next step updates.

    pred_fake = discriminator(fake).detach()
    adversarial = bce(pred_fake, ones)                   # wrong: discriminator(fake), without detach()
    (reconstruction + adversarial).backward()
    loss = reconstruction + 0.1 * penalty.item()         # wrong: 0.1 * penalty
    gradient = torch.autograd.grad(out.sum(), x)[0]      # wrong for a penalty on it: create_graph=True
    adversarial = bce(discriminator(fake.detach()), ones)     # no gradient for the generator: wrong, without detach()

It is fine where a part only counts for some steps, or is added so that the printed number is complete.
"""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

from torchglass.answers.findings import no_gradient
from torchglass.answers.findings.parameters import between, clearings, groups, parameters_of
from torchglass.answers.findings.passes import LOSSES
from torchglass.answers.findings.suspicion import (
    LIKELY,
    Evidence,
    Facts,
    Suspicion,
    names_words,
    seen_at,
)
from torchglass.events.types import Location

SUMS = frozenset("add __add__ __radd__ __iadd__ add_ sub __sub__ sum stack".split())
SCALES = frozenset("mul __mul__ __rmul__ div __truediv__ mean sum squeeze neg __neg__ to".split())
OTHER_LOSSES = frozenset(
    "triplet_margin_loss margin_ranking_loss cosine_embedding_loss hinge_embedding_loss gaussian_nll_loss "
    "poisson_nll_loss multi_margin_loss soft_margin_loss multilabel_margin_loss".split()
)
CUTS = ("detach", "data", "numpy", "detach_")
STEPS = ("gt", "__gt__", "ge", "__ge__", "lt", "__lt__", "le", "__le__", "argmax")
"""Calls whose result jumps, so that it has no gradient."""
MOST_TERMS = 40
MOST_LEAVES = 600
MOST_ROOTS = 40
Place = tuple[str, int, int, int]
MOST_SEEN = 200


def find(facts: Facts) -> Iterator[Suspicion]:
    with_gradient: set[Place] = set()
    without: dict[Place, list[int]] = defaultdict(list)
    for root in facts.roots:
        terms = list(_terms(facts, root))
        if len(terms) < 2:
            continue
        for term in terms:
            maker = _made(facts, term)
            if maker is None:
                continue
            if facts.requires_grad(term):
                with_gradient.add(_place(facts, maker))
            else:
                without[_place(facts, maker)].append(maker)
    yield from _numbers(facts)
    yield from _for_others(facts)
    for place, makers in without.items():
        if place in with_gradient:
            continue  # it has a gradient in other steps
        cut = _cut(facts, makers[0])
        if cut is None:
            continue
        yield Suspicion(
            severity=LIKELY,
            event=makers[0],
            text=f"{facts.code(makers[0])} is added to the loss and has no gradient: nothing learns from it",
            evidence=_why(facts, cut),
            fix="compute it from tensors that still have their graph, or leave it out of the loss",
            times=len(makers),
        )


def _for_others(facts: Facts) -> Iterator[Suspicion]:
    """Find parts whose gradients reach none of the parameters that the next step updates.

    If these parameters never get a gradient at all, no-gradient reports it.
    """
    if len(groups(facts)) < 2 or any(True for _ in no_gradient.find(facts)):
        return
    useful: set[Place] = set()
    useless: dict[Place, list[tuple[int, list[str]]]] = defaultdict(list)
    for root, runs in list(facts.roots.items())[:MOST_ROOTS]:
        terms = [each for each in _terms(facts, root) if facts.requires_grad(each)]
        held = _updated_next(facts, runs[0])
        if len(terms) < 2 or not held:
            continue
        reached = [_leaves(facts, term) for term in terms]
        if None in reached or not any(each and not held.isdisjoint(each) for each in reached):
            continue
        for term, leaves in zip(terms, reached, strict=True):
            maker = _made(facts, term)
            if maker is None or not leaves:
                continue
            if held.isdisjoint(leaves) and not _is_used_later(facts, runs[0], set(leaves)):
                useless[_place(facts, maker)].append((maker, sorted(leaves.values())))
            else:
                useful.add(_place(facts, maker))
    for place, found in useless.items():
        if place in useful:
            continue
        maker, names = found[0]
        cut = _cut(facts, maker)
        yield Suspicion(
            severity=LIKELY,
            event=maker,
            text=f"{facts.code(maker)} is added to the loss and has gradients only for {names_words(names)}, "
            "which the step does not update: nothing learns from it",
            evidence=() if cut is None else _why(facts, cut),
            fix="compute it without detach(), so that it reaches what the step updates",
            times=len(found),
        )


def _updated_next(facts: Facts, run: int) -> set[int]:
    """Return the parameters that steps update between a run of backward and the next one."""
    later = bisect_right(facts.backwards, run)
    end = facts.backwards[later] if later < len(facts.backwards) else len(facts.takes)
    held: set[int] = set()
    for step in facts.steps[bisect_left(facts.steps, run, key=lambda each: each.event) :]:
        if step.event > end:
            break
        held.update(step.held)
    return held


def _leaves(facts: Facts, term: int) -> dict[int, str] | None:
    """Return the parameters that get a gradient from a part of a loss, by name; None if there are too many steps."""
    got = parameters_of(facts).got
    found: dict[int, str] = {}
    pending = [term]
    seen = {term}
    while pending:
        if len(seen) > MOST_LEAVES:
            return None
        value = pending.pop()
        maker = facts.maker(value)
        parameter = facts.parameter(value)
        if parameter in got and (maker is None or facts.is_parameter(value)):
            found[parameter] = got[parameter]
            continue
        if maker is None:
            continue
        for each in facts.takes[maker]:
            if each not in seen and facts.requires_grad(each):
                seen.add(each)
                pending.append(each)
    return found


def _is_used_later(facts: Facts, run: int, leaves: set[int]) -> bool:
    """Return whether a later step uses the gradients that a run of backward gave to parameters."""
    given = [each for each in facts.accumulations if each.event > run]
    if not given:
        return True
    now = given[0]
    for step in facts.steps[bisect_left(facts.steps, run, key=lambda each: each.event) :]:
        used = leaves & step.held.keys() & now.gradients.keys() & step.gradients.keys()
        if not used:
            continue
        for parameter in used:
            memory = facts.storage(now.gradients[parameter])
            is_same = facts.storage(step.gradients[parameter]) == memory
            if is_same and not between(clearings(facts).get(memory, ()), now.event, step.event):
                return True
        return False
    return False


def _numbers(facts: Facts) -> Iterator[Suspicion]:
    """Find what is added to a loss as a number of Python: ``loss + penalty.item()``.

    If that is the only loss of some parameters, no-gradient reports it.
    """
    reported = {_place(facts, each.event) for each in no_gradient.find(facts)}
    for name in ("item", "__float__"):
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if not taken or not facts.requires_grad(taken[0]) or not facts.is_written(event):
                continue
            added = _added(facts, event)
            if added is None or _place(facts, event) in reported:
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{facts.code(event)} is a number without a gradient in {facts.code(added)}: "
                "nothing learns from it",
                evidence=(seen_at(facts, f"the loss: {facts.code(added)}", added),),
                fix="add the tensor itself, without .item()",
                times=times,
            )


def _added(facts: Facts, event: int) -> int | None:
    """Return the sum with a gradient in the same statement of which a number is a term."""
    statement = facts.program.statement(event)
    at = facts.location(event)
    if statement is None or at is None:
        return None
    for name in ("add", "__add__", "__radd__", "__iadd__"):
        for total, _ in facts.calls(name):
            given = facts.gives[total]
            if len(facts.takes[total]) != 1 or not given or given[0] not in facts.carries_gradient:
                continue
            if facts.program.statement(total) != statement or not _is_term(statement.node, at):
                continue
            return total
    return None


def _is_term(statement: ast.AST, at: Location) -> bool:
    """Return whether the call at a place is a term of a sum, with a factor at most."""
    for node in ast.walk(statement):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
            continue
        for side in (node.left, node.right):
            term = side
            while isinstance(term, ast.BinOp) and isinstance(term.op, ast.Mult):
                term = term.right if isinstance(term.right, ast.Call) else term.left
            is_item = isinstance(term, ast.Call) and isinstance(term.func, ast.Attribute)
            if is_item and (term.end_lineno, term.end_col_offset) == (at.end_line, at.end_col):
                return True
    return False


def _terms(facts: Facts, root: int) -> Iterator[int]:
    """Yield the numbers that a loss is the sum of."""
    pending = [root]
    seen = {root}
    while pending and len(seen) < MOST_TERMS:
        value = pending.pop()
        maker = facts.maker(value)
        if maker is not None and facts.numel(value) == 1:
            parts = [each for each in facts.takes[maker] if facts.numel(each) == 1]
            name = facts.name(maker)
            is_sum = name in SUMS and len(parts) == len(facts.takes[maker])
            is_scaled = name in SCALES and len(facts.takes[maker]) == 1 and len(parts) == 1
            if is_sum or is_scaled:
                fresh = [each for each in parts if each not in seen]
                seen.update(fresh)
                pending.extend(fresh)
                continue
        yield value


def _made(facts: Facts, term: int) -> int | None:
    """Return the loss that gives a term; the term's own maker where it is none."""
    if not facts.is_float(term):
        return None
    maker = facts.maker(term)
    if maker is None or not facts.is_written(_outer_call(facts, maker)):
        return None
    return maker


def _outer_call(facts: Facts, maker: int) -> int:
    """Return the call of a loss module that makes a call, or the call itself."""
    parent = facts.tables.parent[maker]
    if parent >= 0 and facts.kind(parent) == "module":
        return parent
    return maker


def _place(facts: Facts, event: int) -> Place:
    at = facts.location(event)
    if at is None:
        return ("", 0, 0, 0)
    return (at.file, at.line, at.col or 0, at.end_col or 0)


def _cut(facts: Facts, maker: int) -> int | None:
    """Return what ended the graph; the loss itself if that is a known one and nothing is to be seen before it."""
    pending = list(facts.takes[maker])
    seen = set(pending)
    while pending and len(seen) < MOST_SEEN:
        value = pending.pop()
        before = facts.maker(value)
        if before is None:
            continue
        is_cut = facts.name(before) in CUTS + STEPS or _is_gradient(facts, before)
        if is_cut and any(_has_graph(facts, each) for each in facts.takes[before]):
            return before
        for source in facts.takes[before]:
            if source not in seen and not facts.is_parameter(source):
                seen.add(source)
                pending.append(source)
    if facts.name(maker) in LOSSES | OTHER_LOSSES and len(facts.takes[maker]) > 1:
        return maker
    return None


def _is_gradient(facts: Facts, event: int) -> bool:
    """Return whether a call is ``torch.autograd.grad`` without ``create_graph``."""
    return facts.name(event) == "grad" and facts.argument(event, "create_graph") is False


def _has_graph(facts: Facts, value: int) -> bool:
    """Return whether a gradient would flow through a value: also a weight that an optimizer updates."""
    if not facts.requires_grad(value):
        return False
    return not facts.is_parameter(value) or facts.parameter(value) in parameters_of(facts).held


def _why(facts: Facts, cut: int) -> tuple[Evidence, ...]:
    if facts.name(cut) in CUTS + STEPS or _is_gradient(facts, cut):
        return (seen_at(facts, f"the graph ends with {facts.code(cut)}", cut),)
    return ()
