"""Why a function gave something bad, where its inputs tell: the log of 0, a division by 0, a half that overflowed."""

from __future__ import annotations

from collections.abc import Callable

from torchglass.events.types import Event, Value
from torchglass.views.bad.judge import base_name

LARGEST = {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.4e38}
Hint = Callable[[Event], str]


def hint_of(event: Event) -> str:
    """A few words, or ``""`` where nothing certain can be said."""
    name = base_name(event)
    found = _HINTS[name](event) if name in _HINTS else ""
    return found or _overflow(event)


def _first(event: Event) -> Value | None:
    return next((value for value in event.inputs if value.stats is not None and value.stats.finite), None)


def _of_small(what: str, zero_is_bad: bool) -> Hint:
    def hint(event: Event) -> str:
        value = _first(event)
        if value is None or value.stats is None:
            return ""
        if value.stats.min < 0:
            return f"the {what} of a negative number"
        return f"the {what} of 0" if zero_is_bad and value.stats.zeros else ""

    return hint


def _division(event: Event) -> str:
    divisor = event.inputs[-1].stats if len(event.inputs) > 1 else None
    if divisor is None or not divisor.zeros:
        return "division by 0" if event.args.endswith((", 0", ", 0.0")) else ""
    above = next(iter(event.inputs)).stats
    return "0 / 0" if above is not None and above.zeros == above.count else "division by 0"


def _softmax(event: Event) -> str:
    value = event.inputs[0] if event.inputs else None
    return "a row of -inf only" if value is not None and value.stats is not None and value.stats.neginf else ""


def _exp(event: Event) -> str:
    value = _first(event)
    return f"the exponential of {value.stats.max:.4g}" if value is not None and value.stats is not None else ""


def _one_number(event: Event) -> str:
    value = event.inputs[0] if event.inputs else None
    if value is None or value.shape is None or value.stats is None:
        return ""
    return "no numbers to take it of" if value.stats.count == 0 else ""


def _overflow(event: Event) -> str:
    """Results beyond the largest number of a small dtype, from inputs within it."""
    for value in event.outputs:
        if value.stats is not None and (value.stats.posinf or value.stats.neginf) and value.dtype in LARGEST:
            return f"beyond the largest {value.dtype} ({LARGEST[value.dtype]:.4g})"
    return ""


def _accumulated(event: Event) -> str:
    return "a gradient; record(ops=True) names the step of backward that made it"


_HINTS: dict[str, Hint] = {
    "AccumulateGrad": _accumulated,
    **dict.fromkeys(["log", "log2", "log10"], _of_small("logarithm", zero_is_bad=True)),
    **dict.fromkeys(["sqrt", "rsqrt"], _of_small("square root", zero_is_bad=False)),
    **dict.fromkeys(["div", "true_divide", "div_", "__truediv__", "__div__", "__rdiv__", "__rtruediv__"], _division),
    **dict.fromkeys(["softmax", "log_softmax", "_softmax", "_log_softmax"], _softmax),
    **dict.fromkeys(["exp", "exp_", "expm1", "exp2"], _exp),
    **dict.fromkeys(["mean", "std", "var", "nanmean"], _one_number),
}
