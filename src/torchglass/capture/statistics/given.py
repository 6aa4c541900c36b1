"""A tensor or an array that somebody asks for, as a value with a sketch: what ``trace.find`` compares with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torchglass.capture.statistics.memory import KINDS, tally_of
from torchglass.capture.statistics.sketch import sketch_of
from torchglass.capture.torch import private
from torchglass.errors import WrongType
from torchglass.events.types import Sketch, Value


def described(given: Any) -> Value:
    """Of a plain tensor on any device, or of an array."""
    if isinstance(given, (np.ndarray, np.generic)):
        given = _from_numpy(given)
    if not isinstance(given, torch.Tensor):
        raise WrongType(f"find() takes a tensor, an array or a value of a trace, not {type(given).__name__}")
    with torch.inference_mode(False), torch.no_grad(), private.no_subclasses(), private.no_dispatch():
        plain = given.detach()
        if plain.layout is torch.strided and not plain.is_quantized and not plain.is_nested:
            plain = plain.cpu().resolve_conj().resolve_neg()
        if plain.layout is not torch.strided or plain.dtype not in KINDS or plain.is_nested:
            kind = plain.dtype if plain.layout is torch.strided else plain.layout
            raise WrongType(f"find() takes a plain tensor, not one of {kind}: give it as a dense one")
        kind = KINDS[plain.dtype]
        sketch = Sketch.of(sketch_of(plain, kind, tally_of(plain, kind)))
    name = str(given.dtype).removeprefix("torch.")
    return Value(
        -1, "tensor", "", tuple(given.shape), name, str(given.device), None, "strided", False, type(given).__name__,
        None, None, None, None, sketch,
    )  # fmt: skip


def _from_numpy(given: Any) -> Any:
    try:
        with private.no_functions(), private.no_dispatch():
            return torch.from_numpy(np.ascontiguousarray(given))
    except TypeError:
        raise WrongType(f"find() takes an array of numbers that torch knows, not of {given.dtype}") from None
