"""A fault of ours costs an event, wherever it was raised: in the standard library or in numpy, which our code calls."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import torchglass as tg
from torchglass.capture.torch import conversions
from torchglass.capture.transparency.ours import is_theirs


def convert() -> list[Any]:
    array = numpy.ones((3, 4), dtype=numpy.float32)
    tensor = torch.from_numpy(array[:, 1:])
    array += 1
    return [tensor.tolist(), (tensor + 1).sum().item()]


FAULTS: list[Callable[[], Any]] = [
    lambda: struct.pack("<I", -1),
    lambda: json.loads("{"),
    lambda: numpy.linalg.norm(numpy.ones(2), axis=9),
    lambda: getattr(numpy.lib, "no_such_name"),  # noqa: B009  (as numpy 1 fails)
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_below_our_code_is_no_exception_of_the_program(
    fault: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(error: BaseException) -> Callable[[Any], Any]:
        def reads(_: Any) -> Any:
            raise error

        return reads

    plain = convert()
    with pytest.raises(Exception) as found:  # each of them is another
        fault()
    # As raised below our code: without the frames of this file, which are the program's.
    raised = found.value.with_traceback(found.value.__traceback__.tb_next.tb_next)  # type: ignore[union-attr]
    assert not is_theirs(raised)
    code = fails(raised).__code__.replace(co_filename=conversions.__file__)
    ours = fails(raised)
    ours.__code__ = code
    monkeypatch.setattr(conversions, "_byte_bounds", lambda _: ours)
    with tg.record() as trace:
        recorded = convert()
    assert recorded == plain
    assert "from_numpy" in [event.name for event in trace.events()]
    assert any("failed to record" in note for note in trace.notes), trace.notes


def test_an_exception_of_the_programs_own_class_is_the_programs() -> None:
    class Timeout(Exception):
        pass

    assert is_theirs(Timeout())
    assert is_theirs(KeyboardInterrupt())
    with pytest.raises(subprocess.SubprocessError) as found:
        raise subprocess.SubprocessError  # in a frame of the program, as a signal handler's
    assert is_theirs(found.value)


def test_conversions_are_recorded_with_numpy_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``byte_bounds`` is in another place."""
    bounds = numpy.lib.array_utils.byte_bounds
    monkeypatch.delattr(numpy.lib, "array_utils")
    monkeypatch.setattr(numpy, "byte_bounds", bounds, raising=False)
    plain = convert()
    with tg.record() as trace:
        recorded = convert()
    assert recorded == plain
    assert not trace.notes
