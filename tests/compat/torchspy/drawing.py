"""A program `dot` for the tests: the machine's own, or one on the Graphviz library inside the wheel of pygraphviz.

So drawing is tested with the real layout engine on every machine, and never skipped.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

SCRIPT = """\
#!{python}
import sys
from pathlib import Path

import pygraphviz

options = [argument for argument in sys.argv[1:] if argument.startswith("-")]
files = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
form = next(option[2:] for option in options if option.startswith("-T"))
text = Path(files[0]).read_text(encoding="utf-8") if files else sys.stdin.buffer.read().decode()
picture = pygraphviz.AGraph(string=text).draw(format=form, prog="dot")
if "-O" in options:
    Path(files[0] + "." + form).write_bytes(picture)
else:
    sys.stdout.buffer.write(picture)
"""


def path_with_dot(folder: Path) -> str:
    """A PATH on which a program `dot` is found."""
    if shutil.which("dot") is None:
        program = folder / "dot"
        program.write_text(SCRIPT.format(python=sys.executable), encoding="utf-8")
        program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
