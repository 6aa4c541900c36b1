"""By how much a step changed each parameter: a copy of it before the step is taken from what it is behind it.

The copies are bounded. Of parameters that are more numbers together than that, every n-th number is compared; how many
they were stands in the statistics of the difference, which is measured like any other value.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torchglass.capture.engine.forms import Whole
from torchglass.capture.torch import private
from torchglass.capture.transparency.ours import foreign

MOST_COPIED = 1 << 21
"""Numbers that are copied before a step: 8 MiB of float32, which stay in the caches."""
ALWAYS_WHOLE = 1 << 12
"""A parameter of so few numbers is compared whole."""
MOST_UPDATES = 20_000
"""Parameters of one step whose updates are told."""
TOO_MANY = "updates are told of the first {most:,} of the {count:,} parameters of a step"


class Updates:
    """The parameters of one step as they were before it."""

    def __init__(self, parameters: list[Any]) -> None:
        self._parameters = [(each, _is_plain(each)) for each in parameters[:MOST_UPDATES]]
        total = sum(each.numel() for each, is_plain in self._parameters if is_plain)
        self._every = -(-total // MOST_COPIED) or 1
        self._before = self._copies()

    def differences(self) -> list[Any]:
        """For each parameter the change; None where it is not known."""
        found: list[Any] = Whole([None] * len(self._parameters))
        after = self._copies()
        for kind, (places, sizes, before) in self._before.items():
            if kind not in after or after[kind][:2] != (places, sizes):
                continue  # the step gave some of them other sizes, or moved them
            with torch.inference_mode(False), torch.no_grad(), private.no_subclasses(), private.no_dispatch():
                changes = after[kind][2].sub_(before).split(sizes)
                for place, change in zip(places, changes, strict=True):
                    parameter, _ = self._parameters[place]
                    found[place] = change.view(parameter.shape) if change.numel() == parameter.numel() else change
        return found

    def _copies(self) -> _Copies:
        """Some or all of the numbers of each, as copies that no later change reaches: one for all of a kind."""
        groups: dict[tuple[Any, Any], tuple[list[int], list[Any]]] = {}
        with torch.inference_mode(False), torch.no_grad(), private.no_subclasses(), private.no_dispatch():
            for place, (parameter, is_plain) in enumerate(self._parameters):
                numbers = self._flat(parameter) if is_plain else None
                if numbers is not None:
                    places, flat = groups.setdefault((numbers.device, numbers.dtype), ([], []))
                    places.append(place)
                    flat.append(numbers)
            return {
                kind: (places, [len(each) for each in flat], torch.cat(flat).to(_wide(kind[1])))
                for kind, (places, flat) in groups.items()
            }

    def _flat(self, parameter: Any) -> Any:
        try:
            numbers = parameter.detach()
            numbers = (torch.view_as_real(numbers) if numbers.is_complex() else numbers).reshape(-1)
            return numbers[:: self._every] if self._every > 1 and len(numbers) > ALWAYS_WHOLE else numbers
        except Exception as refusal:
            foreign(refusal)
            return None


_Copies = dict[tuple[Any, Any], tuple[list[int], list[int], Any]]
"""By device and dtype: which parameters, how many numbers of each, and those one behind the other."""


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _is_plain(parameter: Any) -> bool:
    """Whether its numbers are there to be copied: not on the way into a CUDA graph, which would replay the copy."""
    if type(parameter) not in (Tensor, Parameter) or parameter.layout is not torch.strided or parameter.is_meta:
        return False
    if not (parameter.is_floating_point() or parameter.is_complex()):
        return False
    return not (parameter.is_cuda and torch.cuda.is_current_stream_capturing())
