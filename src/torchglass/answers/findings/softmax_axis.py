"""Attention weights are normalised along another axis than the one that is summed over.

The product of weights and values sums over the last axis of the weights, so `softmax(…, dim=-1)` belongs before it.

    weights = F.softmax(q @ k.transpose(-2, -1), dim=1)  # wrong: dim=-1
    out = weights @ v
    F.nll_loss(F.log_softmax(scores, dim=0), y)          # the same for classes: dim=1
    F.cross_entropy(scores, y)                           # of [B, T, classes]: scores.transpose(1, 2)
    nn.Softmax()(scores)                                 # of a tensor with three axes: takes the first one
    torch.logsumexp(log_weights + log_p, dim=-1)         # log_weights normalised over dim=1: the same for mixtures

That is right in slot attention, which normalises once more afterwards (not reported then).
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import normal
from torchglass.answers.findings.suspicion import BUG, LIKELY, Facts, Suspicion, seen_at

PRODUCTS = ("matmul", "bmm", "mm", "__matmul__")
TARGETS = ("mse_loss", "l1_loss", "binary_cross_entropy")
LOG_STEPS = ("add", "__add__", "__radd__", "sub", "__sub__", "clamp")
PASSES = ("dropout", "to", "float", "type_as", "clone", "contiguous", "half")
RESHAPES = ("view", "reshape", "unsqueeze")


def find(facts: Facts) -> Iterator[Suspicion]:
    yield from _classes(facts)
    yield from _classes_last(facts)
    yield from _left_open(facts)
    yield from _mixtures(facts)
    for event, times in facts.calls("softmax"):
        if not facts.takes[event] or not facts.gives[event]:
            continue
        axis = normal(facts.argument(event, "dim", 1), len(facts.shape(facts.gives[event][0])))
        if axis is not None:
            yield from _weights(facts, event, times, axis, _is_attention(facts, event))
    for event, times, axis in _divisions(facts):
        yield from _weights(facts, event, times, axis, True)


def _classes_last(facts: Facts) -> Iterator[Suspicion]:
    """Find a cross-entropy over axis 1 of scores whose classes are the last axis, as after a linear layer."""
    for event, times in facts.calls("cross_entropy"):
        taken = facts.takes[event]
        if len(taken) < 2 or taken[0] not in facts.carries_gradient:
            continue
        shape = facts.shape(taken[0])
        maker = facts.maker(taken[0])
        if len(shape) != 3 or maker is None or facts.name(maker) != "linear":
            continue
        # Otherwise the layer may have mixed the steps, and the classes are where they belong.
        is_hidden = shape[1] == shape[2] or facts.shape(taken[1]) == shape
        if is_hidden:
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"cross_entropy takes axis 1 of {facts.word(taken[0])} for the classes: they are the last axis",
                evidence=(seen_at(facts, f"the scores: {facts.code(maker)}", maker),),
                fix="scores.transpose(1, 2), or both flattened: scores.reshape(-1, classes)",
                times=times,
            )


def _weights(
    facts: Facts, event: int, times: int, axis: int, is_attention: bool
) -> Iterator[Suspicion]:
    """Look at what becomes of weights that add up to 1 along an axis."""
    value = facts.gives[event][0]
    shape = facts.shape(value)
    if len(shape) < 2:
        return
    if is_attention:
        yield from _einsum(facts, event, times, value, axis)
    if axis == len(shape) - 1:
        return
    is_batch = axis == 0 and min(shape[0], shape[-1]) > 1
    product = None
    for weights, user in facts.uses(value, PASSES + RESHAPES if is_batch else PASSES):
        if facts.name(user) in PRODUCTS and facts.takes[user][0] == weights:
            product = (weights, user)
            break
    if product is None:
        return
    weights, user = product
    if len(facts.takes[user]) < 2:
        return
    if not is_attention and not (is_batch and _is_product_of_each(facts, value, weights, user)):
        return
    yield Suspicion(
        severity=LIKELY,
        event=event,
        text=f"{facts.code(event)} gives {facts.word(value)} that add up to 1 along axis {axis}, and "
        f"the product sums over the last axis: the weights that are summed do not add up to 1",
        evidence=(seen_at(facts, facts.code(user), user),),
        fix="normalise over dim=-1",
        times=times,
    )


def _is_product_of_each(facts: Facts, value: int, weights: int, user: int) -> bool:
    """Return whether a product is made for each sample, and its sum goes over the last axis of the weights."""
    first = facts.shape(weights)
    second = facts.shape(facts.takes[user][1])
    if len(first) < 3 or len(second) != len(first) or first[-1] != facts.shape(value)[-1]:
        return False
    return first[0] == second[0] > 1 and facts.shape(value)[0] % first[0] == 0


def _divisions(facts: Facts) -> Iterator[tuple[int, int, int]]:
    """Yield the calls that divide exponents by their sum, how often, and the axis of the sum."""
    for name in ("div", "__truediv__", "true_divide"):
        for event, times in facts.calls(name):
            if len(facts.takes[event]) < 2 or not facts.gives[event]:
                continue
            whole, part = facts.takes[event][:2]
            maker = facts.maker(part)
            exponent = facts.maker(whole)
            if maker is None or exponent is None or facts.name(maker) != "sum":
                continue
            if facts.name(exponent) != "exp" or facts.takes[maker][:1] != (whole,):
                continue
            axis = normal(facts.argument(maker, "dim", 1), len(facts.shape(whole)))
            if axis is not None and facts.argument(maker, "keepdim", 2) is True:
                yield event, times, axis


def _einsum(facts: Facts, event: int, times: int, value: int, axis: int) -> Iterator[Suspicion]:
    """Find the same where the product is written as an einsum."""
    for weights, user in facts.uses(value, PASSES):
        equation = facts.argument(user, "equation", 0)
        if facts.name(user) != "einsum" or not isinstance(equation, str) or "->" not in equation:
            continue
        terms, _, result = equation.replace(" ", "").partition("->")
        letters = terms.split(",")
        if (
            weights not in facts.takes[user]
            or "." in equation
            or len(letters) != len(facts.takes[user])
        ):
            continue
        own = letters[facts.takes[user].index(weights)]
        summed = [letter for letter in own if letter not in result]
        if not summed or len(own) != len(facts.shape(value)) or own[axis] in summed:
            continue
        if any(facts.is_parameter(taken) for taken in facts.takes[user]):
            continue  # a learned matrix mixes the weights of the heads; they are applied to the values after that
        yield Suspicion(
            severity=LIKELY,
            event=event,
            text=f"softmax over axis {axis} ({own[axis]}) of {facts.word(value)}, and {equation} sums over "
            f"{', '.join(summed)}: the weights that are summed do not add up to 1",
            evidence=(seen_at(facts, facts.code(user), user),),
            fix=f"softmax over dim={own.index(summed[-1])}",
            times=times,
        )
        return


def _classes(facts: Facts) -> Iterator[Suspicion]:
    """Find softmax over the batch whose result is used as probabilities of classes."""
    for event in (call.event for call in facts.calls("softmax", "log_softmax")):
        if not facts.takes[event] or not facts.gives[event]:
            continue
        value = facts.gives[event][0]
        shape = facts.shape(value)
        axis = normal(facts.argument(event, "dim", 1), len(shape))
        if axis is None or len(shape) < 2 or min(shape[0], shape[1]) < 2:
            continue
        user = next(
            (user for _, user in facts.uses(value, ("log", "clamp", "add", "to", "float"))), None
        )
        if user is None or facts.takes[user][0] not in (value, *_logs(facts, value)):
            continue
        wanted = None
        if facts.name(user) in ("nll_loss", "nll_loss_nd"):
            wanted = 1
        if facts.name(user) == "ctc_loss":
            wanted = len(shape) - 1
        if facts.name(user) in ("argmax", "max", "topk") and len(shape) == 2:
            wanted = normal(facts.argument(user, "dim", 2 if facts.name(user) == "topk" else 1), 2)
        if facts.name(user) == "multinomial" and len(shape) == 2:
            wanted = 1
        if (
            facts.name(user) in TARGETS
            and len(shape) == 2
            and shape[1] > 1
            and _is_batch(facts, event)
        ):
            wanted = 1
        if wanted is None or wanted == axis:
            continue
        yield Suspicion(
            severity=BUG if facts.name(user).startswith(("nll", "ctc")) else LIKELY,
            event=event,
            text=f"{facts.name(event)} over axis {axis} of {facts.word(value)}, and {facts.name(user)} looks for "
            f"classes along axis {wanted}: the classes of a sample do not add up to 1",
            evidence=(seen_at(facts, facts.code(user), user),),
            fix=f"{facts.name(event)} over dim={wanted}",
        )


def _mixtures(facts: Facts) -> Iterator[Suspicion]:
    """Log-weights of a mixture that are summed over another axis than they were normalised over."""
    for event, times in facts.calls("log_softmax"):
        if not facts.takes[event] or not facts.gives[event]:
            continue
        value = facts.gives[event][0]
        shape = facts.shape(value)
        axis = normal(facts.argument(event, "dim", 1), len(shape))
        if axis is None or min(shape, default=0) < 2 or facts.is_parameter(facts.takes[event][0]):
            continue
        sums = list(_sums_of_exponents(facts, value))
        axes = {normal(facts.argument(user, "dim", 1), len(shape)) for user in sums}
        if len(axes) != 1 or axes & {axis, None}:
            continue
        wanted = axes.pop()
        yield Suspicion(
            severity=LIKELY,
            event=event,
            text=f"log_softmax over axis {axis} of {facts.word(value)}, and the sum goes over axis {wanted}: "
            "the weights that are summed do not add up to 1",
            evidence=(seen_at(facts, facts.code(sums[0]), sums[0]),),
            fix=f"log_softmax over dim={wanted}",
            times=times,
        )


def _sums_of_exponents(facts: Facts, value: int) -> Iterator[int]:
    """Yield the sums of what became of log-weights by adding something to them, of the same shape."""
    shape = facts.shape(value)
    pending = [(value, False)]
    seen = {value}
    while pending and len(seen) < 60:
        each, is_exponent = pending.pop()
        for user in facts.users.get(each, ()):
            name = facts.name(user)
            if name == "logsumexp" or (name == "sum" and is_exponent):
                yield user
                continue
            if name not in LOG_STEPS and not (name == "exp" and not is_exponent):
                continue
            for given in facts.gives[user]:
                if given not in seen and facts.shape(given) == shape:
                    seen.add(given)
                    pending.append((given, is_exponent or name == "exp"))


def _left_open(facts: Facts) -> Iterator[Suspicion]:
    """Find softmax without a dim, which takes the first axis of a 3-D tensor: mostly the batch."""
    for event, times in facts.calls("softmax", "log_softmax", "softmin"):
        value = None
        if facts.takes[event]:
            value = facts.takes[event][0]
        if value is None or len(facts.shape(value)) != 3 or min(facts.shape(value)) < 2:
            continue
        if facts.argument(event, "dim", 1, 0) is not None:
            continue
        yield Suspicion(
            severity=LIKELY,
            event=event,
            text=f"{facts.name(event)} without dim takes axis 0 of {facts.word(value)}, which is mostly the batch",
            fix="say which axis is meant: dim=-1, or dim=0 if it is the first one",
            times=times,
        )


def _is_batch(facts: Facts, event: int) -> bool:
    """Return whether scores come straight from a layer, so that their first axis is the batch."""
    _, maker = next(facts.sources(facts.takes[event][0]))
    return maker is not None and facts.name(maker) in ("linear", "addmm")


def _logs(facts: Facts, value: int) -> list[int]:
    return [
        given
        for user in facts.users.get(value, ())
        if facts.name(user) == "log"
        for given in facts.gives[user]
    ]


def _is_attention(facts: Facts, event: int) -> bool:
    """Return whether the scores come from a product of two tensors that were both computed."""
    scales = (*PASSES, "div", "__truediv__", "mul", "__mul__", "masked_fill", "add", "__add__")
    for _, maker in facts.sources(facts.takes[event][0], scales):
        if maker is not None and facts.name(maker) in (*PRODUCTS, "einsum"):
            return True
    return False
