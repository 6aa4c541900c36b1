"""Taking over what can still be read from a damaged database into a new one; only for what no kill can do."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path

from torchglass.errors import BundleError
from torchglass.events.database import FORMAT
from torchglass.store.layout import spelt
from torchglass.store.opening import expected_tables
from torchglass.store.part import new_database
from torchglass.store.reader import read_contents

CUT = "the file was damaged, and what could not be read was left out: {lost:,} of {count:,} events"
BROKEN = ".broken"
READING = (sqlite3.Error, ValueError, TypeError, OverflowError, RecursionError, MemoryError)
CIRCUMSTANCES = {
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_AUTH,
}  # fmt: skip
"""What SQLite says when the file may be sound, and only cannot be read or written now."""


def is_damage(error: Exception) -> bool:
    """Whether an error tells of the file itself, and not of a lock, a full disk or the like."""
    code = getattr(error, "sqlite_errorcode", None)  # Python's own errors, as of text that is none, have no number
    return code is None or code == sqlite3.SQLITE_IOERR_SHORT_READ or code & 0xFF not in CIRCUMSTANCES


def salvage(path: Path) -> list[str]:
    """Put a sound database in the place of a damaged one, which is kept beside it under another name."""
    draft = path.with_name(path.name + ".new")
    for old in path.parent.glob(draft.name + "*"):
        old.unlink()
    with _removed_if_in_vain(draft), contextlib.closing(new_database(draft, "TRUNCATE")) as new:
        found = _take_over(path, new)
        kept = _longest_sound(new, found) if found else None
        if kept is None:
            raise BundleError(f"{spelt(path)} is damaged beyond repair; it was left as it is: record anew")
        note = CUT.format(lost=found - kept, count=found)
        new.execute("INSERT INTO notes SELECT count(*), ? FROM notes", (note,))
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.replace(path.with_name(path.name + BROKEN))
    draft.replace(path)
    return [note]


@contextlib.contextmanager
def _removed_if_in_vain(draft: Path) -> Generator[None]:
    """Leave no half of a new database behind."""
    try:
        yield
    except BaseException:
        for made in draft.parent.glob(draft.name + "*"):
            made.unlink(missing_ok=True)
        raise


def _take_over(path: Path, new: sqlite3.Connection) -> int:
    """Copy each table as far as it can be read; returns how many events were found."""
    old = sqlite3.connect(path, isolation_level=None)
    old.text_factory = bytes
    try:
        old.execute("PRAGMA trusted_schema = OFF")
        new.execute("DELETE FROM trace")
        limit = sum(each.stat().st_size for each in path.parent.glob(path.name + "*"))
        for table in expected_tables():
            _copy(old, new, table, limit)
    finally:
        old.close()
    new.execute("UPDATE trace SET complete = 0")
    if new.execute("SELECT count(*) FROM trace").fetchone()[0] != 1:
        new.execute("DELETE FROM trace")
        new.execute(f"INSERT INTO trace VALUES ({FORMAT}, '', 0, 0.0, 0, 0, '[]', 1)")
    return new.execute("SELECT count(*) FROM event_rows").fetchone()[0]


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, table: str, limit: int) -> None:
    """At most ``limit`` rows: the pages of a damaged file may go in circles."""
    new.execute("BEGIN")
    try:
        for row in old.execute(f"SELECT * FROM {table} NOT INDEXED LIMIT ?", (limit,)):
            cells = [_cell(each) for each in row]
            new.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(cells))})", cells)
    except READING as error:
        if not is_damage(error):
            raise
    new.execute("COMMIT")


def _cell(cell: object) -> object:
    """Text that is text; bytes that are none stay bytes."""
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError:
            return cell
    return cell


def _longest_sound(new: sqlite3.Connection, count: int) -> int | None:
    """Cut the events back to the longest beginning that makes sense; None when not even nothing does."""
    if _is_sound(new):
        return count
    low, high = 0, count
    new.execute("UPDATE value_rows SET producer = -1")
    new.execute("UPDATE saved_tensors SET event = -1")
    while low < high:
        middle = (low + high + 1) // 2
        new.execute("BEGIN")
        new.execute("DELETE FROM event_rows WHERE id >= ?", (middle,))
        sound = _is_sound(new)
        new.execute("ROLLBACK")
        low, high = (middle, high) if sound else (low, middle - 1)
    new.execute("DELETE FROM event_rows WHERE id >= ?", (low,))
    return low if _is_sound(new) else None


def _is_sound(connection: sqlite3.Connection) -> bool:
    try:
        read_contents(connection, link=False)
    except READING as error:
        if not is_damage(error):
            raise
        return False
    return True
