"""Where chunks lie: what a file holds at every moment, and what happens where it can take no more."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import stat
from pathlib import Path

import pytest

from tests.journal.stored import read_bytes
from tests.journal.test_writer import MANY, content, numbers, open_record, records
from torchglass.journal import backing, layout
from torchglass.journal.backing import MappedFile, PlainFile, file_backing
from torchglass.journal.files import file_system
from torchglass.journal.layout import END, NONE, PAGE, RECORDS, ROWS, WHAT
from torchglass.journal.ring import Limits
from torchglass.journal.writer import Journal, ThreadWriter


def descriptors() -> int:
    gc.collect()  # what tests before this one left is not to be closed in between
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_is_its_owners_alone_and_says_what_it_is(tmp_path: Path) -> None:
    for make in (MappedFile, PlainFile):
        path = tmp_path / make.__name__
        home = make(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        head = path.read_bytes()[:PAGE]
        assert head.startswith(layout.MAGIC)
        assert f"process {os.getpid()}\n".encode() in head
        with pytest.raises(FileExistsError):
            make(path)
        home.close()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list descriptors")
@pytest.mark.parametrize("make", [MappedFile, PlainFile])
def test_closing_lets_go_of_every_descriptor(tmp_path: Path, make: type[MappedFile]) -> None:
    before = descriptors()
    home = make(tmp_path / "x")
    for size in (10, 10_000, 100_000):
        home.take(size)
    assert descriptors() > before
    home.close()
    home.close()
    assert descriptors() == before


@pytest.mark.parametrize("make", [MappedFile, PlainFile])
def test_what_comes_back_is_used_again_and_empty(tmp_path: Path, make: type[MappedFile]) -> None:
    home = make(tmp_path / "x")
    one, two = home.take(5000), home.take(50_000)
    for buffer in (one, two):
        buffer[:] = b"x" * len(buffer)
        home.filled(buffer)
    size = (tmp_path / "x").stat().st_size
    home.give_back(two)
    assert (tmp_path / "x").read_bytes()[PAGE + len(one) :][:8] == bytes(8)
    for _ in range(50):
        again = home.take(40_000)
        assert not any(again[:])
        home.give_back(again)
    home.close()
    assert (tmp_path / "x").stat().st_size == size


def test_memory_from_before_there_was_a_file_is_no_ones_business(tmp_path: Path) -> None:
    """A ring that turns gives back chunks that were begun in memory."""
    for make in (MappedFile, PlainFile):
        home = make(tmp_path / make.__name__)
        buffer = bytearray(b"x" * PAGE)
        home.filled(buffer)
        home.touched(buffer, 0, 8)
        home.give_back(buffer)
        assert (tmp_path / make.__name__).stat().st_size == PAGE
        home.close()


def test_a_ring_that_began_in_memory_goes_on_in_a_file(tmp_path: Path) -> None:
    journal = Journal(limits=Limits(1000))
    thread = ThreadWriter(journal)
    for number in range(3000):
        open_record(thread, number)
    journal.move_to(MappedFile(tmp_path / "x"))
    for number in range(3000, 9000):
        assert open_record(thread, number) == number
    assert records(content(tmp_path / "x"), 0)[-1][WHAT] == 8999


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("{dev} / /mnt rw - ext4 /dev/sda1 rw", "ext4"),
        ("0:99 / /x rw - nfs x rw\n{dev} / /mnt rw shared:1 - fuse.sshfs x rw", "fuse.sshfs"),
        ("0:99 / /x rw - nfs x rw", None),
        ("", None),
    ],
)
def test_the_kind_of_a_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, expected: str | None
) -> None:
    device = tmp_path.stat().st_dev
    dev = f"36 35 {os.major(device)}:{os.minor(device)}"
    text = "\n".join(line if line.startswith("36") else f"36 35 {line}" for line in lines.format(dev=dev).split("\n"))
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    assert file_system(tmp_path) == expected


def test_only_file_systems_that_keep_their_word_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (kind, expected) in enumerate(
        {"ext4": MappedFile, "tmpfs": MappedFile, "nfs": PlainFile, "btrfs": PlainFile, None: PlainFile}.items()
    ):
        monkeypatch.setattr(backing, "file_system", lambda _, kind=kind: kind)
        home = file_backing(tmp_path / str(number))
        assert type(home) is expected
        home.close()


class TestPlainFile:
    """Chunks that are written when they are full."""

    def test_what_a_kill_leaves_is_whole_as_far_as_it_goes(self, tmp_path: Path) -> None:
        """Never a record without the row that it names; at most the last piece of each stream is missing."""
        journal = Journal(PlainFile(tmp_path / "x"))
        threads = [ThreadWriter(journal), ThreadWriter(journal)]
        for number in range(6 * MANY):
            journal.rows.add(layout.NOTE, number, b'"' + b"x" * 60 + b'"')
            open_record(threads[number % 2], number)
            if number % 700 == 0:
                self.check(tmp_path / "x", number)
        journal.close()
        assert numbers(content(tmp_path / "x"), ROWS) == list(range(6 * MANY))

    def check(self, path: Path, made: int) -> None:
        stored = content(path)
        rows = numbers(stored, ROWS)
        named = [words[WHAT] for thread in (0, 1) for words in records(stored, thread)]
        assert rows == list(range(len(rows)))
        assert max(named, default=-1) < max(len(rows), 1)
        assert made - len(rows) < 2 * backing.PLAIN_CHUNK / 60
        assert made - len(named) < 2 * backing.PLAIN_CHUNK / layout.RECORD

    def test_records_are_written_last(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process may die between two pieces."""
        journal = Journal(PlainFile(tmp_path / "x"))
        thread = ThreadWriter(journal)
        order: list[int] = []
        write_all = backing.write_all

        def spy(file: int, content: bytes | bytearray | memoryview, offset: int) -> None:
            head = layout.read_chunk_header(memoryview(content))
            order.append(0 if head is None else head[0])
            write_all(file, content, offset)

        monkeypatch.setattr(backing, "write_all", spy)
        for number in range(MANY):
            open_record(thread, number, [number])
            journal.rows.add(layout.NOTE, number, b'"x"')
            if RECORDS in order:
                assert set(order[order.index(RECORDS) :]) == {RECORDS}
                order.clear()
        journal.close()

    def test_a_closing_reaches_a_chunk_that_is_written(self, tmp_path: Path) -> None:
        journal = Journal(PlainFile(tmp_path / "x"))
        thread = ThreadWriter(journal)
        for number in range(MANY):
            open_record(thread, number)
        thread.close(0, 1, NONE, NONE, NONE, 77)
        assert records(content(tmp_path / "x"), 0)[0][END] == 77


class TestFull:
    """The file can take no more: the journal goes on in memory, and what is in the file can be read."""

    def go_on(self, journal: Journal, path: Path) -> list[OSError]:
        told: list[OSError] = []
        journal.on_full = told.append
        thread = journal.threads[0]
        for number in range(thread.at, thread.at + 3 * MANY):
            journal.rows.add(layout.NOTE, number, b'"row"')
            assert open_record(thread, number, [number]) == number
        thread.close(0, 1, NONE, NONE, NONE, 77)
        assert [words[WHAT] for words in records(journal.streams, 0)] == list(range(thread.at))
        stored = read_bytes(path.read_bytes())
        kept = [words[WHAT] for words in records(stored, 0)]
        assert kept == list(range(len(kept)))
        assert MANY <= len(kept) < thread.at
        rows = numbers(stored, ROWS)
        assert rows == list(range(len(rows)))
        assert len(kept) <= len(rows) <= len(kept) + 1, "the file stays as it was at one moment"
        return told

    def begun(self, home: MappedFile | PlainFile) -> Journal:
        journal = Journal(home)
        thread = ThreadWriter(journal)
        for number in range(MANY):
            journal.rows.add(layout.NOTE, number, b'"row"')
            open_record(thread, number)
        return journal

    def test_no_room_for_the_next_chunk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = descriptors()
        journal = self.begun(MappedFile(tmp_path / "x"))
        monkeypatch.setattr(os, "posix_fallocate", full)
        (problem,) = self.go_on(journal, tmp_path / "x")
        assert problem.errno == errno.ENOSPC
        journal.close()
        assert descriptors() == before

    def test_somebody_cuts_the_file_off(self, tmp_path: Path) -> None:
        """Noticed before the file grows; what is mapped behind its end would end the process."""
        journal = self.begun(MappedFile(tmp_path / "x"))
        length = (tmp_path / "x").stat().st_size
        os.truncate(tmp_path / "x", length - PAGE)
        told: list[OSError] = []
        journal.on_full = told.append
        journal.check()
        assert [str(problem) for problem in told] == ["somebody cut it off while it was being written"]
        assert (tmp_path / "x").stat().st_size == length
        assert open_record(journal.threads[0], 1) == MANY
        assert [words[WHAT] for words in records(journal.streams, 0)] == [*range(MANY), 1]
        journal.close()

    def test_a_write_that_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        journal = self.begun(PlainFile(tmp_path / "x"))
        journal.backing.filled(journal.threads[0].buffer)
        monkeypatch.setattr(os, "pwrite", full)
        assert len(self.go_on(journal, tmp_path / "x")) == 1
        journal.close()

    def test_memory_that_cannot_be_mapped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        journal = self.begun(MappedFile(tmp_path / "x"))

        def refused(*_: object, **__: object) -> None:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

        monkeypatch.setattr(mmap, "mmap", refused)
        assert len(self.go_on(journal, tmp_path / "x")) == 1
        monkeypatch.undo()
        journal.close()
