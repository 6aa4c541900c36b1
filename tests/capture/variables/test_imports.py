"""What runs while installed packages are imported is nobody's variable; the user's own modules are followed."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.capture.variables.listing import CORES, Listing
from torchglass.capture.variables import Engine, Watch

INSTALLED = """
    value = 1
    def work(value):
        value += 1
        return value
    class Table:
        value = work(10)
    import tgown_inner
    """
FAILING = """
    value = 100
    import tgpack_helper
    raise ImportError("not here")
    """
FILES = {
    "site-packages/tgpack_large.py": INSTALLED,
    "site-packages/tgpack_helper.py": "value = 101",
    "site-packages/tgpack_failing.py": FAILING,
    "tgown_inner.py": "value = 200",
    "tgown_outer.py": "value = 300\nimport tgpack_helper\nvalue = 301",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Modules of a package that is installed, and of the user's own."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("tgpack_", "tgown_"))]:
        del sys.modules[name]


def followed(core: str, program: Callable[[], Any]) -> list[str]:
    """What the variable ``value`` held, one after the other."""
    listing = Listing()
    engine = Engine(Watch(("value",)), listing, core=core)
    engine.start(sys._getframe())
    try:
        program()
    finally:
        engine.stop()
    assert engine.faults == []
    assert engine.imports == {}
    return [new for how, new in listing.of("value") if how != "deleted"]


@pytest.mark.parametrize("core", CORES)
def test_the_import_of_an_installed_package_is_out_of_scope_and_its_functions_are_not(core: str, folder: Path) -> None:
    def program() -> None:
        value = 0
        large = importlib.import_module("tgpack_large")
        value = large.work(20)
        del value

    assert followed(core, program) == ["0", "20", "21", "21"]


@pytest.mark.parametrize("core", CORES)
def test_an_own_module_is_in_scope_also_after_what_it_imports(core: str, folder: Path) -> None:
    assert followed(core, lambda: importlib.import_module("tgown_outer")) == ["300", "301"]


@pytest.mark.parametrize("core", CORES)
def test_an_import_that_fails_is_over_too(core: str, folder: Path) -> None:
    def program() -> None:
        value = 1
        with pytest.raises(ImportError, match="not here"):
            importlib.import_module("tgpack_failing")
        value = 2
        importlib.import_module("tgown_inner")
        del value

    assert followed(core, program) == ["1", "2", "200"]


@pytest.mark.parametrize("core", CORES)
def test_a_thread_that_an_import_starts_is_not_the_import(core: str, folder: Path) -> None:
    (folder / "tgown_thread.py").write_text("def run():\n    value = 7\n")
    run = importlib.import_module("tgown_thread").run
    starts = "import sys\nsys.tgpack_start()\nsys.tgpack_run()\n"
    (folder / "site-packages" / "tgpack_starts.py").write_text(starts)

    def start() -> None:
        thread = Thread(target=run)
        thread.start()
        thread.join()

    sys.tgpack_start, sys.tgpack_run = start, run  # type: ignore[attr-defined]
    try:
        assert followed(core, lambda: importlib.import_module("tgpack_starts")) == ["7"]
    finally:
        del sys.tgpack_start, sys.tgpack_run  # type: ignore[attr-defined]
