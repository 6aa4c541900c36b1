"""By how much a step changed each parameter: a copy of it before the step is taken from what it is behind it.

The copies are bounded. Of parameters that are more numbers together than that, every n-th number is compared; how many
they were stands in the statistics of the difference, which is measured like any other value.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torchglass.capture.torch import private
from torchglass.capture.transparency.ours import foreign

MOST_COPIED = 1 << 23
"""Numbers that are copied before a step: 32 MiB of float32."""
ALWAYS_WHOLE = 1 << 12
"""A parameter of so few numbers is compared whole."""
MOST_UPDATES = 900
"""Parameters of one step whose updates are told: what an event gives is described up to a thousand."""


class Updates:
    """The parameters of one step as they were before it."""

    def __init__(self, parameters: list[Any]) -> None:
        self._parameters = parameters[:MOST_UPDATES]
        total = sum(each.numel() for each in self._parameters if _is_plain(each))
        self._every = -(-total // MOST_COPIED) or 1
        with torch.inference_mode(False), torch.no_grad(), private.no_subclasses(), private.no_dispatch():
            self._before = [self._sample(each) for each in self._parameters]

    def differences(self) -> list[Any]:
        """For each parameter the change; None where it is not known."""
        with torch.inference_mode(False), torch.no_grad(), private.no_subclasses(), private.no_dispatch():
            return [self._difference(*pair) for pair in zip(self._parameters, self._before, strict=True)]

    def _difference(self, parameter: Any, before: Any) -> Any:
        if before is None:
            return None
        after = self._sample(parameter)
        if after is None or after.shape != before.shape:
            return None
        change = after.sub_(before)
        return change.view(parameter.shape) if change.numel() == parameter.numel() else change

    def _sample(self, parameter: Any) -> Any:
        """Some or all of its numbers, as a copy that no later change reaches."""
        try:
            if not _is_plain(parameter):
                return None
            numbers = parameter.detach()
            numbers = torch.view_as_real(numbers) if numbers.is_complex() else numbers
            numbers = numbers.reshape(-1)
            if self._every > 1 and len(numbers) > ALWAYS_WHOLE:
                numbers = numbers[:: self._every]
            return numbers.to(torch.float64 if numbers.dtype == torch.float64 else torch.float32, copy=True)
        except Exception as refusal:
            foreign(refusal)
            return None


def _is_plain(parameter: Any) -> bool:
    """Whether its numbers are there to be copied: not on the way into a CUDA graph, which would replay the copy."""
    if type(parameter) not in (Tensor, Parameter) or parameter.layout is not torch.strided or parameter.is_meta:
        return False
    if not (parameter.is_floating_point() or parameter.is_complex()):
        return False
    return not (parameter.is_cuda and torch.cuda.is_current_stream_capturing())
