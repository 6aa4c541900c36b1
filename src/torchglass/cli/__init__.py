"""The command line: one small file for each command."""

from torchglass.cli._main import main

__all__ = ["main"]
