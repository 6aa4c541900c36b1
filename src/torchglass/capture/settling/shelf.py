"""The source texts a recording needs, read at the latest when it stops: later the files may be gone or changed."""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType

from torchglass.source.origins import origin_of
from torchglass.source.text import SourceText, read_source


class Shelf:
    """Source texts by file name, and by code object for code that has no file."""

    def __init__(self, keep_text: bool = True) -> None:
        self.keep_text = keep_text
        self._files: dict[str, SourceText] = {}
        self._executed: dict[int, SourceText] = {}

    def read_all(self, codes: Iterable[CodeType]) -> None:
        """Read the user's files among these now; torch and the standard library can wait, they do not change."""
        for code in codes:
            if code.co_filename not in self._files and origin_of(code.co_filename) == "user":
                self._files[code.co_filename] = read_source(code.co_filename)

    def source(self, code: CodeType, executed: str | None) -> SourceText:
        """The source of a code object; ``executed`` is the text given to ``exec``, where that is known."""
        if executed is not None:
            if id(code) not in self._executed:
                self._executed[id(code)] = SourceText.of_text(code.co_filename, executed)
            return self._executed[id(code)]
        name = code.co_filename
        if name not in self._files:
            self._files[name] = read_source(name)
        return self._files[name]

    def origin(self, code: CodeType, executed: str | None) -> str:
        """Whose code it is; code without a file is the user's where its source is known."""
        if executed is not None:
            return "user"
        if not code.co_filename.startswith("<"):
            return origin_of(code.co_filename)
        known = self.source(code, None).problem_with(code) is None
        return origin_of(code.co_filename, source_known=known)

    def texts(self) -> dict[str, str]:
        """What a trace keeps of the user's sources."""
        if not self.keep_text:
            return {}
        return {
            name: source.text
            for name, source in list(self._files.items())
            if source.text is not None and origin_of(name) == "user"
        }
