"""Keeps the source texts of a recording: which files ran, and the text that each file had while the program ran."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from os import stat_result

from torchglass.journal.layout import SOURCE
from torchglass.journal.rows import SourceRow, encoded
from torchglass.journal.writer import Journal
from torchglass.source.text import read_source, state_of

Keep = Callable[[str, str], None]
"""A function that writes a text under its digest to a bundle."""


class SourceKeeper:
    """Notes each file whose code ran, and keeps the texts of the user's files.

    For a recording in memory, the files are read when the block ends or the trace is read. For a bundle they are copied
    at once, because a file may be edited before the process ends, or after it was killed.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.texts: dict[str, str] = {}
        """The texts that were read, keyed by digest."""
        self._unread: dict[str, stat_result | None] = {}
        """The user's files that are not read yet, each with its stat from when its code was first seen."""
        self._keepers: list[Keep] = []

    def seen(self, file: str, origin: str, met: stat_result | None) -> bytes | None:
        """Note a file whose code occurs for the first time.

        The row of a file that is not the user's is written at once, and returned. The user's files are read later, as
        are names such as ``<stdin>``, whose text only Python may have.
        """
        if origin != "user" and not (origin == "generated" and file.startswith("<")):
            row = _row(file, None, None, None, state_of(met))
            self._journal.rows.add(SOURCE, 0, row)
            return row
        self._unread[file] = met
        if self._keepers:
            self.read_all()
        return None

    def keep_with(self, keep: Keep) -> None:
        """Keep the texts of all files from now on, including those that occurred before."""
        self._keepers.append(keep)
        for digest, text in self.texts.items():
            keep(digest, text)
        self.read_all()

    def stop_keeping(self, keep: Keep) -> None:
        if keep in self._keepers:
            self._keepers.remove(keep)

    def read_all(self) -> None:
        """Read the files that were noted since the last time."""
        while self._unread:
            file, met = self._unread.popitem()
            source = read_source(file, met)
            digest = None
            if source.text is not None:
                digest = source.digest
            if digest is not None and source.text is not None:
                self.texts[digest] = source.text
                for keep in self._keepers:
                    keep(digest, source.text)
            row = _row(file, digest, source.problem, source.doubt, source.state)
            self._journal.rows.add(SOURCE, 0, row)


@lru_cache(maxsize=2048)
def _row(
    file: str, digest: str | None, problem: str | None, doubt: str | None, state: tuple[int, ...]
) -> bytes:
    """Return the row of a file; it is cached, because it is the same in each recording until the file changes."""
    return encoded(SourceRow(file, digest, problem, doubt, list(state)))
