"""Inputs and targets are shuffled by two different permutations: they no longer belong together.

Each call of `torch.randperm` gives another order. The model learns to give the average of all targets.

    x = x[torch.randperm(len(x))]
    y = y[torch.randperm(len(y))]                        # wrong: one permutation for both

It is only reported where the shuffled targets are what the loss compares the prediction with. Pairs that are mixed on
purpose, as for an estimate of mutual information, do not go into the target of a loss.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import KEEPS_NUMBERS
from torchglass.answers.findings.passes import LOSSES
from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

PASSES = KEEPS_NUMBERS | {"long", "int", "bool"}
MOST_SEEN = 300


def find(facts: Facts) -> Iterator[Suspicion]:
    shuffled = _shuffled(facts)
    if not shuffled:
        return
    judged: set[str] = set()
    for name in LOSSES:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if len(taken) < 2 or facts.requires_grad(taken[1]):
                continue
            of_target = _picks(facts, taken[1], shuffled, PASSES)
            of_input = _picks(facts, taken[0], shuffled, None)
            if len(of_target) != 1 or not of_input:
                continue
            pick = of_target.pop()
            order, rows = shuffled[pick]
            others = {shuffled[each] for each in of_input if shuffled[each][1] == rows}
            if not others or any(other == order for other, _ in others):
                continue
            code = facts.code(pick)
            if code in judged:
                continue
            judged.add(code)
            first = min(of_input)
            yield Suspicion(
                severity=BUG,
                event=pick,
                text=f"{code} shuffles the targets in another order than {facts.code(first)} the inputs",
                evidence=(
                    seen_at(facts, f"the inputs: {facts.code(first)}", first),
                    seen_at(facts, f"compared by {facts.code(event)}", event),
                ),
                fix="make one permutation, and use it for both",
                times=times,
            )


def _shuffled(facts: Facts) -> dict[int, tuple[int, int]]:
    """Return the calls that reorder all rows of a tensor at random: each with the permutation and its length."""
    found: dict[int, tuple[int, int]] = {}
    for events in facts.by_name.get("randperm", {}).values():
        for event in events:
            if not facts.is_written(event) or not facts.gives[event]:
                continue
            order = facts.gives[event][0]
            for user in facts.users.get(order, ()):
                taken = facts.takes[user]
                if facts.name(user) not in ("__getitem__", "index_select") or taken[-1] != order:
                    continue
                rows = facts.numel(order)
                if len(taken) == 2 and facts.shape(taken[0])[:1] == (rows,) and rows > 1:
                    found[user] = (order, rows)
    return found


def _picks(
    facts: Facts, value: int, shuffled: dict[int, tuple[int, int]], passes: frozenset[str] | None
) -> set[int]:
    """Return the shuffles that a value is made of, going back through some calls or through all of them."""
    found: set[int] = set()
    pending = [value]
    seen = {value}
    while pending and len(seen) < MOST_SEEN:
        maker = facts.maker(pending.pop())
        if maker is None:
            continue
        if maker in shuffled:
            found.add(maker)
            continue
        if passes is not None and facts.name(maker) not in passes:
            continue
        taken = facts.takes[maker]
        for each in taken[:1] if passes is not None else taken:
            if each not in seen and not facts.is_parameter(each):
                seen.add(each)
                pending.append(each)
    return found
