"""Which files one ``q @ k`` passes on its way to a line of the tree, stage by stage, as counted by calls.

    python scripts/walk.py          how many files each stage passes
    python scripts/walk.py --files  and which, with the functions that ran

Everything was met before: what is worked out once in a process is not counted. With the compiled engine most of the
call itself is in C; ``TORCHGLASS_ENGINE=python`` shows the way through the definition.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import torchglass
from torchglass.program import program_of

FOLDER = str(Path(torchglass.__file__).parent) + "/"
STAGES = ("start", "q @ k", "stop", "settle", "program", "findings", "tree")
Ran = dict[str, dict[str, set[str]]]


def walk() -> Ran:
    """By stage and file the functions that ran."""
    ran: Ran = {stage: {} for stage in STAGES}
    stage = ""

    def noted(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if stage and event == "call" and code.co_filename.startswith(FOLDER):
            ran[stage].setdefault(code.co_filename[len(FOLDER) :], set()).add(code.co_qualname)

    q, k = torch.ones(4, 8), torch.ones(8, 4)
    for stages in ([""] * len(STAGES), STAGES):
        recording = torchglass.record()
        sys.setprofile(noted)
        stage = stages[0]
        trace = recording.__enter__()
        stage = stages[1]
        _ = q @ k
        stage = stages[2]
        recording.__exit__(None, None, None)
        stage = stages[3]
        len(trace)
        stage = stages[4]
        _ = program_of(trace).tree
        stage = stages[5]
        trace.findings()
        stage = stages[6]
        torchglass.render(trace)
        sys.setprofile(None)
    # The tree marks findings at their rows: to look for them is a stage of its own.
    ran["tree"] = {file: names for file, names in ran["tree"].items() if not file.startswith("answers/")}
    return ran


def main() -> None:
    """Print the walk."""
    ran = walk()
    for stage, files in ran.items():
        print(f"{stage:<8} {len(files):>3} files")
        for file, functions in sorted(files.items()) if "--files" in sys.argv else ():
            print(f"          {file}: {', '.join(sorted(functions))}")
    print(f"in all   {len(set().union(*ran.values())):>3} files")


if __name__ == "__main__":
    main()
