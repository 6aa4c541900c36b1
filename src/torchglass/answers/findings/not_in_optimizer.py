"""Parameters get a gradient in each round, and no optimizer updates them.

They stay as they were initialised. Usually a part of the model was forgotten when the optimizer was made, or was made
after it.

    optimizer = torch.optim.Adam(encoder.parameters())   # wrong, if the decoder is to learn, too
    decoder(encoder(x)) …

That is right where only a part is trained; then `requires_grad_(False)` for the rest saves the work. It is only a hint
where most of a model is left out, as in the training of a new head. Parameters that the program updates itself, a
target network, and inputs that are optimised (adversarial examples, style transfer) are not reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torchglass.answers.findings.parameters import additions, parameters_of
from torchglass.answers.findings.suspicion import (
    HINT,
    LIKELY,
    Facts,
    Suspicion,
    names_words,
    seen_at,
)


def find(facts: Facts) -> Iterator[Suspicion]:
    if facts.is_partial or not facts.steps:
        return
    parameters = parameters_of(facts)
    added = additions(facts)
    first_step = facts.steps[0].event
    last_step = facts.steps[-1].event
    updated_by_program = parameters.written | _copies(facts, parameters.held)
    # A tensor of one number may be an input. It counts if it got a gradient more than once.
    numbers = {each: event for each, event in parameters.numbers.items() if len(added[each]) > 1}
    first_use = numbers | parameters.used
    left_out: list[int] = []
    trained: list[int] = []
    for each in parameters.got:
        is_used = each in first_use and each not in updated_by_program
        if each in parameters.held:
            trained.append(each)
        # A gradient that comes after the last step was not meant for one.
        elif is_used and added[each][0] < last_step:
            left_out.append(each)
    if not left_out:
        return
    severity = HINT
    if trained and len(left_out) <= len(trained):
        severity = LIKELY
    rounds = max(len(added[each]) for each in left_out)
    event = first_use[left_out[0]]
    names = [parameters.got[each] for each in left_out]
    yield Suspicion(
        severity=severity,
        event=event,
        text=f"{names_words(names)} get a gradient in each of {rounds} rounds, and no optimizer has them",
        evidence=(
            seen_at(
                facts,
                f"{facts.steps[0].optimizer} holds {len(facts.steps[0].held)} others",
                first_step,
            ),
        ),
        fix="give them to an optimizer, or requires_grad_(False) if they are to stay as they are",
        times=rounds,
        about=frozenset(left_out),
    )


def _copies(facts: Facts, held: Collection[int]) -> set[int]:
    """Return the parameters into which others that are trained were copied: those of a target network."""
    return {
        facts.parameter(facts.takes[event][0])
        for events in facts.by_name.get("copy_", {}).values()
        for event in events
        if len(facts.takes[event]) > 1 and facts.parameter(facts.takes[event][1]) in held
    }
