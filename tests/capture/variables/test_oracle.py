"""The engine against the slow, obvious witness: the same changes at the same lines."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests import programs_plain
from tests.capture.variables.listing import CORES, Listing, in_file
from tests.capture.variables.oracle import Oracle, cells_of, differences, explained
from torchglass.capture.variables import Engine, Watch

PROGRAMS = [name for name in programs_plain.names() if name != "executed"]


def run(program: Callable[[], Any]) -> Any:
    try:
        return program()
    except Exception as error:
        return type(error)


def told(main: Callable[[], Any], core: str) -> tuple[Listing, Any]:
    listing = Listing()
    engine = Engine(Watch(code=in_file(main), depth=8), listing, core=core)
    engine.start(sys._getframe())
    try:
        result = run(main)
    finally:
        engine.stop()
    assert (engine.faults, engine.notes) == ([], [])
    return listing, result


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_engine_and_the_witness_tell_the_same(name: str, core: str) -> None:
    if name in programs_plain.NUMPY:
        pytest.importorskip("numpy")
    module = programs_plain.load(name)
    source, main = inspect.getsource(module), module.main
    cells = cells_of(compile(source, "<cells>", "exec"))
    oracle = Oracle(in_file(main))
    expected_result = oracle.run(lambda: run(main))
    listing, result = told(main, core)
    assert str(result) == str(expected_result)
    expected = explained(oracle.rows, source, cells)
    assert len(expected) >= 2
    assert differences(explained(listing.rows, source, cells), expected) == []


@pytest.mark.parametrize("name", programs_plain.names())
def test_a_program_does_the_same_twice(name: str) -> None:
    if name in programs_plain.NUMPY:
        pytest.importorskip("numpy")
    main = programs_plain.load(name).main
    first, second = run(main), run(main)
    assert str(first) == str(second)
    assert (first is programs_plain.RAISES.get(name)) == (name in programs_plain.RAISES)
