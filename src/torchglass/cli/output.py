"""What commands print for other programs: one JSON object, whose fields docs/json.md describes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, TextIO, cast

SCHEMA = 1
"""Rises if a field changes its meaning or is removed, not for new fields."""


def add_json(parser: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage] - argparse has no public name for it
    """Add the flag that every command has."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object, for other programs (docs/json.md)",
    )


def print_json(command: str, data: Mapping[str, Any], stream: TextIO | None = None) -> None:
    """Print the object of a command, on one line."""
    answer = plain({"schema": SCHEMA, "command": command, **data})
    # Print ASCII only: it works with any encoding of the stream, and texts of the program cannot control a terminal.
    print(json.dumps(answer, allow_nan=False), file=sys.stdout if stream is None else stream)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: a number that is not finite as a text, bytes in hexadecimal."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        known = cast("Mapping[str, Any]", value)
        return {name: plain(each) for name, each in known.items()}
    if isinstance(value, list | tuple):
        several = cast("Sequence[Any]", value)
        return [plain(each) for each in several]
    return value
