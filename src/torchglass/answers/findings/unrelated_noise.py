"""A network that is to predict the noise in its input is compared with other noise.

Each call of `torch.randn_like` gives new numbers. What was mixed into the input cannot be known from them, and the best
prediction of fresh noise is 0.

    noisy = a * x + b * torch.randn_like(x)
    loss = F.mse_loss(model(noisy, t), torch.randn_like(x))      # wrong: the same noise in both places

It is only reported where noise of the same shape was mixed into the input, and where nothing else uses the noise that
the prediction is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
NOISE = ("randn_like", "randn")
MIXES = frozenset("add __add__ __radd__ mul __mul__ __rmul__ sub __sub__ lerp addcmul".split())
MOST_SEEN = 300


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in LOSSES:
        for event, times in facts.calls(name):
            pair = facts.takes[event][:2]
            if len(pair) < 2:
                continue
            for target, predicted in (pair, pair[::-1]):
                fresh = facts.maker(target)
                if fresh is None or facts.name(fresh) not in NOISE or not facts.is_written(fresh):
                    continue
                if predicted not in facts.carries_gradient or len(facts.users[target]) > 1:
                    continue
                mixed = _mixed_in(facts, predicted)
                if mixed is None:
                    continue
                yield Suspicion(
                    severity=BUG,
                    event=event,
                    text=f"{facts.code(event)} compares the prediction with noise that nothing else has seen: "
                    "the noise in the input is another one",
                    evidence=(seen_at(facts, f"mixed into the input: {facts.code(mixed)}", mixed),),
                    fix="keep the noise that is mixed in, and compare with that",
                    times=times,
                )
                break


def _mixed_in(facts: Facts, predicted: int) -> int | None:
    """Return the call that made the noise in the input of a prediction of the same shape."""
    pending = [predicted]
    seen = {predicted}
    while pending and len(seen) < MOST_SEEN:
        maker = facts.maker(pending.pop())
        if maker is None:
            continue
        noise = _noise(facts, maker, facts.shape(predicted))
        if noise is not None:
            return noise
        for each in facts.takes[maker]:
            if each not in seen and not facts.is_parameter(each):
                seen.add(each)
                pending.append(each)
    return None


def _noise(facts: Facts, event: int, shape: tuple[int, ...]) -> int | None:
    """Return the noise of a shape that a sum of data without a gradient has."""
    if facts.name(event) not in MIXES or not facts.gives[event]:
        return None
    if facts.shape(facts.gives[event][0]) != shape or facts.requires_grad(facts.gives[event][0]):
        return None
    for value in facts.takes[event]:
        maker = facts.maker(value)
        if maker is not None and facts.name(maker) in NOISE and facts.shape(value) == shape:
            return maker
    return None
