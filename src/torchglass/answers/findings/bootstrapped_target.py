"""A target that was predicted by the network itself takes part in the gradient: r + gamma * q(next).

In temporal-difference learning the target is meant to stand still while the prediction moves towards it. With its
gradient the target moves towards the prediction as well, and learning is slow or fails.

    target = reward + 0.99 * q(next_state).max(1)[0]     # wrong: under torch.no_grad(), or .detach()
    loss = F.mse_loss(q(state).gather(1, action), target)
    loss = (reward + 0.99 * value(next_state) - value(state)).pow(2).mean()      # the same

That is right in residual-gradient methods. A target network that no optimizer updates is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import KEEPS_NUMBERS
from torchglass.answers.findings.parameters import parameters_of
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss")
SUMS = ("add", "__add__", "__radd__")
PRODUCTS = ("mul", "__mul__", "__rmul__")
LEAST_DISCOUNT = 0.5
MOST_SEEN = 300


def find(facts: Facts) -> Iterator[Suspicion]:
    for loss in LOSSES:
        for event, times in facts.calls(loss):
            for value in facts.takes[event][:2]:
                total = _bootstrapped(facts, value)
                if total is None:
                    continue
                yield Suspicion(
                    severity=LIKELY,
                    event=event,
                    text=f"the target of {loss} is made of predictions and has a gradient: it moves along",
                    evidence=(seen_at(facts, f"made by {facts.code(total)}", total),),
                    fix="make the target under torch.no_grad(), or .detach() it",
                    times=times,
                )
                break
    yield from _differences(facts)


def _differences(facts: Facts) -> Iterator[Suspicion]:
    """The same where the loss is the square of a difference that the program computes itself."""
    for name in ("sub", "__sub__"):
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            if len(taken) < 2 or not facts.is_written(event):
                continue
            if not all(value in facts.carries_gradient for value in taken):
                continue
            total = _bootstrapped(facts, taken[0])
            if total is None or not _are_of_one_network(facts, total, taken[1]):
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"the target in {facts.code(event)} is made of predictions and has a gradient: it moves along",
                evidence=(seen_at(facts, f"made by {facts.code(total)}", total),),
                fix="make the target under torch.no_grad(), or .detach() it",
                times=times,
            )


def _are_of_one_network(facts: Facts, total: int, predicted: int) -> bool:
    """Return whether a target and a prediction come from the same layer."""
    in_target = next(each for each in facts.takes[total] if facts.requires_grad(each))
    for _ in range(4):  # down to the prediction that is multiplied with a discount
        maker = facts.maker(in_target)
        if maker is None or facts.name(maker) not in PRODUCTS:
            break
        in_target = next(each for each in facts.takes[maker] if facts.requires_grad(each))
    layers = _layers(facts, in_target) - {None}
    return bool(layers & _layers(facts, predicted))


def _layers(facts: Facts, value: int) -> set[int | None]:
    passes = KEEPS_NUMBERS | {"max", "amax", "sum"}
    return {_layer(facts, maker) for _, maker in facts.sources(value, passes)}


def _layer(facts: Facts, maker: int | None) -> int | None:
    if maker is None or facts.tables.module[maker] < 0:
        return None
    return facts.tables.module[maker]


def _bootstrapped(facts: Facts, value: int) -> int | None:
    """Return the sum of something without a gradient and of a discounted prediction with one."""
    if not facts.requires_grad(value):
        return None
    _, total = next(facts.sources(value, KEEPS_NUMBERS - {"detach"}))
    if total is None or facts.name(total) not in SUMS or len(facts.takes[total]) < 2:
        return None
    fixed = [each for each in facts.takes[total][:2] if not facts.requires_grad(each)]
    predicted = [each for each in facts.takes[total][:2] if facts.requires_grad(each)]
    if len(fixed) != 1 or len(predicted) != 1 or facts.numel(fixed[0]) < 2:
        return None
    if _is_discounted(facts, predicted[0]) and _is_learned(facts, predicted[0]):
        return total
    return None


def _is_learned(facts: Facts, value: int) -> bool:
    """Return whether an optimizer updates what made a prediction: a target network stands still without a detach."""
    held = parameters_of(facts).held
    if not held:
        return True
    pending = [value]
    seen = {value}
    while pending and len(seen) < MOST_SEEN:
        each = pending.pop()
        if facts.parameter(each) in held:
            return True
        maker = facts.maker(each)
        if maker is None:
            continue
        fresh = [
            taken
            for taken in facts.takes[maker]
            if taken not in seen and facts.requires_grad(taken)
        ]
        seen.update(fresh)
        pending.extend(fresh)
    return False


def _is_discounted(facts: Facts, value: int) -> bool:
    """Return whether a product has a factor such as 0.99."""
    pending = [value]
    for _ in range(8):
        if not pending:
            return False
        maker = facts.maker(pending.pop())
        if maker is None or facts.name(maker) not in PRODUCTS:
            continue
        for other in facts.arguments(maker).positional:
            if isinstance(other, float) and LEAST_DISCOUNT <= other < 1:
                return True
        pending.extend(facts.takes[maker])
    return False
