"""The command line: one small file a command."""

from torchglass.cli._main import main

__all__ = ["main"]
