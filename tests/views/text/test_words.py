"""One spelling for everything: tensors, numbers, safe text, widths, places."""

from __future__ import annotations

import io
import re
import sys
from types import SimpleNamespace

import pytest

from tests.handmade import tensor
from torchglass.errors import UsageError, WrongType
from torchglass.views.text import words
from torchglass.views.text.style import STYLES, Page, page_for, writable


@pytest.mark.parametrize(
    ("dtype", "word"),
    [("float32", "f32"), ("bfloat16", "bf16"), ("float8_e8m0fnu", "f8e8m0fnu"), ("complex128", "c128"),
     ("bool", "b8"), ("uint64", "u64"), ("qint8", "qint8"), ("torch.int8", "i8"), ("", "?")],
)  # fmt: skip
def test_dtypes(dtype: str, word: str) -> None:
    assert words.dtype_word(dtype) == word


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (tensor((8, 3)), "f32[8, 3]"),
        (tensor(()), "f32[]"),
        (tensor((0,)), "f32[0]"),
        (tensor(None), "f32[?]"),
        (tensor((2, -1)), "f32[2, ?]"),
        (tensor((3, 3), layout="sparse_coo"), "f32[3, 3] sparse_coo"),
        (tensor((1,) * 1_000_000), "f32[1, 1, 1, 1, … 1,000,000 dimensions]"),
    ],
)
def test_tensors(value: object, word: str) -> None:
    assert words.tensor_word(value) == word  # type: ignore[arg-type]


def test_devices_only_where_asked() -> None:
    value = tensor((8,), device="cuda:0")
    assert (words.tensor_word(value), words.tensor_word(value, device=True)) == ("f32[8]", "f32[8] @ cuda:0")


@pytest.mark.parametrize(
    ("nanoseconds", "word"),
    [(0, "0 ns"), (999, "999 ns"), (1_230, "1.23 µs"), (840_000, "840 µs"), (999_600, "1.00 ms"),
     (12_340_000, "12.3 ms"), (9_999_999, "10.0 ms"), (1_500_000_000, "1.50 s"), (123_000_000_000, "2 min 03 s"),
     (None, "—")],
)  # fmt: skip
def test_durations(nanoseconds: int | None, word: str) -> None:
    assert words.duration(nanoseconds) == word


def test_counts_and_sizes() -> None:
    assert words.count(124_439_808) == "124,439,808"
    assert [words.size(each) for each in (512, 1_500, 497_759_232)] == ["512 B", "1.5 kB", "497.8 MB"]
    assert [words.plural(each, "event") for each in (0, 1, 1204)] == ["0 events", "1 event", "1,204 events"]


@pytest.mark.parametrize(
    ("part", "whole", "word"),
    [(45, 100, "45 %"), (1, 200, "0.5 %"), (1, 10_000, "<0.1 %"), (0, 9, "0 %"), (None, 9, "—"), (3, 0, "—")],
)
def test_shares(part: int | None, whole: int, word: str) -> None:
    assert words.share(part, whole) == word


HOSTILE = ["\x1b[31mred", "\x1b]8;;http://evil\x07", "a\r\nb", "tab\t", "\u202eevil", "\u2066x", "\x9b31m", "\x7f",
           "\ud800", "nul\0", "\u2028", "zero\u200bwidth"]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_the_program_is_made_safe(text: str) -> None:
    safe = words.clean(text)
    assert safe.isprintable()
    assert safe != text
    safe.encode("utf-8")
    assert words.clean(safe) == safe


def test_safe_text_stays_as_it_is() -> None:
    for text in ("", "queries", "größe", "重み", "x → y", "naïve 🙂"):
        assert words.clean(text) == text


def test_expressions_on_one_line() -> None:
    code = "scores.masked_fill(\n    mask[:T, :T],  # causal, as in the paper\n    -torch.inf,\n)"
    assert words.one_line(code) == "scores.masked_fill(mask[:T, :T], -torch.inf)"
    assert words.one_line("a + \\\n  b") == "a + b"
    assert words.one_line("f('#', '''x\n  y''')") == "f('#', '''x y''')"
    assert words.one_line("f(\x1b,\n x)") == "f(\\x1b, x)"
    assert len(words.one_line("x" * 100_000)) <= words.LONGEST_CODE + 1


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("重み", 4), ("e\u0301", 1), ("│ × → …", 7), ("🙂", 2)])
def test_widths(text: str, columns: int) -> None:
    assert words.width_of(text) == columns


@pytest.mark.parametrize("text", ["short", "a rather long text", "重み重み重み", "e\u0301" * 9, "🙂🙂🙂"])
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5, 8, 100])
def test_cutting_keeps_to_the_limit(text: str, limit: int) -> None:
    cut = words.cut(text, limit)
    assert words.width_of(cut) <= limit
    assert cut == text or not cut or cut.endswith("…")


def test_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert words.path_word(f"{tmp_path}/src/model.py") == "src/model.py"
    assert words.path_word(f"{tmp_path}/.venv/lib/site-packages/pkg/a.py") == "site-packages/pkg/a.py"
    assert words.path_word("/usr/lib/python3/site-packages/pkg/a.py") == "site-packages/pkg/a.py"
    assert words.path_word("/elsewhere/a.py") == "/elsewhere/a.py"
    assert words.path_word("<stdin>") == "<stdin>"
    assert words.file_name("/a/b/c.py") == "c.py"
    assert words.file_name("/a/einops/__init__.py") == "einops/__init__.py"
    assert words.file_name("__init__.py") == "__init__.py"


def test_links_hold_nothing_that_could_end_them() -> None:
    linked = words.link("m.py:3", "/a b/\x1b\\\n%#.py", 3)
    assert re.fullmatch(r"\x1b\]8;;file://[^\x1b\n ]*#3\x1b\\m\.py:3\x1b\]8;;\x1b\\", linked)
    assert words.link("<stdin>:3", "<stdin>", 3) == "<stdin>:3"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "stream", "asked", "colored"),
    [
        ({}, Terminal(), None, True),
        ({}, io.StringIO(), None, False),
        ({}, None, None, False),
        ({"NO_COLOR": "1"}, Terminal(), None, False),
        ({"NO_COLOR": ""}, Terminal(), None, True),
        ({"FORCE_COLOR": "1"}, io.StringIO(), None, True),
        ({"FORCE_COLOR": "0"}, io.StringIO(), None, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, Terminal(), None, False),
        ({"NO_COLOR": "1"}, Terminal(), True, True),
        ({"FORCE_COLOR": "1"}, Terminal(), False, False),
        ({"TERM": "dumb"}, Terminal(), None, False),
    ],
)
def test_colour(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    stream: io.StringIO | None,
    asked: bool | None,
    colored: bool,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    page = page_for(stream, color=asked)
    assert page.color is colored
    assert page.links is (colored and isinstance(stream, Terminal) and environment.get("TERM") != "dumb")


def test_widths_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert page_for(None).width == 100
    assert page_for(io.StringIO(), width=77).width == 77
    monkeypatch.setenv("COLUMNS", "91")
    assert page_for(None).width == 91


def test_pages_refuse_nonsense() -> None:
    with pytest.raises(UsageError, match="40 or more"):
        page_for(None, width=7)
    with pytest.raises(WrongType, match="number of columns"):
        page_for(None, width="80")  # type: ignore[arg-type]
    with pytest.raises(WrongType, match="True, False or None"):
        page_for(None, color="red")  # type: ignore[arg-type]


def test_paint_needs_colour() -> None:
    for style in STYLES:
        assert Page().paint(style, "x") == "x"
        assert Page(color=True).paint(style, "x") == f"\x1b[{STYLES[style]}mx\x1b[0m"
        assert Page(color=True).paint(style, "") == ""


def test_streams_that_cannot_hold_our_signs() -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert writable("│ a → b", narrow) == "? a ? b"


def test_cells_are_called_as_the_notebook_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a prompt's cell has its number; a kernel's is asked for it, and elsewhere stays a number."""
    assert words.file_name("<ipython-input-3-0a1b>") == words.path_word("<ipython-input-3-0a1b>") == "In[3]"
    cell = "/tmp/ipykernel_77/1234.py"
    assert words.file_name(cell) == "cell 1234"
    compiler = SimpleNamespace(format_code_name=lambda name: ("Cell", "In[7]") if name == cell else None)
    shell = SimpleNamespace(compile=compiler)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert words.file_name(cell) == words.path_word(cell) == "In[7]"
    assert words.file_name("/tmp/ipykernel_77/99.py") == "cell 99"
    assert words.file_name("/project/ipykernel_77.py") == "ipykernel_77.py"
