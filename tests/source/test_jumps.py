"""What leaves a loop before its end."""

from __future__ import annotations

import ast

import pytest

from torchglass.source.jumps import LOOPS, may_break


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for x in y:\n    f()", False),
        ("for x in y:\n    if x:\n        break", True),
        ("for x in y:\n    try:\n        f()\n    except E:\n        break", True),
        ("for x in y:\n    match x:\n        case 1:\n            break", True),
        ("for x in y:\n    for z in x:\n        break", False),
        ("for x in y:\n    for z in x:\n        pass\n    else:\n        break", True),
        ("for x in y:\n    for z in x:\n        while z:\n            pass\n        else:\n            break", False),
        ("while x:\n    f()\nelse:\n    while y:\n        break", False),
        ("for x in y:\n    def g():\n        return 1", False),
        ("for x in y:\n    for z in x:\n        return 1", True),
    ],
)
def test_which_loop_a_break_leaves(text: str, expected: bool) -> None:
    loop = ast.parse(text).body[0]
    assert isinstance(loop, LOOPS)
    assert may_break(loop) is expected


def test_a_break_in_its_own_else_is_one_of_the_loop_around() -> None:
    outer = ast.parse("for x in y:\n    for z in x:\n        f()\n    else:\n        break").body[0]
    assert isinstance(outer, LOOPS)
    inner = outer.body[0]
    assert isinstance(inner, LOOPS)
    assert may_break(outer)
    assert not may_break(inner)
