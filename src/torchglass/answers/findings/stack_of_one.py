"""One tensor was put into a list again and again, and changed in place in between: all entries are the last one.

    states.append(h)                                     # wrong: h.clone()
    h.mul_(0.9)
    …
    torch.stack(states)                                  # n times the same numbers

What is written into a tensor before it is repeated does no harm. The recording does not show when a list grows, so a
loop is looked for: one place that wrote into a tensor that is n times in the list, at least n - 1 times.
`torch.stack([h, h, h])` and `torch.stack([h] * 3)` repeat it on purpose.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from torchglass.answers.findings.suspicion import BUG, Facts, Suspicion, seen_at

ENOUGH = 3
WRITING_OPERATORS = (
    "__setitem__",
    "__iadd__",
    "__isub__",
    "__imul__",
    "__itruediv__",
    "__ifloordiv__",
    "__imod__",
    "__ipow__",
    "__iand__",
    "__ior__",
    "__ixor__",
)
WRITES_NO_NUMBERS = (
    "requires_grad_",
    "detach_",
    "squeeze_",
    "unsqueeze_",
    "t_",
    "transpose_",
    "swapaxes_",
    "swapdims_",
    "as_strided_",
    "share_memory_",
    "rename_",
)
"""Methods that change what is known of a tensor, or how it is seen, but none of its numbers."""


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in ("stack", "cat", "concat", "vstack", "hstack"):
        for event, times in facts.calls(name):
            if not facts.is_written(event) or not facts.takes[event]:
                continue
            value, count = Counter(facts.takes[event]).most_common(1)[0]
            if count < ENOUGH or count < len(facts.takes[event]) or _is_on_purpose(facts, event):
                continue
            writes = [user for user in _writes(facts, facts.storage(value)) if user < event]
            by_place = Counter(facts.tables.stack[each] for each in writes)
            if max(by_place.values(), default=0) < count - 1:
                continue
            place = by_place.most_common(1)[0][0]
            last = next(each for each in reversed(writes) if facts.tables.stack[each] == place)
            yield Suspicion(
                severity=BUG,
                event=event,
                text=f"{facts.code(event)} joins {count} times the same tensor, which was changed in place in between",
                evidence=(seen_at(facts, facts.code(last), last),),
                fix="put a copy into the list: .clone()",
                times=times,
            )


def _is_on_purpose(facts: Facts, event: int) -> bool:
    """Return whether the call itself repeats a name, as in ``[h, h, h]`` or ``[h] * 3``."""
    operands = facts.event(event).operands
    if not operands:
        return False
    return len(set(operands)) == 1 or "*" in operands[0]


def _writes(facts: Facts, storage: int) -> list[int]:
    """Return the calls that wrote numbers into some memory, in order."""
    known: dict[int, list[int]] | None = facts.memory.get("writes")
    if known is None:
        known = defaultdict(list)
        facts.memory["writes"] = known
        for name, looks in facts.by_name.items():
            is_in_place = name.endswith("_") and not name.endswith("__")
            if name in WRITES_NO_NUMBERS or not (is_in_place or name in WRITING_OPERATORS):
                continue
            for events in looks.values():
                for event in events:
                    if facts.takes[event]:
                        known[facts.storage(facts.takes[event][0])].append(event)
    if storage >= 0:
        return sorted(known.get(storage, []))
    return []
