"""Sites of programs that really run: every operation of a spy notes the instruction that called it."""

from __future__ import annotations

import ast
import asyncio
import dis
import functools
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from torchglass.capture.compiling import codes_of
from torchglass.capture.instructions import BINARY_OPERATORS, instruction_at
from torchglass.capture.sites import Site, Slot, Slots, operands, origin_of, resolve
from torchglass.capture.source import SourceText

NAME = "<sample>"
SPECIAL = (
    "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor "
    "radd rsub rmul rmatmul rtruediv iadd isub imul imatmul ior ipow "
    "lt le gt ge eq ne neg pos invert getitem setitem delitem contains call getattr format enter exit"
).split()


class Step:
    """One operation of a spy, and the instruction it came from."""

    def __init__(self, name: str, args: tuple[Any, ...], keywords: dict[str, Any], frame: Any) -> None:
        self.name, self.args, self.keywords = name, args, keywords
        self.code: CodeType = frame.f_code
        self.lasti: int = frame.f_lasti


class Spy:
    """Takes part in any expression, gives a spy back, and writes down who asked."""

    steps: list[Step] = []

    def __init__(self, result: Any = None) -> None:
        self.__dict__["result"] = result

    def __bool__(self) -> bool:
        self.steps.append(Step("__bool__", (self,), {}, sys._getframe(1)))
        return bool(self.__dict__["result"])

    def __iter__(self) -> Any:
        self.steps.append(Step("__iter__", (self,), {}, sys._getframe(1)))
        return iter([Spy(), Spy()])

    def __setattr__(self, name: str, value: Any) -> None:
        self.steps.append(Step("__setattr__", (self, value), {}, sys._getframe(1)))

    def __await__(self) -> Any:
        return Spy()
        yield

    __hash__ = object.__hash__


def _special(name: str) -> Callable[..., Any]:
    def operate(*args: Any, **keywords: Any) -> Any:
        if name == "__getattr__" and args[1].startswith("__"):
            raise AttributeError(args[1])
        Spy.steps.append(Step(name, args, keywords, sys._getframe(1)))
        return {"__contains__": True, "__exit__": False, "__format__": ""}.get(name) or Spy(True)

    return operate


for _name in SPECIAL:
    setattr(Spy, f"__{_name}__", _special(f"__{_name}__"))
Spy.__format__ = lambda self, spec: Spy.steps.append(Step("__format__", (self,), {}, sys._getframe(1))) or ""
Spy.__exit__ = lambda *args: Spy.steps.append(Step("__exit__", args, {}, sys._getframe(1)))


class Names(dict[str, Any]):
    """Globals in which every unknown name is a spy."""

    def __missing__(self, name: str) -> Any:
        if name.startswith("__") or name in vars(__builtins__ if hasattr(__builtins__, "print") else ast):
            raise KeyError(name)
        self[name] = Spy(True)
        return self[name]


NAMES = "a b c d f g h i k m n p q t u v w x y z xs ys out torch self cond scores é größe".split()


def run(text: str, **names: Any) -> list[tuple[Step, Site]]:
    """Run a text and resolve every step that it made, except those in this file."""
    source = SourceText.of_text(NAME, text)
    Spy.steps = []
    exec(compile(text, NAME, "exec"), {**{name: Spy(True) for name in NAMES}, "__name__": "sample", **names})
    steps = [step for step in Spy.steps if step.code.co_filename == NAME]
    return [(step, resolve(step.code, step.lasti, source)) for step in steps]


def sites(text: str, only: str | None = "__call__", **names: Any) -> list[Site]:
    """The sites of the calls (or another kind of step), in the order in which they ran."""
    found = [site for step, site in run(text, **names) if only is None or step.name == only]
    assert all(site.problem is None for site in found), [site.problem for site in found]
    return found


def codes(text: str, only: str | None = "__call__", **names: Any) -> list[str]:
    return [site.code for site in sites(text, only, **names)]


def targets(text: str, only: str | None = "__call__", **names: Any) -> list[tuple[str, tuple[str, ...]]]:
    return [(site.code, site.target) for site in sites(text, only, **names)]


def position(site: Site) -> tuple[int, int, int, int]:
    where = site.location
    return where.line, where.end_line, where.col, where.end_col


class TestExpression:
    def test_several_on_one_line(self) -> None:
        found = sites("y = f(x); z = g(x) + f(y)")
        assert [site.code for site in found] == ["f(x)", "g(x)", "f(y)"]
        assert [position(site) for site in found] == [(1, 1, 4, 8), (1, 1, 14, 18), (1, 1, 21, 25)]
        assert {site.location.source for site in found} == {"y = f(x); z = g(x) + f(y)"}

    def test_equal_expressions_are_told_apart_by_column(self) -> None:
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
        text = "try:\n    f(x)\n    raise KeyError\nexcept KeyError as e:\n    g(x)\nelse:\n    0\nfinally:\n    h(x)"
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
        lasti = [
            each.offset for each in dis.get_instructions(frame.f_code) if each.opname == "IMPORT_NAME"
        ][-1]
        site = resolve(frame.f_code, lasti, SourceText.of_text(NAME, text))
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


class TestTarget:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("y = f(x)", ("y",)),
            ("a = b = f(x)", ("a", "b")),
            ("a, *c = f(x)", ("a", "*c")),
            ("[a, b] = f(x)", ("a", "b")),
            ("(a, (b)) = f(x)", ("a", "b")),
            ("a = b, c = f(x)", ("a", "b", "c")),
            ("out[i] = f(x)", ("out[i]",)),
            ("out[i, 1:] = f(x)", ("out[i, 1:]",)),
            ("self.h = f(x)", ("self.h",)),
            ("y: int = f(x)", ("y",)),
            ("y = f(x) if 1 else 0", ("y",)),
            ("y = 0 if 0 else f(x)", ("y",)),
            ("y = 1 and f(x)", ("y",)),
            ("(y := f(x))", ("y",)),
            ("z = (y := f(x))", ("y", "z")),
            ("z = g(y := f(x))", ("y",)),
            ("y = (\n    f(x)\n)", ("y",)),
            ("y = k = f(x) if (1) else 0", ("y", "k")),
            ("f(x)", ()),
            ("y = f(x) or 0", ()),
            ("y = 1 if f(x) else 0", ()),
            ("y = f(x).t", ()),
            ("y = [f(x)]", ()),
            ("y = f(x), 1", ()),
            ("y = {'k': f(x)}", ()),
            ("y = -f(x)", ()),
            ("y = f(x) + 1", ()),
            ("y += f(x)", ()),
            ("a, b = *f(x),", ()),
            ("for y in f(x): pass", ()),
            ("with f(x) as y: pass", ()),
            ("def k():\n    return f(x)\nk()", ()),
            ("assert f(x)", ()),
            ("del f(x)[0]", ()),
            ("out[f(x)] = 1", ()),
        ],
    )
    def test_names(self, text: str, expected: tuple[str, ...]) -> None:
        found = [site.target for site in sites(text) if site.code == "f(x)"]
        assert found[0] == expected

    def test_element_by_element(self) -> None:
        assert targets("a, b = f(x), g(y)") == [("f(x)", ("a",)), ("g(y)", ("b",))]
        assert targets("(a, b), c = (f(x), g(x)), h(x)") == [
            ("f(x)", ("a",)),
            ("g(x)", ("b",)),
            ("h(x)", ("c",)),
        ]
        text = "a, *b, c = f(x), g(x), h(x), k(x)"
        assert [target for _, target in targets(text)] == [("a",), ("*b",), ("*b",), ("c",)]
        assert targets("y = a, b = f(x), g(y)") == [("f(x)", ("a",)), ("g(y)", ("b",))]

    def test_chained_call(self) -> None:
        assert targets("y = f(x).g()") == [("f(x)", ()), ("f(x).g()", ("y",))]

    def test_last_comparison_of_a_chain(self) -> None:
        assert targets("y = a < b <= c", None)[0] == ("a < b <= c", ())
        found = [site for step, site in run("y = a < b <= c") if step.name == "__le__"]
        assert [(site.operator, site.target) for site in found] == [("<=", ("y",))]


class TestOperator:
    @pytest.mark.parametrize("symbol", [s for s in BINARY_OPERATORS[:13]])
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
        site = resolve(step.code, step.lasti, SourceText.missing(NAME))
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


def slots(name: str, *positions: int | str, positional: int | None = None, **more: Any) -> Slots:
    arguments = tuple(
        Slot(each) if isinstance(each, int) else Slot(None, each) for each in positions
    )
    places = [each for each in positions if isinstance(each, int)]
    return Slots(arguments, max(places, default=-1) + 1 if positional is None else positional, name, **more)


def written(text: str, asked: Slots) -> tuple[str, ...]:
    """The operands of the last step of a text."""
    return operands(sites(text, None)[-1], asked)


class TestOperands:
    @pytest.mark.parametrize(
        ("text", "asked", "expected"),
        [
            ("y = torch.f(x, y)", slots("f", 0, 1), ("x", "y")),
            ("y = f(x + 1, k=y)", slots("F.f", 0, "k"), ("x + 1", "y")),
            ("y = x.f(y)", slots("Tensor.f", 0, 1), ("x", "y")),
            ("y = x.t.f(y, 1)", slots("Tensor.f", 0, 1, positional=3), ("x.t", "y")),
            ("y = g(x).f()", slots("Tensor.f", 0), ("g(x)",)),
            ("y = self.f(x)", slots("", 0), ("x",)),
            ("y = x.f(y)", slots("", 0, 1), ("x", "y")),
            ("y = abs(x)", slots("Tensor.abs", 0), ("x",)),
            ("y = f(x, 2)", slots("F.f", 0), ("x",)),
            ("y = torch.f(**k)", slots("F.f", "weight"), ("**k",)),
            ("y = f(*xs)", slots("f", 0, 1, 2), ("*xs", "*xs", "*xs")),
            ("y = f(x, *xs)", slots("f", 0, 1, 2), ("x", "*xs", "*xs")),
            ("y = x.f(*xs)", slots("Tensor.f", 0, 1, 2), ("x", "*xs", "*xs")),
            ("y = a + b", slots("Tensor.add", 0, 1), ("a", "b")),
            ("y += b", slots("Tensor.__iadd__", 0, 1), ("y", "b")),
            ("y = -a", slots("Tensor.neg", 0), ("a",)),
            ("y = a < b", slots("Tensor.lt", 0, 1), ("a", "b")),
            ("y = x[i]", slots("Tensor.__getitem__", 0, 1), ("x", "i")),
            ("x[i] = y", slots("Tensor.__setitem__", 0, 1, 2), ("x", "i", "y")),
            ("x[i] += y", slots("Tensor.__setitem__", 0, 2, positional=3), ("x", "x[i]")),
            ("a[0], x[1] = f(b), t", slots("Tensor.__setitem__", 0, 2, positional=3), ("x", "t")),
            ("y = x.T", slots("Tensor.T", 0), ("x",)),
            ("x.data = y", slots("Tensor.data.__set__", 0, 1), ("x", "y")),
            ("y = a in x", slots("Tensor.__contains__", 0, 1), ("x", "a")),
        ],
    )
    def test_plain(self, text: str, asked: Slots, expected: tuple[str, ...]) -> None:
        assert written(text, asked) == expected

    @pytest.mark.parametrize(
        ("text", "name"),
        [("y = 2 - x", "__rsub__"), ("y = 2 @ x", "__rmatmul__"), ("y = 2 < x", "gt"), ("y = 2 >= x", "le")],
    )
    def test_reflected(self, text: str, name: str) -> None:
        assert written(text, slots(f"Tensor.{name}", 0, positional=2)) == ("x",)

    def test_chain_of_comparisons_has_its_own_pairs(self) -> None:
        found = [site for step, site in run("y = a < b < c") if step.name == "__lt__"]
        asked = slots("Tensor.lt", 0, 1)
        assert [operands(site, asked) for site in found] == [("a", "b"), ("b", "c")]

    def test_by_parameter_name(self) -> None:
        names = ("input", "shape", "weight", "bias")
        asked = slots("F.f", 0, "weight", "bias", positional=2, parameters=names)
        assert written("y = torch.f(x, 4, w, b)", asked) == ("x", "w", "b")
        assert written("y = torch.f(x, 4, bias=b, weight=w)", asked) == ("x", "w", "b")
        assert written("y = f(input=x, shape=4, bias=b, weight=w)", asked) == ("x", "w", "b")
        norm = slots("Tensor.f", 0, positional=1, parameters=("self", "p"))
        assert written("y = x.f(p)", norm) == ("x",)

    def test_inside_lists(self) -> None:
        asked = Slots((Slot(0, None, (0,)), Slot(0, None, (1,))), 1, "f")
        assert written("y = f([a, b + 1])", asked) == ("a", "b + 1")
        assert written("y = f((a, b))", asked) == ("a", "b")
        assert written("y = f(xs)", asked) == ("xs[0]", "xs[1]")
        assert written("y = f(x.t)", asked) == ("x.t[0]", "x.t[1]")
        assert written("y = f(a + b)", asked) == ("(a + b)[0]", "(a + b)[1]")
        assert written("y = f([a, *(b, c)])", asked) == ("a", "*(b, c)")
        assert written("y = f([*(b, c), a])", asked) == ()
        assert written("y = f([t for t in (1,)])", asked)[1] == "[t for t in (1,)][1]"

    def test_inside_dicts_and_slices(self) -> None:
        assert written("y = f({'k': x})", Slots((Slot(0, None, ("k",)),), 1)) == ("x",)
        assert written("y = f(d)", Slots((Slot(0, None, ("k", 0)),), 1)) == ("d['k'][0]",)
        asked = Slots((Slot(0), Slot(1, None, (1,)), Slot(1, None, (2, "stop"))), 2, "Tensor.__getitem__")
        assert written("y = x[0, i, :n]", asked) == ("x", "i", "n")

    @pytest.mark.parametrize(
        ("text", "asked"),
        [
            ("y = x.f(p)", slots("Tensor.f", 0)),  # a wrapper, or an unbound call: not to be told apart
            ("y = x.f(p)", slots("Tensor.g", 0, 1)),  # something that x.f runs
            ("y = torch.f(input=x)", slots("", 0)),
            ("y = f(*xs, x)", slots("f", 0, 1)),
            ("y = f(2)", slots("f", 0)),
            ("y = f([x])", slots("f", 0)),
            ("y = f(x)", slots("f", 0, 1)),
            ("y = max(x, y)", slots("Tensor.gt", 0, 1)),
            ("y = sum([x])", slots("Tensor.__radd__", 0, positional=2)),
            ("y = list(map(f, [x]))", slots("relu", 0)),
            ("y = [x].index(y)", slots("Tensor.eq", 0, 1)),
            ("y = x in [y]", slots("Tensor.eq", 0, 1)),
            ("a[0], x[1] = y", slots("Tensor.__setitem__", 0, 2, positional=3)),
            ("@f(x)\ndef k(): pass", slots("f", 0)),
        ],
    )
    def test_nothing_when_not_certain(self, text: str, asked: Slots) -> None:
        assert written(text, asked) == ()


class TestNeverWrong:
    def test_a_position_that_fits_nothing(self) -> None:
        step, _ = run("y = f(x)")[0]
        site = resolve(step.code, step.lasti, SourceText.of_text(NAME, "y = [x, 1]"))
        assert (site.code, site.target, site.call, site.location.source) == ("", (), None, "")
        assert site.problem == "no expression of the source fits this instruction"

    def test_an_operator_that_does_not_agree(self) -> None:
        step, _ = run("y = a + b")[0]
        assert resolve(step.code, step.lasti, SourceText.of_text(NAME, "y = a - b")).code == ""

    def test_no_python(self) -> None:
        step, _ = run("y = f(x)")[0]
        site = resolve(step.code, step.lasti, SourceText.of_text(NAME, "{% for %}"))
        assert (site.code, site.problem) == ("", "source is not Python")

    def test_without_columns(self) -> None:
        code = compile("y = 1\nz = f(x)", NAME, "exec")
        bare = code.replace(co_linetable=_lines_only(code))
        call = next(each.offset for each in dis.get_instructions(bare) if each.opname.startswith("CALL"))
        site = resolve(bare, call, SourceText.of_text(NAME, "y = 1\nz = f(x)"))
        assert (site.code, site.location.line, site.location.source) == ("", 2, "z = f(x)")
        assert site.problem is not None
        assert "no_debug_ranges" in site.problem

    @pytest.mark.parametrize("lasti", [-1, 10**6])
    def test_no_instruction(self, lasti: int) -> None:
        site = resolve(compile("y = 1", NAME, "exec"), lasti, SourceText.of_text(NAME, "y = 1"))
        assert (site.code, site.location.line) == ("", 1)

    def test_cache_entries_belong_to_their_instruction(self) -> None:
        code = compile("y = f(x)", NAME, "exec")
        call = next(each for each in dis.get_instructions(code) if each.opname == "CALL")
        assert instruction_at(code, call.offset + 4).offset == call.offset
        assert resolve(code, call.offset + 4, SourceText.of_text(NAME, "y = f(x)")).code == "f(x)"

    @pytest.mark.parametrize("module", [ast, functools, os, dis, asyncio.base_events, traceback])
    def test_every_call_and_operator_of_real_files(self, module: Any) -> None:
        """All instructions find text that parses, with as many arguments as the instruction takes."""
        text = Path(module.__file__).read_text(encoding="utf-8")
        source = SourceText.of_text(module.__file__, text)
        missed: list[Site] = []
        for code in codes_of(compile(text, module.__file__, "exec", dont_inherit=True)):
            for each in dis.get_instructions(code):
                if each.opname in ("CALL", "CALL_KW", "BINARY_OP", "BINARY_SUBSCR", "COMPARE_OP", "LOAD_ATTR"):
                    site = resolve(code, each.offset, source)
                    if not site.code or not _agrees(site, each):
                        missed.append(site)
        assert missed == []


def _agrees(site: Site, instruction: dis.Instruction) -> bool:
    if site.call is None:
        return instruction.opname in ("CALL", "CALL_KW")
    tree = ast.parse(f"(\n{site.code}\n)" if "=" not in (site.operator or "")[1:] else site.code).body[0]
    if instruction.opname != "CALL":
        return True
    assert isinstance(tree, ast.Expr)
    count = len(site.call.positional) + len(site.call.keywords)
    return isinstance(tree.value, ast.Call) and instruction.arg == count


def _lines_only(code: CodeType) -> bytes:
    """A line table as Python writes it with ``-X no_debug_ranges``: entries of kind 13, one for each unit."""
    table, last = bytearray(), code.co_firstlineno
    for line, *_ in code.co_positions():
        delta = (line or last) - last
        last += delta
        table += bytes([0x80 | 13 << 3, delta << 1 if delta >= 0 else (-delta << 1) | 1])
    return bytes(table)


class Failing:
    """Raises in every operation, so that traceback tells where Python itself sees it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        raise ZeroDivisionError

    __add__ = __radd__ = __iadd__ = __matmul__ = __getitem__ = __setitem__ = __neg__ = __lt__ = __call__
    __bool__ = __iter__ = __enter__ = __contains__ = __call__

    def __exit__(self, *args: Any) -> None: ...


@pytest.mark.parametrize(
    "text",
    [
        "y = x(1)",
        "s = '→ü'; y = 1, x(1)",
        "y = (x\n  .größe\n  .f(1,\n  2))",
        "y = 1 + x",
        "é = 1; x += é",
        "y = x[\n  0]",
        "x[0] = 1",
        "y = -x",
        "y = 1 < 2 < x",
        "if x: pass",
        "for y in x: pass",
        "a, b = x",
        "y = 1 in x",
        "y = [x(t) for t in (1,)]",
        "y = (lambda é: x(é))(1)",
        "y = f'ü{x(1)}'",
        "def k(t):\n\treturn t(1)\nk(x)",
    ],
)
def test_columns_are_those_of_a_traceback(text: str) -> None:
    try:
        exec(compile(text, NAME, "exec"), {"x": Failing()})
    except ZeroDivisionError as error:
        trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_next.tb_frame.f_code.co_filename == NAME:
        trace = trace.tb_next
    assert trace is not None
    if trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    assert trace is not None
    where = traceback.extract_tb(trace)[0]
    site = resolve(trace.tb_frame.f_code, trace.tb_lasti, SourceText.of_text(NAME, text))
    lines = text.split("\n")
    assert where.lineno is not None
    assert where.end_lineno is not None
    assert where.colno is not None
    assert where.end_colno is not None
    assert position(site) == (
        where.lineno,
        where.end_lineno,
        len(lines[where.lineno - 1].encode()[: where.colno].decode()),
        len(lines[where.end_lineno - 1].encode()[: where.end_colno].decode()),
    )
    assert site.problem is None


class TestOrigin:
    @pytest.mark.parametrize(
        ("name", "origin"),
        [
            ("<frozen importlib._bootstrap>", "stdlib"),
            ("<eval_with_key>.3", "generated"),
            ("<string>", "generated"),
            ("<__array_function__ internals>", "generated"),
            ("<ipython-input-3-0123456789ab>", "user"),
            ("/tmp/ipykernel_123/456.py", "user"),
            ("<stdin>", "user"),
            ("<python-input-0>", "user"),
            ("<doctest sample[0]>", "user"),
            ("/home/someone/model.py", "user"),
            ("relative.py", "user"),
            ("/tmp/torchinductor_someone/ab/cab.py", "generated"),
        ],
    )
    def test_names(self, name: str, origin: str) -> None:
        assert origin_of(name) == origin

    def test_text_given_to_exec_is_the_users_when_known(self) -> None:
        assert origin_of("<string>", source_known=True) == "user"
        assert origin_of("<eval_with_key>.3", source_known=True) == "generated"
        step, site = run("y = f(x)")[0]
        assert site.location.origin == "user"
        assert resolve(step.code, step.lasti, SourceText.missing(NAME)).location.origin == "generated"

    def test_files(self) -> None:
        assert origin_of(os.__file__) == "stdlib"
        assert origin_of(asyncio.__file__) == "stdlib"
        assert origin_of(pytest.__file__) == "user"
        assert origin_of(str(Path(sysconfig.get_paths()["stdlib"], "site-packages", "m.py"))) == "user"
        assert origin_of(__file__) == "user"
        assert origin_of(resolve.__code__.co_filename) == "ours"

    def test_torch_is_found_without_importing_it(self) -> None:
        spec = pytest.importorskip("importlib.util").find_spec("torch")
        if spec is None:
            pytest.skip("torch is not installed")
        folder = Path(spec.origin).parent
        assert origin_of(str(folder / "nn" / "functional.py")) == "torch"
        assert origin_of(str(folder.with_name("torchvision") / "ops.py")) == "user"
