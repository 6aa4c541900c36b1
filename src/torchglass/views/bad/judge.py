"""What counts as bad, and what of it was meant: masks of -inf, memory that nobody has filled yet."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from fnmatch import fnmatchcase

from torchglass.errors import UsageError, WrongType
from torchglass.events.types import Event, Stats, Value
from torchglass.views.text.words import file_name

Test = Callable[[Stats], bool]
NONFINITE = "nonfinite"
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
_CONDITION = re.compile(r"\s*(abs|min|max|mean|std|norm|nan|posinf|neginf|zeros)\s*(>=|<=|>|<)\s*(\S+)\s*")
_LITERAL = re.compile(r"(?<![\w.])-?inf(?!\w)")
"""An infinity among the arguments of a call."""
UNFILLED = re.compile(r"(new_)?empty|resize_|set_\b")
FILLS = frozenset(
    "uniform_ normal_ zero_ fill_ copy_ trunc_normal_ random_ exponential_ bernoulli_ cauchy_ geometric_ log_normal_ "
    "ones_ zeros_ constant_ eye_".split()
)
"""What overwrites whatever was there: memory that nobody had filled may hold anything."""
ADDS = frozenset("add add_ __add__ __radd__ __iadd__ + += where masked_fill masked_fill_".split())
ENDS = frozenset(
    "softmax log_softmax _softmax _safe_softmax _log_softmax logsumexp scaled_dot_product_attention max argmax topk "
    "cross_entropy multi_head_attention_forward".split()
)
"""After which a mask of -inf has done what it is for."""
PASSES = frozenset(
    "view reshape expand expand_as unsqueeze squeeze transpose permute t T mT contiguous to _to_copy clone detach type "
    "__getitem__ slice select float half bfloat16 double unsafe_view _unsafe_view repeat flatten triu tril alias cat "
    "broadcast_to lift_fresh clone type_as split chunk narrow requires_grad_ masked_fill neg mul div".split()
)


def test_of(when: object) -> Test:
    """What ``first_bad(when=…)`` was given, as a function of statistics."""
    if when == NONFINITE:
        return is_nonfinite
    if callable(when):
        return lambda stats: bool(when(stats))
    if not isinstance(when, str):
        raise WrongType(f"first_bad(when=…) takes a condition or a function of statistics, not {type(when).__name__}")
    found = _CONDITION.fullmatch(when)
    try:
        if found is None:
            raise ValueError
        limit = float(found[3])
    except ValueError:
        raise UsageError(
            f"first_bad(when={when!r}): give 'nonfinite', a condition such as 'abs>1e4', 'std<1e-6' or 'nan>0', "
            "or a function of statistics"
        ) from None
    compare, name = _COMPARE[found[2]], found[1]
    return lambda stats: compare(_measure(stats, name), limit)


def _measure(stats: Stats, name: str) -> float:
    if name != "abs":
        return getattr(stats, name)
    if stats.posinf or stats.neginf:
        return float("inf")
    return max(abs(stats.min), abs(stats.max))


def is_nonfinite(stats: Stats) -> bool:
    """Whether any number is NaN or infinite."""
    return bool(stats.nan or stats.posinf or stats.neginf)


def base_name(event: Event) -> str:
    """``softmax`` of ``F.softmax``, ``aten::_softmax.int``."""
    name = event.name.partition("::")[2] or event.name
    return name.partition(".")[0] if "::" in event.name else name.rpartition(".")[2]


def overwrites(event: Event) -> bool:
    """Whether an event fills its first argument, whatever was there."""
    return base_name(event) in FILLS or event.name.startswith("nn.init.")


def only_infinite(value: Value) -> bool:
    """Whether nothing is NaN, but something infinite."""
    stats = value.stats
    return stats is not None and not stats.nan and bool(stats.posinf or stats.neginf)


def only_minus(value: Value) -> bool:
    """Whether nothing is NaN or +inf, but something -inf."""
    return only_infinite(value) and value.stats is not None and not value.stats.posinf


def is_allowed(event: Event, allow: tuple[str, ...]) -> bool:
    """Whether an event is one of those that may give what it likes: by function, or by ``file.py:12``."""
    place = f"{file_name(event.file)}:{event.line}" if event.file else ""
    return any(
        fnmatchcase(event.name, each)
        or fnmatchcase(base_name(event), each)
        or each in (place, f"{event.file}:{event.line}")
        for each in allow
    )


def is_written(event: Event, made: list[Value]) -> bool:
    """Whether an infinity stands among the arguments themselves: ``masked_fill(mask, -inf)``."""
    return bool(_LITERAL.search(event.args)) and all(map(only_infinite, made))
