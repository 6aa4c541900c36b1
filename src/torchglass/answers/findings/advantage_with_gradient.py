"""The advantage of a policy gradient has a gradient of its own: the policy's loss trains the baseline, too.

The advantage is meant as a number by which the log-probabilities are weighted. With its gradient the baseline is pushed
to wherever the weighted sum gets smaller, against its own loss.

    advantage = returns - value                          # wrong: returns - value.detach()
    policy_loss = -(log_prob * advantage).mean()
    value_loss = F.mse_loss(value, returns)

Only differences are reported whose two sides are compared by another loss as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import KEEPS_NUMBERS
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

PRODUCTS = ("mul", "__mul__", "__rmul__")
DIFFERENCES = ("sub", "__sub__", "rsub", "__rsub__")
REGRESSIONS = ("mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss")
SIGNS = frozenset({"neg", "__neg__"})


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in PRODUCTS:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if len(taken) != 2 or not all(value in facts.carries_gradient for value in taken):
                continue
            for value in taken:
                difference = _difference(facts, value)
                if difference is None:
                    continue
                loss = _regression(facts, difference)
                if loss is None:
                    continue
                yield Suspicion(
                    severity=LIKELY,
                    event=difference,
                    text=f"{facts.code(difference)} weights {facts.code(event)} and has a gradient: "
                    "this loss trains the baseline, too",
                    evidence=(
                        seen_at(facts, f"used in {facts.code(event)}", event),
                        seen_at(facts, f"its own loss is {facts.code(loss)}", loss),
                    ),
                    fix="detach the baseline in the difference: returns - value.detach()",
                    times=times,
                )
                break


def _difference(facts: Facts, value: int) -> int | None:
    """Return the difference of something fixed and of a prediction that a factor is."""
    _, maker = next(facts.sources(value, KEEPS_NUMBERS - {"detach", "data"} | SIGNS))
    if maker is None or facts.name(maker) not in DIFFERENCES or len(facts.takes[maker]) != 2:
        return None
    graded = [each for each in facts.takes[maker] if facts.requires_grad(each)]
    if len(graded) != 1 or facts.numel(graded[0]) < 2:
        return None
    return maker


def _regression(facts: Facts, difference: int) -> int | None:
    """Return a loss that compares the two sides of a difference, such as its square."""
    for value, user in facts.uses(facts.gives[difference][0]):
        if value in facts.carries_gradient and _is_square(facts, user):
            return user
    wanted = {_origin(facts, value) for value in facts.takes[difference]}
    for name in REGRESSIONS:
        for event, _ in facts.calls(name):
            if {_origin(facts, value) for value in facts.takes[event][:2]} == wanted:
                return event
            for later in facts.by_name[name].values():
                for each in later:
                    if {_origin(facts, value) for value in facts.takes[each][:2]} == wanted:
                        return each
    return None


def _is_square(facts: Facts, event: int) -> bool:
    name = facts.name(event)
    taken = facts.takes[event]
    if name in PRODUCTS:
        return len(taken) == 2 and taken[0] == taken[1]
    return name == "square" or (
        name in ("pow", "__pow__") and facts.argument(event, "exponent", 1) == 2
    )


def _origin(facts: Facts, value: int) -> int:
    source, _ = next(facts.sources(value, KEEPS_NUMBERS))
    return source
