"""Writes docs/format.md from the schema and the comments of its views, so that the page cannot say anything else."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from torchglass.events import schema
from torchglass.store import layout

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "format.md"
OPENING = """# The format of a trace

<!-- Written by scripts/format_page.py from src/torchglass/events/schema.py and views.sql: change those instead. -->

A trace that is kept is a **bundle**, a folder:

```
run.trace/                        for its owner only (0700, files 0600)
  manifest.json                   which format, which run; made first
  full                            only where there are 4,096 parts: later processes are not in the bundle
  agent00000                      only of ranks: which torchrun writes to it, one for each machine of the job
  rank00000-pid1234/              one part for each process that recorded
    journal-0                     what was recorded, from the first moment on ([journal](journal.md))
    events.sqlite                 in the place of the journal: of saved traces, and before bundle format 8
    tensors-0000.safetensors      the contents of tensors that were saved, if any
    done                          made last: the part is finished; SHA-256 of the journal, sizes of the shards
  sources/<sha256>.py             the user's source files that ran, named by their content
```

**A bundle holds code and data**: source texts, file names, the texts of errors, and tensors where they were saved.
Treat it like the program it came from. `record(sources=False)` leaves the source texts out.

`torchglass.load("run.trace")` reads it, finished or not: the tables are made from the journal, in the same way while
it is being written, after its end and after the program was killed. `torchglass repair run.trace` finishes what a kill
left. Reading trusts nothing: a bundle that was changed, cut off or made to mislead is refused with one `BundleError`
that names the file.

## Asking with SQL
`trace.sql("SELECT …")` and `trace.columns("events")` answer from the tables below, of all processes as one.
`trace.export` and the command `torchglass export` write them as a file; any SQLite tool from 3.38 on opens it, and
neither Python nor torch is needed:

```
torchglass export run.trace run.sqlite
sqlite3 -readonly -box run.sqlite "SELECT name, count(*) FROM events GROUP BY name"
```

The file holds source texts, and no tensors: `saved_tensors` is empty there.

### Examples

What took longest, where?

```sql
-- the ten longest calls of functions
SELECT name, (end_ns - start_ns) / 1e3 AS microseconds, file, line, code
FROM events WHERE kind = 'function' ORDER BY microseconds DESC LIMIT 10;
```

Where does the time of the modules go? Events nest by `parent`; going from an event to its parent is quick, since
`id` is the key of the table.

```sql
-- time in modules of each class, without the modules inside
SELECT name, count(*) - sum(inside) AS calls, sum(ns) / 1e6 AS milliseconds
FROM (
    SELECT name, end_ns - start_ns AS ns, 0 AS inside FROM events WHERE kind = 'module'
    UNION ALL
    SELECT p.name, c.start_ns - c.end_ns, 1 FROM events AS c JOIN events AS p ON p.id = c.parent
    WHERE c.kind = 'module' AND p.kind = 'module'
)
GROUP BY name ORDER BY milliseconds DESC;
```

What went into a call and what came out?

```sql
-- shapes at every softmax
SELECT e.id, e.code, v.direction, v.role, t.dtype, t.shape
FROM events AS e JOIN event_values AS v ON v.event = e.id JOIN tensor_values AS t ON t.id = v.value
WHERE e.name LIKE '%softmax%' OR e.name LIKE '%attention%' ORDER BY e.id, v.direction, v.position;
```

Who made a tensor, and from what? `producer` leads back.

```sql
-- the calls that the last event's result came from, up to eight steps back
WITH RECURSIVE back(event, steps) AS (
    SELECT max(id), 0 FROM events WHERE kind = 'function'
    UNION
    SELECT t.producer, steps + 1 FROM back
    JOIN event_values AS v ON v.event = back.event AND v.direction = 'in'
    JOIN tensor_values AS t ON t.id = v.value
    WHERE t.producer IS NOT NULL AND steps < 8
)
SELECT min(steps) AS steps, e.name, e.code, e.result FROM back JOIN events AS e ON e.id = back.event
GROUP BY e.id ORDER BY steps;
```

Which parameters has the model, and which are shared?

```sql
-- parameters by name, shared ones once
SELECT group_concat(m.path || '.' || p.name, ' = ') AS names, t.dtype, t.shape
FROM parameters AS p JOIN modules AS m ON m.id = p.module JOIN tensor_values AS t ON t.id = p.value
GROUP BY p.value ORDER BY names;
```

How did the program get there? A stack is its base and the frames below.

```sql
-- the whole stack of event 5, outermost first
WITH RECURSIVE chain(stack, depth) AS (
    SELECT stack, 0 FROM events WHERE id = 5
    UNION ALL
    SELECT s.base, depth + 1 FROM chain JOIN stacks AS s ON s.id = chain.stack WHERE s.base IS NOT NULL
)
SELECT f.file, f.line, f.function, f.source FROM chain JOIN frames AS f ON f.stack = chain.stack
ORDER BY depth DESC, position;
```
"""
CLOSING = """## Tensors
A shard is a [safetensors](https://github.com/huggingface/safetensors) file whose header has a fixed size of 1 MiB,
filled with spaces. A tensor is found by its row in `saved_tensors`; its bytes are there before its row is, in the
journal too, so every row can be followed, also after a kill. When a shard is finished its header names the tensors
(`name@id`; `padding@…` are bytes between tensors) and any safetensors reader opens it. A dtype that safetensors has
no name for is there as `U8`; the row has the true one. Where a row has strides, the entry is the whole storage as one
row of elements.

## Reading by hand
The compact tables hold everything that the views show. Numbers are rows of other tables, counted from 0 without a
gap. An event that was open when the process died has no `duration_ns`. Text that is no valid Unicode (odd file names)
is kept as a BLOB.
"""
FORMATS = (
    f"Format {schema.FORMAT}. This is the number of the tables (`PRAGMA user_version`). "
    f"Bundles have a number of their own, now {layout.FORMAT} (in `manifest.json`).\n"
)
VIEW = re.compile(r"((?:^-- [^\n]*\n)+)CREATE VIEW (\w+) AS SELECT\n(.*?)^FROM", re.MULTILINE | re.DOTALL)
VIEW_COLUMN = re.compile(r"^.*\bAS (\w+),?\s+-- (.*)$", re.MULTILINE)
ORDER = (
    "trace", "notes", "events", "event_values", "tensor_values", "modules", "parameters", "stacks", "frames", "sources",
    "threads", "saved_tensors",
)  # fmt: skip
"""Of what is to be asked: tables and views."""


def page() -> str:
    """The whole page."""
    found = {name: _view(comment, name, body) for comment, name, body in VIEW.findall(schema.SQL_VIEWS)}
    found |= {table.name: _table(table) for table in schema.PUBLIC_TABLES}
    asked = "## To be asked\nViews and tables with the words of the Python interface. Start here.\n"
    behind = "## Behind the views\nThe compact form: mostly numbers of rows elsewhere. A view above says it in words.\n"
    parts = [
        OPENING,
        asked,
        FORMATS,
        *(found[name] for name in ORDER),
        behind,
    ]
    return "\n".join([*parts, *(_table(table) for table in schema.INTERNAL_TABLES), CLOSING])


def _table(table: schema.Table) -> str:
    lines = [f"### {table.name}", table.meaning, "", "| column | type | meaning |", "|---|---|---|"]
    lines += [_row(each.name, schema.SQL[each.type].lower(), each.meaning) for each in table.columns]
    return "\n".join(lines) + "\n"


def _view(comment: str, name: str, body: str) -> str:
    words = " ".join(line[3:] for line in comment.splitlines())
    lines = [f"### {name}", words, "", "| column | meaning |", "|---|---|"]
    lines += [_row(column, "", text) for column, text in VIEW_COLUMN.findall(body)]
    return "\n".join(lines) + "\n"


def _row(column: str, kind: str, text: str) -> str:
    shown = text.replace("|", "&#124;")
    return f"| `{column}` | {kind} | {shown} |" if kind else f"| `{column}` | {shown} |"


def main() -> int:
    """Write the page; with ``--check`` only say whether it is as it should be."""
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print("docs/format.md is not what the schema says: run `python scripts/format_page.py`")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
