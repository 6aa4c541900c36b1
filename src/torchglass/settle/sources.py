"""Finds the source text of each code object of a recording, and decides whose code it is.

The text of a code object is the first of these that there is:

1. a text given to ``exec`` (or ``eval``): that of the code itself, or one that defines it (``exec_text``);
2. the copy of its file that the recording stored, or the reason why there is none;
3. the file itself: in this process as ``read_source`` finds it, in another one only if it is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable

from torchglass.settle.journal_rows import JournalRows
from torchglass.source.codes import Code
from torchglass.source.exec_source import text_compiling_to
from torchglass.source.origins import origin_of
from torchglass.source.text import (
    ABSOLUTE_PREFIXES,
    NOT_AVAILABLE,
    SourceText,
    known_text,
    read_source,
    read_unchanged,
)

StoredText = Callable[[str], str | None]
"""Returns the text that is stored under a digest, or None."""


class Sources:
    """The source texts of a recording, by file name, or by code object for code without a file."""

    def __init__(self, journal_rows: JournalRows, stored_text: StoredText, is_here: bool) -> None:
        """Prepare to read texts. ``is_here`` says that the journal is of this process."""
        self._journal_rows = journal_rows
        self._stored_text = stored_text
        self._is_here = is_here
        self._files: dict[str, SourceText] = {}
        """By file name, the texts of 2. and 3."""
        self._exec_sources: dict[int, SourceText] = {}
        """By code object, the texts of 1."""
        self._defining_texts: dict[int, str | None] = {}
        """By code object without a text of its own, the text given to ``exec`` that defines it, if there is one."""

    def source(self, number: int) -> SourceText:
        """Return the source text of a code object."""
        code = self._journal_rows.code(number)
        text = self.exec_text(number)
        if text is not None:
            if number not in self._exec_sources:
                self._exec_sources[number] = SourceText(code.file, text)
            return self._exec_sources[number]
        if code.file not in self._files:
            self._files[code.file] = self._find_file(code)
        return self._files[code.file]

    def origin(self, number: int) -> str:
        """Return whose code a code object is. Code without a file is the user's if its source is known."""
        row = self._journal_rows.code_rows[number]
        stored = self._journal_rows.origins.get(number)
        if stored is not None:
            return stored
        if self.exec_text(number) is not None:
            return "user"
        if not row.file.startswith("<"):
            return row.origin
        has_source = self.source(number).problem_with(self._journal_rows.code(number)) is None
        return origin_of(row.file, source_known=has_source)

    def exec_text(self, number: int) -> str | None:
        """Return the text given to ``exec``, for its own code and for the functions that it defined, or None."""
        row = self._journal_rows.code_rows[number]
        if row.text is not None:
            return row.text
        if row.file.startswith(ABSOLUTE_PREFIXES):
            return None
        if number not in self._defining_texts:
            candidates = {
                row.text for row in self._journal_rows.code_rows.values() if row.text is not None
            }
            text = None
            if candidates:
                text = text_compiling_to(self._journal_rows.code(number), candidates)
            self._defining_texts[number] = text
        return self._defining_texts[number]

    def users_texts(self) -> dict[str, str]:
        """Return the texts of the user's files that a trace keeps."""
        texts: dict[str, str] = {}
        for file, digest in self.digests().items():
            text = self._stored_text(digest)
            if text is not None:
                texts[file] = text
        return texts

    def digests(self) -> dict[str, str]:
        """Return the digests of the stored texts of the user's files."""
        digests: dict[str, str] = {}
        for row in self._journal_rows.sources.values():
            if row.digest is not None and _is_users(row.file):
                digests[row.file] = row.digest
        return digests

    def _find_file(self, code: Code) -> SourceText:
        """Return the text of a code object's file: 2. or 3."""
        row = self._journal_rows.sources.get(code.file)
        text = None
        if row is not None and row.digest is not None:
            text = self._stored_text(row.digest)
        if row is not None and (text is not None or row.problem is not None):
            return known_text(code.file, text, row.problem, row.doubt)
        if self._is_here:
            return read_source(code.file)
        if row is None:
            return SourceText(code.file, None, NOT_AVAILABLE)
        return read_unchanged(code.file, row.state)


def _is_users(file: str) -> bool:
    """Return whether a file is the user's, and not code that torch generates and runs."""
    return not file.startswith("<") or origin_of(file, source_known=True) == "user"
