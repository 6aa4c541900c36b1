"""A variational sample is drawn with uniform noise: `rand` where `randn` is meant.

The divergence of a Gaussian belongs to `mu + std * eps` with a Gaussian eps. `torch.rand` lies between 0 and 1: all
samples are on one side of the mean, and the decoder never sees what it is given later, when it generates.

    eps = torch.rand_like(std)                           # wrong: torch.randn_like(std)
    z = mu + eps * std

It is only reported where the same logarithm of a variance goes into the divergence of a Gaussian.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.log_variance import divergence_of
from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

UNIFORM = ("rand", "rand_like")
PRODUCTS = ("mul", "__mul__", "__rmul__")
SUMS = ("add", "__add__", "__radd__", "__iadd__")
HALVES = ("mul", "__mul__", "__rmul__", "div", "__truediv__")


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in UNIFORM:
        for event, times in facts.calls(name):
            if not facts.gives[event] or not facts.is_written(event):
                continue
            noise = facts.gives[event][0]
            for user in facts.users.get(noise, ()):
                if facts.name(user) not in PRODUCTS or len(facts.takes[user]) != 2:
                    continue
                deviation = next((each for each in facts.takes[user] if each != noise), None)
                if deviation is None:
                    continue
                divergence = _divergence(facts, deviation)
                is_added = any(
                    facts.name(each) in SUMS for each in facts.users.get(facts.gives[user][0], ())
                )
                if divergence is None or not is_added:
                    continue
                yield Suspicion(
                    severity=BUG,
                    event=event,
                    text=f"{facts.code(event)} is uniform between 0 and 1, and the divergence is that of a Gaussian",
                    evidence=(
                        seen_at(facts, f"the sample: {facts.code(user)}", user),
                        seen_at(facts, f"the divergence: {facts.code(divergence)}", divergence),
                    ),
                    fix="torch.randn_like(std)",
                    times=times,
                )
                break


def _divergence(facts: Facts, deviation: int) -> int | None:
    """Return the divergence that uses the logarithm of which a deviation is the exponential of a half."""
    maker = facts.maker(deviation)
    if maker is None or facts.name(maker) != "exp" or not facts.requires_grad(deviation):
        return None
    half = facts.takes[maker][0]
    before = facts.maker(half)
    if before is not None and facts.name(before) in HALVES:
        return divergence_of(facts, facts.takes[before][0])
    return divergence_of(facts, half)
