"""Parameters that a model uses and does not have: in a plain list, a dict, or made anew in `forward`.

`nn.Module` finds its layers and parameters among its attributes. Those in a Python list or dict, or created inside
`forward`, are not in `model.parameters()`: no optimizer updates them, `model.to(device)` does not move them, and
`state_dict()` does not save them.

    self.layers = [nn.Linear(8, 8) for _ in range(3)]    # wrong: nn.ModuleList([...])
    self.scales = [nn.Parameter(torch.ones(8))]          # wrong: nn.ParameterList([...])
    def forward(self, x): return nn.Linear(8, 8)(x)      # wrong: make it in __init__

That is right where a model is hidden on purpose, as a frozen network for a loss; such a network gets no gradients.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from torchglass.answers.findings.parameters import CLEARS, parameters_of
from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, names_words, seen_at

INITS = ("uniform_", "normal_", "trunc_normal_", "kaiming_uniform_", *CLEARS)


def find(facts: Facts) -> Iterator[Suspicion]:
    parameters = parameters_of(facts)
    if not facts.steps:
        return
    fresh = _made_in_forward(facts)
    found: dict[int, dict[int, str]] = defaultdict(dict)
    event_at: dict[int, int] = {}
    for parameter, name in parameters.got.items():
        event = parameters.used.get(parameter)
        if (
            event is None
            or parameter in parameters.held
            or parameter in parameters.written - set(fresh)
        ):
            continue
        owner = _owner_without_it(facts, event, name)
        if owner is None:
            continue
        at = fresh.get(parameter, event)
        location = facts.location(at)
        key = 0
        if location is not None:
            key = location.line
        found[key][parameter] = name
        event_at.setdefault(key, at)
    for key, names in found.items():
        event = event_at[key]
        owner = facts.module_around(event)
        owner_name = "the module"
        if owner is not None:
            owner_name = _called_in(facts, event)
        made_anew = [each for each in names if each in fresh]
        if made_anew:
            text = f"parameters are made anew in each call of {owner_name}: what they learn is thrown away"
            fix = "make layers and parameters in __init__"
        else:
            shown = list(dict.fromkeys(names.values()))
            text = f"{owner_name} uses parameters that it does not have ({names_words(shown)}): no optimizer has them"
            fix = "keep layers in nn.ModuleList or nn.ModuleDict, parameters in nn.ParameterList or nn.ParameterDict"
        yield Suspicion(
            severity=BUG,
            event=event,
            text=text,
            fix=fix,
            evidence=(seen_at(facts, f"used by {facts.code(event)}", event),),
            about=frozenset(names),
        )


def _made_in_forward(facts: Facts) -> dict[int, int]:
    """Return the parameters that were initialised while a module ran, with the call."""
    found: dict[int, int] = {}
    for name in INITS:
        for events in facts.by_name.get(name, {}).values():
            for event in events:
                taken = facts.takes[event]
                if not taken or not facts.is_parameter(taken[0]):
                    continue
                if (
                    facts.tables.value_version[taken[0]] == 0
                    and facts.module_around(event) is not None
                ):
                    found.setdefault(facts.parameter(taken[0]), event)
    return found


def _called_in(facts: Facts, event: int) -> str:
    """Return the class of the outermost module around an event."""
    modules = [each for each in facts.around(event) if facts.kind(each) == "module"]
    return facts.event(modules[-1]).name


def _owner_without_it(facts: Facts, event: int, name: str) -> int | None:
    """Return the module that uses a parameter without having it; None if all is well."""
    modules = [each for each in facts.around(event) if facts.kind(each) == "module"]
    if not modules:
        return None
    rows = facts.tables.modules
    roots = [rows[facts.tables.module[each]].root for each in modules]
    if roots[0] != roots[-1]:
        return modules[-1]
    if name.startswith("tensor "):
        return modules[-1]
    return None
