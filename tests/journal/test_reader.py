"""The file of a journal, whoever wrote it and whatever became of it: what is there is found, and nothing else."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.journal.stored import read_bytes
from tests.journal.test_writer import MANY, numbers, open_record, records
from torchglass.journal import layout
from torchglass.journal.backing import MappedFile
from torchglass.journal.layout import HEADER, PAGE, RECORDS, ROWS, WHAT, chunk_header
from torchglass.journal.reader import BadJournal, StoredFile, read_journal
from torchglass.journal.ring import Limits
from torchglass.journal.writer import Journal, ThreadWriter


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a small journal."""
    path = tmp_path_factory.mktemp("journal") / "journal-0"
    journal = Journal(MappedFile(path))
    threads = [ThreadWriter(journal), ThreadWriter(journal)]
    for number in range(400):
        journal.rows.add(layout.NOTE, number, b'"row"')
        open_record(threads[number % 2], number, [number])
    return path.read_bytes()


def read(content: bytes) -> tuple[list[int], list[int]]:
    """The numbers of the rows, and what the records of both threads name."""
    streams = read_bytes(content)
    return numbers(streams, ROWS), [words[WHAT] for thread in (0, 1) for words in records(streams, thread)]


def test_what_was_written_is_read(content: bytes, tmp_path: Path) -> None:
    rows, named = read(content)
    assert (rows, sorted(named)) == (list(range(400)), list(range(400)))
    (tmp_path / "x").write_bytes(content)
    file = os.open(tmp_path / "x", os.O_RDONLY)
    streams = read_journal(StoredFile(file))
    os.close(file)
    assert numbers(streams, ROWS) == rows


def test_cut_at_any_byte(content: bytes) -> None:
    """The beginning of each stream is there, as far as the file goes."""
    rows, named = read(content)
    before = (0, 0)
    for length in [*range(PAGE, len(content), 1021), len(content)]:
        some, few = read(content[:length])
        assert some == rows[: len(some)]
        assert set(few) <= set(named)
        assert (len(some), len(few)) >= before
        before = (len(some), len(few))
    assert before == (400, 400)
    for length in range(0, PAGE, 5):
        try:
            assert read(content[:length]) == ([], [])
        except BadJournal:
            assert length < 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((b"torchglass journal", b"torchglass jourmal"), "does not begin like a journal"),
        ((b"format 1", b"format 9"), r"has format 9, but this version reads only up to 1: update torchglass"),
        ((b"format 1", b"format x"), "does not name its format"),
        ((b"format 1", "format ²".encode()), "does not name its format"),
        ((b"format 1", b"format " + b"9" * 2000), "does not name its format"),
        ((b"format 1\n", b""), "does not name its format"),
        ((sys.byteorder.encode(), {"little": b"big", "big": b"little"}[sys.byteorder]), "the other byte order"),
        ((b"byte order", b"bite order"), "the other byte order"),
    ],
)
def test_what_cannot_be_read_here_is_said(content: bytes, change: tuple[bytes, bytes], words: str) -> None:
    head = content[:PAGE].replace(*change)[:PAGE].ljust(PAGE, b"\0")
    with pytest.raises(BadJournal, match=words) as caught:
        read(head + content[PAGE:])
    assert "\n" not in str(caught.value)


def test_something_else_is_no_journal() -> None:
    for other in (b"SQLite format 3\0", os.urandom(5000)):
        with pytest.raises(BadJournal, match="does not begin"):
            read(other)


@pytest.mark.parametrize("begun", [b"", bytes(layout.PAGE), bytes(10_000)])
def test_a_process_that_died_before_it_wrote_leaves_an_empty_journal(begun: bytes) -> None:
    assert read_bytes(begun).chunks == {}


def test_a_damaged_header_costs_its_chunk(content: bytes) -> None:
    """It has a checksum; what stands behind is found all the same."""
    everything = read(content)
    places = [at for at in range(PAGE, len(content), PAGE) if content[at : at + 8] == layout.CHUNK_MAGIC]
    assert len(places) > 5
    for at in places:
        for byte in (0, 9, 13, 20, 26, 33, 37):
            changed = bytearray(content)
            changed[at + byte] ^= 4
            rows, named = read(bytes(changed))
            assert set(rows) <= set(everything[0])
            assert set(named) <= set(everything[1])
            assert len(rows) + len(named) >= 300
            assert (rows, named) != everything or content[at + 8 : at + 12] != b"\1\0\0\0"


@pytest.mark.parametrize(
    "head",
    [
        chunk_header(RECORDS, 0, -5, PAGE),
        chunk_header(RECORDS, 0, 2**62, PAGE),
        chunk_header(RECORDS, 2**32 - 1, 0, PAGE),
        chunk_header(77, 0, 0, PAGE),
        chunk_header(RECORDS, 0, 0, 2**62),
        chunk_header(RECORDS, 0, 0, -PAGE),
        chunk_header(RECORDS, 0, 0, 0),
        chunk_header(RECORDS, 0, 0, PAGE, copies=2**32 - 1),
        chunk_header(RECORDS, 0, 0, HEADER - 1),
        chunk_header(ROWS, 0, 0, PAGE, copies=3),
    ],
)
def test_a_header_made_to_mislead(content: bytes, head: bytes) -> None:
    """It may hide what it stands in front of, but neither invents something nor takes for ever."""
    rows, named = read(content[:PAGE] + head.ljust(PAGE, b"\0") + content[PAGE:])
    assert set(rows) <= set(range(400))
    assert set(named) <= set(range(400))


def test_two_chunks_that_claim_the_same_numbers(content: bytes) -> None:
    _, named = read(content)
    assert read(content + content[PAGE:])[1].count(5) == 1
    assert len(read(content + content[PAGE:])[1]) == len(named)


def test_a_file_full_of_holes_takes_no_time(tmp_path: Path, content: bytes) -> None:
    """So many pages could not be looked at one by one."""
    path = tmp_path / "x"
    path.write_bytes(content)
    os.truncate(path, 1 << 40)
    file = os.open(path, os.O_RDONLY)
    try:
        os.lseek(file, len(content) + PAGE, os.SEEK_DATA)
    except OSError:
        pass
    else:
        os.close(file)
        pytest.skip("this file system does not tell where holes are")
    assert numbers(read_journal(StoredFile(file)), ROWS) == list(range(400))
    os.close(file)


def test_reading_while_it_grows(tmp_path: Path) -> None:
    """Each record that is found names a row that is found, at whatever moment one looks."""
    journal, stop, looks = Journal(MappedFile(tmp_path / "x")), threading.Event(), 0

    def write() -> None:
        thread, number = ThreadWriter(journal), 0
        while not stop.is_set() and number < 40 * MANY:
            journal.rows.add(layout.NOTE, number, b'"row"')
            open_record(thread, number)
            number += 1
            if number % (MANY // 20) == 0:
                time.sleep(0.001)  # or all is written before anybody has looked

    writer = threading.Thread(target=write)
    file = os.open(tmp_path / "x", os.O_RDONLY)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        writer.start()
        while looks < 40 and writer.is_alive():
            streams = read_journal(StoredFile(file))
            named = [words[WHAT] for words in records(streams, 0)]
            assert named == list(range(len(named)))
            assert set(named) <= set(numbers(streams, ROWS))
            looks += 1
    finally:
        stop.set()
        writer.join()
        sys.setswitchinterval(before)
        os.close(file)
    assert looks > 5


def test_a_chunk_that_is_given_up_while_it_is_read_is_not_believed(tmp_path: Path) -> None:
    journal = Journal(MappedFile(tmp_path / "x"), Limits(300))
    thread = ThreadWriter(journal)
    for number in range(1000):
        open_record(thread, number)
    file = os.open(tmp_path / "x", os.O_RDONLY)

    class Slow(StoredFile):
        """Between the header and the rest of a chunk the process goes on."""

        def read(self, at: int, length: int) -> bytes:
            if length > HEADER and at:
                for _ in range(500):
                    open_record(thread, thread.at)
            return super().read(at, length)

    for _ in range(5):
        for chunk in read_journal(Slow(file)).of(RECORDS):
            named = chunk.words(chunk.first, chunk.written())[WHAT :: layout.RECORD_WORDS].tolist()
            assert named == list(range(chunk.first, chunk.first + len(named)))
    os.close(file)
