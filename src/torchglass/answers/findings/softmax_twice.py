"""The output of softmax or sigmoid goes into a loss, or another softmax, that applies it again.

`F.cross_entropy`, `nn.CrossEntropyLoss` and `F.binary_cross_entropy_with_logits` take logits and apply (log-)softmax or
sigmoid themselves. Given probabilities they squash them a second time: gradients become small, the loss cannot come
near zero, and training is slow or stops early. Nothing fails.

    probabilities = F.softmax(self.head(x), dim=-1)
    loss = F.cross_entropy(probabilities, target)      # wrong: pass self.head(x)

Log-probabilities into `cross_entropy` are fine: log-softmax of them changes nothing. That is right where a model
deliberately flattens its distribution with a second softmax; then say so with `# torchglass: ignore[softmax-twice]`.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, LIKELY, Facts, Suspicion, seen_at

SQUASHING = ("softmax", "sigmoid", "softmax2d", "gumbel_softmax", "sigmoid_")
LOSSES = {
    "cross_entropy": ("softmax", "sigmoid"),
    "binary_cross_entropy_with_logits": ("sigmoid", "softmax"),
}
SIGMOIDS = ("sigmoid", "sigmoid_")
AGAIN = ("softmax", "log_softmax", *SIGMOIDS)


def find(facts: Facts) -> Iterator[Suspicion]:
    for loss in LOSSES:
        for event, times in facts.calls(loss):
            yield from _into(facts, event, times, f"{loss} takes logits", "pass what goes into {}")
    for again in AGAIN:
        for event, times in facts.calls(again):
            if facts.is_written(event) or facts.module_around(event) is not None:
                yield from _into(
                    facts,
                    event,
                    times,
                    f"{again} is applied to probabilities",
                    "leave one of them out",
                )


def _into(facts: Facts, event: int, times: int, what: str, fix: str) -> Iterator[Suspicion]:
    if not facts.takes[event]:
        return
    for value, maker in facts.sources(facts.takes[event][0]):
        if maker is None or facts.name(maker) not in SQUASHING or maker == event:
            continue
        name = facts.name(maker)
        is_sigmoid = facts.name(event) in SIGMOIDS
        is_softmax = facts.name(event) in AGAIN and not is_sigmoid
        if is_softmax and (name != "softmax" or _other_axis(facts, event, value)):
            continue  # a sigmoid may scale scores before a softmax; softmax over another axis is another thing
        yield Suspicion(
            severity=LIKELY if is_sigmoid else BUG,
            event=event,
            text=f"{what} and is given the output of {name}: it is squashed twice",
            evidence=(seen_at(facts, f"{name}: {facts.code(maker)}", maker),),
            fix=fix.format(name),
            times=times,
        )
        return


def _other_axis(facts: Facts, event: int, value: int) -> bool:
    """Return whether a second softmax looks at something else than the first one: what it takes was reshaped."""
    return facts.takes[event][0] != value
