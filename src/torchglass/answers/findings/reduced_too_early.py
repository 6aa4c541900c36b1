"""A loss is reduced to one number too early: what comes after it was meant for each sample.

Loss functions average over the batch unless they are told not to. A weight or a mask for each sample that is multiplied
with that average scales all samples alike, and a focal factor of it is the same for easy and hard samples. A sum over
the batch that is added to each sample's number counts the batch twice.

    loss = (criterion(output, y) * weight).mean()        # wrong: criterion with reduction="none"
    ce = F.cross_entropy(output, y)                      # wrong: reduction="none"
    focal = (1 - torch.exp(-ce)) ** 2 * ce
    log_prob = prior.log_prob(z) + log_scale.sum()       # wrong: .sum(dim=1)
    penalty = (gradients.norm() - 1) ** 2                # wrong: gradients.norm(2, dim=1)

It is fine to add an average, or a penalty on weights, to each sample's loss.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.passes import LOSSES
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

SUMS = ("sum", "nansum")
REDUCES = frozenset(("mean", *SUMS))
ADDS = ("add", "__add__", "__radd__", "sub", "__sub__", "rsub", "__rsub__", "__iadd__", "__isub__")
MULTIPLIES = ("mul", "__mul__", "__rmul__")
SCALES = frozenset(("mul", "__mul__", "__rmul__", "div", "__truediv__", "neg", "__neg__"))
POWERS = ("pow", "__pow__")
NORMS = ("norm", "vector_norm")
RESHAPES = ("view", "reshape", "flatten")
MOST_STEPS = 6
MOST_SEEN = 300


def find(facts: Facts) -> Iterator[Suspicion]:
    yield from _weighted(facts)
    yield from _added(facts)
    yield from _focal(facts)
    yield from _penalty(facts)


def _weighted(facts: Facts) -> Iterator[Suspicion]:
    """Find an average over samples that is multiplied with a number for each sample."""
    for name in MULTIPLIES:
        for event, times in facts.calls(name):
            pair = _number_and_vector(facts, event)
            if pair is None:
                continue
            number, vector = pair
            if facts.requires_grad(vector) or not _is_averaged(facts, event):
                continue
            reduced = _reduction(facts, number, facts.shape(vector)[0], REDUCES | LOSSES)
            if reduced is None:
                continue
            yield Suspicion(
                severity=LIKELY,
                event=reduced,
                text=f"{facts.code(reduced)} is one number for all {facts.shape(vector)[0]} samples: "
                f"{facts.word(vector)} in {facts.code(event)} cannot weight them",
                evidence=(seen_at(facts, facts.code(event), event),),
                fix=_fix(facts, reduced),
                times=times,
            )


def _added(facts: Facts) -> Iterator[Suspicion]:
    """Find a sum over the batch that is added to a number for each sample, before the average."""
    for name in ADDS:
        for event, times in facts.calls(name):
            pair = _number_and_vector(facts, event)
            if pair is None:
                continue
            number, vector = pair
            if len(facts.shape(vector)) != 1 or not _is_averaged(facts, event):
                continue
            reduced = _reduction(facts, number, facts.shape(vector)[0], frozenset(SUMS))
            if reduced is None:
                continue
            yield Suspicion(
                severity=LIKELY,
                event=reduced,
                text=f"{facts.code(reduced)} adds up all {facts.shape(vector)[0]} samples, and the sum is added to "
                f"each of them: {facts.word(vector)} in {facts.code(event)}",
                evidence=(seen_at(facts, facts.code(event), event),),
                fix=_fix(facts, reduced),
                times=times,
            )


def _focal(facts: Facts) -> Iterator[Suspicion]:
    """Find the exponential of an average loss that comes back as a factor of the same loss."""
    for event, times in facts.calls("exp"):
        if not facts.takes[event] or facts.shape(facts.takes[event][0]):
            continue
        value = facts.takes[event][0]
        if value not in facts.carries_gradient:
            continue
        negative = facts.maker(value)
        if negative is None or facts.name(negative) not in ("neg", "__neg__"):
            continue
        number = facts.takes[negative][0]
        loss = facts.maker(number)
        if loss is None or facts.name(loss) not in LOSSES or facts.numel(facts.takes[loss][0]) < 2:
            continue
        weighted = _factor_of(facts, facts.gives[event][0], number)
        if weighted is None:
            continue
        yield Suspicion(
            severity=LIKELY,
            event=loss,
            text=f"{facts.code(loss)} is the average of all samples: {facts.code(weighted)} cannot "
            "tell easy samples from hard ones",
            evidence=(seen_at(facts, f"the factor is made of {facts.code(event)}", event),),
            fix='reduction="none", and .mean() at the end',
            times=times,
        )


def _penalty(facts: Facts) -> Iterator[Suspicion]:
    """Find one norm of the gradients of all samples that is compared with 1, as in a gradient penalty."""
    for name in NORMS:
        for event, times in facts.calls(name):
            taken = facts.takes[event]
            given = facts.gives[event]
            if not taken or not given or facts.shape(given[0]) or not facts.is_written(event):
                continue
            _, maker = next(facts.sources(taken[0], RESHAPES))
            shape = facts.shape(taken[0])
            if maker is None or facts.name(maker) != "grad" or len(shape) < 2 or shape[0] < 2:
                continue
            if given[0] not in facts.carries_gradient:
                continue
            users = [user for user in facts.users.get(given[0], ()) if facts.name(user) in ADDS]
            if not any(1 in facts.arguments(user).positional for user in users):
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{facts.code(event)} is one norm for the gradients of all {shape[0]} samples: "
                "each of them is to be near 1",
                evidence=(seen_at(facts, facts.code(users[0]), users[0]),),
                fix=f"gradients.view({shape[0]}, -1).norm(2, dim=1)",
                times=times,
            )


def _factor_of(facts: Facts, factor: int, number: int) -> int | None:
    """Return the product of a number and of a power of ``1 - factor``."""
    pending = [factor]
    for _ in range(MOST_STEPS):
        if not pending:
            return None
        value = pending.pop()
        for user in facts.users.get(value, ()):
            name = facts.name(user)
            if name in MULTIPLIES and number in facts.takes[user]:
                return user
            if name in (*MULTIPLIES, *POWERS, "rsub", "__rsub__", "sub", "clamp", "detach"):
                pending.extend(facts.gives[user])
    return None


def _number_and_vector(facts: Facts, event: int) -> tuple[int, int] | None:
    """Return the two sides of a call that joins one number with one for each sample."""
    taken = facts.takes[event]
    if len(taken) != 2 or not facts.is_written(event):
        return None
    for number, vector in (taken, taken[::-1]):
        shape = facts.shape(vector)
        is_per_sample = len(shape) in (1, 2) and shape[0] > 1
        if not facts.shape(number) and number in facts.carries_gradient and is_per_sample:
            return number, vector
    return None


def _is_averaged(facts: Facts, event: int) -> bool:
    """Return whether the result is reduced to one number."""
    value = facts.gives[event][0]
    for _ in range(MOST_STEPS):
        users = facts.users.get(value, [])
        if any(facts.name(user) in REDUCES for user in users):
            return True
        later = [
            user for user in users if facts.name(user) in (*ADDS, *SCALES) and facts.gives[user]
        ]
        if not later:
            return False
        value = facts.gives[later[0]][0]
    return False


def _reduction(facts: Facts, number: int, samples: int, reduces: frozenset[str]) -> int | None:
    """Return the call that reduced data of so many samples to a number, looking back over factors and signs."""
    for _ in range(MOST_STEPS):
        maker = facts.maker(number)
        if maker is None or not facts.takes[maker]:
            return None
        if facts.name(maker) in reduces:
            source = facts.takes[maker][0]
            is_of_samples = facts.shape(source)[:1] == (samples,) and facts.numel(source) > 1
            if is_of_samples and _is_data(facts, source):
                return maker
            return None
        if facts.name(maker) not in SCALES:
            return None
        graded = [each for each in facts.takes[maker] if facts.requires_grad(each)]
        if len(graded) != 1:
            return None
        number = graded[0]
    return None


def _is_data(facts: Facts, value: int) -> bool:
    """Return whether a value is computed from something else than parameters."""
    pending = [value]
    seen = {value}
    while pending and len(seen) < MOST_SEEN:
        maker = facts.maker(pending.pop())
        if maker is None:
            continue
        for each in facts.takes[maker]:
            if not facts.requires_grad(each) and facts.numel(each) > 1:
                return True
            if each not in seen:
                seen.add(each)
                pending.append(each)
    return False


def _fix(facts: Facts, reduced: int) -> str:
    if facts.name(reduced) in LOSSES:
        return 'make the loss with reduction="none", and reduce it after that'
    return f"reduce each sample only: {facts.name(reduced)}(dim=1)"
