"""Which text belongs to an operation of a program that really runs, and its operator."""

from __future__ import annotations

import asyncio
import dis
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.source.spying import NAME, Spy, Step, codes, position, run, sites, slots, targets
from torchglass.source.codes import Code
from torchglass.source.instructions import BINARY_OPERATORS
from torchglass.source.operands import operands
from torchglass.source.sites import resolve
from torchglass.source.text import NOT_AVAILABLE, SourceText


class TestExpression:
    def test_several_on_one_line(self) -> None:
        found = sites("y = f(x); z = g(x) + f(y)")
        assert [site.code for site in found] == ["f(x)", "g(x)", "f(y)"]
        assert [position(site) for site in found] == [(1, 1, 4, 8), (1, 1, 14, 18), (1, 1, 21, 25)]
        assert {site.location.source for site in found} == {"y = f(x); z = g(x) + f(y)"}

    def test_equal_expressions_are_distinguished_by_column(self) -> None:
        assert [site.location.col for site in sites("y = f(x), f(x)")] == [4, 10]

    def test_chained_calls_on_one_line(self) -> None:
        assert codes("y = x.f(1).g(2).h()") == ["x.f(1)", "x.f(1).g(2)", "x.f(1).g(2).h()"]

    def test_chained_calls_over_several_lines(self) -> None:
        text = "y = (x.f(a)\n      .g(b,\n         c)\n    .T\n    .h())"
        found = sites(text)
        assert [site.code for site in found] == [
            "x.f(a)",
            "x.f(a)\n      .g(b,\n         c)",
            "x.f(a)\n      .g(b,\n         c)\n    .T\n    .h()",
        ]
        assert [site.location.line for site in found] == [1, 2, 5]
        assert [site.location.source for site in found] == ["y = (x.f(a)", ".g(b,", ".h())"]
        assert [site.target for site in found] == [(), (), ("y",)]
        assert codes(text, "__getattr__")[2] == "x.f(a)\n      .g(b,\n         c)\n    .T"

    def test_chained_method_with_a_name_beyond_ascii(self) -> None:
        assert codes("y = (x\n  .größe(a)\n  .é(b))") == ["x\n  .größe(a)", "x\n  .größe(a)\n  .é(b)"]

    def test_multi_line_expression_keeps_its_newlines(self) -> None:
        (site,) = sites("y = f(\n    x,\n    k=1,\n)")
        assert (site.code, site.target) == ("f(\n    x,\n    k=1,\n)", ("y",))
        assert position(site) == (1, 4, 4, 1)

    def test_columns_count_characters_and_text_before_may_be_anything(self) -> None:
        (first, second) = sites("s = '→ ü'; größe = f(x) + é(größe := 1)")
        assert (first.code, second.code) == ("f(x)", "é(größe := 1)")
        assert first.location.col == 19
        assert first.location.source[first.location.col : first.location.end_col] == "f(x)"

    def test_tabs(self) -> None:
        (site,) = sites("if 1:\n\t\ty =\tf(x)")
        assert (site.code, site.location.col, site.location.source) == ("f(x)", 6, "y =\tf(x)")

    @pytest.mark.parametrize("newline", ["\r\n", "\r"])
    def test_other_line_ends(self, newline: str) -> None:
        (first, second) = sites(f"y = f(x){newline}z = g(y,{newline}  x){newline}")
        assert (first.code, second.code) == ("f(x)", "g(y,\n  x)")
        assert (second.location.line, second.location.end_line) == (2, 3)

    def test_form_feeds_and_odd_line_separators_end_no_line(self) -> None:
        (first, second) = sites("s = 'a\x0b\x1c\u2028'; y = f(x)\n\x0c\nz = g(y)")
        assert (first.code, second.code, second.location.line) == ("f(x)", "g(y)", 3)
        assert second.location.source == "z = g(y)"

    def test_lambda(self) -> None:
        (site,) = sites("k = lambda t, s=1: f(t)\nk(x)")
        assert (site.code, site.target, site.location.line) == ("f(t)", (), 1)
        assert site.location.function == "<lambda>"

    @pytest.mark.parametrize("brackets", ["[]", "{}", "()"])
    def test_comprehension(self, brackets: str) -> None:
        text = f"y = list({brackets[0]}f(t) + g(t) for t in range(2) if h(t){brackets[1]})"
        assert set(codes(text)) == {"f(t)", "g(t)", "h(t)"}

    def test_comprehension_that_is_called(self) -> None:
        assert targets("y = [f(t) for t in (1, 2)]") == [("f(t)", ()), ("f(t)", ())]

    def test_decorators(self) -> None:
        found = run("@f(x)\n@g\ndef k():\n    pass")
        assert [site.code for step, site in found if step.name == "__call__"] == ["f(x)", "g", "f(x)"]
        assert [site.target for _, site in found] == [(), (), ()]
        evaluated, _, applied = [site for step, site in found if step.name == "__call__"]
        assert evaluated.call is not None
        assert applied.call is None

    def test_decorated_method_in_a_class_body(self) -> None:
        found = sites("class K:\n    w = f(x)\n    @g\n    @h(x)\n    def m(self): pass")
        assert [site.code for site in found] == ["f(x)", "h(x)", "h(x)", "g"]
        assert (found[0].target, found[0].location.function) == (("w",), "K")

    def test_class_statement(self) -> None:
        found = run("class K(f(x), metaclass=Meta):\n    pass", f=lambda x: object, Meta=_SpyingMeta)
        assert [site.code for _, site in found] == ["class K(f(x), metaclass=Meta):"]

    def test_fstring(self) -> None:
        assert codes('y = f"é{f(x)} {g(y):>{h(1)}}" f"{f(x)!s}"') == ["f(x)", "g(y)", "h(1)", "f(x)"]

    def test_fstring_over_several_lines(self) -> None:
        text = 'y = f"""\n  {f(x)} {\n  g(x,\n y)} """'
        assert codes(text) == ["f(x)", "g(x,\n y)"]

    def test_generator_and_yield(self) -> None:
        text = "def k():\n    y = yield f(x)\n    z = yield from g(x)\nfor _ in k(): pass"
        assert targets(text) == [("f(x)", ()), ("g(x)", ())]

    def test_async(self) -> None:
        text = (
            "async def k():\n    y = await f(x)\n    async with m(x) as z: pass\n"
            "    return [await g(t) async for t in n(x)]\nrun(k())"
        )
        found = sites(text, run=asyncio.run, m=_AsyncContext, n=_numbers)
        assert [(site.code, site.target) for site in found] == [("f(x)", ("y",)), ("g(t)", ()), ("g(t)", ())]

    def test_match(self) -> None:
        text = "match f(x):\n    case 1 if not g(y):\n        pass\n    case _ if h(y):\n        y = k(x)"
        assert codes(text) == ["f(x)", "g(y)", "h(y)", "k(x)"]
        compared = sites("match x:\n    case 5:\n        pass", "__eq__")
        assert [(site.code, site.operator, site.call) for site in compared] == [("5", "==", None)]

    def test_try_and_finally(self) -> None:
        text = "try:\n    f(x)\n    raise KeyError\nexcept KeyError as e:\n    g(x)\nfinally:\n    h(x)"
        assert codes(text) == ["f(x)", "g(x)", "h(x)"]

    def test_import_runs_a_module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "spied_module.py").write_text("import sys\nframe = sys._getframe(1)\n")
        monkeypatch.syspath_prepend(tmp_path)
        text = "import sys\nseen = lambda: None\nimport spied_module\n"
        names: dict[str, Any] = {}
        exec(compile(text, NAME, "exec"), names)
        frame = names["spied_module"].frame
        while frame.f_code.co_filename != NAME:
            frame = frame.f_back
        del sys.modules["spied_module"]
        lasti = [each.offset for each in dis.get_instructions(frame.f_code) if each.opname == "IMPORT_NAME"][-1]
        site = resolve(Code.of(frame.f_code), lasti, SourceText(NAME, text))
        assert (site.code, site.problem) == ("import spied_module", None)


class _SpyingMeta(type):
    def __new__(cls, *args: Any, **keywords: Any) -> Any:
        Spy.steps.append(Step("__new__", (), {}, sys._getframe(1)))
        return super().__new__(cls, *args)


class _AsyncContext:
    def __init__(self, *_: Any) -> None: ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: Any) -> None: ...


async def _numbers(_: Any) -> Any:
    yield 1
    yield 2


class TestOperator:
    @pytest.mark.parametrize("symbol", BINARY_OPERATORS[:13])
    def test_binary(self, symbol: str) -> None:
        (site,) = sites(f"y = a {symbol} b", None)
        assert (site.operator, site.code, site.target) == (symbol, f"a {symbol} b", ("y",))

    @pytest.mark.parametrize("symbol", ["+=", "-=", "*=", "@=", "|=", "**=", "//="])
    def test_augmented(self, symbol: str) -> None:
        (site,) = sites(f"y {symbol} b", None)
        assert (site.operator, site.code, site.target) == (symbol, f"y {symbol} b", ("y",))

    @pytest.mark.parametrize("symbol", ["<", "<=", ">", ">=", "==", "!="])
    def test_compare(self, symbol: str) -> None:
        (site,) = sites(f"y = a {symbol} b", None)
        assert (site.operator, site.code, site.target) == (symbol, f"a {symbol} b", ("y",))

    @pytest.mark.parametrize(("text", "symbol"), [("-a", "-"), ("+a", "+"), ("~a", "~"), ("not a", "not")])
    def test_unary(self, text: str, symbol: str) -> None:
        (site,) = sites(f"y = {text}", None)
        assert (site.operator, site.code, site.target) == (symbol, text, ("y",))

    def test_negated_comparison(self) -> None:
        found = sites("y = not a < b", "__lt__")
        assert [(site.code, site.operator, site.target) for site in found] == [("a < b", "<", ())]

    @pytest.mark.parametrize("index", ["0", "i, :, None", "1:2", "1:2:3", "...", "i]["])
    def test_subscript(self, index: str) -> None:
        site = sites(f"y = x[{index}{'0' if index == 'i][' else ''}]", "__getitem__")[-1]
        assert (site.operator, site.target) == ("[]", ("y",))
        assert site.code == f"x[{index}{'0' if index == 'i][' else ''}]"

    @pytest.mark.parametrize("index", ["0", "1:2", "i, 1:2"])
    def test_stored_subscript(self, index: str) -> None:
        (site,) = sites(f"x[{index}] = 1", "__setitem__")
        assert (site.operator, site.code, site.target) == ("[]=", f"x[{index}] = 1", (f"x[{index}]",))

    def test_stored_subscript_in_a_loop_target(self) -> None:
        (site,) = sites("for x[0] in (1,): pass", "__setitem__")
        assert (site.operator, site.code, site.target) == ("[]=", "x[0]", ())

    def test_deleted_subscript(self) -> None:
        (site,) = sites("del x[i]", "__delitem__")
        assert (site.operator, site.code, site.target) == ("del []", "del x[i]", ())

    def test_augmented_subscript_is_three_steps(self) -> None:
        found = [(site.operator, site.code, site.target) for site in sites("x[i] += y", None)]
        assert found == [
            ("[]", "x[i]", ()),
            ("+=", "x[i] += y", ("x[i]",)),
            ("[]=", "x[i] += y", ("x[i]",)),
        ]

    def test_augmented_attribute(self) -> None:
        found = [(site.operator, site.code, site.target) for site in sites("x.h *= y", None)]
        assert found == [(None, "x.h", ()), ("*=", "x.h *= y", ("x.h",)), (None, "x.h *= y", ("x.h",))]

    def test_attribute(self) -> None:
        (site,) = sites("y = x.T", "__getattr__")
        assert (site.operator, site.code, site.target) == (None, "x.T", ("y",))

    def test_contains(self) -> None:
        found = sites("y = a in x; z = a not in x", "__contains__")
        assert [(site.operator, site.code, site.target) for site in found] == [
            ("in", "a in x", ("y",)),
            ("not in", "a not in x", ("z",)),
        ]

    def test_several_operators_on_one_line(self) -> None:
        found = sites("y = (a + b) * -c @ d", None)
        assert [(site.operator, site.code) for site in found] == [
            ("+", "a + b"),
            ("-", "-c"),
            ("*", "(a + b) * -c"),
            ("@", "(a + b) * -c @ d"),
        ]

    def test_the_numbers_are_pythons_own(self) -> None:
        names = [symbol for _, symbol in dis._nb_ops]  # type: ignore[attr-defined]
        assert list(BINARY_OPERATORS[: len(names)]) == names

    def test_known_without_source(self) -> None:
        step, _ = run("y = a @ b")[0]
        site = resolve(Code.of(step.code), step.lasti, SourceText(NAME, None, NOT_AVAILABLE))
        assert (site.operator, site.code, site.location.source) == ("@", "", "")
        assert (site.problem, position(site)) == ("source not available", (1, 1, 4, 9))


class TestProtocols:
    """What Python does by itself: loops, conditions, contexts, formatting, unpacking."""

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ("if x: pass", "x"),
            ("if not x: pass", "x"),
            ("while not x:\n    pass", "x"),
            ("assert x", "x"),
            ("y = 1 if x else 2", "x"),
            ("y = x and 1", "x"),
            ("y = [1 for t in (1,) if f(x)]", None),
        ],
    )
    def test_truth(self, text: str, code: str | None) -> None:
        (site,) = sites(text, "__bool__")
        assert (site.operator, site.target) == (None, ())
        if code:
            assert (site.code, operands(site, slots("Tensor.__bool__", 0))) == (code, ("x",))

    def test_truth_in_a_compound_condition_names_nothing_wrong(self) -> None:
        for site in sites("if x and y or z: pass", "__bool__"):
            assert operands(site, slots("Tensor.__bool__", 0)) in ((), ("x",), ("y",))
            assert site.code in ("x", "y", "x and y or z")

    def test_iteration(self) -> None:
        for text in ("for t in x: pass", "y = [t for t in x]", "y = {t: 1 for t in x}"):
            (site,) = sites(text, "__iter__")
            assert (site.code, site.operator, site.target) == ("x", None, ())
            assert operands(site, slots("Tensor.__iter__", 0)) == ("x",)

    def test_unpacking(self) -> None:
        (site,) = sites("a, b = x.f(1)", "__iter__")
        assert (site.code, site.target) == ("a, b = x.f(1)", ("a", "b"))
        assert operands(site, slots("Tensor.__iter__", 0)) == ("x.f(1)",)
        (site,) = sites("a, *b = x", "__iter__")
        assert (site.target, operands(site, slots("Tensor.relu", 0))) == (("a", "*b"), ())
        (site,) = sites("for a, b in (x,): pass", "__iter__")
        assert (site.code, site.target) == ("a, b", ())

    def test_context(self) -> None:
        found = [site.code for step, site in run("with f(x) as y:\n    pass") if step.name != "__getattr__"]
        assert found == ["f(x)", "f(x)", "f(x)"]
        entered = sites("with x as y: pass", "__enter__")
        assert [site.target for site in entered] == [()]

    def test_two_contexts(self) -> None:
        found = sites("with f(x) as y, g(x): pass", None)
        assert all(site.target == () for site in found)
        assert {site.code for site in found} <= {"f(x)", "g(x)", "with f(x) as y, g(x): pass"}

    def test_formatting(self) -> None:
        (site,) = sites('y = f"<{x}>"', "__format__")
        assert (site.code, site.target) == ("x", ())

    def test_chain_of_comparisons(self) -> None:
        found = sites("y = a < b < c", None)
        assert [(site.code, site.operator) for site in found] == [
            ("a < b < c", "<"),
            ("a < b < c", None),
            ("a < b < c", "<"),
        ]
