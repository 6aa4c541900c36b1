"""What holds for every test."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

SLOW = re.compile(
    r"^\s*(?:import|from) (?:subprocess|multiprocessing|transformers|tests\.(?:zoo|programs|work|conformance)\b)",
    re.MULTILINE,
)
"""What a test file imports that starts processes or builds real transformers: `make quick` leaves it out."""
THOROUGH = {
    "tests/settle/test_damaged.py", "tests/store/test_hostile.py", "tests/capture/transparency/test_lifetimes.py",
    "tests/capture/transparency/test_compiled.py", "tests/compat/test_torch_code_tracing.py",
    "tests/cli/test_run_reports.py", "tests/views/graph/test_oracle.py", "tests/views/calls/test_view.py",
    "tests/views/calls/test_text.py", "tests/views/variables/test_text.py", "tests/views/page/test_browser.py",
    "tests/views/page/test_picture.py",
}  # fmt: skip
"""Files that take ten seconds and more."""
QUICK = "quick"
settings.register_profile(QUICK, max_examples=10)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="no transformers, no processes, few generated examples")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        settings.load_profile(QUICK)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("--quick") and collection_path.suffix == ".py":
        name = collection_path.relative_to(config.rootpath).as_posix()
        return name in THOROUGH or bool(SLOW.search(collection_path.read_text(encoding="utf-8"))) or None
    return None


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is there by now (torch, transformers, the tests) stays: no collection in a test walks all that once more."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def only_the_tests_own_callbacks() -> Iterator[None]:
    """Hypothesis leaves a callback with the garbage collector: Python code that would run, and be recorded, anywhere.

    What such code may do to a recording is tested in tests/capture/engine/test_within_ours.py.
    """
    known, gc.callbacks[:] = gc.callbacks[:], []
    yield
    gc.callbacks[:] = known
