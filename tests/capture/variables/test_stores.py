"""Each way to store a value, told once, under the right name, scope and line."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.capture.variables.listing import CORES, FOLLOWS_INSTRUCTIONS, Calls, Listing, in_file, watched
from torchglass.capture.variables import Engine, Watch
from torchglass.capture.variables.bytecode import effects_of
from torchglass.source.codes import Code
from torchglass.source.instructions import instruction_at

NO_INSTRUCTIONS = "on Python 3.12 settrace does not follow single instructions"

pytestmark = pytest.mark.parametrize("core", CORES)


def test_each_of_several_stores_on_one_line(core: str) -> None:
    def program() -> None:
        c = 1; c = 2; c = 1  # noqa: E702  # fmt: skip
        d = c; del d; d = c  # noqa: E702, F841  # fmt: skip

    if not FOLLOWS_INSTRUCTIONS[core]:
        pytest.skip(NO_INSTRUCTIONS)
    listing = watched(program, core=core)
    assert listing.of("c") == [("assigned", "1"), ("assigned", "2"), ("assigned", "1")]
    assert listing.of("d") == [("assigned", "1"), ("deleted", "None"), ("assigned", "1")]
    assert len({offset for _, offset in listing.offsets}) == 6


def test_the_offset_is_that_of_the_store(core: str) -> None:
    def program() -> None:
        first, *rest = 1, 2, 3
        rest.append(first)

    listing = watched(program, core=core)
    found = [instruction_at(Code.of(code), offset) for code, offset in listing.offsets]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    if sys.version_info >= (3, 13):  # two stores are one instruction there, which has the place of the first
        found[1] = found[0]
    texts = [lines[(each.range.line or 1) - 1][each.range.col : each.range.end_col] for each in found]
    assert texts == ["first", "rest" if sys.version_info < (3, 13) else "first", "rest.append(first)"]


def test_a_closures_variable_is_shown_once_under_its_owner(core: str) -> None:
    def program() -> None:
        count, log = 0, []

        def bump() -> None:
            nonlocal count
            count += 1
            log.append(count)

        bump()
        count = 0
        bump()

    listing = watched(program, "count", "log", core=core)
    assert listing.of("count") == [("assigned", each) for each in ("0", "1", "0", "1")]
    assert listing.of("log") == [("assigned", "list()"), ("changed", "list(1)"), ("changed", "list(1, 1)")]
    assert {row.scope.rpartition(".")[2] for row in listing.rows} == {"program"}
    assert listing.olds[listing.rows.index(listing.rows[-2])] == "0"


counted = 0


def test_a_global_is_shown_where_it_is_stored(core: str) -> None:
    globals()["counted"] = 0

    def program() -> None:
        global counted
        counted = 0
        for _ in range(2):
            counted += 1

    listing = watched(program, "counted", core=core)
    assert [row.new for row in listing.rows] == ["1", "2"]
    assert {row.scope for row in listing.rows} == {"<module>"}


def test_the_targets_of_a_comprehension_are_its_own(core: str) -> None:
    def program() -> list[int]:
        x = 100
        squares = [x * x for x in range(2)]
        again = {x: (w := x) for x in range(2)}
        return [x, w, *squares, *again]

    if not FOLLOWS_INSTRUCTIONS[core]:
        pytest.skip(NO_INSTRUCTIONS)
    listing = watched(program, "x", "w", core=core)
    by_scope = [(row.scope.rpartition(".")[2], row.name, row.new) for row in listing.rows]
    assert by_scope == [
        ("program", "x", "100"),
        ("<listcomp>", "x", "0"), ("<listcomp>", "x", "1"),
        ("<dictcomp>", "x", "0"), ("program", "w", "0"), ("<dictcomp>", "x", "1"), ("program", "w", "1"),
    ]  # fmt: skip


def test_a_comprehension_in_a_class_body(core: str) -> None:
    def program() -> None:
        class Body:
            limit = 2
            names = [n for n in range(2)]  # noqa: C416

    if not FOLLOWS_INSTRUCTIONS[core]:
        pytest.skip(NO_INSTRUCTIONS)
    listing = watched(program, core=core)
    told = [(row.scope.split(".<locals>.")[-1], row.name, row.new) for row in listing.rows]
    assert told == [
        ("Body", "limit", "2"), ("Body.<listcomp>", "n", "0"), ("Body.<listcomp>", "n", "1"),
        ("Body", "names", "list(0, 1)"), ("program", "Body", "<type>"),
    ]  # fmt: skip


def test_an_exceptions_name_is_shown_each_time_and_its_hidden_end_never(core: str) -> None:
    if not FOLLOWS_INSTRUCTIONS[core]:
        pytest.skip(NO_INSTRUCTIONS)

    def program() -> None:
        for _ in range(3):
            try:
                raise ValueError
            except ValueError as error:
                del error
                error = None

    listing = watched(program, "error", core=core)
    one = [("assigned", "<ValueError>"), ("deleted", "None"), ("assigned", "None")]
    assert listing.of("error") == one * 3

    def plain() -> None:
        for _ in range(3):
            try:
                raise ValueError
            except ValueError as error:  # noqa: F841
                pass

    assert watched(plain, "error", core=core).of("error") == [("assigned", "<ValueError>")] * 3


def test_equal_numbers_and_strings_are_no_change_but_equal_lists_are(core: str) -> None:
    def program() -> None:
        number, text, zero, items = 1000, "a" * 30, 0.0, [1]
        number = int("1000")
        text = "".join(["a"] * 30)
        zero = -0.0
        number = True if number else 0
        number = 1
        items = [1]
        del text, zero, items

    listing = watched(program, core=core)
    assert listing.of("number") == [("assigned", "1000"), ("assigned", "True"), ("assigned", "1")]
    assert [how for how, _ in listing.of("text")] == ["assigned", "deleted"]
    assert listing.of("zero")[:2] == [("assigned", "0.0"), ("assigned", "-0.0")]
    assert [how for how, _ in listing.of("items")] == ["assigned", "assigned", "deleted"]


def test_the_frame_of_the_block_itself(core: str) -> None:
    before = [0]
    listing = Listing()
    with Engine(Watch(code=in_file(test_the_frame_of_the_block_itself)), listing, core=core) as engine:
        first = 1
        before.append(first)
    first = 2
    before.append(first)
    assert listing.brief == [("first", "assigned", "1"), ("before", "changed", "list(0, 1)")]
    assert (engine.faults, engine.notes) == ([], [])


SCRIPT = """\
data = [1]
early = 1
with engine:
    early = 2
    data.append(early)
    def function():
        global made
        made = 3
    function()
    total = sum([x for x in data])
    made = 4
early = 5
"""


def test_a_block_at_the_top_of_a_script(core: str) -> None:
    if not FOLLOWS_INSTRUCTIONS[core]:
        pytest.skip(NO_INSTRUCTIONS)
    listing = Listing()
    engine = Engine(Watch(code=lambda code: code.co_filename == "script.py"), listing, core=core)
    code = compile(SCRIPT * 1 + "\n" * 500, "script.py", "exec")
    exec(code, {"engine": engine})
    assert listing.brief == [
        ("early", "assigned", "2"), ("data", "changed", "list(1, 2)"), ("function", "assigned", "<function>"),
        ("made", "assigned", "3"), ("x", "assigned", "1"), ("x", "assigned", "2"), ("total", "assigned", "3"),
        ("made", "assigned", "4"),
    ]  # fmt: skip
    assert engine.faults == []


def test_text_that_watched_code_executes_is_watched_and_what_libraries_make_is_not(core: str) -> None:
    @dataclasses.dataclass
    class Made:
        field: int

    def program() -> None:
        exec("a = 1\ndef inner(k):\n    m = k\n    return m\nb = inner(a)\n", {})
        Made(field=3)

    listing = Listing()
    with Engine(Watch(("a", "b", "k", "m", "field", "self")), listing, core=core):
        program()
    told = [(row.scope, row.line, row.name, row.how) for row in listing.rows]
    assert told == [
        ("<module>", 1, "a", "assigned"), ("inner", 2, "k", "argument"), ("inner", 3, "m", "assigned"),
        ("<module>", 5, "b", "assigned"),
    ]  # fmt: skip


def test_serials_tell_one_call_from_the_next(core: str) -> None:
    def down(n: int) -> int:
        left = n
        return down(n - 1) if n else left

    def numbers() -> Any:
        got = yield 1
        yield got

    def program() -> None:
        down(1)
        one, two = numbers(), numbers()
        next(one), next(two), one.send("a"), two.send("b")

    listing = watched(program, "left", "got", core=core)
    left, got = listing.serials[:2], listing.serials[2:]
    assert len({*left, *got}) == 4
    assert listing.of("got") == [("assigned", "'a'"), ("assigned", "'b'")]


def test_a_sink_that_asks_gets_the_calls(core: str) -> None:
    def fails() -> None:
        try:
            {}["x"]  # type: ignore[index]
        finally:
            done = True
            del done

    def stops() -> None:
        raise ValueError

    def numbers() -> Any:
        yield 1
        yield 2

    def program() -> None:
        list(numbers())
        try:
            fails()
        except KeyError:
            pass
        stops()

    sink = Calls()
    watched(program, "nothing", core=core, sink=sink, code=in_file(test_a_sink_that_asks_gets_the_calls))
    entered = {name: serial for what, name, serial, *_ in sink.calls if what == "entered"}
    callers = {name: rest[0] for what, name, _, *rest in sink.calls if what == "entered"}
    left = {each[1]: each[2] for each in sink.calls if each[0] == "left"}
    assert callers["numbers"] == callers["fails"] == callers["stops"] == entered["program"]
    assert left == {
        entered["numbers"]: None, entered["fails"]: "KeyError", entered["stops"]: "ValueError",
        entered["program"]: "ValueError",
    }  # fmt: skip


def test_what_an_exception_interrupts_counts(core: str) -> None:
    def fill(items: list[int]) -> None:
        items.append(1)
        raise ValueError

    def program() -> None:
        mine: list[int] = []
        try:
            fill(mine)
        except ValueError:
            pass
        fill(mine)

    listing = watched(program, "mine", core=core)
    assert [row.how for row in listing.rows] == ["assigned", "changed", "changed"]
    first = program.__code__.co_firstlineno
    assert [row.line - first for row in listing.rows] == [1, 3, 6]


def test_more_locals_than_one_byte_counts(core: str) -> None:
    names = [f"v{number}" for number in range(300)]
    source = "def program():\n" + "".join(f"    {name} = {number}\n" for number, name in enumerate(names))
    space: dict[str, Any] = {}
    exec(compile(source + "    v299 = v298 = -1\n    return v0\n", "many.py", "exec"), space)
    listing = watched(space["program"], core=core, code=lambda code: code.co_filename == "many.py")
    assert listing.brief[:300] == [(name, "assigned", str(number)) for number, name in enumerate(names)]
    assert sorted(listing.brief[300:]) == [("v298", "assigned", "-1"), ("v299", "assigned", "-1")]


def test_without_columns(core: str) -> None:
    """``-X no_debug_ranges`` leaves lines only; nothing is lost but the scope of a comprehension."""
    script = f"""
    from tests.capture.variables.listing import watched
    from tests.programs_plain import exceptions, in_place
    for program in (exceptions, in_place):
        print(sorted(watched(program.main, core={core!r}).rows))
    """
    outputs = [
        subprocess.run(
            [sys.executable, *options, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
        ).stdout
        for options in ([], ["-X", "no_debug_ranges"])
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].count("Row(") > 30


def grow(items: list[int]) -> None:
    items.append(len(items))


def idle() -> bool:
    return True


def test_of_several_statements_on_a_line_the_right_one_is_shown(core: str) -> None:
    if not FOLLOWS_INSTRUCTIONS[core]:
        pytest.skip(NO_INSTRUCTIONS)
    text = """
    def program():
        items = []
        idle(); grow(items); idle()
        if idle(): grow(items); idle()
        grow(items); idle(); grow(items); items.clear()
    """
    space: dict[str, Any] = {"grow": grow, "idle": idle}
    exec(compile(textwrap.dedent(text), "<program>", "exec"), space)
    program = space["program"]
    listing = watched(program, "items", core=core)
    lines = textwrap.dedent(text).splitlines()
    told: list[str] = []
    for code, offset in listing.offsets[1:]:
        line, _, first, last = list(code.co_positions())[offset // 2]
        told.append(lines[line - 1][first:last])  # type: ignore[operator]
    assert told == ["grow(items)", "grow(items)", "grow(items)", "grow(items)", "items.clear()"]
    contents = ["list(0)", "list(0, 1)", "list(0, 1, 2)", "list(0, 1, 2, 3)", "list()"]
    assert [row.new for row in listing.rows[1:]] == contents


def test_lines_with_one_statement_are_not_followed_by_the_instruction(core: str) -> None:
    """That would cost ten times as much."""

    def program(items: list[int]) -> int:
        with Path("x").open() as file:
            items += [len(str(file)), max(min(3, 4), abs(5))]
        if isinstance(items, list) and len(items) > 3:
            items[0] = sum(items)
        for each in sorted(items):
            print(str(each), len(other := str(each)), other)
        return len(items) if idle() else max(items)

    assert effects_of(program.__code__).shared_lines == set()


def test_the_variable_of_an_outer_comprehension_that_an_inner_one_sees(core: str) -> None:
    def program() -> Any:
        return [[row * column for column in range(2)] for row in range(3)]

    if not FOLLOWS_INSTRUCTIONS[core]:
        pytest.skip(NO_INSTRUCTIONS)
    listing = watched(program, "row", "column", core=core)
    assert [new for _, new in listing.of("row")] == ["0", "1", "2"]
    assert [new for _, new in listing.of("column")] == ["0", "1"] * 3
    assert [row.name for row in listing.rows[:3]] == ["row", "column", "column"]
