"""Reads bytes as the file of a journal."""

from __future__ import annotations

import tempfile

from torchglass.journal.layout import Streams
from torchglass.journal.reader import StoredFile, read_journal


def read_bytes(content: bytes) -> Streams:
    """What a file of this content is read as."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        return read_journal(StoredFile(file.fileno()))
