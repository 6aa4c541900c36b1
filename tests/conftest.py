"""What holds for every test."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.default_run import is_usual

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
ALL_TESTS = pytest.StashKey[list[str]]()
"""The names of all tests that were collected, those too that do not run."""
# Examples that are made slowly are the machine's doing, which may be busy.
settings.register_profile("usual", suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(QUICK, max_examples=10, suppress_health_check=[HealthCheck.too_slow])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="no transformers, no processes, few generated examples")
    parser.addoption(
        "--conformance",
        choices=["without", "only", "with"],
        default="without",
        help="leave out what tests/default_run.py leaves to `make conformance` (the default), run only that, or all",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile(QUICK if config.getoption("--quick") else "usual")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("--quick") and collection_path.suffix == ".py":
        name = collection_path.relative_to(config.rootpath).as_posix()
        return name in THOROUGH or bool(SLOW.search(collection_path.read_text(encoding="utf-8"))) or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose between the default run and what it leaves to `make conformance`."""
    config.stash[ALL_TESTS] = [item.nodeid for item in items]
    wanted = config.getoption("--conformance")
    if wanted == "with":
        return
    wants_usual = wanted == "without"
    config.hook.pytest_deselected(items=[item for item in items if is_usual(item.nodeid) != wants_usual])
    items[:] = [item for item in items if is_usual(item.nodeid) == wants_usual]


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is there by now (torch, transformers, the tests) stays: no collection in a test walks all that once more."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def all_tests(request: pytest.FixtureRequest) -> list[str]:
    """The names of all tests, where all were collected."""
    config = request.config
    if config.args != config.getini("testpaths") or config.getoption("--quick"):
        pytest.skip("not all tests were collected")
    return config.stash[ALL_TESTS]


@pytest.fixture(autouse=True, scope="module")
def what_other_tests_left_is_not_collected() -> None:
    """The same for what the tests before have imported and kept: hundreds of tests collect, some a dozen times."""
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


@pytest.fixture(autouse=True)
def no_feature_stays_off() -> Iterator[None]:
    """Forget which features a test broke: `torchglass doctor` would list them in the next test of this process."""
    yield
    features = sys.modules.get("torchglass.capture.transparency.features")
    if features is not None:
        features.OFF.clear()
