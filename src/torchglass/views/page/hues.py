"""What a step is good for, as one word that the page has a colour for."""

from __future__ import annotations

import re

from torchglass.events.types import Event

WEIGHTS, NORM, ACTIVATION, ATTENTION, POOL, DROPOUT, LOSS, TRAIN, PLAIN = (
    "weights", "norm", "activation", "attention", "pool", "dropout", "loss", "train", ""
)  # fmt: skip

_WORDS = [
    (TRAIN, r"backward$|\.step$|zero_grad|clip_grad"),
    (LOSS, r"loss|cross_entropy|nll|mse|kl_div"),
    (ATTENTION, r"attention|attn"),
    (DROPOUT, r"dropout"),
    (NORM, r"norm|rms"),
    (POOL, r"pool|upsample|interpolate|pad"),
    (ACTIVATION, r"relu|gelu|silu|swish|sigmoid|tanh|softmax|elu|mish|softplus|activation"),
    (WEIGHTS, r"linear|conv|embedding|bilinear|addmm|matmul|bmm|^mm|einsum|lstm|gru|rnn"),
]
_PATTERNS = [(hue, re.compile(words, re.IGNORECASE)) for hue, words in _WORDS]


def hue_of(event: Event, kind: str) -> str:
    """By the name of the layer or function; boxes that hold others have none."""
    if event.kind == "step":
        return TRAIN
    if kind == "container" or event.kind not in ("module", "function", "op"):
        return PLAIN
    name = "matmul" if event.operator == "@" else event.name.removeprefix("aten::").rpartition(".")[2]
    return next((hue for hue, pattern in _PATTERNS if pattern.search(name)), PLAIN)
