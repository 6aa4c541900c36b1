"""The source texts of a recording: which files there were, and what they said while the program ran."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from os import stat_result

from torchglass.journal.layout import SOURCE
from torchglass.journal.rows import SourceRow, encoded
from torchglass.journal.writer import Journal
from torchglass.source.text import read_source, state_of

Keep = Callable[[str, str], None]
"""Keeps a text under its digest, outside of the process."""


class SourceKeeper:
    """Writes down each file whose code was met; the texts of the user's own are kept.

    Into memory they are read when the block ends, or when somebody looks. With a bundle they are copied at once:
    somebody may edit a file before the process has come to its end, or after it has died.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.texts: dict[str, str] = {}
        """By digest."""
        self._unread: dict[str, stat_result | None] = {}
        """Files of the user's that were met and not read yet, as they were then."""
        self._keepers: list[Keep] = []

    def seen(self, file: str, origin: str, met: stat_result | None) -> bytes | None:
        """Code of a file is met for the first time; a name that is no file may have a text that only Python knows.

        Of a file that is not the user's the row is written at once, and given back.
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
        """Have the texts of all files, those met so far too, kept from now on."""
        self._keepers.append(keep)
        for digest, text in self.texts.items():
            keep(digest, text)
        self.read_all()

    def stop_keeping(self, keep: Keep) -> None:
        if keep in self._keepers:
            self._keepers.remove(keep)

    def read_all(self) -> None:
        """Read the files that were met since the last time."""
        while self._unread:
            file, met = self._unread.popitem()
            source = read_source(file, met)
            digest = None if source.text is None else source.digest
            if digest is not None and source.text is not None:
                self.texts[digest] = source.text
                for keep in self._keepers:
                    keep(digest, source.text)
            row = _row(file, digest, source.problem, source.unproven, source.state)
            self._journal.rows.add(SOURCE, 0, row)


@lru_cache(maxsize=2048)
def _row(file: str, digest: str | None, problem: str | None, unproven: str | None, state: tuple[int, ...]) -> bytes:
    """The same in each recording until the file is changed."""
    return encoded(SourceRow(file, digest, problem, unproven, list(state)))
