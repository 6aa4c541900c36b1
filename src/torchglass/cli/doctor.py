"""Check what is installed and whether recording works.

The exit status is 0 if everything needed works, else 1. Each line that is not ok says what to do.

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
from dataclasses import asdict, dataclass

from torchglass._version import __version__
from torchglass.cli.output import add_json, print_json

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 8)
# The newest that the tests ran on (docs/versions.md). Newer ones are used as well.
NEWEST_PYTHON = (3, 13)
NEWEST_TORCH = (2, 15)
NOT_TRIED = "newer than any that torchglass was tried with"


@dataclass(frozen=True)
class Check:
    """One line of the report; `cure` is empty if all is well."""

    subject: str
    text: str
    cure: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that every command has."""
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print one line for each check. Return 1 if one of them found something to repair."""
    if options.json:
        checks = list(examine())
        print_json("doctor", {"checks": [asdict(check) for check in checks]})
        if any(check.cure for check in checks):
            return 1
        return 0
    sick = False
    for check in examine():
        print(f"{'!!' if check.cure else 'ok'}  {check.subject:<11} {check.text}")
        if check.cure:
            sick = True
            print(f"    {'':<11} {check.cure}")
    if sick:
        return 1
    return 0


def examine() -> Iterator[Check]:
    """Run every check, in order. Those that need torch run only if it can be imported."""
    yield Check("torchglass", __version__)
    yield python()
    found = torch()
    yield found
    if not found.cure:
        yield device()
        yield private_names()
        yield recording()
        yield features()
        yield engine()
    yield switch()


def python() -> Check:
    """Check that this Python is new enough."""
    text = f"{platform.python_version()} ({platform.python_implementation()}, {platform.system()})"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Check("python", text, "torchglass needs Python 3.11 or newer")
    if sys.version_info[:2] > NEWEST_PYTHON:
        text += f": {NOT_TRIED}"
    return Check("python", text)


def torch() -> Check:
    """Check that torch is installed, can be imported and is new enough."""
    try:
        version = str(importlib.import_module("torch").__version__)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            return Check(
                "torch",
                f"does not import: {error}",
                "install it anew: pip install --force-reinstall torch",
            )
        return Check("torch", "not installed", "install it: pip install torch")
    except Exception as error:  # a broken installation can raise anything
        text = f"does not import: {type(error).__name__}: {error}"
        return Check("torch", text, "install it anew: pip install --force-reinstall torch")
    if release(version) < OLDEST_TORCH:
        return Check("torch", version, "torchglass needs torch 2.8 or newer: pip install -U torch")
    if release(version) > NEWEST_TORCH:
        return Check(
            "torch", f"{version}: {NOT_TRIED}; a trace's notes say what could not be recorded"
        )
    return Check("torch", version)


def device() -> Check:
    """Report the accelerator that a program would find."""
    accelerator = importlib.import_module("torch").accelerator
    if not accelerator.is_available():
        return Check("device", "cpu")
    return Check("device", f"{accelerator.current_accelerator()} × {accelerator.device_count()}")


def private_names() -> Check:
    """Check that this torch has all private names that we use."""
    private = importlib.import_module("torchglass.capture.torch.private")
    lacking = [f"torch.{name} ({feature})" for name, feature in private.MISSING.items()]
    if lacking:
        return Check(
            "private",
            f"this torch lacks {', '.join(lacking)}",
            "recorded without; pip install -U torchglass",
        )
    return Check("private", f"all {len(private.NAMES)} private names of torch are there")


def recording() -> Check:
    """Record one addition and look for it in the trace."""
    if switched_off():
        return Check("recording", "not tried, since it is switched off")
    try:
        import torchglass

        ones = importlib.import_module("torch").ones(2)
        # This installs every feature. The features that fail are listed by `features()`.
        with torchglass.record(ops=True, calls="user", values="stats", variables=["ones"]) as trace:
            ones + ones  # pyright: ignore[reportUnusedExpression] (it is recorded)
        seen = [event.name for event in trace.events()]
    except Exception as error:  # the report must show every problem
        return Check(
            "recording", f"fails: {type(error).__name__}: {error}", "please report this as a bug"
        )
    if "Tensor.add" not in seen:
        return Check(
            "recording",
            f"sees {seen or 'nothing'} where it should see Tensor.add",
            "please report this as a bug",
        )
    return Check("recording", "works: one addition was seen")


def features() -> Check:
    """Check that everything that recording needs could be installed into torch."""
    if switched_off():
        return Check("features", "not tried, since recording is switched off")
    from torchglass.capture.transparency.features import OFF

    if OFF:
        return Check(
            "features",
            "; ".join(OFF.values()),
            "recorded without; pip install -U torchglass, or report it",
        )
    return Check("features", "all could be put up")


def engine() -> Check:
    """Report whether the compiled engine runs. Without it everything is recorded too, but slower."""
    from torchglass import compiled

    if compiled.engine() == compiled.COMPILED:
        return Check("engine", "compiled")
    return Check("engine", f"in Python, not compiled: {compiled.why_not}")


def switch() -> Check:
    """Report whether the environment switches recording off."""
    if switched_off():
        return Check(
            "environment", "TORCHGLASS=0: nothing is recorded", "unset TORCHGLASS to record again"
        )
    return Check("environment", "TORCHGLASS is not 0: recording is on")


def switched_off() -> bool:
    """Return whether `TORCHGLASS=0` turns every front door into a no-op."""
    return os.environ.get("TORCHGLASS") == "0"


def release(version: str) -> tuple[int, ...]:
    """Return (2, 13) for `2.13.0+cpu`. A part that is not a number counts as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
