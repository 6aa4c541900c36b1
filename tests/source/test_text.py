"""Reading source text: where it is found, and that a changed text is never shown."""

from __future__ import annotations

import importlib
import linecache
import os
import subprocess
import sys
import textwrap
import time
import types
import warnings
import zipfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.work import work_of
from torchglass.source import text as source_module
from torchglass.source.codes import Code
from torchglass.source.compiling import parse
from torchglass.source.exec_source import find_exec_source, text_compiling_to
from torchglass.source.sites import Site, resolve
from torchglass.source.text import SourceText, read_source

LONG_AGO = 1_000_000_000


class Seen:
    """A callable that keeps who called it."""

    def __init__(self) -> None:
        self.calls: list[tuple[CodeType, int, FrameType | None]] = []

    def __call__(self, *args: Any) -> Any:
        frame = sys._getframe(1)
        self.calls.append((frame.f_code, frame.f_lasti, frame.f_back))
        return args[0] if args else None

    def site(self, source: SourceText) -> Site:
        code, lasti, _ = self.calls[-1]
        return resolve(Code.of(code), lasti, source)


def run_file(path: Path, text: str | bytes, *, old: bool = False) -> Seen:
    """Write a file, run it, and keep the call of ``seen`` in it."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    seen = Seen()
    exec(compile(path.read_bytes(), str(path), "exec"), {"seen": seen})
    if old:
        os.utime(path, (LONG_AGO, LONG_AGO))
    return seen


@pytest.fixture
def process_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """All files of the test are older than the process."""
    monkeypatch.setattr(source_module, "PROCESS_START", time.time() + 3600)


class TestFiles:
    def test_a_file(self, tmp_path: Path) -> None:
        seen = run_file(tmp_path / "a.py", "x = 1\ny = seen(x)\n")
        site = seen.site(read_source(str(tmp_path / "a.py")))
        assert (site.code, site.target, site.problem) == ("seen(x)", ("y",), None)
        assert (site.location.line, site.location.source) == (2, "y = seen(x)")
        assert site.location.origin == "user"

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("latin", "# coding: latin-1\ns = 'äöü'; y = seen(1)\n".encode("latin-1")),
            ("bom", b"\xef\xbb\xbfs = '\xc3\xa4'; y = seen(1)\n"),
            ("crlf", b"x = 1\r\ns = ''; y = seen(\r\n  1)\r\n"),
            ("feeds", b"x = 1\n\x0c\ns = '\x0c'; y = seen(1)\n"),
            ("tabs", b"if 1:\n\ty =\tseen(1)\n"),
            ("no end", b"y = seen(1)"),
        ],
    )
    def test_encodings_and_line_ends(self, tmp_path: Path, name: str, text: bytes) -> None:
        seen = run_file(tmp_path / f"{name}.py", text)
        site = seen.site(read_source(str(tmp_path / f"{name}.py")))
        assert site.problem is None
        assert site.code.replace("\n  ", "") == "seen(1)"
        assert site.target == ("y",)

    def test_not_in_its_encoding(self, tmp_path: Path) -> None:
        path = tmp_path / "broken.py"
        path.write_bytes(b"s = '\xff\xfe'\n")
        source = read_source(str(path))
        assert (source.text, source.problem) == (None, "source is not text in its encoding")

    def test_cannot_be_read(self, tmp_path: Path) -> None:
        source = read_source(str(tmp_path))
        assert source.text is None
        assert source.problem is not None
        assert source.problem.startswith("source cannot be read: ")

    def test_missing(self, tmp_path: Path) -> None:
        seen = run_file(tmp_path / "gone.py", "y = seen(1)")
        (tmp_path / "gone.py").unlink()
        site = seen.site(read_source(str(tmp_path / "gone.py")))
        assert (site.code, site.location.source, site.problem) == ("", "", "source not available")
        assert (site.location.line, site.location.col, site.location.end_col) == (1, 4, 11)

    @pytest.mark.parametrize("name", ["", "\0", "<nothing>", "no/such/file.py"])
    def test_names_that_are_no_file(self, name: str) -> None:
        assert read_source(name).text is None

    def test_a_relative_name_that_now_means_another_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process_started_later: None
    ) -> None:
        seen = Seen()
        exec(compile("y = seen(1)", "a.py", "exec"), {"seen": seen})
        (tmp_path / "a.py").write_text("y = seen(2)")
        monkeypatch.chdir(tmp_path)
        assert seen.site(read_source("a.py")).problem == "source changed since it ran"

    def test_reading_again_gives_the_same_tree(self, tmp_path: Path) -> None:
        run_file(tmp_path / "a.py", "y = seen(1)")
        assert read_source(str(tmp_path / "a.py")).syntax is read_source(str(tmp_path / "a.py")).syntax


class TestChanged:
    @pytest.mark.parametrize(
        "changed",
        [
            "def k(x):\n    return seen(2)\nk(0)\n",
            "# new\ndef k(x):\n    return seen(1)\nk(0)\n",
            "def k(x):\n    y = seen(1); return y\nk(0)\n",
            "def k(y):\n    return seen(1)\nk(0)\n",
            "def k(x):\n    return seen (1)\nk(0)\n",
            "def other(x):\n    return seen(1)\nk(0)\n",
            "def k(x:\n",
            "",
        ],
    )
    def test_no_text_is_shown(self, tmp_path: Path, changed: str) -> None:
        path = tmp_path / "a.py"
        seen = run_file(path, "def k(x):\n    return seen(1)\nk(0)\n")
        path.write_text(changed)
        site = seen.site(read_source(str(path)))
        assert site.problem == "source changed since it ran"
        assert (site.code, site.target, site.call, site.location.source) == ("", (), None, "")
        assert site.location.line == 2

    def test_a_change_elsewhere_does_not_matter(self, tmp_path: Path) -> None:
        path = tmp_path / "a.py"
        seen = run_file(path, "def k(x):\n    return seen(1)\nk(0)\n")
        path.write_text("def k(x):\n    return seen(1)\nk(1)\nk(2)\n")
        assert seen.site(read_source(str(path))).code == "seen(1)"

    def test_a_change_that_keeps_the_old_time(self, tmp_path: Path) -> None:
        path = tmp_path / "a.py"
        seen = run_file(path, "y = seen(1)", old=True)
        path.write_text("y = seen(2)")
        os.utime(path, (LONG_AGO, LONG_AGO))
        assert seen.site(read_source(str(path))).problem == "source changed since it ran"

    def test_reloaded_module(self, tmp_path: Path) -> None:
        path = tmp_path / "a.py"
        before = run_file(path, "y = seen(1)")
        after = run_file(path, "y = 1 + seen(1)")
        source = read_source(str(path))
        assert before.site(source).problem == "source changed since it ran"
        assert after.site(source).code == "seen(1)"

    def test_rewritten_modules_older_than_the_process_are_trusted(
        self, tmp_path: Path, process_started_later: None
    ) -> None:
        """As pytest does with asserts: the code that runs is not what the text compiles to."""
        path = tmp_path / "a.py"
        path.write_text("z = 1\ny = seen(1)\n")
        seen = Seen()
        tree = parse("z = 2\ny = seen(1)\n")
        assert tree is not None
        exec(compile(tree, str(path), "exec"), {"seen": seen})
        assert seen.site(read_source(str(path))).code == "seen(1)"

    def test_a_running_function_still_equals_its_text(self, tmp_path: Path) -> None:
        path = tmp_path / "a.py"
        text = "def k(x):\n    y = seen(x + 1)\n    return [t.real for t in (x, y)]\nfor i in range(99): k(i)\n"
        assert run_file(path, text).site(read_source(str(path))).code == "seen(x + 1)"

    def test_the_process_began_before_now(self) -> None:
        assert time.time() - 7 * 86400 < source_module.PROCESS_START <= time.time()


class TestOtherPlaces:
    def test_notebook_cell(self) -> None:
        for name in ("<ipython-input-1-abc>", "/tmp/ipykernel_1/23.py"):
            text = "x = 1\ny = seen(x)\n"
            linecache.cache[name] = (len(text), 1.0, text.splitlines(True), name)
            seen = Seen()
            exec(compile(text, name, "exec"), {"seen": seen})
            site = seen.site(read_source(name))
            del linecache.cache[name]
            assert (site.code, site.location.source, site.location.origin) == (
                "seen(x)",
                "y = seen(x)",
                "user",
            )

    def test_text_registered_by_its_maker(self) -> None:
        text = "y = seen(1)\n"
        linecache.cache["made up"] = (len(text), None, [text], "made up")
        seen = Seen()
        exec(compile(text, "made up", "exec"), {"seen": seen})
        assert seen.site(read_source("made up")).code == "seen(1)"
        del linecache.cache["made up"]

    def test_deleted_file_that_linecache_read_too_late(self, tmp_path: Path) -> None:
        path = tmp_path / "a.py"
        seen = run_file(path, "y = seen(1)")
        path.write_text("y = seen(2)")
        linecache.getlines(str(path))
        path.unlink()
        assert seen.site(read_source(str(path))).problem == "source changed since it ran"

    def test_zip_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
            archive.writestr("zipped_sample.py", "def k(seen):\n    return seen(1)\n")
        monkeypatch.syspath_prepend(tmp_path / "lib.zip")
        module = importlib.import_module("zipped_sample")
        seen = Seen()
        module.k(seen)
        site = seen.site(read_source(module.__file__ or ""))
        del sys.modules["zipped_sample"]
        assert (site.code, site.location.line, site.problem) == ("seen(1)", 2, None)

    def test_loader_that_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Loader:
            def get_source(self, name: str) -> str:
                raise RuntimeError(name)

        module = types.ModuleType("odd")
        module.__spec__ = importlib.machinery.ModuleSpec("odd", Loader(), origin="odd place")  # type: ignore[arg-type]
        monkeypatch.setitem(sys.modules, "odd", module)
        assert read_source("odd place").problem == "source not available"

    @pytest.mark.parametrize("options", [["-c"], ["-I", "-X", "utf8", "-c"], ["-W", "ignore", "-Sc"]])
    def test_command_line(self, options: list[str]) -> None:
        program = textwrap.dedent(
            """
            import sys
            sys.path.insert(0, sys.argv[1])
            from dataclasses import dataclass
            from torchglass.source.codes import Code
            from torchglass.source.sites import resolve
            from torchglass.source.text import read_source
            def k(frame):
                site = resolve(Code.of(frame.f_code), frame.f_lasti, read_source(frame.f_code.co_filename))
                print([site.code, site.target, site.location.line, site.location.origin])
            y = k(sys._getframe())
            @dataclass
            class D:
                a: int
                def __post_init__(self):
                    frame = sys._getframe(1)
                    site = resolve(Code.of(frame.f_code), frame.f_lasti, read_source(frame.f_code.co_filename))
                    print([site.code, site.problem, site.location.origin])
            D(1)
            """
        )
        package = Path(source_module.__file__).parents[2]
        done = subprocess.run(
            [sys.executable, *options, program, str(package)], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines() == [
            "['k(sys._getframe())', ('y',), 11, 'user']",
            "['', 'source not available', 'generated']",
        ]


TEXT = "w = 1\ny = seen(w)\n"


class TestExec:
    """The recorder asks while the caller is there; the site is resolved later."""

    def found(self, seen: Seen) -> str | None:
        code, _, caller = seen.calls[-1]
        assert caller is not None
        return find_exec_source(code, caller.f_code, caller.f_globals)

    def test_text_among_the_constants_of_the_caller(self) -> None:
        seen = Seen()
        exec("w = 5\ny = seen(w)\n", {"seen": seen})
        text = self.found(seen)
        assert text == "w = 5\ny = seen(w)\n"
        site = seen.site(SourceText("<string>", text))
        assert (site.code, site.target, site.location.source) == ("seen(w)", ("y",), "y = seen(w)")
        assert site.location.origin == "user"

    def test_text_among_the_globals_of_the_caller(self) -> None:
        seen = Seen()
        exec(TEXT, {"seen": seen})
        assert self.found(seen) == TEXT

    def test_compiled_with_a_name(self) -> None:
        seen = Seen()
        exec(compile("y = [seen(7)]", "my template", "exec"), {"seen": seen})
        assert self.found(seen) == "y = [seen(7)]"

    def test_eval_strips_the_text(self) -> None:
        seen = Seen()
        eval("  1 + seen(8)", {"seen": seen})
        assert self.found(seen) == "1 + seen(8)"
        assert seen.site(SourceText("<string>", self.found(seen) or "")).code == "seen(8)"

    def test_dedent(self) -> None:
        seen = Seen()
        exec(
            textwrap.dedent("""
                y = seen(9)
            """),
            {"seen": seen},
        )
        assert self.found(seen) == "\ny = seen(9)\n"

    def test_function_defined_by_exec_and_called_later(self) -> None:
        seen = Seen()
        names: dict[str, Any] = {"seen": seen}
        exec("def k(t: int):\n    return seen(t)\n", names)
        names["k"](1)
        assert self.found(seen) == "def k(t: int):\n    return seen(t)\n"

    def test_function_called_inside_the_text(self) -> None:
        """Its caller does not hold the text, but the text is known from the frame outside."""
        seen = Seen()
        text = "def k(t):\n    return seen(t)\nz = k(1)\n"
        exec(text, {"seen": seen})
        assert self.found(seen) is None
        assert text_compiling_to(Code.of(seen.calls[-1][0]), ["other", text]) == text

    def test_almost_the_same_text_is_not_taken(self) -> None:
        seen = Seen()
        exec("y = seen(" + str(40 + 2) + ")", {"seen": seen})
        assert "y = seen(43)" not in (self.found(seen) or "")
        assert self.found(seen) is None

    def test_code_with_a_file_is_not_looked_for(self) -> None:
        frame = sys._getframe()
        assert find_exec_source(frame.f_code, frame.f_code, frame.f_globals) is None

    def test_many_and_large_strings_stay_cheap(self) -> None:
        seen = Seen()
        exec("y = " + "seen(1)", {"seen": seen})
        code = seen.calls[-1][0]
        names = {f"n{i}": f"seen = {i}; y = 0" for i in range(5000)} | {"big": "y = seen(1)\n" * 100_000}
        caller = compile("0", "<x>", "eval")
        assert find_exec_source(code, caller, names) is None
        assert work_of(lambda: find_exec_source(code, caller, names)) < 10 * len(names)


class TestSilence:
    def test_no_warning_reaches_the_program(self) -> None:
        text = "x = '\\d'\ny = x is 'a'\nz = 1if x else 2\n"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            before = list(warnings.filters)
            assert SourceText("a.py", text).syntax is not None
            SourceText("a.py", text, None, "no").compiles_to(Code.of(compile("1", "a.py", "exec")))
            assert list(warnings.filters) == before
        assert caught == []

    def test_warnings_that_are_errors_do_not_matter(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert SourceText("a.py", "x = '\\d'\n").syntax is not None

    def test_a_warning_shown_once_is_not_shown_again(self) -> None:
        registry: dict[str, Any] = {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for _ in range(2):
                warnings.warn_explicit("once", UserWarning, "a.py", 1, registry=registry)
                assert parse("x = '\\d'\n") is not None
        assert len(caught) == 1

    @pytest.mark.parametrize("text", ["x = (", "\0", "(" * 100_000, "x = " + "-" * 50_000 + "1"])
    def test_text_that_breaks_the_parser(self, text: str) -> None:
        assert SourceText("a.py", text).syntax is None


def test_the_work_grows_with_the_file_and_no_faster() -> None:
    def work(functions: int) -> int:
        text = "def k(x, y):\n    z = f(x, y).g(x)[0]\n    return z + x * y\n" * functions
        code = compile(text, "large.py", "exec")
        source = SourceText("large.py", text)
        return work_of(lambda: resolve(Code.of(code), 0, source))

    work(10)  # what is done once is done
    assert work(800) < 6 * work(200)


def test_a_file_name_that_is_too_long_is_no_file() -> None:
    """Some systems refuse to look for it."""
    text = "x = 1"
    code = compile(text, "a" * 5_000, "exec")
    caller = compile(f"exec(compile({text!r}, name, 'exec'))", "caller.py", "exec")
    assert find_exec_source(code, caller, {}) == text
