"""Query a trace in SQL, read-only; docs/format.md lists the tables.

examples:
  torchglass sql run.trace "SELECT name, count(*) FROM events GROUP BY name ORDER BY 2 DESC"
  torchglass sql run.trace "SELECT * FROM modules" --json
"""

# Commands may use the private attributes of a trace.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from torchglass.cli.output import add_json, plain, print_json
from torchglass.cli.progress import add_bundle, loaded
from torchglass.errors import UsageError
from torchglass.events.spelling import clean

WIDEST = 60
"""Columns of a terminal that one value takes; --json has all of it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the bundle and the query."""
    add_bundle(parser)
    parser.add_argument("query", metavar="QUERY", help="a SELECT statement")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the query and print a table."""
    # A name for the trace, because its database is closed with it.
    trace = loaded(options.bundle)
    cursor = trace._ask(options.query)
    columns = [name for name, *_ in cursor.description or ()]
    try:
        rows = cursor.fetchall()
    except sqlite3.Error as error:
        raise UsageError(str(error)) from None
    if options.json:
        print_json("sql", {"columns": columns, "rows": rows})
        return 0
    texts = [list(map(_word, row)) for row in rows]
    for line in table_lines(columns, texts):
        print(line)
    return 0


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table of texts under the names of its columns."""
    from torchglass.views.text.words import cut, width_of

    shown: list[list[str]] = []
    for row in (columns, *rows):
        shown.append([cut(clean(text), WIDEST) for text in row])
    widths = [max(map(width_of, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        line = ""
        for text, width in zip(row, widths, strict=True):
            padding = " " * (width - width_of(text))
            line += f"{text}{padding}  "
        yield line.rstrip()


def _word(value: Any) -> str:
    if value is None:
        return ""
    return str(plain(value))
