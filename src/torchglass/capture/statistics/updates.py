"""Measures how much an optimizer step changed each parameter: copies it before the step and subtracts it afterwards.

The size of the copies is limited (`MOST_COPIED`). If the parameters have more numbers than the limit, only every n-th
number is compared. The difference is measured like any other value, so its statistics show how many numbers that were.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torchglass.capture.engine.forms import UncappedList
from torchglass.capture.torch import private
from torchglass.capture.transparency.ours import foreign

MOST_COPIED = 1 << 21
"""The most numbers to copy before a step: 8 MiB of float32, which stay in the processor's caches."""
ALWAYS_WHOLE = 1 << 12
"""A parameter with at most so many numbers is always compared as a whole, which is cheap."""
MOST_UPDATES = 20_000
"""The most parameters of one step whose updates are recorded."""
TOO_MANY = "updates are shown for the first {most:,} of the {count:,} parameters of a step"


class Updates:
    """The parameters of one step as they were before it."""

    def __init__(self, parameters: list[Any]) -> None:
        self._parameters = [(each, _is_plain(each)) for each in parameters[:MOST_UPDATES]]
        total = sum(each.numel() for each, is_plain in self._parameters if is_plain)
        self._every = -(-total // MOST_COPIED) or 1
        self._before = self._copies()

    def differences(self) -> list[Any]:
        """Return the change of each parameter, or None for a parameter whose change is not known."""
        found: list[Any] = UncappedList([None] * len(self._parameters))
        after = self._copies()
        for kind, (places, sizes, before) in self._before.items():
            if kind not in after or after[kind][:2] != (places, sizes):
                continue  # the step resized or moved some of these parameters
            with (
                torch.inference_mode(False),
                torch.no_grad(),
                private.no_subclasses(),
                private.no_dispatch(),
            ):
                changes = after[kind][2].sub_(before).split(sizes)
                for place, change in zip(places, changes, strict=True):
                    parameter, _ = self._parameters[place]
                    if self._is_sampled(parameter) or parameter.is_complex():
                        found[place] = change
                    else:
                        found[place] = change.view(parameter.shape)
        return found

    def _copies(self) -> _Copies:
        """Copy some or all numbers of each parameter; parameters of one device and dtype share one copy."""
        groups: dict[tuple[Any, Any], tuple[list[int], list[Any]]] = {}
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            private.no_subclasses(),
            private.no_dispatch(),
        ):
            for place, (parameter, is_plain) in enumerate(self._parameters):
                numbers = None
                if is_plain:
                    numbers = self._flat(parameter)
                if numbers is not None:
                    places, flat = groups.setdefault((numbers.device, numbers.dtype), ([], []))
                    places.append(place)
                    flat.append(numbers)
            copies: _Copies = {}
            for kind, (places, flat) in groups.items():
                try:
                    numbers = torch.cat(flat).to(_wide(kind[1]))
                except Exception as refusal:  # torch cannot copy or convert numbers of this dtype
                    foreign(refusal)
                    continue
                copies[kind] = (places, [len(each) for each in flat], numbers)
            return copies

    def _is_sampled(self, parameter: Any) -> bool:
        """Return whether only every n-th number of a parameter is compared."""
        return self._every > 1 and parameter.numel() > ALWAYS_WHOLE

    def _flat(self, parameter: Any) -> Any:
        """Return the compared numbers in one row; a complex number is its real and its imaginary part."""
        try:
            numbers = parameter.detach().reshape(-1)
            if self._is_sampled(parameter):
                numbers = numbers[:: self._every]
            if numbers.is_complex():
                return torch.view_as_real(numbers).reshape(-1)
            return numbers
        except Exception as refusal:
            foreign(refusal)
            return None


_Copies = dict[tuple[Any, Any], tuple[list[int], list[int], Any]]
"""The copies for each device and dtype: the indices of the parameters, how many numbers each has, and all numbers."""


def _wide(dtype: torch.dtype) -> torch.dtype:
    if dtype == torch.float64:
        return torch.float64
    return torch.float32


def _is_plain(parameter: Any) -> bool:
    """Return whether the numbers of a parameter can be copied.

    They cannot while a CUDA graph is captured, because the graph would replay the copy.
    """
    if (
        type(parameter) not in (Tensor, Parameter)
        or parameter.layout is not torch.strided
        or parameter.is_meta
    ):
        return False
    if not (parameter.is_floating_point() or parameter.is_complex()):
        return False
    return not (parameter.is_cuda and torch.cuda.is_current_stream_capturing())
