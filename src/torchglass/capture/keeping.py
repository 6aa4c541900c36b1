"""What a recording asks of whoever keeps it in a folder: the journal, source texts, contents of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from torchglass.capture.contents import CannotKeep, FileContent, content_pieces, refuse
from torchglass.journal import layout
from torchglass.journal.homes import Home
from torchglass.journal.rows import SavedRow, encoded

if TYPE_CHECKING:
    from torchglass.capture.session import Session


class Keeper(Protocol):
    """Keeps what cannot be in the journal itself; store.Part."""

    def new_journal(self, recording: int) -> Home:
        """A file for the journal; this is the number of the recording in it that is to be kept."""
        ...

    def refusal(self, problem: OSError) -> Exception:
        """What to say when there is no room for the journal; nothing is left of the folder."""
        ...

    def share_journal(self, home: Home, recording: int) -> None:
        """The journal has a file already, of a recording around this one."""
        ...

    def keep_source(self, digest: str, text: str) -> None:
        """Keep the text of a file."""
        ...

    def keep_tensor(self, name: str, value: int, content: FileContent) -> tuple[int, int, int] | str:
        """Keep the bytes of a value; returns number, shard and offset, or why there is no room any more."""
        ...

    def new_region(self, size: int, unused: int) -> tuple[Any, int, int, int, int] | None:
        """Memory of a shard for so many bytes at least: with the shard, where it begins, how many values it takes, and
        the descriptor of its file.

        ``unused``: where the rest of the last such memory begins, which is not needed any more; -1: all of it is.
        """
        ...

    def release_region(self, region: Any) -> None:
        """Nobody writes to such memory any more."""
        ...

    def report(self, problem: OSError) -> None:
        """The file of the journal can take no more; never raises."""
        ...


class Keeping:
    """One recording that is written to a folder while it runs."""

    def __init__(self, session: Session, recording: int, keeper: Keeper, sources: bool) -> None:
        self._session = session
        self._recording = recording
        self._keeper = keeper
        self.keeps_text = sources
        """Whether source texts may be in the folder."""
        codes = session.stacks.codes
        if sources or not codes.has_text:  # else the journal holds texts that must not be in this folder
            self._give_journal()
        session.homes.append(self)
        session.copies.writers.append(self.write)
        if sources:
            session.sources.keep_with(keeper.keep_source)
        else:
            codes.keeps_text = False

    def _give_journal(self) -> None:
        journal, keeper = self._session.journal, self._keeper
        if journal.home.path is not None:
            keeper.share_journal(journal.home, self._recording)
            return
        try:
            journal.move_to(keeper.new_journal(self._recording))
        except OSError as problem:
            raise keeper.refusal(problem) from None
        journal.on_full = keeper.report

    def write(self, name: str, value: int, plain: Any) -> bool:
        """Write the content of a value straight from where it lies, then its row."""
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
        row = SavedRow(self._recording, name, value, shard, offset, content.length, content.dtype, list(content.shape))
        session.journal.rows.add(layout.SAVED, number, encoded(row))
        return True

    def new_region(self, size: int, unused: int) -> tuple[Any, int, int, int, int, int] | None:
        """Memory of a shard, and whose that is: the number of this recording stands before that of the shard."""
        found = self._keeper.new_region(size, unused)
        return None if found is None else (found[0], self._recording, *found[1:])

    def release_region(self, region: Any) -> None:
        """Nobody writes to such memory any more."""
        self._keeper.release_region(region)

    def stop(self) -> None:
        """Nothing more is to be kept."""
        session = self._session
        if self.write in session.copies.writers:
            session.copies.writers.remove(self.write)
        session.sources.stop_keeping(self._keeper.keep_source)

    def leave(self, is_settled: bool) -> None:
        """The folder is finished: the journal goes, or goes on in memory for those who may look at it again."""
        session, journal = self._session, self._session.journal
        if self in session.homes:
            session.homes.remove(self)
        session.stacks.codes.keeps_text = all(each.keeps_text for each in session.homes)
        if session.homes:
            return  # another recording's folder has the same file
        if session.recordings > 1 or not is_settled:
            journal.to_memory()
        else:
            journal.close()
