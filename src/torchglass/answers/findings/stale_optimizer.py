"""An optimizer updates parameters that the model does not use (any more).

The optimizer keeps the parameters that it was given. If the model, or a layer of it, is replaced after that (a new
head, `copy.deepcopy`, a fresh model in each fold), it goes on updating the old ones, and the new ones stay as they are.

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.fc = nn.Linear(512, 10)                        # wrong order: the new layer is in no optimizer

Make the optimizer last. Parameters that the optimizer holds and that are only sometimes used are fine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torchglass.answers.findings.parameters import groups, parameters_of
from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, names_words, seen_at


def find(facts: Facts) -> Iterator[Suspicion]:
    if facts.is_partial:
        return
    parameters = parameters_of(facts)
    orphans = {
        each: name
        for each, name in parameters.got.items()
        if each not in parameters.held and each not in parameters.written and each in parameters.used
        and facts.is_parameter(parameters.values[each])
    }  # fmt: skip
    if not orphans:
        return
    held = set(parameters.held)
    shapes = Counter(_inner(facts.shape(parameters.values[each])) for each in orphans)
    for holding, steps in groups(facts).items():
        dead = [
            each for each in holding if each not in parameters.used and each not in parameters.got
        ]
        if not dead or not held:
            continue
        taken = {facts.parameter(value.id): value for value in facts.event(steps[0].event).inputs}
        alike = Counter(_inner(taken[each].shape or ()) for each in dead)
        if shapes - alike and len(dead) < len(holding):
            continue
        first = parameters.used[next(iter(orphans))]
        yield Suspicion(
            severity=BUG,
            event=steps[0].event,
            text=f"{steps[0].optimizer} updates {len(dead)} parameters that nothing uses, and "
            f"{names_words(list(orphans.values()))}, which get gradients, are in no optimizer",
            evidence=(seen_at(facts, f"used by {facts.code(first)}", first),),
            fix="create the optimizer after the model has its final layers (or add them with add_param_group)",
            times=len(steps),
            about=frozenset(orphans) | frozenset(dead),
        )


def _inner(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the number of outputs, which a new head changes."""
    return (len(shape), *shape[1:])
