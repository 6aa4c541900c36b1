"""Say what is installed here and whether recording works.

Exit status 0 when everything needed works, 1 when not; each line that is not ok names its cure.

examples:
  torchglass doctor
  python -m torchglass doctor && python train.py
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from torchglass._version import __version__

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 11)


@dataclass(frozen=True)
class Finding:
    """One line of the report; `cure` is empty when all is well."""

    subject: str
    text: str
    cure: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(options: argparse.Namespace) -> int:
    """Print one line a finding; 1 when one of them needs a cure."""
    sick = False
    for finding in examine():
        print(f"{'!!' if finding.cure else 'ok'}  {finding.subject:<11} {finding.text}")
        if finding.cure:
            sick = True
            print(f"    {'':<11} {finding.cure}")
    return 1 if sick else 0


def examine() -> Iterator[Finding]:
    """Every check, in order; those that need torch only when it can be imported."""
    yield Finding("torchglass", __version__)
    yield python()
    found = torch()
    yield found
    if not found.cure:
        yield device()
        yield private_names()
        yield recording()
        yield engine()
    yield switch()


def python() -> Finding:
    """Is this Python new enough?"""
    text = f"{platform.python_version()} ({platform.python_implementation()}, {platform.system()})"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Finding("python", text, "torchglass needs Python 3.11 or newer")
    return Finding("python", text)


def torch() -> Finding:
    """Is torch there, does it import, is it new enough?"""
    try:
        version = str(importlib.import_module("torch").__version__)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            return Finding("torch", f"does not import: {error}", "install it anew: pip install --force-reinstall torch")
        return Finding("torch", "not installed", "install it: pip install torch")
    except Exception as error:  # a broken installation can raise anything
        text = f"does not import: {type(error).__name__}: {error}"
        return Finding("torch", text, "install it anew: pip install --force-reinstall torch")
    if release(version) < OLDEST_TORCH:
        return Finding("torch", version, "torchglass needs torch 2.11 or newer: pip install -U torch")
    return Finding("torch", version)


def device() -> Finding:
    """Which accelerator would a program find?"""
    accelerator = importlib.import_module("torch").accelerator
    if not accelerator.is_available():
        return Finding("device", "cpu")
    return Finding("device", f"{accelerator.current_accelerator()} × {accelerator.device_count()}")


def private_names() -> Finding:
    """Does this torch have everything behind an underscore that we use?"""
    private = importlib.import_module("torchglass.capture.torch.private")
    lacking = [f"torch.{name} ({feature})" for name, feature in private.MISSING.items()]
    if lacking:
        return Finding(
            "private", f"this torch lacks {', '.join(lacking)}", "recorded without; pip install -U torchglass"
        )
    return Finding("private", f"all {len(private.NAMES)} private names of torch are there")


def recording() -> Finding:
    """Record one addition and look for it in the trace."""
    if switched_off():
        return Finding("recording", "not tried, since it is switched off")
    try:
        import torchglass

        ones = importlib.import_module("torch").ones(2)
        seen = [event.name for event in torchglass.trace(lambda: ones + ones).events()]
    except Exception as error:  # whatever is wrong, the report must say it
        return Finding("recording", f"fails: {type(error).__name__}: {error}", "please report this as a bug")
    if "Tensor.add" not in seen:
        return Finding(
            "recording",
            f"sees {seen or 'nothing'} where it should see Tensor.add",
            "please report this as a bug",
        )
    return Finding("recording", "works: one addition was seen")


def engine() -> Finding:
    """Does the hot path run compiled? Without it all is recorded too, and takes longer."""
    from torchglass import compiled

    if compiled.engine() == compiled.COMPILED:
        return Finding("engine", "compiled")
    return Finding("engine", f"in Python, not compiled: {compiled.why_not}")


def switch() -> Finding:
    """Is recording switched off by the environment?"""
    if switched_off():
        return Finding("environment", "TORCHGLASS=0: nothing is recorded", "unset TORCHGLASS to record again")
    return Finding("environment", "TORCHGLASS is not 0: recording is on")


def switched_off() -> bool:
    """`TORCHGLASS=0` turns every front door into a no-op."""
    return os.environ.get("TORCHGLASS") == "0"


def release(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` → (2, 13); what is no number counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
