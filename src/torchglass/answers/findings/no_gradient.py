"""An optimizer holds parameters that took part and never got a gradient: the graph is cut between them and the loss.

`detach()`, `.data`, `torch.no_grad()`, `torch.tensor(x)`, `.numpy()`, `argmax` and rounding end the graph. What comes
before them does not learn, without any message.

    h = self.encoder(x).detach()                         # the encoder does not learn
    loss = criterion(self.head(h), y)

That is right where a part is frozen; then leave its parameters out of the optimizer, or set `requires_grad_(False)`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from torchglass.answers.findings.parameters import parameters_of
from torchglass.answers.findings.suspicion import (
    HINT,
    LIKELY,
    Facts,
    Suspicion,
    names_words,
    seen_at,
)

ON_PURPOSE = ("detach", "data", "detach_")
NOT_DIFFERENTIABLE = (
    "argmax",
    "tensor",
    "max",
    "topk",
    "round",
    "floor",
    "ceil",
    "sign",
    "eq",
    "gt",
)
EXITS = ("item", "tolist", "numpy", "__float__", "__array__")
MOST_SEEN = 400


def find(facts: Facts) -> Iterator[Suspicion]:
    if facts.is_partial or not facts.accumulations:
        return
    parameters = parameters_of(facts)
    without = [each for each in parameters.held if each not in parameters.got]
    cuts: dict[int, list[int]] = defaultdict(list)
    unused: list[int] = []
    for parameter in without:
        event = parameters.used.get(parameter)
        if event is None:
            unused.append(parameter)
            continue
        cut = _cut_before_step(facts, parameter, parameters.values[parameter]) or find_exit(
            facts, parameters.values[parameter]
        )
        if cut is not None:
            if _is_switched_off(facts, cut):
                cut = _whole_module(facts, cut)
            location = facts.location(cut)
            known = next((each for each in cuts if facts.location(each) == location), cut)
            cuts[known].append(parameter)
    for cut, found in cuts.items():
        is_off = facts.kind(cut) == "module" or _is_switched_off(facts, cut)
        why = "it runs with gradients switched off"
        if not is_off:
            why = f"{facts.name(cut)} ends the graph"
        yield Suspicion(
            severity=LIKELY,
            event=cut,
            text=f"{names_words([parameters.held[each] for each in found])} never get a gradient, "
            f"although an optimizer holds them: {why}",
            evidence=(seen_at(facts, facts.code(cut), cut),),
            fix="leave the cut out; if the part is frozen on purpose, keep its parameters out of the optimizer",
            about=frozenset(found),
        )
    if unused:
        yield Suspicion(
            severity=HINT,
            event=facts.steps[0].event,
            text=f"nothing used {names_words([parameters.held[each] for each in unused])}, which the optimizer holds",
            fix="leave them out, or find out why the model does not call them",
            about=frozenset(unused),
        )


def _is_switched_off(facts: Facts, cut: int) -> bool:
    """Return whether a call could have given a gradient, so that gradients were switched off around it."""
    if facts.name(cut) in (*ON_PURPOSE, *NOT_DIFFERENTIABLE, *EXITS):
        return False
    return any(facts.requires_grad(value) for value in facts.takes[cut])


def _whole_module(facts: Facts, cut: int) -> int:
    """Return the outermost module around a call that ran without gradients, or the call itself."""
    found = cut
    for around in facts.around(cut):
        if facts.kind(around) != "module" or any(map(facts.requires_grad, facts.gives[around])):
            break
        found = around
    return found


def _cut_before_step(facts: Facts, parameter: int, value: int) -> int | None:
    """Return the cut after which an optimizer of the parameter steps next, or the first one.

    The generator of a GAN is detached on purpose before the discriminator's step.
    """
    found = list(_cuts(facts, value))
    backwards = sorted(facts.backwards)
    steps = [step.event for step in facts.steps]
    for cut in found:
        run = bisect_right(backwards, cut)
        if run == len(backwards):
            continue
        step = bisect_right(steps, backwards[run])
        if step < len(steps) and parameter in facts.steps[step].held:
            return cut
    return found[0] if found else None


def _cuts(facts: Facts, value: int) -> Iterator[int]:
    """Yield the calls that end the graph between a parameter and a loss."""
    pending = [value]
    seen = {value}
    while pending and len(seen) < MOST_SEEN:
        each = pending.pop(0)
        for user in facts.users.get(each, ()):
            if facts.name(user) in ("grad", "backward") or facts.name(user).endswith("_"):
                continue
            for given in facts.gives[user]:
                if given in seen or given == each:
                    continue
                seen.add(given)
                if facts.requires_grad(given):
                    pending.append(given)
                elif given in facts.in_loss:
                    yield user


def find_exit(facts: Facts, value: int) -> int | None:
    """Return the call by which what is made of a parameter leaves torch; None if some of it goes into a loss."""
    pending = [value]
    seen = {value}
    found: int | None = None
    while pending and len(seen) < MOST_SEEN:
        each = pending.pop(0)
        users = [user for user in facts.users.get(each, ()) if not facts.name(user).endswith("_")]
        for user in users:
            if facts.name(user) in EXITS:
                found = user
            for given in facts.gives[user]:
                if given not in seen:
                    seen.add(given)
                    pending.append(given)
    if not seen & facts.in_loss - {value}:
        return found
    return None
