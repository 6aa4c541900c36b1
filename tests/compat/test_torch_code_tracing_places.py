"""Lines and columns of TracingMode against the traceback of an exception raised at the same op."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from tests import programs
from torchglass.compat.torch_code_tracing import TracingMode


class RaisesAt(TorchDispatchMode):
    """Raises at one op, to have Python itself say where that is."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.count == self.number:
            raise ArithmeticError(str(func))
        self.count += 1
        return func(*args, **(kwargs or {}))


def place_of_op(main: Callable[[], object], number: int) -> tuple[str, int, tuple[int | None, ...]] | None:
    """File, line and columns of the innermost frame outside torch, from the traceback of an exception there."""
    try:
        with RaisesAt(number):
            main()
    except ArithmeticError as error:
        frames = [each for each, _ in traceback.walk_tb(error.__traceback__)]
        ends = list(walk(error.__traceback__))
        for frame, lasti, line in reversed(list(zip(frames, *zip(*ends, strict=True), strict=True))):
            code = frame.f_code
            if "site-packages/torch" not in code.co_filename and code.co_name != "__torch_dispatch__":
                return code.co_filename, line, list(code.co_positions())[lasti // 2]
    return None


def walk(trace: Any) -> Iterator[tuple[int, int]]:
    while trace is not None:
        yield trace.tb_lasti, trace.tb_lineno
        trace = trace.tb_next


@pytest.mark.parametrize(
    "name", ["attention", "expressions", "indexing", "operators", "loss_and_backward", "reshapes", "containers"]
)
def test_every_op_is_where_an_exception_says_it_is(name: str) -> None:
    main = programs.load(name).main
    with TracingMode(quiet=True) as ours:
        main()
    assert len(ours.traces) > 5
    for number, trace in enumerate(ours.traces):
        found = place_of_op(main, number)
        assert found is not None
        file, line, (first, last, start, end) = found
        inner = trace.stack[-1]
        assert (inner.filename, inner.lineno) == (file, first if first is not None else line)
        assert tuple(inner.positions) == (first, last, start, end)
