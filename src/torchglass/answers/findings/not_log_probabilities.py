"""`nll_loss`, `kl_div` or `ctc_loss` is given something that is no log-probability.

`F.nll_loss` expects the output of `log_softmax`; given probabilities or raw scores it only averages `-x[target]`, which
has no minimum for scores and hardly any gradient for probabilities. `F.kl_div(input, target)` expects
log-probabilities as its input, and as its target only with `log_target=True`. `F.ctc_loss` expects log-probabilities.

    loss = F.nll_loss(F.softmax(x, dim=1), y)          # wrong: F.log_softmax, or cross_entropy of x
    loss = F.kl_div(p.softmax(-1), q.softmax(-1))      # wrong: p.log_softmax(-1)

That is right where scores are normalised by something else than a softmax that you wrote yourself.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import KEEPS_NUMBERS
from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

PROBABILITIES = ("softmax", "sigmoid", "gumbel_softmax")
SCORES = (
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "bilinear",
    "addmm",
    "relu",
    "leaky_relu",
    "gelu",
    "tanh",
)
PASSES = KEEPS_NUMBERS | {"dropout", "add", "__add__"}


def find(facts: Facts) -> Iterator[Suspicion]:
    for event, times in facts.calls("nll_loss", "nll_loss_nd"):
        yield from _input(facts, event, times, "nll_loss")
    for event, times in facts.calls("kl_div"):
        yield from _input(facts, event, times, "kl_div")
        yield from _target(facts, event, times)
    for event, times in facts.calls("ctc_loss"):
        yield from _input(facts, event, times, "ctc_loss")


def _input(facts: Facts, event: int, times: int, loss: str) -> Iterator[Suspicion]:
    if not facts.takes[event]:
        return
    for _, maker in facts.sources(facts.takes[event][0]):
        if maker is None:
            return
        name = facts.name(maker)
        if name in PROBABILITIES:
            wrong = f"the probabilities of {name}"
        elif name in SCORES:
            wrong = f"the plain scores of {name}"
        else:
            return
        yield Suspicion(
            severity=BUG,
            event=event,
            text=f"{loss} takes log-probabilities and is given {wrong}",
            evidence=(seen_at(facts, f"{name}: {facts.code(maker)}", maker),),
            fix="use F.log_softmax, or F.cross_entropy of the scores"
            if loss == "nll_loss"
            else "use F.log_softmax",
            times=times,
        )
        return


def _target(facts: Facts, event: int, times: int) -> Iterator[Suspicion]:
    target = facts.tensor_argument(event, "target", 1)
    if target is None:
        return
    is_log = facts.argument(event, "log_target", default=False) is True
    wanted = PROBABILITIES
    if not is_log:
        wanted = ("log_softmax", "logsigmoid")
    for _, maker in facts.sources(target):
        if maker is None or facts.name(maker) not in wanted:
            return
        should = "log-probabilities (log_target=True)"
        if not is_log:
            should = "probabilities"
        yield Suspicion(
            severity=BUG,
            event=event,
            text=f"kl_div takes {should} as its target and is given the output of {facts.name(maker)}",
            evidence=(seen_at(facts, f"{facts.name(maker)}: {facts.code(maker)}", maker),),
            fix="pass log_target=True"
            if not is_log
            else "leave log_target out, or use F.log_softmax",
            times=times,
        )
        return
