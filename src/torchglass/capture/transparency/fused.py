"""Keeps the fused attention path that any function mode would switch off.

``nn.MultiheadAttention`` and the Transformer layers leave their fused path when something may override torch
functions, and then give other bits. They ask through one attribute; while we record it answers them as if our
mode were absent. Everybody else gets the original's answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

from torchglass.capture.engine.log import LOGS
from torchglass.capture.torch import private

ASKING = ("torch.nn.modules.activation", "torch.nn.modules.transformer")
FUSED = frozenset(["_native_multi_head_attention", "_transformer_encoder_layer_fwd"])
NOTE = 'fused: one step, its inside is not seen; record(fused="open") takes the unfused path and shows it'


def make_has_torch_function(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The replacement for ``torch.overrides.has_torch_function``."""

    def has_torch_function(relevant_args: Any) -> bool:
        log = LOGS.get(get_ident())
        if (
            log is None
            or log.session.fused != "keep"
            or private.count_function_modes() != 1
            or sys._getframe(1).f_globals.get("__name__") not in ASKING
            or private.function_mode_at(0) is not log.session.function_mode
        ):
            return original(relevant_args)
        mode = private.pop_function_mode()
        try:
            return original(relevant_args)
        finally:
            private.push_function_mode(mode)

    return has_torch_function
