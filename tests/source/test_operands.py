"""From the arguments of a call to the texts they were written as."""

from __future__ import annotations

import dis

import pytest

from tests.source.spying import NAME, run, slots, written
from torchglass.source.codes import Code
from torchglass.source.operands import Slot, Slots, is_direct, operands
from torchglass.source.sites import Site, resolve
from torchglass.source.text import SourceText


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
            ("y = torch.f(**{'weight': x})", slots("F.f", "weight"), ("**{'weight': x}",)),
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


class TestDirect:
    @pytest.mark.parametrize(
        ("text", "asked"),
        [
            ("y = x.f(p)", slots("Tensor.f", 0)),
            ("y = torch.f(x)", slots("f", 0)),
            ("y = h(x)", slots("F.relu", 0)),
            ("y = self.h(x)", slots("", 0)),
            ("y = a + b", slots("Tensor.add", 0, 1)),
            ("y = x[0]", slots("Tensor.__getitem__", 0)),
            ("y = float(1)", slots("Tensor.__float__", 0)),
        ],
    )
    def test_made_by_what_is_written(self, text: str, asked: Slots) -> None:
        assert is_direct(_last(text), asked)

    @pytest.mark.parametrize(
        ("text", "asked"),
        [
            ("y = sum([x])", slots("Tensor.add", 0, positional=2)),
            ("y = list(map(f, [x]))", slots("relu", 0)),
            ("y = list(map(f, [x]))", slots("", 0)),
            ("y = [x].index(y)", slots("Tensor.eq", 0, 1)),
            ("y = x in [y]", slots("Tensor.eq", 0, 1)),
            ("y = [1, 2][x]", slots("Tensor.__index__", 0)),
            ("@f(x)\ndef k(): pass", slots("f", 0)),
        ],
    )
    def test_made_out_of_sight(self, text: str, asked: Slots) -> None:
        assert not is_direct(_last(text), asked)


def _last(text: str) -> Site:
    """The site of the last step, or of the last instruction that could have made one."""
    source = SourceText(NAME, text)
    code = compile(text, NAME, "exec")
    kinds = ("CALL", "BINARY_OP", "BINARY_SUBSCR", "CONTAINS_OP")
    return resolve(
        Code.of(code), [each.offset for each in dis.get_instructions(code) if each.opname in kinds][-1], source
    )
