"""Random numbers that a module keeps as weights, and that are no parameter: they never learn.

`self.keys = torch.randn(…)` is an ordinary attribute. No optimizer updates it, `model.to(device)` does not move it, and
`state_dict()` does not save it, so that a loaded model has other numbers than the one that was trained.

    self.keys = torch.randn(10, 64)                      # wrong: nn.Parameter(torch.randn(10, 64))
    def forward(self, x): return (x @ self.keys.T).softmax(-1)

Numbers that are meant to stay as they are belong in `self.register_buffer("keys", …)`; then nothing is reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

MAKERS = ("randn", "rand", "normal", "empty", "zeros", "ones")
SCALES = frozenset("mul __mul__ __rmul__ div __truediv__ to float normal_ uniform_ cuda".split())
VIEWS = frozenset("T t transpose unsqueeze __getitem__ expand view to permute repeat".split())
PRODUCTS = ("matmul", "__matmul__", "mm", "bmm", "einsum", "linear", "cdist", "mul", "__mul__")
ENOUGH = 2


def find(facts: Facts) -> Iterator[Suspicion]:
    if not facts.steps:
        return
    for name in MAKERS:
        for events in facts.by_name.get(name, {}).values():
            for event in events[:20]:
                yield from _judged(facts, event)


def _judged(facts: Facts, event: int) -> Iterator[Suspicion]:
    kept = _kept(facts, event)
    if kept is None:
        return
    maker, value = kept
    if facts.requires_grad(value) or not facts.is_float(value) or facts.numel(value) < 2:
        return
    written = [user for user in facts.users.get(value, ()) if facts.name(user).endswith("_")]
    if written or (facts.name(event) in ("zeros", "ones", "empty") and maker == event):
        return
    used = [user for seen, user in facts.uses(value, VIEWS) if _is_weight(facts, seen, user)]
    if len(used) < ENOUGH:
        return
    target = facts.event(maker).target[0]
    yield Suspicion(
        severity=LIKELY,
        event=maker,
        text=f"{target} is used as a weight and is no parameter: it never learns, and is not saved",
        evidence=(seen_at(facts, f"used in {facts.code(used[0])}", used[0]),),
        fix=f"{target} = nn.Parameter(…), or register_buffer if it is to stay as it is",
        times=len(used),
    )


def _kept(facts: Facts, event: int) -> tuple[int, int] | None:
    """Return the call whose result becomes an attribute in `__init__`, and that result."""
    for _ in range(4):
        given = facts.gives[event]
        if len(given) != 1:
            return None
        location = facts.location(event)
        if location is None or not location.function.endswith("__init__"):
            return None
        target = facts.event(event).target
        if len(target) == 1 and target[0].startswith("self.") and "[" not in target[0]:
            return event, given[0]
        users = facts.users.get(given[0], [])
        if not users or facts.name(users[0]) not in SCALES:
            return None
        event = users[0]
    return None


def _is_weight(facts: Facts, value: int, user: int) -> bool:
    """Return whether a value is multiplied with something that is learned, in a module that is trained."""
    if facts.name(user) not in PRODUCTS or facts.module_around(user) is None:
        return False
    others = [each for each in facts.takes[user] if each != value]
    return any(each in facts.carries_gradient for each in others)
