"""What older versions of torch do otherwise, found out by trying: the tests that it concerns are skipped there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

REPORTS_BACKWARD = "has_torch_function" in torch.autograd.backward.__code__.co_names
"""Torch 2.8 reports ``Tensor.backward`` alone, and not the function that it calls."""


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def _copies_for_each_mode() -> bool:
    x = torch.ones(2, requires_grad=True)
    with _Counting() as alone:
        x.relu()
    with _Counting() as below, _Counting():
        x.relu()
    return below.count > alone.count


COPIES_FOR_EACH_MODE = _copies_for_each_mode()
"""Torch 2.8 copies handles (``aten::detach``) once more for every dispatch mode, an empty one too."""

_EVAL_FRAME = (Path(torch.__file__).parent / "_dynamo" / "eval_frame.py").read_text(encoding="utf-8")
SHOWS_COMPILED_RESULT = "result = fn(*args, **kwargs)" in _EVAL_FRAME
"""Torch 2.11 has no variable for what a compiled region gives."""

needs_equal_modes = pytest.mark.skipif(
    COPIES_FOR_EACH_MODE, reason="this torch shows each dispatch mode other copies of handles, ours or not"
)
needs_autograd_backward = pytest.mark.skipif(
    not REPORTS_BACKWARD, reason="this torch does not report autograd.backward"
)
