"""An activation, a norm or a sample is computed, and what comes after it goes on without it.

The layer is there, it runs, and its result is not used: its input is passed on instead.

    a = self.conv(x)
    r = self.relu(a)
    return torch.cat([a, other], 1)                      # wrong: r

    z = mu + torch.randn_like(std) * std
    return self.decode(mu)                               # wrong: z

Only results are reported that nothing takes and that no module returns, while their input is used again.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

LAYERS = (
    "relu", "leaky_relu", "elu", "gelu", "silu", "mish", "selu", "celu", "prelu", "dropout", "batch_norm", "layer_norm",
    "group_norm", "instance_norm", "rms_norm", "max_pool2d", "avg_pool2d",
)  # fmt: skip
SUMS = ("add", "__add__", "__radd__")
PRODUCTS = ("mul", "__mul__", "__rmul__")
NOISE = ("randn_like", "randn", "normal", "normal_")


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in LAYERS:
        for looks in facts.by_name.get(name, {}).values():
            event = looks[0]
            if facts.statement_is_expression(event):
                continue  # result-dropped reports that
            if all(_is_unused(facts, each) for each in looks):
                used = _later_use(facts, event, facts.takes[event][0])
                if used is not None:
                    yield _suspicion(facts, event, len(looks), used)
    for name in SUMS:
        for looks in facts.by_name.get(name, {}).values():
            event = looks[0]
            mean = _mean_of_sample(facts, event)
            if mean is None or not all(_is_unused(facts, each) for each in looks):
                continue
            used = _later_use(facts, event, mean, is_anywhere=True)
            if used is not None:
                yield _suspicion(facts, event, len(looks), used)


def _suspicion(facts: Facts, event: int, times: int, used: int) -> Suspicion:
    return Suspicion(
        severity=LIKELY,
        event=event,
        text=f"nothing uses the result of {facts.code(event)}: its input goes on instead",
        evidence=(seen_at(facts, f"goes on in {facts.code(used)}", used),),
        fix="use the result, or leave the call out",
        times=times,
    )


def _is_unused(facts: Facts, event: int) -> bool:
    """Return whether nothing takes the result of a call, and the module around the call does not return it."""
    given = facts.gives[event]
    taken = facts.takes[event]
    if not given or not taken or not facts.is_float(given[0]) or given[0] in taken:
        return False
    if not facts.requires_grad(given[0]) or facts.storage(given[0]) == facts.storage(taken[0]):
        return False
    if facts.users.get(given[0]):
        return False
    for around in facts.around(event):
        is_inside = facts.kind(around) == "module" and given[0] in facts.gives[around]
        if is_inside and facts.takes[around][:1] != taken[:1]:
            return False
    return True


def _later_use(facts: Facts, event: int, value: int, is_anywhere: bool = False) -> int | None:
    """Return a later call in the same function, or anywhere, that takes a value on its way to a loss."""
    around = _function(facts, event)
    for user in facts.users.get(value, ()):
        is_other = user > event and facts.location(user) != facts.location(event)
        is_here = is_anywhere or _function(facts, user) == around
        if is_other and is_here and _is_in_loss(facts, user):
            return user
    return None


def _is_in_loss(facts: Facts, event: int) -> bool:
    return any(given in facts.carries_gradient for given in facts.gives[event])


def _function(facts: Facts, event: int) -> str:
    at = facts.location(event)
    return "" if at is None else at.function


def _mean_of_sample(facts: Facts, event: int) -> int | None:
    """Return the mean in ``mean + noise * deviation``, or None if a sum is none like that."""
    taken = facts.takes[event]
    if len(taken) != 2 or not facts.is_written(event):
        return None
    for mean, noise in (taken, taken[::-1]):
        product = facts.maker(noise)
        if product is None or facts.name(product) not in PRODUCTS or not facts.requires_grad(mean):
            continue
        makers = [facts.maker(each) for each in facts.takes[product]]
        if any(each is not None and facts.name(each) in NOISE for each in makers):
            return mean
    return None
