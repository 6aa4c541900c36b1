"""The model is trained in eval mode: dropout does nothing, batch norm does not learn its statistics.

After an evaluation with `model.eval()` the model stays in that mode until `model.train()` is called.

    for epoch in range(10):
        for x, y in train: ...                           # from the second epoch on in eval mode
        model.eval()
        evaluate(model)                                  # wrong: model.train() is missing at the top of the epoch

Batch norm that is frozen on purpose from the beginning is only a hint.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.passes import Pass, by_root, passes_of, stepped_roots
from torchglass.answers.findings.suspicion import HINT, LIKELY, Facts, Suspicion, seen_at


def find(facts: Facts) -> Iterator[Suspicion]:
    stepped = stepped_roots(facts)
    for root, passes in by_root(passes_of(facts)).items():
        trained = [each for each in passes if each.is_trained]
        if root.partition("#")[0] not in stepped or not trained:
            continue
        off = [each for each in trained if not any(switch.is_on for switch in each.switches)]
        if not off:
            continue
        on = [each for each in trained if any(switch.is_on for switch in each.switches)]
        has_dropout = any(switch.is_dropout for each in off for switch in each.switches)
        if on:
            yield from _left_on(facts, root, on, off, passes)
        elif len(off) == len(trained):
            yield Suspicion(
                severity=LIKELY if has_dropout else HINT,
                event=off[0].event,
                text=f"{root} is trained in eval mode: "
                + (
                    "its dropout does nothing"
                    if has_dropout
                    else "its batch norm uses fixed statistics"
                ),
                fix="call model.train() before training",
                times=len(off),
            )


def _left_on(
    facts: Facts, root: str, on: list[Pass], off: list[Pass], passes: list[Pass]
) -> Iterator[Suspicion]:
    if off[0].event < on[-1].event:
        yield from _left_on_again(facts, root, passes)
        return
    evaluated = [
        each for each in passes if not each.is_trained and on[-1].event < each.event < off[0].event
    ]
    evidence = tuple(seen_at(facts, "in train mode until", each.event) for each in on[-1:])
    evidence += tuple(seen_at(facts, "evaluated in between", each.event) for each in evaluated[:1])
    yield Suspicion(
        severity=LIKELY,
        event=off[0].event,
        text=f"{root} is trained in eval mode from the {len(on) + 1}. pass on: model.train() is missing",
        evidence=evidence,
        fix="call model.train() before each epoch of training",
        times=len(off),
    )


def _left_on_again(facts: Facts, root: str, passes: list[Pass]) -> Iterator[Suspicion]:
    """Evaluations within an epoch, after each of which training goes on in eval mode until the next epoch."""
    changes: list[tuple[Pass, bool]] = []
    before: Pass | None = None
    evaluated = False
    for each in passes:
        is_off = not any(switch.is_on for switch in each.switches)
        if not each.is_trained:
            evaluated = evaluated or is_off
            continue
        was_off = before is not None and not any(switch.is_on for switch in before.switches)
        if before is not None and is_off and not was_off:
            changes.append((each, evaluated))
        before = each
        evaluated = False
    if len(changes) < 2 or not all(is_after for _, is_after in changes):
        return  # somebody switches the mode on purpose
    yield Suspicion(
        severity=LIKELY,
        event=changes[0][0].event,
        text=f"{root} is trained in eval mode after each evaluation: model.train() is missing",
        fix="call model.train() after each evaluation",
        times=len(changes),
    )
