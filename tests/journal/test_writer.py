"""Records, ids, values and rows are where their numbers say, however many chunks and threads there are."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journal.stored import read_bytes
from torchglass.journal import layout
from torchglass.journal.backing import MappedFile, Memory, PlainFile
from torchglass.journal.layout import (
    END,
    ERROR,
    INPUTS,
    NONE,
    PASSING,
    RECORD,
    RECORD_WORDS,
    RECORDS,
    RESULT,
    ROWS,
    START,
    VALUES,
    WHAT,
    Chunk,
    Streams,
    pack_record,
    pack_value,
    rows_in,
)
from torchglass.journal.writer import Journal, ThreadWriter

MANY = 5000
"""Records: more than a first chunk has room for, and the second."""


def open_record(thread: ThreadWriter, what: int, ids: list[int] | None = None) -> int:
    """What an engine does when an event opens."""
    at = thread.at
    if at >= thread.end and not thread.more():
        return NONE
    inputs = thread.add_ids(ids) if ids else NONE
    words = (what, NONE, NONE, NONE, inputs, NONE, NONE, NONE, NONE, NONE, NONE, at + 1)
    pack_record(thread.buffer, at * RECORD + thread.shift, *words)
    thread.at = at + 1
    return at


def records(streams: Streams, thread: int) -> list[list[int]]:
    """The words of each record that is there."""
    found: list[list[int]] = []
    for chunk in streams.of(RECORDS, thread):
        words = chunk.words(chunk.first, chunk.written()).tolist()
        found += [words[at : at + RECORD_WORDS] for at in range(0, len(words), RECORD_WORDS)]
    return found


def numbers(streams: Streams, stream: int) -> list[int]:
    """The numbers of all rows, in order."""
    return [number for chunk in streams.of(stream) for _, (_, number, _) in rows_in(chunk)]


@pytest.fixture(params=["memory", "mapped", "plain"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    homes = {"memory": lambda _: Memory(), "mapped": MappedFile, "plain": PlainFile}
    return Journal(homes[request.param](tmp_path / "journal-0"))


def test_no_python_code_runs_when_a_journal_dies() -> None:
    """An exception of the program's signal handler that fell into it would be lost."""
    journal = Journal()
    known = weakref.getweakrefs(journal)
    assert known
    assert [each.__callback__ for each in known] == [None] * len(known)


def test_many_records_and_their_ids(journal: Journal) -> None:
    thread = ThreadWriter(journal)
    for number in range(MANY):
        assert open_record(thread, number, [number * 3, number * 3 + 1, number * 3 + 2]) == number
    found = records(journal.streams, 0)
    assert [words[WHAT] for words in found] == list(range(MANY))
    assert [journal.streams.ids(0, words[INPUTS], 3) for words in found] == [
        [number * 3, number * 3 + 1, number * 3 + 2] for number in range(MANY)
    ]
    chunks = journal.streams.of(RECORDS)
    assert len(chunks) > 2
    assert [chunk.first for chunk in chunks[1:]] == [chunk.last for chunk in chunks[:-1]]


def test_a_record_is_closed_wherever_it_lies(journal: Journal) -> None:
    thread = ThreadWriter(journal)
    for number in range(MANY):
        open_record(thread, number)
    for at in (0, 100, MANY - 1):
        thread.close(at, 7, NONE, 8, NONE, 99)
        assert [thread.read(at)[word] for word in (RESULT, ERROR, END, START)] == [7, 8, 99, at + 1]
    thread.set_word(5, RESULT, 3)
    assert thread.read(5)[RESULT] == 3
    assert thread.read(MANY) == []
    ends = [words[END] for words in records(journal.streams, 0)]
    assert [at for at, end in enumerate(ends) if end != NONE] == [0, 100, MANY - 1]


def test_ids_of_one_event_stay_side_by_side(journal: Journal) -> None:
    thread = ThreadWriter(journal)
    thread.add_ids(list(range(500)))
    first = thread.add_ids(list(range(5000, 15_000)))
    assert journal.streams.ids(0, first, 10_000) == list(range(5000, 15_000))
    assert journal.streams.ids(0, first + 9_999, 5)[0] == 14_999
    assert journal.streams.ids(0, 10**9, 5) == []
    begin, free = thread.put_ids(thread.id_at, thread.id_at, [1, 2, 3], 2)
    begin, free = thread.put_ids(begin, free, list(range(100_000)), 2)
    assert thread.ids[begin:free].tolist() == [1, 2, 3, *range(100_000)]
    assert free + 2 <= thread.id_end


def test_values_stand_in_place_of_their_numbers(journal: Journal) -> None:
    """In whatever order they are written, and again when more is known."""
    order = [*range(0, MANY, 2), *range(1, MANY, 2)]
    for number in order:
        journal.values.write(number, number, 0, NONE, number + 5)
    journal.values.write(3, 33, 1, 2, 9)
    words = [words for chunk in journal.streams.of(VALUES) for words in chunk.words(chunk.first, chunk.last).tolist()]
    assert words[3 * 4 : 4 * 4] == [33, 1, 2, 10]
    assert [words[number * 4] for number in range(MANY) if number != 3] == [n for n in range(MANY) if n != 3]
    assert [words[number * 4 + 3] for number in range(4, MANY)] == [number + 6 for number in range(4, MANY)]


def test_a_row_longer_than_a_chunk(journal: Journal) -> None:
    for number, length in enumerate([5, 300_000, 5, 1]):
        journal.rows.add(layout.NOTE, number, b'"' + b"x" * length + b'"')
    assert numbers(journal.streams, ROWS) == [0, 1, 2, 3]


def test_rows_of_many_threads_are_whole_at_every_moment(journal: Journal) -> None:
    """At whatever moment the process is killed, there is no hole before a row: it would hide that one."""
    before, hidden = sys.getswitchinterval(), 0
    sys.setswitchinterval(1e-6)
    done = threading.Event()

    def write(first: int) -> None:
        for number in range(first, first + 1500):
            journal.passing.add(layout.NOTE, number, b'"' + b"y" * (number % 50) + b'"')

    def look() -> None:
        nonlocal hidden
        while not done.is_set():
            for chunk in journal.streams.of(PASSING):
                left = Chunk(bytearray(chunk.buffer[:]), PASSING, 0, chunk.first)
                behind = [left.start, *(end for end, _ in rows_in(left))][-1]
                hidden += any(left.buffer[behind:])

    looker = threading.Thread(target=look)
    threads = [threading.Thread(target=write, args=(first,)) for first in range(0, 6000, 1500)]
    try:
        looker.start()
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        done.set()
        looker.join()
        sys.setswitchinterval(before)
    assert hidden == 0
    assert sorted(numbers(journal.streams, PASSING)) == list(range(6000))
    assert (
        journal.passing.position()
        == sum(chunk.last - chunk.first for chunk in journal.streams.of(PASSING)[:-1])
        + journal.passing.at
        - journal.streams.of(PASSING)[-1].start
    )


def content(path: Path) -> Streams:
    return read_bytes(path.read_bytes())


class TestMoving:
    """A recording into memory gets a file, and leaves it again."""

    def filled(self) -> tuple[Journal, ThreadWriter]:
        journal = Journal()
        thread = ThreadWriter(journal)
        for number in range(MANY):
            journal.rows.add(layout.NOTE, number, b'"row"' + b" " * 40)
            journal.values.write(number, number, 0, NONE, 1)
            open_record(thread, number, [number])
        return journal, thread

    @pytest.mark.parametrize("home", [MappedFile, PlainFile])
    def test_to_a_file_and_back(self, tmp_path: Path, home: Callable[[Path], MappedFile | PlainFile]) -> None:
        journal, thread = self.filled()
        journal.move_to(home(tmp_path / "journal-0"))
        begin = thread.at
        for number in range(MANY, 2 * MANY):
            journal.rows.add(layout.NOTE, number, b'"row"')
            journal.values.write(number, number, 0, NONE, 1)
            open_record(thread, number, [number])
        thread.close(0, NONE, NONE, NONE, NONE, 5)
        assert [words[WHAT] for words in records(journal.streams, 0)] == list(range(2 * MANY))
        journal.to_memory()
        stored = content(tmp_path / "journal-0")
        if home is MappedFile:
            assert numbers(stored, ROWS) == list(range(2 * MANY))
            assert [words[WHAT] for words in records(stored, 0)][-MANY:] == list(range(begin, 2 * MANY))
        for number in range(2 * MANY, 3 * MANY):
            journal.rows.add(layout.NOTE, number, b'"row"')
            open_record(thread, number)
        assert [words[WHAT] for words in records(journal.streams, 0)] == list(range(3 * MANY))
        assert numbers(journal.streams, ROWS) == list(range(3 * MANY))
        assert {type(chunk.buffer) for chunks in journal.streams.chunks.values() for chunk in chunks} == {bytearray}
        assert records(content(tmp_path / "journal-0"), 0)[-1][WHAT] < 2 * MANY

    def test_a_file_without_room_changes_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        journal, thread = self.filled()
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        calls: list[int] = []

        def allocate(file: int, offset: int, length: int) -> None:
            calls.append(length)
            if len(calls) == 3:
                raise OSError(28, "No space left on device")
            os.ftruncate(file, offset + length)

        monkeypatch.setattr(os, "posix_fallocate", allocate)
        home = MappedFile(tmp_path / "journal-0")
        with pytest.raises(OSError, match="No space"):
            journal.move_to(home)
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
        assert type(journal.backing) is Memory
        open_record(thread, 1)
        assert len(records(journal.streams, 0)) == MANY + 1

    @pytest.mark.parametrize("way", ["to a file", "to memory"])
    def test_while_other_threads_write(self, tmp_path: Path, way: str) -> None:
        """What a thread was about to write when the chunk got another buffer is there too."""
        journal, stop = Journal(), threading.Event()
        if way == "to memory":
            journal.move_to(MappedFile(tmp_path / "journal-0"))
        counts: dict[int, int] = {}

        def write() -> None:
            thread = ThreadWriter(journal)
            count = 0
            while not stop.is_set():
                at = thread.at
                if at >= thread.end:
                    thread.more()
                if thread.id_at + 2 > thread.id_end:
                    thread.more_ids(2)
                ids, first, buffer, place = thread.ids, thread.id_at, thread.buffer, at * RECORD + thread.shift
                sum(range(50))  # where Python may let others run
                ids[first] = ids[first + 1] = count + 1
                thread.id_at = first + 2
                base = thread.id_base + first
                pack_record(buffer, place, count, NONE, NONE, NONE, base, *[NONE] * 6, at + 1)
                thread.at = at + 1
                journal.passing.add(layout.NOTE, count, b'"x"')
                count += 1
            counts[thread.number] = count

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        threads = [threading.Thread(target=write) for _ in range(3)]
        try:
            for each in threads:
                each.start()
            while sum(each.at for each in journal.threads) < 3000:
                pass
            journal.move_to(MappedFile(tmp_path / "journal-0")) if way == "to a file" else journal.to_memory()
            reached = sum(each.at for each in journal.threads)
            while sum(each.at for each in journal.threads) < reached + 3000:
                pass
        finally:
            stop.set()
            for each in threads:
                each.join()
            sys.setswitchinterval(before)
        journal.copy_rests()  # of one that stood still for longer than we waited
        for number, count in counts.items():
            found = records(journal.streams, number)
            assert [words[WHAT] for words in found] == list(range(count))
            assert [journal.streams.ids(number, words[INPUTS], 2) for words in found] == [
                [each + 1] * 2 for each in range(count)
            ]
        assert len(numbers(journal.streams, PASSING)) == sum(counts.values())

    @pytest.mark.parametrize("then", ["goes on", "ends"])
    @pytest.mark.parametrize("way", ["to a file", "to memory"])
    def test_while_a_thread_is_blocked(
        self, tmp_path: Path, way: str, then: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that had taken a buffer, and writes into it long after the chunk got another."""
        monkeypatch.setattr("torchglass.journal.writer.WRITE_SECONDS", 0.0)
        journal, thread = self.filled()
        other = ThreadWriter(journal)
        open_record(other, 0, [0])
        if way == "to memory":
            journal.move_to(MappedFile(tmp_path / "journal-0"))
        at, ids, first, buffer = other.at, other.ids, other.id_at, other.buffer
        place, base = at * RECORD + other.shift, other.id_base + first
        journal.move_to(MappedFile(tmp_path / "journal-0")) if way == "to a file" else journal.to_memory()
        ids[first] = 7
        pack_record(buffer, place, 1, NONE, NONE, NONE, base, *[NONE] * 6, at + 1)
        other.id_at, other.at = first + 1, at + 1
        if then == "goes on":
            for number in range(2, MANY):
                open_record(other, number, [number])
        journal.release()
        found = records(journal.streams, other.number)
        assert [words[WHAT] for words in found] == list(range(MANY if then == "goes on" else 2))
        assert journal.streams.ids(other.number, found[1][INPUTS], 1) == [7]
        assert [words[WHAT] for words in records(journal.streams, thread.number)][-1] == MANY - 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_writes_nothing_into_the_file_of_its_parent(tmp_path: Path) -> None:
    journal = Journal(MappedFile(tmp_path / "journal-0"))
    thread = ThreadWriter(journal)
    for number in range(100):
        open_record(thread, number, [number])
        journal.values.write(number, 1, 2, 3, 4)
        journal.rows.add(layout.NOTE, number, b'"row"')
    before = (tmp_path / "journal-0").read_bytes()
    child = os.fork()
    if not child:
        thread.close(99, 1, 1, 1, 1, 1)
        thread.set_word(99, RESULT, 5)
        journal.values.write(100, 9, 9, 9, 9)
        journal.values.write(3, 9, 9, 9, 9)
        if journal.values.first <= 101 < journal.values.end:
            pack_value(journal.values.buffer, 0, 9, 9, 9, 9)
        journal.rows.add(layout.NOTE, 200, b'"of the child"')
        journal.passing.add(layout.NOTE, 200, b'"of the child"')
        refused = not thread.more() and not thread.more_ids(1) and open_record(thread, 1) == NONE
        os._exit(0 if refused and thread.add_ids([1]) == NONE else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "journal-0").read_bytes() == before
    open_record(thread, 100)
    assert len(records(content(tmp_path / "journal-0"), 0)) == 101


def test_a_closed_journal_takes_nothing_and_harms_nobody(journal: Journal) -> None:
    thread = ThreadWriter(journal)
    at = open_record(thread, 1)
    journal.close()
    journal.close()
    thread.close(at, 1, 1, 1, 1, 1)
    journal.rows.add(layout.NOTE, 0, b'"x"')
    journal.values.write(0, 0, 0, 0, 0)
    assert not thread.more()
    assert journal.streams.of(RECORDS) == []


def test_the_front_of_a_chunk_holds_copies() -> None:
    buffer = bytearray(layout.HEADER + 2 * (RECORD + 8) + 3 * RECORD)
    chunk = Chunk(buffer, RECORDS, 4, 100, copies=2)
    for index, number in enumerate((7, 50)):
        at = layout.HEADER + index * (RECORD + 8)
        buffer[at : at + 8] = number.to_bytes(8, sys.byteorder)
        pack_record(buffer, at + 8, *range(number, number + RECORD_WORDS))
    chunk.begin()
    assert list(chunk.copied()) == [(7, list(range(7, 19))), (50, list(range(50, 62)))]
    assert (chunk.first, chunk.last, chunk.written()) == (100, 103, 100)
    assert layout.read_chunk_header(buffer) == (RECORDS, 4, 100, len(buffer), 2)


def test_chunks_in_memory_are_twice_as_large_as_the_one_before() -> None:
    """A short recording must not fill memory with zeros for which it has no use."""
    journal = Journal()
    for number in range(700):
        journal.rows.add(layout.NOTE, number, b"x" * 500)
    sizes = [len(chunk.buffer) - chunk.start for chunk in journal.streams.of(layout.ROWS)]
    assert sizes == [1 << 15, 1 << 16, 1 << 17, 1 << 18]
