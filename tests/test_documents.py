"""README.md, the pages in docs/ and the examples print what they claim; `make update-docs` rewrites what they print.

The blocks of a document are executed in order, and a ```text block below one is its exact output:

- ```python is code of `example.py`, ```python net.py of `net.py`. The blocks of one file share their names, as the
  lines of a file do; another file has to import what it uses. ```python no-run is only shown.
- ```sh is a list of commands for a shell. In a document that has some, a named ```python block only writes its file:
  the commands run it.
- ```diff net.py changes lines of that file.

Of examples/x.py the exact output is examples/output/x.txt. Times are off unless asked for and paths are relative,
so nothing is masked here.
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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
UPDATE = bool(os.environ.get("TORCHGLASS_UPDATE_DOCS"))
MAX_EXAMPLE_LINES = 40

BLOCK = re.compile(
    r"^```(?P<language>python|sh|diff)\b(?P<flag>[^\n]*)\n(?P<code>.*?)^```\n"
    r"(?:\s*^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)

# Nothing of the terminal or the user's settings may show in what is compared.
ENVIRONMENT = {
    "COLUMNS": "100",
    "NO_COLOR": "1",
    "PYTHONIOENCODING": "utf-8",
    "PYTHONUNBUFFERED": "1",  # so that the two streams of a command stay in order
    "PYTHONWARNINGS": "ignore",
}
UNSET = ("FORCE_COLOR", "TORCHGLASS", "TORCHGLASS_UPDATE_DOCS")


@dataclass(frozen=True)
class Block:
    """One executed block of a document, the file it belongs to, the committed output and its place."""

    language: str
    code: str
    file: str
    output: str | None
    span: tuple[int, int]


def blocks(text: str) -> list[Block]:
    """Return the blocks of a document that are to be executed, in order."""
    return [
        Block(
            match["language"],
            match["code"],
            match["flag"].strip() or "example.py",
            match["output"],
            match.span("output"),
        )
        for match in BLOCK.finditer(text)
        if match["flag"].strip() != "no-run"
    ]


def run_blocks(found: list[Block], folder: Path) -> list[str]:
    """Execute the blocks of a document in a folder; return what each printed."""
    commands_run_files = any(block.language == "sh" for block in found)
    files = {block.file: "" for block in found if block.language == "python"}
    sources: list[str] = []
    for block in found:
        # The empty lines give the block the line numbers that it has in its file.
        sources.append("\n" * files.get(block.file, "").count("\n") + block.code)
        if block.language == "python":
            files[block.file] += block.code
    for name, text in files.items():
        path = folder / name
        if commands_run_files:
            path.write_text(text, encoding="utf-8")
        # A recording reads its sources from linecache. It takes no text from a disk that has more than was compiled.
        linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))

    printed: list[str] = []
    with modules_of(files) as modules:
        for source, block in zip(sources, found, strict=True):
            if block.language == "sh":
                printed.append(run_commands(block.code, folder))
            elif block.language == "diff":
                change_file(folder / block.file, block.code)
                printed.append("")
            elif commands_run_files and block.file != "example.py":
                printed.append("")
            else:
                printed.append(run_source(source, folder / block.file, modules[block.file].__dict__))
    return printed


@contextlib.contextmanager
def modules_of(files: Iterable[str]) -> Iterator[dict[str, ModuleType]]:
    """Make a module of each file, which the code of the others can import meanwhile."""
    modules = {name: ModuleType("__main__") for name in files}
    assert not {Path(name).stem for name in files} & sys.modules.keys()
    sys.modules.update({Path(name).stem: module for name, module in modules.items()})
    try:
        yield modules
    finally:
        for name in modules:
            del sys.modules[Path(name).stem]


def run_commands(commands: str, folder: Path) -> str:
    """Run commands in a shell; return what a terminal would show."""
    environment = environment_of_documents()
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    done = subprocess.run(
        commands,
        shell=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode in (0, 1), done.stdout
    return tidy(done.stdout.replace(f"{folder}{os.sep}", ""))


def change_file(path: Path, difference: str) -> None:
    """Replace the lines of a file that begin with `-` in a difference by those that begin with `+`."""
    lines = difference.splitlines()
    before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
    after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"the lines to change are there {text.count(before)} times"
    path.write_text(text.replace(before, after), encoding="utf-8")


def run_source(source: str, path: Path, namespace: dict[str, object]) -> str:
    """Execute a source as if it came from that file; return what it printed.

    It runs in a thread of its own, so that its stacks begin in the source, as a reader's do, and not in this file.
    """
    stream = io.StringIO()
    failures: list[BaseException | None] = []
    before = threading.excepthook
    threading.excepthook = lambda failed: failures.append(failed.exc_value)
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
    """Return a text without spaces at the ends of lines, which editors remove, and with one newline at its end."""
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    return "\n".join(lines) + "\n" if lines else ""


def rewritten(text: str, found: list[Block], printed: list[str]) -> str:
    """Return a document with every committed output replaced, from the end, so that positions stay right."""
    for block, output in reversed(list(zip(found, printed, strict=True))):
        if block.output is not None:
            text = text[: block.span[0]] + output + text[block.span[1] :]
    return text


def environment_of_documents() -> dict[str, str]:
    """Return the environment of a process that prints what a document shows."""
    kept = {key: value for key, value in os.environ.items() if key not in UNSET}
    return kept | ENVIRONMENT


def run_example(path: Path) -> str:
    """Return what an example prints if a user starts it from the top of the repository."""
    command = [sys.executable, str(path.relative_to(ROOT))]
    done = subprocess.run(
        command, cwd=ROOT, env=environment_of_documents(), capture_output=True, text=True, encoding="utf-8"
    )
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


def test_the_script_of_the_readme_runs_as_it_is_printed(tmp_path: Path) -> None:
    found = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    for name in {block.file for block in found}:
        code = "".join(block.code for block in found if block.file == name)
        (tmp_path / name).write_text(code, encoding="utf-8")
    printed = run_commands("python train.py", tmp_path)
    assert printed == "".join(block.output or "" for block in found if block.file == "train.py")


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
```python another.py
from example import a; print(a + 1, "other" in globals())
```
```text
old
```
"""

SAMPLE_WITH_COMMANDS = """
```python hello.py
print("hello")
```
```sh
python hello.py
```
```text
old
```
```diff hello.py
-print("hello")
+print("goodbye")
```
```sh
python hello.py  # once more
```
```text
old
```
"""


def test_blocks_run_in_order_and_are_rewritten_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(SAMPLE)
    assert [(block.file, block.output) for block in found] == [
        ("example.py", None),
        ("example.py", "old\n"),
        ("other.py", ""),
        ("another.py", "old\n"),
    ]
    printed = run_blocks(found, tmp_path)
    assert printed == ["", "1\n", "2\n", "2 False\n"]
    expected = SAMPLE.replace("```text\n```", "```text\n2\n```")
    expected = expected.replace("old", "1", 1).replace("old", "2 False", 1)
    assert rewritten(SAMPLE, found, printed) == expected


def test_a_name_of_another_file_has_to_be_imported(tmp_path: Path) -> None:
    found = blocks("```python\na = 1\n```\n```python other.py\nprint(a)\n```\n")
    with pytest.raises(NameError):
        run_blocks(found, tmp_path)


def test_commands_run_the_files_of_a_document_and_its_changes_apply(tmp_path: Path) -> None:
    found = blocks(SAMPLE_WITH_COMMANDS)
    assert run_blocks(found, tmp_path) == ["", "hello\n", "", "goodbye\n"]


def test_the_source_files_that_documents_name_are_there() -> None:
    package = ROOT / "src" / "torchglass"
    sources = [str(path.relative_to(ROOT)) for path in package.rglob("*") if path.suffix in (".py", ".c", ".h", ".cu")]
    missing: list[str] = []
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for name in re.findall(r"`([\w./]+/\w+\.(?:py|c|h|cu))`", document.read_text(encoding="utf-8")):
            if Path(name).stem == "NAME":  # a file that the reader is about to write
                continue
            if not (ROOT / name).exists() and not any(source.endswith(f"/{name}") for source in sources):
                missing.append(f"{document.name}: {name}")
    assert missing == []


def test_the_map_names_each_package() -> None:
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    drawing = page.split("```")[1]
    package = ROOT / "src" / "torchglass"
    names = {folder.parent.name for folder in package.glob("*/__init__.py")}
    names |= {folder.parent.name for folder in package.glob("capture/*/__init__.py")}
    assert {name for name in names if f"{name}/" not in drawing} <= {"compat"}
    for name in re.findall(r"(\w+)/", drawing):
        places = [package / name, package / "capture" / name, package / "capture" / "engine" / name]
        places += [package / "views" / name, ROOT / name]
        assert any(place.is_dir() for place in places), f"the map names {name}/, which is not there"
