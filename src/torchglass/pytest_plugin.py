"""The pytest plugin: golden traces, and the story of a failure below pytest's traceback.

``with trace_snapshot(level="shapes"): model(x)`` compares what the block did with a text kept in ``__snapshots__/``;
``pytest --snapshot-update`` writes it. ``pytest --torchglass`` records each test and tells, where one fails, how the
failing call came about. Nothing of torch is imported before a test asks for it.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FOLDER = "__snapshots__"
HEADER = "# torchglass snapshot"
_UNSAFE = re.compile(r"[^\w.\-\[\],=]+")
_LONGEST = 120
MOST_FINDINGS = 5
"""Below the story of a failed test."""
_KEY = "torchglass_snapshots"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    group = parser.getgroup("torchglass")
    group.addoption(
        "--snapshot-update",
        action="store_true",
        help="write the golden traces of tests, and remove unused ones",
    )
    group.addoption(
        "--torchglass", action="store_true", help="record each test; below the traceback of one that fails, tell "
        "how the failing call came about"
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Keep what is known of all snapshots of this test run."""
    config.pluginmanager.register(_Session(config), "torchglass-session")


# ---------------------------------------------------------------- snapshots


class TraceSnapshot:
    """What the fixture ``trace_snapshot`` is: called, it gives a block whose trace is compared with a kept text."""

    def __init__(self, request: pytest.FixtureRequest, session: _Session) -> None:
        self._node: Any = request.node
        self._session = session
        self._count = 0

    def __call__(self, level: str = "shapes", *, name: str = "") -> Any:
        """Return a block; ``level`` is ``shapes``, ``ops``, ``stats`` or ``values``, ``name`` distinguishes several
        in a test.
        """
        from torchglass.answers.golden import check_level

        check_level(level)
        self._count += 1
        return self._block(level, name or (str(self._count) if self._count > 1 else ""))

    @contextmanager
    def _block(self, level: str, name: str) -> Iterator[Any]:
        from torchglass.answers.golden import snapshot_lines
        from torchglass.api import record

        values = {"stats": "stats", "values": "stats+sketch"}.get(level)
        with record(ops=level == "ops", values=values) as trace:
            yield trace
        self._session.check(self._path(name), level, snapshot_lines(trace, level))

    def _path(self, name: str) -> Path:
        test = _test_name(self._node.nodeid)
        return (
            _folder_of(Path(self._node.path))
            / f"{_file_name(f'{test}-{name}' if name else test)}.txt"
        )


def _test_name(nodeid: str) -> str:
    """Return the name of a test inside its file."""
    return nodeid.partition("::")[2].replace("::", ".")


def _folder_of(file: Path) -> Path:
    """Return the folder of the snapshots of a test file."""
    return file.parent / FOLDER / file.stem


def _file_name(name: str) -> str:
    """Return a name as that of a file, without an ending."""
    text = _UNSAFE.sub("_", name)
    if len(text) <= _LONGEST:
        return text
    import hashlib

    return f"{text[:_LONGEST]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@pytest.fixture
def trace_snapshot(request: pytest.FixtureRequest) -> TraceSnapshot:
    """Compare what a block did with a golden trace: ``with trace_snapshot(level="shapes"): model(x)``."""
    session: Any = request.config.pluginmanager.get_plugin("torchglass-session")
    return TraceSnapshot(request, session)


class _Session:
    """What is known of all snapshots of a test run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._updates = bool(config.getoption("--snapshot-update"))
        self._records = bool(config.getoption("--torchglass"))
        self.used: set[str] = set()
        self.written: set[str] = set()
        self._files: set[str] = set()
        self._skipped: set[tuple[str, str]] = set()
        """The tests that were skipped, each with its folder of snapshots and the beginning of their names."""
        self._is_whole = not config.getoption("lf", False)
        """Whether all tests of the collected files run, so that a snapshot without a user is unused."""

    def check(self, path: Path, level: str, lines: list[str]) -> None:
        """Compare with what is kept, or keep it."""
        self.used.add(str(path))
        text = "\n".join([_header(level), *lines, ""])
        if self._updates:
            if not path.exists() or _body(path.read_text(encoding="utf-8")) != _body(text):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                self.written.add(str(path))
            return
        shown = _shown(path, self._config)
        if not path.exists():
            pytest.fail(
                f"there is no snapshot {shown} yet: pytest --snapshot-update writes it",
                pytrace=False,
            )
        kept = path.read_text(encoding="utf-8")
        told = _differences(kept, text)
        if told:
            message = [f"the trace differs from the snapshot {shown}", *told]
            message += _version_notes(kept, text)
            message.append("if that is meant: pytest --snapshot-update")
            pytest.fail("\n".join(message), pytrace=False)

    # ------------------------------------------------------------ which are unused

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._files.update(str(item.path) for item in session.items)
        if any("::" in each for each in self._config.args):
            self._is_whole = False

    def pytest_deselected(self) -> None:
        self._is_whole = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            file = self._config.rootpath / report.nodeid.partition("::")[0]
            beginning = _UNSAFE.sub("_", _test_name(report.nodeid))[:_LONGEST]
            self._skipped.add((str(_folder_of(file)), beginning))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: Any = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_KEY] = [
                sorted(self.used),
                sorted(self.written),
                sorted(self._files),
                self._is_whole,
            ]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        used, written, files, is_whole = getattr(node, "workeroutput", {}).get(
            _KEY, ([], [], [], False)
        )
        self.used.update(used)
        self.written.update(written)
        self._files.update(files)
        self._is_whole = self._is_whole and is_whole

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        # A process of xdist, which knows its own tests only.
        if hasattr(self._config, "workeroutput"):
            return
        if self.written:
            terminalreporter.write_line(f"torchglass: {len(self.written)} snapshot(s) written")
        if self._is_whole and exitstatus == 0:
            unused = self._unused()
        else:
            unused = []
        if unused and self._updates:
            for path in unused:
                path.unlink()
            terminalreporter.write_line(f"torchglass: {len(unused)} unused snapshot(s) removed")
        elif unused:
            terminalreporter.write_line(
                f"torchglass: {len(unused)} snapshot(s) that no test used (--snapshot-update removes them):"
            )
            for path in unused:
                terminalreporter.write_line(f"  {_shown(path, self._config)}")

    def _unused(self) -> list[Path]:
        found: list[Path] = []
        for file in sorted(self._files):
            folder = _folder_of(Path(file))
            if folder.is_dir():
                found += [each for each in sorted(folder.glob("*.txt")) if self._is_unused(each)]
        return found

    def _is_unused(self, snapshot: Path) -> bool:
        """Return whether no test used a snapshot, and none that was skipped may use it."""
        if str(snapshot) in self.used:
            return False
        folder = str(snapshot.parent)
        return not any(
            folder == where and snapshot.name.startswith((f"{beginning}.", f"{beginning}-"))
            for where, beginning in self._skipped
        )

    # ------------------------------------------------------------ failures

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        if not self._records or "torch" not in sys.modules:
            return (yield)
        from torchglass.api import record

        trace: Any = None
        try:
            with record() as trace:
                return (yield)
        except BaseException as error:
            if not isinstance(error, pytest.skip.Exception):
                _tell(item, trace)
            raise


def _tell(item: pytest.Item, trace: Any) -> None:
    """Put the story of a failure below the traceback; a fault of ours must not hide the test's own."""
    try:
        if trace is None or not len(trace):
            return
        from torchglass.api import render

        story = render(trace, "failure", width=100, color=False)
        item.add_report_section("call", "torchglass", "\n".join([story, *_suspicions(trace)]))
    except Exception as fault:
        item.add_report_section(
            "call", "torchglass", f"the story could not be told: {type(fault).__name__}: {fault}"
        )


def _suspicions(trace: Any) -> Iterator[str]:
    """Yield what else looks wrong in the code that the test ran, without hints."""
    from torchglass.answers.finding import HINT, findings_lines
    from torchglass.views.text.style import Page

    findings = [each for each in trace.findings() if each.severity != HINT]
    if findings:
        yield ""
        yield from findings_lines(findings[:MOST_FINDINGS], Page(width=100))
    if len(findings) > MOST_FINDINGS:
        yield f"and {len(findings) - MOST_FINDINGS} more findings"


# ---------------------------------------------------------------- texts


def _header(level: str) -> str:
    from torchglass._version import __version__

    torch: Any = sys.modules["torch"]
    return f"{HEADER} · {level} · torch {torch.__version__} · torchglass {__version__} · python {_python()}"


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])


def _body(text: str) -> str:
    return text.partition("\n")[2]


def _differences(kept: str, now: str) -> list[str]:
    from torchglass.answers.golden import differences

    head, _, body = kept.partition("\n")
    if not head.startswith(HEADER):
        return [f"  its first line is no header of a snapshot: {head[:60]!r}"]
    level = head.split(" · ")[1:2]
    wanted = now.partition("\n")[0].split(" · ")[1]
    if level != [wanted]:
        return [
            f"  it was written with level {' '.join(level) or '?'}, and the test asks for {wanted}"
        ]
    return differences(body.splitlines(), _body(now).splitlines())


def _version_notes(kept: str, now: str) -> list[str]:
    """Return which versions differ from those that wrote a snapshot."""
    before = kept.partition("\n")[0].split(" · ")[2:]
    after = now.partition("\n")[0].split(" · ")[2:]
    changed = [
        f"{old} then, {new} now" for old, new in zip(before, after, strict=False) if old != new
    ]
    if changed:
        return [f"note: {'; '.join(changed)}"]
    return []


def _shown(path: Path, config: pytest.Config) -> str:
    try:
        return path.relative_to(config.rootpath).as_posix()
    except ValueError:
        return str(path)
