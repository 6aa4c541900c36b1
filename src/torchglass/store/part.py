"""The database of one part: made, linked, brought into one file, and sealed."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from array import array
from dataclasses import replace
from pathlib import Path

from torchglass.events.database import FORMAT, SCHEMA, insert, trace_row
from torchglass.events.links import link_storages, link_values
from torchglass.events.tables import NONE, Tables
from torchglass.store.layout import DONE, EVENTS, plain_size, shard_paths, write_whole
from torchglass.store.reader import read_contents

APPLICATION = 0x74676C73
"""``tgls``: tells `file` and other tools what this database is."""

PATIENCE = 5.0
"""Seconds to wait for those who are reading."""


def new_database(path: Path, journal: str) -> sqlite3.Connection:
    """An empty database with the schema; with a plain journal where the file system cannot share memory."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        return _set_up(path, journal)
    except sqlite3.OperationalError:
        for name in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
            name.unlink(missing_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return _set_up(path, "TRUNCATE")


def _set_up(path: Path, journal: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # an empty database need not survive a power cut
        (mode,) = connection.execute(f"PRAGMA journal_mode = {journal}").fetchone()
        if mode != journal.lower():
            raise sqlite3.OperationalError(f"journal mode {journal} is not to be had here")
        connection.executescript(
            f"BEGIN; PRAGMA user_version = {FORMAT}; PRAGMA application_id = {APPLICATION};\n{SCHEMA}"
        )
        empty = Tables(process=os.getpid(), started_at=time.time())
        insert(connection, "trace", iter([trace_row(empty, complete=False, linked=True)]))
        connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def linked_copy(tables: Tables) -> Tables:
    """The same with the links between values, found from the addresses; the tables given stay as they are."""
    nothing = array("q", [NONE]) * len(tables.value_meta)
    linked = replace(tables, value_producer=nothing, value_address=array("q"), value_before=array("q"))
    link_values(linked)
    link_storages(linked, tables.value_address, tables.value_before)
    return linked


def store_links(connection: sqlite3.Connection) -> None:
    """Keep which event made each value and which share memory, as found from what was written."""
    linked = read_contents(connection).tables
    rows = zip(linked.value_storage, linked.value_producer, range(len(linked.value_meta)), strict=True)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "UPDATE value_rows SET storage = ?, producer = ?, address = NULL, before = NULL WHERE id = ?", rows
    )
    connection.execute("UPDATE trace SET linked = 1")
    connection.execute("COMMIT")


def to_one_file(connection: sqlite3.Connection) -> bool:
    """Bring everything into the database file itself; not possible as long as another program reads it.

    SQLite does not wait for its turn here, so we do. Nor does it wait for the disk: that is for ``seal`` to do, once.
    """
    connection.execute("PRAGMA synchronous = OFF")
    last = time.monotonic() + PATIENCE
    while True:
        try:
            if connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",):
                return True
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                return False
        if time.monotonic() > last:
            return False
        time.sleep(0.005)


def seal(part: Path) -> None:
    """Write the file ``done``: what the finished files are; the events are on the disk by then."""
    content: dict[str, object] = {"format": FORMAT, EVENTS: _synced_digest(part / EVENTS)}
    for path in shard_paths(part).values():
        content[path.name] = plain_size(path)
    write_whole(part / DONE, json.dumps(content, indent=1).encode())


def _synced_digest(path: Path) -> str:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()
