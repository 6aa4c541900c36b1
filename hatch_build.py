"""Compiles the hot path where there is a compiler; where there is none torchglass is installed, and works, without it.

A build hook of hatchling, which builds wheels; `python hatch_build.py` compiles in place, for work on the code.
TORCHGLASS_BUILD=required makes a failure an error, TORCHGLASS_BUILD=0 leaves the extension out. CFLAGS are added.
On a Python newer than those that the tests ran on, what was compiled must first pass a short test of its own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "src" / "torchglass" / "capture" / "engine" / "fast"
NAME = f"_fast{sysconfig.get_config_var('EXT_SUFFIX')}"
IN_PLACE = ROOT / "src" / "torchglass" / NAME
FLAGS = "-O2 -Wall -std=c11 -ffp-contract=fast -fPIC -shared -fvisibility=hidden"

NEWEST_TRIED = (3, 13)
"""The newest Python that the tests ran on (docs/versions.md)."""
SECONDS_TO_TEST = 300

# It runs in a process of its own: on a Python whose frames look otherwise it may well crash. Where PyTorch is not
# installed, as while pip builds a wheel, only loading can be tried.
SELF_TEST = """
import importlib.machinery, importlib.util, sys
source, path = sys.argv[1:]
sys.path.insert(0, source)
loader = importlib.machinery.ExtensionFileLoader("torchglass._fast", path)
spec = importlib.util.spec_from_file_location("torchglass._fast", path, loader=loader)
extension = importlib.util.module_from_spec(spec)
loader.exec_module(extension)
assert extension.is_main_interpreter()
def scale(x):
    y = x + 1
    for _ in range(3):
        y = y * 2
    return y
if importlib.util.find_spec("torch"):
    sys.modules["torchglass._fast"] = extension
    import torch, torchglass
    linear = torch.nn.Linear(2, 2)
    expected = linear(scale(torch.ones(2)))
    for options in {}, {"ops": True}, {"variables": True, "calls": "user"}:
        with torchglass.record(**options) as trace:
            found = linear(scale(torch.ones(2)))
        assert torch.equal(found, expected), "other numbers"
        assert trace.engine.startswith("compiled"), trace.engine
        assert not [note for note in trace.notes if "failed" in note], trace.notes
        names = [event.name for event in trace.events() if event.kind == "function"]
        wanted = ["ones", "Tensor.add", "Tensor.mul", "Tensor.mul", "Tensor.mul", "F.linear"]
        assert names == wanted, names
        if options.get("variables"):
            assert "y" in [event.name for event in trace.events() if event.kind == "variable"], "no variables"
"""


class NotBuilt(Exception):
    """There is no extension; the text says why."""


def compile_extension(target: Path) -> None:
    """Compile the extension into a file; NotBuilt where that cannot be."""
    if os.environ.get("TORCHGLASS_BUILD") == "0":
        raise NotBuilt("TORCHGLASS_BUILD=0")
    if os.name != "posix" or sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotBuilt("it is for CPython with its global lock, on Linux and macOS")
    command = [*compiler(), *FLAGS.split(), *shlex.split(os.environ.get("CFLAGS", ""))]
    command += ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    command += [f"-I{sysconfig.get_path('include')}", *map(str, sorted(SOURCES.glob("*.c"))), "-lm"]
    beside = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        run = subprocess.run([*command, "-o", str(beside)], capture_output=True, text=True, check=False)
        if run.returncode:
            raise NotBuilt(f"{command[0]} failed: {run.stderr.strip()[-1000:]}")
        if sys.version_info[:2] > NEWEST_TRIED:
            test_extension(beside)
        beside.replace(target)  # at once: others may be importing it
    finally:
        beside.unlink(missing_ok=True)


def test_extension(path: Path) -> None:
    """Record a few lines with the extension in a file; NotBuilt where that fails, crashes or hangs."""
    command = [sys.executable, "-", str(ROOT / "src"), str(path)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TORCHGLASS")}
    try:
        run = subprocess.run(
            command,
            input=SELF_TEST,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_TO_TEST,
        )
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"its self-test did not end within {SECONDS_TO_TEST} s") from None
    if run.returncode:
        raise NotBuilt(f"its self-test failed ({run.returncode}): {run.stderr.strip()[-1000:]}")


def compiler() -> list[str]:
    """The system's C compiler, with its own arguments."""
    for each in (os.environ.get("CC"), "cc", "gcc", "clang"):
        words = shlex.split(each or "")
        if words and shutil.which(words[0]):
            return words
    raise NotBuilt("no C compiler was found (CC=… names one)")


class CustomBuildHook(BuildHookInterface):
    """Puts the extension into a wheel, which then is one of this Python and this machine."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        is_editable = version == "editable"
        target = IN_PLACE if is_editable else Path(self.directory) / NAME
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            compile_extension(target)
        except (NotBuilt, OSError) as reason:
            if os.environ.get("TORCHGLASS_BUILD") == "required":
                raise
            self.app.display_warning(f"without the compiled engine: {reason}")
            return
        if not is_editable:  # which takes it from its place in src
            build_data["force_include"][str(target)] = f"torchglass/{NAME}"
            build_data["pure_python"], build_data["infer_tag"] = False, True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        (Path(self.directory) / NAME).unlink(missing_ok=True)


def main() -> int:
    """Compile in place; not to be able to is no error, unless it is required."""
    try:
        compile_extension(IN_PLACE)
    except NotBuilt as reason:
        IN_PLACE.unlink(missing_ok=True)
        print(f"without the compiled engine: {reason}")
        return os.environ.get("TORCHGLASS_BUILD") == "required"
    print(f"compiled {IN_PLACE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
