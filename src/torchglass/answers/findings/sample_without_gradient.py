"""A network goes on from `sample()` of a distribution: no gradient reaches its mean and deviation.

`sample()` runs without gradients. Where the loss is to reach the mean and the deviation through the sample, as in a
variational autoencoder or in SAC, `rsample()` is needed: mean + deviation * noise.

    q = torch.distributions.Normal(mean, deviation)
    z = q.sample()                                       # wrong: q.rsample()
    loss = F.mse_loss(decoder(z), x) + kl

In the policy gradient `sample()` is right, since the gradient comes from `log_prob`; that is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

PASSES = frozenset(
    "cat concat view reshape to squeeze unsqueeze flatten tanh sigmoid mul add clamp".split()
)
LAYERS = frozenset("linear conv1d conv2d conv_transpose2d conv_transpose1d addmm".split())


def find(facts: Facts) -> Iterator[Suspicion]:
    for event, times in facts.calls("normal"):
        if facts.is_written(event) or not facts.gives[event] or "sample" not in facts.code(event):
            continue
        if not any(map(facts.requires_grad, facts.takes[event])):
            continue
        sample = facts.gives[event][0]
        if facts.requires_grad(sample) or sample not in facts.in_loss:
            continue
        users = [user for _, user in facts.uses(sample, PASSES)]
        layer = next((user for user in users if facts.name(user) in LAYERS), None)
        if layer is None or _has_score(facts, event, sample):
            continue
        yield Suspicion(
            severity=LIKELY,
            event=event,
            text=f"{facts.code(event)} runs without gradients, and {facts.code(layer)} goes on from the sample: "
            "the loss does not reach the mean and the deviation through it",
            evidence=(seen_at(facts, facts.code(layer), layer),),
            fix="use rsample()",
            times=times,
        )


def _has_score(facts: Facts, event: int, sample: int) -> bool:
    """Return whether the log-probability of a sample is computed, as in the policy gradient."""
    return any(
        not facts.is_written(user) and "log_prob" in facts.code(user)
        for user in facts.users.get(sample, ())
        if user != event
    )
