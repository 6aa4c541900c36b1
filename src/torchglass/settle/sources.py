"""The source texts that places are read from: kept copies, or the files themselves where they are unchanged."""

from __future__ import annotations

from collections.abc import Callable

from torchglass.settle.interned import Interned
from torchglass.source.codes import Code
from torchglass.source.origins import origin_of
from torchglass.source.text import FOLDERS, SourceText, known_text, read_source, read_unchanged, text_holding

Texts = Callable[[str], str | None]
"""The kept text of a digest."""


class Sources:
    """Source texts by file name, and by code object for code that has no file."""

    def __init__(self, interned: Interned, texts: Texts, is_here: bool) -> None:
        """``is_here``: the journal is this process's own."""
        self._interned = interned
        self._texts = texts
        self._is_here = is_here
        self._files: dict[str, SourceText] = {}
        self._executed: dict[int, SourceText] = {}
        self._defined_by_exec: dict[int, str | None] = {}

    def source(self, number: int) -> SourceText:
        """The source of a code object."""
        code, executed = self._interned.code(number), self.executed(number)
        if executed is not None:
            if number not in self._executed:
                self._executed[number] = SourceText.of_text(code.file, executed)
            return self._executed[number]
        if code.file not in self._files:
            self._files[code.file] = self._find(code)
        return self._files[code.file]

    def origin(self, number: int) -> str:
        """Whose code it is; code without a file is the user's where its source is known."""
        row = self._interned.code_rows[number]
        if self.executed(number) is not None:
            return "user"
        if not row.file.startswith("<"):
            return row.origin
        known = self.source(number).problem_with(self._interned.code(number)) is None
        return origin_of(row.file, source_known=known)

    def executed(self, number: int) -> str | None:
        """The text given to ``exec``, for code of that text and for functions that it defined."""
        row = self._interned.code_rows[number]
        if row.text is not None or row.file.startswith(FOLDERS):
            return row.text
        if number not in self._defined_by_exec:
            texts = {each.text for each in self._interned.code_rows.values() if each.text is not None}
            self._defined_by_exec[number] = text_holding(self._interned.code(number), texts) if texts else None
        return self._defined_by_exec[number]

    def texts(self) -> dict[str, str]:
        """What a trace keeps of the user's sources."""
        found = {row.file: self._texts(row.digest) for row in self._interned.sources.values() if row.digest is not None}
        return {file: text for file, text in found.items() if text is not None and _is_users(file)}

    def _find(self, code: Code) -> SourceText:
        row = self._interned.sources.get(code.file)
        text = None if row is None or row.digest is None else self._texts(row.digest)
        if row is not None and (text is not None or row.problem is not None):
            return known_text(code.file, text, row.problem, row.unproven)
        if self._is_here:
            return read_source(code.file)
        return SourceText.missing(code.file) if row is None else read_unchanged(code.file, row.state)


def _is_users(file: str) -> bool:
    """Not what torch writes and has Python run; a file of the user's may be anywhere."""
    return not file.startswith("<") or origin_of(file, source_known=True) == "user"
