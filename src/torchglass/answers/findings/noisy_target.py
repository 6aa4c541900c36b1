"""A network that is to remove noise is compared with its noisy input.

It learns to give back what it got, the noise included.

    noisy = x + 0.1 * torch.randn_like(x)
    loss = F.mse_loss(model(noisy), noisy)               # wrong: F.mse_loss(model(noisy), x)

Only noise that `randn` draws is reported. Noise between 0 and 1 that fills the steps between whole numbers is fine.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
NOISE = ("randn_like", "randn")
SUMS = ("add", "__add__", "__radd__")
PRODUCTS = ("mul", "__mul__", "__rmul__")
BOUNDS = ("clamp", "clip")
MOST_SEEN = 300


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in LOSSES:
        for event, times in facts.calls(name):
            if len(facts.takes[event]) < 2:
                continue
            prediction, target = facts.takes[event][:2]
            if prediction not in facts.carries_gradient or facts.requires_grad(target):
                continue
            noise = _noise_in(facts, target)
            if noise is None or not _is_input(facts, prediction, target):
                continue
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{facts.code(event)} compares the result with its noisy input: the noise is learned as well",
                evidence=(seen_at(facts, f"the noise: {facts.code(noise)}", noise),),
                fix="compare with the data before the noise",
                times=times,
            )


def _noise_in(facts: Facts, value: int) -> int | None:
    """Return the call that drew the noise in ``x + 0.1 * noise``."""
    maker = facts.maker(value)
    while maker is not None and facts.name(maker) in BOUNDS and facts.takes[maker]:
        maker = facts.maker(facts.takes[maker][0])
    if maker is None or facts.name(maker) not in SUMS or len(facts.takes[maker]) != 2:
        return None
    for each in facts.takes[maker]:
        made = facts.maker(each)
        if made is not None and facts.name(made) in PRODUCTS and len(facts.takes[made]) == 1:
            made = facts.maker(facts.takes[made][0])
        if made is not None and facts.name(made) in NOISE:
            return made
    return None


def _is_input(facts: Facts, prediction: int, target: int) -> bool:
    """Return whether a prediction was computed from just that target."""
    pending = [prediction]
    seen = {prediction}
    while pending and len(seen) < MOST_SEEN:
        value = pending.pop()
        maker = facts.maker(value)
        if maker is None:
            continue
        for each in facts.takes[maker]:
            if each == target:
                return True
            if each not in seen and facts.requires_grad(each) and not facts.is_parameter(each):
                seen.add(each)
                pending.append(each)
    return False
