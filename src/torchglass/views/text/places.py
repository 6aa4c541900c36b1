"""Where a line was written: ``model.py:31`` where the file changes, ``:33`` while it stays the same."""

from __future__ import annotations

from torchglass.events.types import Location
from torchglass.views.text.words import cut, file_name, width_of


class Places:
    """Remembers at each depth which file was last named."""

    def __init__(self, width: int) -> None:
        self._longest = max(width // 4, 12)
        self._files: list[str] = []

    def place(self, depth: int, location: Location) -> str:
        """The word to show at this depth."""
        files = self._files
        del files[depth + 1 :]
        around = files[-1] if files else ""
        while len(files) <= depth:
            files.append(around)
        if files[depth] == location.file:
            return f":{location.line}"
        files[depth] = location.file
        return whole_place(location, self._longest)


def whole_place(location: Location, longest: int) -> str:
    """``model.py:31``, however long the name."""
    line = f":{location.line}"
    return cut(file_name(location.file), longest - width_of(line)) + line
