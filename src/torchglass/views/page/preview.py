"""Previews of a kept tensor: its first numbers, a small map of a matrix, a small picture of what may be an image.

The content is a tensor or an array. Only what both can do is used, because this layer imports neither library.
"""

from __future__ import annotations

import base64
from math import isfinite
from typing import Any

from torchglass.views.page.rounding import rounded

MOST_FIRST = 8
MAP_ROWS, MAP_COLUMNS = 24, 40
PICTURE = 56
"""Pixels of the longer side of a picture."""
SMALLEST_PICTURE = 8
CHANNELS = (1, 3)
LEVELS = "0123456789abcdefghijklmnopqrstuvwxyz"
NOT_FINITE = "!"


def preview(content: Any, with_pictures: bool) -> dict[str, Any]:
    """Return the first numbers, and of a matrix or a picture a small one; nothing where that cannot be had."""
    if "complex" in str(content.dtype):
        return {}
    try:
        found: dict[str, Any] = {
            "first": [_number(each) for each in content.reshape(-1)[:MOST_FIRST].tolist()]
        }
        if with_pictures:
            found |= _picture(content) or _map(content)
    except (
        RuntimeError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        NotImplementedError,
        OverflowError,
    ):
        return {}  # a layout that cannot be laid flat: sparse, nested
    return found


def _number(number: Any) -> Any:
    if isinstance(number, bool | int):
        return number
    if isfinite(number):
        return rounded(number, 4)
    return str(number)


def _every(length: int, most: int) -> int:
    """Return the step with which at most so many are left."""
    return max(1, -(-length // most))


def _map(content: Any) -> dict[str, Any]:
    """Return a map of the last two dimensions: every n-th number as a letter, at index 0 of all other dimensions."""
    shape = tuple(content.shape)
    if len(shape) < 2 or min(shape[-2:]) < 2:
        return {}
    while len(content.shape) > 2:
        content = content[0]
    rows = content[:: _every(shape[-2], MAP_ROWS), :: _every(shape[-1], MAP_COLUMNS)].tolist()
    numbers = [float(each) for row in rows for each in row]
    known = [each for each in numbers if isfinite(each)]
    if not known:
        return {}
    low = min(known)
    high = max(known)
    scale = 0.0
    if high > low:
        scale = (len(LEVELS) - 1) / (high - low)
    cells = "".join(
        LEVELS[int((each - low) * scale)] if isfinite(each) else NOT_FINITE for each in numbers
    )
    ends = [rounded(low, 3), rounded(high, 3)]
    return {"map": {"columns": len(rows[0]), "cells": cells, "ends": ends}}


def _picture(content: Any) -> dict[str, Any]:
    """Return a tensor with one or three channels and two long sides as bytes of red, green and blue."""
    shape = tuple(content.shape)
    if len(shape) not in (3, 4) or shape[-3] not in CHANNELS or min(shape[-2:]) < SMALLEST_PICTURE:
        return {}
    if "float" not in str(content.dtype) and "uint8" not in str(content.dtype):
        return {}
    if len(shape) == 4:
        content = content[0]
    step = _every(max(shape[-2:]), PICTURE)
    channels: list[list[list[float]]] = content[:, ::step, ::step].tolist()
    numbers = [float(each) for rows in channels for row in rows for each in row]
    if not all(map(isfinite, numbers)):
        return {}
    low = min(numbers)
    high = max(numbers)
    scale = 0.0
    if high > low:
        scale = 255 / (high - low)
    size = len(numbers) // len(channels)
    planes = [
        [int((each - low) * scale) for each in numbers[at : at + size]]
        for at in range(0, len(numbers), size)
    ]
    if len(planes) == 1:
        planes *= 3
    pixels = bytes(level for pixel in zip(*planes, strict=True) for level in pixel)
    return {
        "picture": {"width": len(channels[0][0]), "rgb": base64.b64encode(pixels).decode("ascii")}
    }
