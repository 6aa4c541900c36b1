"""What every command is: a module whose docstring is its help."""

from __future__ import annotations

import argparse
from typing import Protocol


class Command(Protocol):
    """A command: its name is the module's last name, its help the module's docstring."""

    __name__: str
    __doc__: str | None

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments."""
        ...

    def run(self, options: argparse.Namespace) -> int:
        """Do it; returns the exit status."""
        ...


def add(command: Command, subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage] - argparse has no public name for it
    """Put a command under the main parser."""
    text = (command.__doc__ or "").strip()
    parser = subparsers.add_parser(
        command.__name__.rpartition(".")[2],
        help=text.partition("\n")[0].rstrip("."),
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.configure(parser)
    parser.set_defaults(run=command.run)
