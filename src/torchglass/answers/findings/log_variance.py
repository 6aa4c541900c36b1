"""One number is taken for the logarithm of a variance and for that of a standard deviation.

Where the divergence has `logvar - mu ** 2 - logvar.exp()`, the standard deviation is `(0.5 * logvar).exp()`. Without
the half, samples have the variance for their deviation, and the two parts of the loss disagree.

    z = mu + torch.randn_like(mu) * logvar.exp()         # wrong: (0.5 * logvar).exp()
    kl = -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(1)
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

NOISE = ("randn_like", "randn", "normal", "normal_")
PRODUCTS = ("mul", "__mul__", "__rmul__")
SUMS = ("add", "__add__", "__radd__", "sub", "__sub__", "rsub", "__rsub__")


def find(facts: Facts) -> Iterator[Suspicion]:
    for event, times in facts.calls("exp"):
        if not facts.takes[event] or not facts.gives[event] or not facts.is_written(event):
            continue
        logarithm = facts.takes[event][0]
        deviation = facts.gives[event][0]
        noisy = [user for user in facts.users.get(deviation, ()) if _is_noisy(facts, user)]
        divergence = divergence_of(facts, logarithm)
        if not noisy or divergence is None or logarithm not in facts.carries_gradient:
            continue
        yield Suspicion(
            severity=LIKELY,
            event=event,
            text=f"{facts.code(event)} is used as a standard deviation, and as a variance in the divergence",
            evidence=(
                seen_at(facts, f"deviation in {facts.code(noisy[0])}", noisy[0]),
                seen_at(facts, f"variance in {facts.code(divergence)}", divergence),
            ),
            fix="the deviation is (0.5 * logvar).exp()",
            times=times,
        )


def _is_noisy(facts: Facts, user: int) -> bool:
    """Return whether a call multiplies something with random numbers."""
    if facts.name(user) not in PRODUCTS:
        return False
    makers = [facts.maker(value) for value in facts.takes[user]]
    return any(maker is not None and facts.name(maker) in NOISE for maker in makers)


def divergence_of(facts: Facts, logarithm: int) -> int | None:
    """Return the sum that has a logarithm as it is, and its exponential."""
    for user in facts.users.get(logarithm, ()):
        if facts.name(user) not in SUMS:
            continue
        total = user
        for _ in range(4):
            later = [each for given in facts.gives[total] for each in facts.users.get(given, ())]
            if not later or facts.name(later[0]) not in SUMS:
                break
            total = later[0]
            if any(_is_exponential_of(facts, value, logarithm) for value in facts.takes[total]):
                return total
    return None


def _is_exponential_of(facts: Facts, value: int, logarithm: int) -> bool:
    maker = facts.maker(value)
    return maker is not None and facts.name(maker) == "exp" and logarithm in facts.takes[maker]
