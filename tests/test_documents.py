"""What README.md and the examples claim to print is what they print; `make update-docs` writes it anew.

In a document, a ```python block followed by a ```text block is executed, and the text is its exact
output. The blocks run one after the other and share their names, as if they stood in one file
`example.py`, or in the file named after ```python. A python block without text is executed too;
```python no-run is only shown. Of examples/x.py the exact output is examples/output/x.txt.
Times are off unless asked for and paths are relative, so nothing is masked here.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
UPDATE = bool(os.environ.get("TORCHGLASS_UPDATE_DOCS"))
MAX_EXAMPLE_LINES = 40

BLOCK = re.compile(
    r"^```python(?P<flag>[^\n]*)\n(?P<code>.*?)^```\n(?:\s*^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)

# Nothing of the terminal or the user's settings may show in what is compared.
ENVIRONMENT = {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "ignore"}
UNSET = ("FORCE_COLOR", "TORCHGLASS", "TORCHGLASS_UPDATE_DOCS")


@dataclass(frozen=True)
class Block:
    """One executed block of a document, the file it stands for, the committed output and its place."""

    code: str
    file: str
    output: str | None
    span: tuple[int, int]


def blocks(text: str) -> list[Block]:
    """The blocks of a document that are to be executed, in order."""
    return [
        Block(match["code"], match["flag"].strip() or "example.py", match["output"], match.span("output"))
        for match in BLOCK.finditer(text)
        if match["flag"].strip() != "no-run"
    ]


def run_blocks(found: list[Block], folder: Path) -> list[str]:
    """Execute blocks in one namespace; what each printed.

    Their texts are given to linecache before anything runs, as notebooks do: a recording reads sources there.
    """
    files: dict[str, str] = {}
    sources: list[str] = []
    for block in found:
        before = files.get(block.file, "")
        sources.append("\n" * before.count("\n") + block.code)
        files[block.file] = before + block.code
    for name, text in files.items():
        path = str(folder / name)
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    return [run_source(source, folder / block.file, namespace) for source, block in zip(sources, found, strict=True)]


def run_source(source: str, path: Path, namespace: dict[str, object]) -> str:
    """Execute a source as if it came from that file; what it printed.

    In a thread of its own, so that its stacks begin there, as a reader's do, and not in this file.
    """
    stream = io.StringIO()
    failures: list[BaseException | None] = []
    before, threading.excepthook = threading.excepthook, lambda failed: failures.append(failed.exc_value)
    try:
        with contextlib.redirect_stdout(stream):
            code = compile(source, str(path), "exec")
            thread = threading.Thread(target=exec, args=(code, namespace), name="MainThread")
            thread.start()
            thread.join()
    finally:
        threading.excepthook = before
    if failures and failures[0] is not None:
        raise failures[0]
    return tidy(stream.getvalue())


def tidy(text: str) -> str:
    """Without spaces at the ends of lines, which editors remove; exactly one newline at the end."""
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    return "\n".join(lines) + "\n" if lines else ""


def rewritten(text: str, found: list[Block], printed: list[str]) -> str:
    """The document with every committed output replaced; from the end, so that positions stay right."""
    for block, output in reversed(list(zip(found, printed, strict=True))):
        if block.output is not None:
            text = text[: block.span[0]] + output + text[block.span[1] :]
    return text


def run_example(path: Path) -> str:
    """What an example prints, as a user would start it: from the top of the repository."""
    environment = {key: value for key, value in os.environ.items() if key not in UNSET} | ENVIRONMENT
    command = [sys.executable, str(path.relative_to(ROOT))]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return tidy(done.stdout)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_prints_what_it_shows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in ENVIRONMENT.items():
        monkeypatch.setenv(key, value)
    for key in UNSET:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.chdir(tmp_path)
    text = path.read_text(encoding="utf-8")
    found = blocks(text)
    printed = run_blocks(found, tmp_path)
    if UPDATE:
        path.write_text(rewritten(text, found, printed), encoding="utf-8")
        return
    for block, output in zip(found, printed, strict=True):
        if block.output is not None:
            assert output == block.output, f"{path.name}: run `make update-docs`"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_is_committed(path: Path) -> None:
    committed = ROOT / "examples" / "output" / f"{path.stem}.txt"
    printed = run_example(path)
    if UPDATE:
        committed.parent.mkdir(exist_ok=True)
        committed.write_text(printed, encoding="utf-8")
        return
    assert committed.exists(), f"{committed.name} is missing: run `make update-docs`"
    assert printed == committed.read_text(encoding="utf-8"), "run `make update-docs`"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_opens_with_its_question(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_EXAMPLE_LINES
    assert lines[0].startswith('"""')
    assert "?" in lines[0]


def test_no_committed_output_is_left_of_an_example_that_is_gone() -> None:
    written = {path.stem for path in (ROOT / "examples" / "output").glob("*.txt")}
    assert written <= {path.stem for path in EXAMPLES}


SAMPLE = """
```python
a = 1
```
words between
```python
print(a)
```

```text
old
```
```python no-run
1 / 0
```
```python other.py
import linecache, os; print("".join(linecache.getlines(os.path.abspath("example.py"))).count("a"))
```
```text
```
"""


def test_blocks_run_in_order_and_are_rewritten_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(SAMPLE)
    assert [(block.file, block.output) for block in found] == [
        ("example.py", None),
        ("example.py", "old\n"),
        ("other.py", ""),
    ]
    printed = run_blocks(found, tmp_path)
    assert printed == ["", "1\n", "2\n"]
    assert rewritten(SAMPLE, found, printed) == SAMPLE.replace("old", "1").replace("```text\n```", "```text\n2\n```")


def test_the_source_files_that_documents_name_are_there() -> None:
    package = ROOT / "src" / "torchglass"
    sources = [str(path.relative_to(ROOT)) for path in package.rglob("*") if path.suffix in (".py", ".c", ".h", ".cu")]
    missing: list[str] = []
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for name in re.findall(r"`([\w./]+/\w+\.(?:py|c|h|cu))`", document.read_text(encoding="utf-8")):
            if not (ROOT / name).exists() and not any(source.endswith(f"/{name}") for source in sources):
                missing.append(f"{document.name}: {name}")
    assert missing == []
