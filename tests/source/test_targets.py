"""Which names the result of an expression goes to."""

from __future__ import annotations

import pytest

from tests.source.spying import run, sites, targets


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
