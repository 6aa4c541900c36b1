"""Resolving instructions: columns, problems, real files, and whose code a file is."""

from __future__ import annotations

import ast
import asyncio
import dis
import functools
import os
import sysconfig
import traceback
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.source.spying import NAME, position, run
from torchglass.source.codes import Code
from torchglass.source.compiling import codes_of
from torchglass.source.instructions import instruction_at
from torchglass.source.origins import origin_of
from torchglass.source.sites import Site, resolve
from torchglass.source.text import NOT_AVAILABLE, SourceText


class TestNeverWrong:
    def test_a_position_that_fits_nothing(self) -> None:
        step, _ = run("y = f(x)")[0]
        site = resolve(Code.of(step.code), step.lasti, SourceText(NAME, "y = [x, 1]"))
        assert (site.code, site.target, site.call, site.location.source) == ("", (), None, "")
        assert site.problem == "no expression of the source fits this instruction"

    def test_an_operator_that_does_not_agree(self) -> None:
        step, _ = run("y = a + b")[0]
        assert resolve(Code.of(step.code), step.lasti, SourceText(NAME, "y = a - b")).code == ""

    def test_no_python(self) -> None:
        step, _ = run("y = f(x)")[0]
        site = resolve(Code.of(step.code), step.lasti, SourceText(NAME, "{% for %}"))
        assert (site.code, site.problem) == ("", "source is not Python")

    def test_without_columns(self) -> None:
        code = compile("y = 1\nz = f(x)", NAME, "exec")
        bare = code.replace(co_linetable=_lines_only(code))
        call = next(each.offset for each in dis.get_instructions(bare) if each.opname.startswith("CALL"))
        site = resolve(Code.of(bare), call, SourceText(NAME, "y = 1\nz = f(x)"))
        assert (site.code, site.location.line, site.location.source) == ("", 2, "z = f(x)")
        assert site.problem is not None
        assert "no_debug_ranges" in site.problem

    @pytest.mark.parametrize("lasti", [-1, 10**6])
    def test_no_instruction(self, lasti: int) -> None:
        site = resolve(Code.of(compile("y = 1", NAME, "exec")), lasti, SourceText(NAME, "y = 1"))
        assert (site.code, site.location.line) == ("", 1)

    def test_cache_entries_belong_to_their_instruction(self) -> None:
        code = compile("y = f(x)", NAME, "exec")
        call = next(each for each in dis.get_instructions(code) if each.opname == "CALL")
        assert instruction_at(Code.of(code), call.offset + 4).offset == call.offset
        assert resolve(Code.of(code), call.offset + 4, SourceText(NAME, "y = f(x)")).code == "f(x)"

    @pytest.mark.parametrize("module", [ast, functools, os, dis, asyncio.base_events, traceback])
    def test_every_call_and_operator_of_real_files(self, module: Any) -> None:
        """All instructions find text that parses, with as many arguments as the instruction takes."""
        text = Path(module.__file__).read_text(encoding="utf-8")
        source = SourceText(module.__file__, text)
        missed: list[Site] = []
        for code in codes_of(compile(text, module.__file__, "exec", dont_inherit=True)):
            for each in dis.get_instructions(code):
                if each.opname in (
                    "CALL",
                    "CALL_KW",
                    "BINARY_OP",
                    "BINARY_SUBSCR",
                    "COMPARE_OP",
                    "LOAD_ATTR",
                ):
                    site = resolve(Code.of(code), each.offset, source)
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

    __gt__ = __add__ = __radd__ = __iadd__ = __matmul__ = __getitem__ = __setitem__ = __neg__ = __lt__ = __call__
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
    site = resolve(Code.of(trace.tb_frame.f_code), trace.tb_lasti, SourceText(NAME, text))
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
            ("/project/model.py", "user"),
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
        assert (
            resolve(Code.of(step.code), step.lasti, SourceText(NAME, None, NOT_AVAILABLE)).location.origin
            == "generated"
        )

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
