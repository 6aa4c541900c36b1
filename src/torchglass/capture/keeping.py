"""Writes a recording to a folder while it runs: the journal, source texts and contents of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from torchglass.capture.contents import CannotKeep, FileContent, content_pieces, refuse
from torchglass.journal import layout
from torchglass.journal.backing import Backing
from torchglass.journal.layout import Streams
from torchglass.journal.rows import SavedRow, encoded

if TYPE_CHECKING:
    from torchglass.capture.session import Session


class Keeper(Protocol):
    """Protocol of the folder that a recording is written to; ``store.Part`` implements it."""

    def new_journal(self, recording: int) -> Backing:
        """Create a file for the journal; ``recording`` is the number of the recording that belongs to the folder."""
        ...

    def refusal(self, problem: OSError) -> Exception:
        """Return the exception to raise if there is no room for the journal, and remove what was written."""
        ...

    def share_journal(self, home: Backing, recording: int) -> None:
        """Share the journal's file with a recording around this one, which has the file already."""
        ...

    def keep_source(self, digest: str, text: str) -> None:
        """Keep the text of a source file."""
        ...

    def keep_tensor(
        self, name: str, value: int, content: FileContent
    ) -> tuple[int, int, int] | str:
        """Keep the bytes of a value; return its number, shard and offset, or the reason why there is no room."""
        ...

    def new_region(self, size: int, unused: int) -> tuple[Any, int, int, int, int] | None:
        """Return memory of a shard for at least so many bytes, or None if there is no room.

        The memory comes with its shard, its offset in the shard, how many values it may hold, and the descriptor of the
        file. ``unused`` is the offset at which the unused rest of the last region begins, or -1 if that region stays in
        use.
        """
        ...

    def release_region(self, region: Any) -> None:
        """Release memory that nobody writes to any more."""
        ...

    def report(self, problem: OSError) -> None:
        """Report that the journal's file cannot grow any more, without raising an exception."""
        ...


class Keeping:
    """Writes one recording to a folder while it runs."""

    def __init__(self, session: Session, recording: int, keeper: Keeper, sources: bool) -> None:
        self._session = session
        self._recording = recording
        self._keeper = keeper
        self.keeps_text = sources
        """Whether source texts may be in the folder."""
        codes = session.stacks.codes
        # Else the journal holds texts that must not be in this folder.
        if sources or not codes.has_text:
            self._give_journal()
        session.homes.append(self)
        session.copies.writers.append(self.write)
        if sources:
            session.sources.keep_with(keeper.keep_source)
        else:
            codes.keeps_text = False

    def _give_journal(self) -> None:
        journal = self._session.journal
        keeper = self._keeper
        if journal.backing.path is not None:
            keeper.share_journal(journal.backing, self._recording)
            return
        try:
            journal.move_to(keeper.new_journal(self._recording))
        except OSError as problem:
            raise keeper.refusal(problem) from None
        journal.on_full = keeper.report

    def write(self, name: str, value: int, plain: Any) -> bool:
        """Write the content of a value directly from its memory, and then its row."""
        session = self._session
        try:
            content = content_pieces(plain)
        except CannotKeep as reason:
            refuse(session, name, "in the bundle", str(reason))
            return False
        place = self._keeper.keep_tensor(name, value, content)
        if isinstance(place, str):
            refuse(session, name, "in the bundle", place)
            return False
        number, shard, offset = place
        row = SavedRow(
            self._recording,
            name,
            value,
            shard,
            offset,
            content.length,
            content.dtype,
            list(content.shape),
        )
        session.journal.rows.add(layout.SAVED, number, encoded(row))
        return True

    def new_region(self, size: int, unused: int) -> tuple[Any, int, int, int, int, int] | None:
        """Return memory of a shard as ``Keeper.new_region`` does, with the number of this recording added."""
        found = self._keeper.new_region(size, unused)
        if found is None:
            return None
        return (found[0], self._recording, *found[1:])

    def release_region(self, region: Any) -> None:
        """Release memory that nobody writes to any more."""
        self._keeper.release_region(region)

    def stop(self) -> None:
        """Stop writing contents and source texts."""
        session = self._session
        if self.write in session.copies.writers:
            session.copies.writers.remove(self.write)
        session.sources.stop_keeping(self._keeper.keep_source)

    def leave(self, packed: Streams | None) -> None:
        """Leave the finished folder; the journal stays in memory, for the trace and for other recordings."""
        session = self._session
        journal = self._session.journal
        if self in session.homes:
            session.homes.remove(self)
        session.stacks.codes.keeps_text = all(each.keeps_text for each in session.homes)
        if session.homes:
            return  # the folder of another recording still uses the file
        if packed is None or session.recorders:
            journal.to_memory()
        else:
            journal.keep_only(packed)
