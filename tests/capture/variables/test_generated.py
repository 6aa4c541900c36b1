"""The engine against the slow witness on programs that nobody would write by hand."""

from __future__ import annotations

import linecache
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.capture.variables.listing import CORES, Listing
from tests.capture.variables.oracle import Oracle, differences, explained
from torchglass.capture.variables import Engine, Watch

np = pytest.importorskip("numpy")

NAME = "generated_program.py"
START = """\
def helper(items, k):
    items.append(k)
    seen = len(items)
    if seen % 4 == 3:
        raise ValueError(seen)
    return seen

def write(array, k):
    array[k % 3] = k
    view = array[1:]
    return view

def program():
    n, m = 1, 2
    l0, l1 = [1], [2, 3]
    d0 = {"a": 1}
    a0, a1 = np.zeros(3), np.arange(4.0)
"""
small = st.integers(0, 5)
number = st.sampled_from(["n", "m"])
items = st.sampled_from(["l0", "l1"])
array = st.sampled_from(["a0", "a1"])
simple = st.one_of(
    st.builds("{} = {}".format, number, small),
    st.builds("{} += {}".format, number, small),
    st.builds("{} = {} * 2 - {}".format, number, number, number),
    st.just("n, m = m, n"),
    st.builds("{} = [{}, {}]".format, items, number, small),
    st.just("l1 = l0"),
    st.builds("{}.append({})".format, items, small),
    st.builds("{}[0:1] = [{}]".format, items, small),
    st.builds("{} += [{}]".format, items, number),
    st.builds("{}.append([{}])".format, items, number),
    st.just("l0.append(l1) if l0 is not l1 and len(l0) < 3 else None"),
    st.builds('d0["{}"] = {}'.format, st.sampled_from("ab"), st.one_of(number, items)),
    st.just('d0.pop("b", None)'),
    st.just("d0 = dict(d0)"),
    st.builds("n = helper({}, {})".format, items, small),
    st.builds("a1 = write({}, {})".format, array, small),
    st.builds("{}[{}] = {}".format, array, st.integers(0, 1), small),
    st.builds("{} += {}".format, array, small),
    st.builds("{} = {} + 1".format, array, array),
    st.just("a0 = a1"),
    st.builds("np.multiply({0}, {1}, out={0})".format, array, small),
    st.builds("{}.fill({})".format, array, small),
    st.just("a0 = np.zeros(3)"),
    st.just("t = (l0, n)"),
    st.just("del d0; d0 = {}").map(lambda text: text.replace("; ", "\n")),
    st.just("raise KeyError(n)"),
)


def indent(lines: list[str]) -> list[str]:
    return [f"    {line}" for text in lines for line in text.split("\n")]


def blocks(body: st.SearchStrategy[list[str]]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds(lambda k, b: "\n".join([f"for i in range({k}):", *indent(b)]), st.integers(0, 3), body),
        st.builds(lambda x, b, c: "\n".join([f"if {x} % 2:", *indent(b), "else:", *indent(c)]), number, body, body),
        st.builds(
            lambda b, c, f: "\n".join(["try:", *indent(b), "except (KeyError, ValueError) as error:", *indent(c),
                                       "finally:", *indent(f)]),
            body, body, body,
        ),
        st.builds(lambda b: "\n".join(["left = 2", "while left:", "    left -= 1", *indent(b)]), body),
    )  # fmt: skip


bodies = st.recursive(
    st.lists(simple, min_size=1, max_size=4),
    lambda inner: st.lists(st.one_of(simple, blocks(inner)), min_size=1, max_size=4),
    max_leaves=6,
)


def run(program: Any) -> Any:
    try:
        return program()
    except (KeyError, ValueError, IndexError, TypeError) as error:
        return type(error)


def compiled(source: str) -> Any:
    linecache.cache[NAME] = (len(source), None, source.splitlines(True), NAME)
    space: dict[str, Any] = {"np": np}
    exec(compile(source, NAME, "exec"), space)
    return space["program"]


@pytest.mark.parametrize("core", CORES)
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(body=bodies)
def test_generated_programs(core: str, body: list[str]) -> None:
    source = "\n".join([START.rstrip("\n"), *indent(body), "    return n, m, l0, l1, d0, a0, a1", ""])  # fmt: skip
    oracle = Oracle(lambda code: code.co_filename == NAME)
    expected_result = oracle.run(lambda: run(compiled(source)))
    listing = Listing()
    engine = Engine(Watch(code=lambda code: code.co_filename == NAME, depth=9), listing, core=core)
    engine.start(sys._getframe())
    try:
        result = run(compiled(source))
    finally:
        engine.stop()
    assert (engine.faults, engine.notes) == ([], [])
    assert str(result) == str(expected_result)
    found, expected = explained(listing.rows, source), explained(oracle.rows, source)
    assert differences(found, expected) == [], source
