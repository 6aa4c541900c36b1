"""Checks the torchglass that is installed, as the release does with each wheel: its engine, its command, the README.

  python scripts/check_wheel.py                    the compiled engine is there and loads, the command answers
  python scripts/check_wheel.py --engine python    the same for the pure wheel, which has no compiled engine

Where PyTorch is installed, the five lines of README.md run as well.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = re.compile(r"^```python net\.py\n(.*?)^```$.*?^```python train\.py\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""The two files of the README's first example."""

ENGINE = "from torchglass import compiled; print('yes' if compiled.extension else compiled.why_not)"
PLACE = "import torchglass; print(torchglass.__file__)"


def main() -> int:
    """Check everything, far from the source tree; an AssertionError says what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["compiled", "python"], default="compiled")
    wanted = parser.parse_args().engine
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        place = _printed(["-c", PLACE], folder)
        assert not place.startswith(str(ROOT / "src")), (
            f"the source tree is found instead of what is installed: {place}"
        )
        has_extension = _printed(["-c", ENGINE], folder)
        if wanted == "compiled":
            assert has_extension == "yes", f"the compiled engine does not load: {has_extension}"
        else:
            assert "was not built" in has_extension, f"a pure wheel has a compiled engine: {has_extension}"
        assert _printed(["-m", "torchglass", "--version"], folder).startswith("torchglass ")
        checked = "engine and command"
        if find_spec("torch") is not None:
            _run_example(folder)
            checked += " and README"
    print(f"check_wheel: {checked}: fine, Python {sys.version.split()[0]}, {wanted} engine")
    return 0


def _run_example(folder: Path) -> None:
    """Run the README's example; its tree begins with the outer loop."""
    found = EXAMPLE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found, "README.md has no net.py followed by a train.py"
    model, training = found.groups()
    (folder / "net.py").write_text(model, encoding="utf-8")
    program = folder / "train.py"
    program.write_text(training, encoding="utf-8")
    printed = _printed([str(program)], folder)
    assert printed.startswith("for epoch in range(epochs):"), printed
    assert "loss.backward()" in printed, printed


def _printed(arguments: list[str], folder: Path) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
