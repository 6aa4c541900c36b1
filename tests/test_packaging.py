"""What a user installs: a wheel that is complete, light to import, and needs torch only to record."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import torchglass
from torchglass import compiled
from torchglass._version import __version__
from torchglass.cli.doctor import NEWEST_PYTHON

ROOT = Path(__file__).resolve().parent.parent

# Everything that design and habit promise at the top; a new public name is added here on purpose.
PUBLIC = {
    "Event", "Trace", "Value",
    "compare", "export", "first_bad", "last_trace", "load", "mark", "record", "render", "same", "save", "select",
    "show", "trace",
}  # fmt: skip

# Puts an obstacle in the way of `import torch`: whoever needs it fails at once.
BLOCK_TORCH = "import sys; sys.modules['torch'] = None; "


def python(code: str, *, path: Path | None = None) -> str:
    """What a fresh interpreter prints; fails with its error output."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=path or ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(folder: Path, **environment: str) -> Path:
    """A wheel of the tree as it lies here."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    command = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(ROOT)]
    subprocess.run([*pip, *command], check=True, cwd=folder, env={**os.environ, **environment})
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As it is built here: with the compiled engine, if there is a compiler."""
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment, without torch, with nothing but the wheel."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    interpreter = folder / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--python",
        str(interpreter),
    ]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True)
    return folder / "bin"


def in_bare(bare: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the bare environment, far from the tree."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TORCHGLASS"))}
    return subprocess.run(
        [str(bare / command[0]), *command[1:]], capture_output=True, text=True, env=environment, cwd=bare
    )


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("torchglass/")}
    package = ROOT / "src" / "torchglass"
    source = {
        f"torchglass/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".c", ".h", ".so")
    }
    compiled = {name for name in inside if name.startswith("torchglass/_fast.")}
    assert inside - compiled == source
    assert "torchglass/py.typed" in inside
    is_for_any = wheel.name.endswith("-py3-none-any.whl")
    assert len(compiled) == (0 if is_for_any else 1)  # for this Python and machine only where it has to be
    assert is_for_any or f"-cp{sys.version_info[0]}{sys.version_info[1]}-" in wheel.name


NO_COMPILER = {"CC": "/no/such/compiler", "PATH": "/no/such/folder"}


def test_without_a_compiler_it_is_a_wheel_for_all_and_works(tmp_path: Path) -> None:
    built = build(tmp_path, **NO_COMPILER)
    assert built.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built) as content:
        assert not [name for name in content.namelist() if name.startswith("torchglass/_fast.")]
        content.extractall(tmp_path / "installed")
    code = """
        import torchglass, torch
        with torchglass.record() as trace:
            torch.ones(2) + 1
        print(torchglass.__file__, [event.name for event in trace.events()], trace.engine)
    """
    printed = python(code, path=tmp_path / "installed")
    assert printed.startswith(str(tmp_path))
    assert "['ones', 'Tensor.add'] python: it was not built" in printed


def test_a_compiler_that_is_required_and_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        build(tmp_path, TORCHGLASS_BUILD="required", **NO_COMPILER)


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """hatch_build.py on a Python that it does not know."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.NEWEST_TRIED == NEWEST_PYTHON, "hatch_build.py and the doctor do not know the same Pythons"
    monkeypatch.setattr(module, "NEWEST_TRIED", (3, 0))
    return module


@pytest.mark.skipif(compiled.extension is None, reason=f"the engine is {compiled.described()}")
def test_the_extension_passes_the_test_that_an_unknown_python_asks_of_it(builder: ModuleType) -> None:
    builder.test_extension(Path(compiled.extension.__file__))


BROKEN = {
    "crashes": '#include <stdlib.h>\n__attribute__((visibility("default"))) void *PyInit__fast(void) { abort(); }',
    "is no module": "int nothing;",
    "lacks what we call": """
        #include <Python.h>
        static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_fast", 0, -1, 0};
        PyMODINIT_FUNC PyInit__fast(void);
        __attribute__((visibility("default"))) PyObject *PyInit__fast(void) { return PyModule_Create(&definition); }
    """,
}


@pytest.mark.skipif(compiled.extension is None, reason="without a compiler nothing is compiled")
@pytest.mark.parametrize("how", BROKEN)
def test_an_extension_that_fails_on_an_unknown_python_is_left_out(
    how: str, builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.c").write_text(BROKEN[how])
    monkeypatch.setattr(builder, "SOURCES", tmp_path)
    target = tmp_path / "_fast.so"
    with pytest.raises(builder.NotBuilt, match="self-test failed"):
        builder.compile_extension(target)
    assert [each.name for each in tmp_path.iterdir()] == ["broken.c"]


def test_the_wheel_installs_and_runs_in_a_bare_environment(bare: Path) -> None:
    for command in (["torchglass", "--version"], ["python", "-m", "torchglass", "--version"]):
        done = in_bare(bare, *command)
        assert (done.returncode, done.stdout.strip()) == (0, f"torchglass {__version__}"), done.stderr
    assert in_bare(bare, "python", "-c", "import torchglass").returncode == 0


def test_doctor_names_the_cure_when_torch_is_missing(bare: Path) -> None:
    done = in_bare(bare, "torchglass", "doctor")
    assert done.returncode == 1, done.stderr
    assert "not installed" in done.stdout
    assert "pip install torch" in done.stdout


def test_doctor_finds_a_working_recorder_here() -> None:
    done = subprocess.run([sys.executable, "-m", "torchglass", "doctor"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one addition was seen" in done.stdout


def test_wrong_use_of_the_command_line_exits_with_2() -> None:
    for arguments in ([], ["no-such-command"], ["doctor", "--no-such-option"]):
        done = subprocess.run([sys.executable, "-m", "torchglass", *arguments], capture_output=True, text=True)
        assert done.returncode == 2, arguments
        assert "usage: torchglass" in done.stderr


def test_importing_torchglass_imports_little() -> None:
    loaded = python(
        """
        import sys
        before = set(sys.modules)
        import torchglass
        print(*sorted(set(sys.modules) - before))
        """
    ).split()
    heavy = {"torch", "numpy", "rich", "executing", "sqlite3", "asyncio", "transformers"}
    assert heavy.isdisjoint(loaded)
    assert len(loaded) <= 40, loaded  # a count, not a time: it is the same on every machine


@pytest.mark.parametrize("package", ["cli", "views", "store", "recording", "api", "events", "errors"])
def test_a_package_imports_with_torch_out_of_reach(package: str) -> None:
    python(
        BLOCK_TORCH
        + f"""
import importlib, pkgutil
top = importlib.import_module("torchglass.{package}")
for module in pkgutil.walk_packages(getattr(top, "__path__", []), top.__name__ + "."):
    importlib.import_module(module.name)
"""
    )


def test_the_public_names_are_those_and_no_others() -> None:
    names = set(torchglass.__all__)
    errors = {name for name in names if is_error(name)}
    assert names - errors - {"__version__"} == PUBLIC
    assert sorted(torchglass.__all__) == sorted(set(torchglass.__all__)), "a name is listed twice"
    for name in names:
        assert getattr(torchglass, name) is not None


def is_error(name: str) -> bool:
    """Is this public name an exception class?"""
    value = getattr(torchglass, name)
    return isinstance(value, type) and issubclass(value, BaseException)


def test_dir_shows_the_public_names() -> None:
    assert set(torchglass.__all__) <= set(dir(torchglass))


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        torchglass.no_such_name
