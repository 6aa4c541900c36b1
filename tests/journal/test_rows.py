"""What a row says comes back as it was written, and nothing else is taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchglass.journal import layout, rows
from torchglass.journal.layout import ROWS, Chunk, rows_in
from torchglass.journal.shared import RowFields, RowWriter
from torchglass.journal.writer import Journal

ODD = st.text(max_size=8) | st.sampled_from(["", "a\0b", "\ud800", "\x1b[31m", "'; DROP TABLE x --", "é\udcff"])
INTS = st.integers(-(2**63), 2**63 - 1)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "int": INTS,
    "str": ODD,
    "bool": st.booleans(),
    "float": INTS | st.floats(allow_nan=False, allow_infinity=False),
    "str | None": st.none() | ODD,
    "list[int]": st.lists(INTS, max_size=3),
    "list[int] | None": st.none() | st.lists(INTS, max_size=3),
    "Names": st.lists(ODD, max_size=3),
    "dict[str, Any]": st.dictionaries(ODD, st.none() | ODD | INTS, max_size=3),
    "list[Names]": st.lists(st.lists(ODD, max_size=2), max_size=2),
    "list[list[int]]": st.lists(st.lists(INTS, max_size=2), max_size=2),
    "list[list[Any]]": st.lists(st.lists(ODD | INTS, max_size=2), max_size=2),
}


def annotations(kind: int) -> dict[str, str]:
    """The fields of a kind of row, each with the type that it must have."""
    return {name: getattr(found, "__forward_arg__", found) for name, found in rows.KINDS[kind].__annotations__.items()}


def rows_of(kind: int) -> st.SearchStrategy[Any]:
    return st.builds(rows.KINDS[kind], *(FIELDS[each] for each in annotations(kind).values()))


@pytest.mark.parametrize("kind", rows.KINDS)
def test_every_kind_comes_back(kind: int) -> None:
    @given(rows_of(kind))
    def comes_back(row: Any) -> None:
        found = rows.decoded(kind, rows.encoded(row))
        assert found == row
        assert type(found) is rows.KINDS[kind]

    comes_back()


WRONG: dict[str, list[Any]] = {
    "int": ["1", 1.5, None, True, 2**63, [1]],
    "str": [1, None, ["x"]],
    "bool": [0, 1, "true", None],
    "float": ["1", None, True],
    "str | None": [1, []],
    "list[int]": [1, None, ["1"], [True], [2**64]],
    "list[int] | None": ["x", [None]],
    "Names": ["x", [1], None],
    "dict[str, Any]": [[], None, "x"],
    "list[Names]": [["x"], [[1]]],
    "list[list[int]]": [[1], [["x"]]],
    "list[list[Any]]": [["x"], None],
}
RIGHT: dict[str, Any] = {
    "int": 1, "str": "x", "bool": True, "float": 1.5, "str | None": None, "list[int]": [1], "list[int] | None": None,
    "Names": ["x"], "dict[str, Any]": {}, "list[Names]": [["x"]], "list[list[int]]": [[1]], "list[list[Any]]": [["x"]],
}  # fmt: skip


@pytest.mark.parametrize("kind", rows.MISSING_FIELDS)
def test_what_an_older_journal_does_not_have_is_nothing(kind: int) -> None:
    right = [RIGHT[each] for each in annotations(kind).values()]
    older = right[: -len(rows.MISSING_FIELDS[kind])]
    assert rows.decoded(kind, json.dumps(older).encode()) == (*older, *rows.MISSING_FIELDS[kind])


@pytest.mark.parametrize("kind", rows.KINDS)
def test_a_field_of_another_type_is_refused(kind: int) -> None:
    kinds = list(annotations(kind).values())
    right = [RIGHT[each] for each in kinds]
    assert rows.decoded(kind, json.dumps(right).encode()) == tuple(right)
    for at, name in enumerate(kinds):
        for wrong in WRONG[name]:
            with pytest.raises(ValueError, match="lacks fields"):
                rows.decoded(kind, json.dumps([*right[:at], wrong, *right[at + 1 :]]).encode())
    for count in (len(right) - 1 - len(rows.MISSING_FIELDS.get(kind, ())), len(right) + 1):
        with pytest.raises(ValueError, match="lacks fields"):
            rows.decoded(kind, json.dumps([*right, 1][:count]).encode())


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (layout.NOTE, b"1"),
        (layout.NOTE, b"\xff"),
        (layout.FORM, b"{}"),
        (layout.STACK_ROW, b"1"),
        (layout.RECORDING, b'["x", 1, NaN, 1, {}]'),
        (layout.RECORDING, b'["x", 1, 1e999, 1, {}]'),
        (layout.FORM, b"[Infinity]"),
        (layout.FORM, b"[" * 100_000),
        (layout.FORM, b""),
        (layout.FORM, b"[1] [2]"),
    ],
)
def test_what_is_no_row_is_refused(kind: int, payload: bytes) -> None:
    with pytest.raises(ValueError):  # json's own words differ from one Python to the next
        rows.decoded(kind, payload)


def test_bytes_are_text_and_bytes_again() -> None:
    assert rows.unpacked(rows.packed(bytes(range(256)))) == bytes(range(256))
    with pytest.raises(ValueError, match=r"(?i)base64|padding|data"):
        rows.unpacked("not that!")


def written(count: int) -> Chunk:
    """A chunk with some rows of different lengths."""
    journal = Journal()
    for number in range(count):
        journal.rows.add(layout.NOTE, number, rows.encoded("x" * number))
    (chunk,) = journal.streams.of(ROWS)
    return chunk


def found_in(chunk: Chunk) -> list[tuple[int, int, bytes]]:
    return [row for _, row in rows_in(chunk)]


class PythonRowWriter(RowFields):
    """What writes rows where there is no extension."""

    more, position, release = RowWriter.more, RowWriter.position, RowWriter.release

    def __init__(self, journal: Journal, stream: int) -> None:
        super().__init__()
        self.journal, self.stream, self.chunk = journal, stream, None


def test_a_chunk_that_is_cut_anywhere_gives_the_rows_before() -> None:
    whole = written(9)
    everything, content = found_in(whole), bytes(whole.buffer)
    ends = [behind for behind, _ in rows_in(whole)]
    assert [number for _, number, _ in everything] == list(range(9))
    for length in range(whole.start, ends[-1] + 50):
        cut = Chunk(memoryview(content[:length]), ROWS, 0, 0)
        assert found_in(cut) == everything[: sum(end <= length for end in ends)]


def test_memory_that_runs_out_while_a_row_is_written_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python; C takes no memory here."""
    testcapi = pytest.importorskip("_testcapi")
    monkeypatch.setattr("torchglass.journal.ring.RowWriter", PythonRowWriter)
    journal = Journal()
    journal.rows.add(layout.NOTE, 1000, b"first")
    added = [1000, *range(12)]
    for number in range(12):
        testcapi.set_nomemory(number, number + 1)
        try:
            journal.rows.add(layout.NOTE, number, b"payload")
            testcapi.remove_mem_hooks()
        except MemoryError:
            testcapi.remove_mem_hooks()
            added.remove(number)
    journal.rows.add(layout.NOTE, 1001, b"last")
    (chunk,) = journal.streams.of(ROWS)
    assert 3 < len(added) < 13
    assert [number for _, number, _ in found_in(chunk)] == [*added, 1001]


@given(st.lists(st.tuples(st.integers(0, 2**31), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=70))))
def test_rows_are_the_same_bytes_whoever_writes_them(found: list[tuple[int, int, bytes]]) -> None:
    journals = [Journal(), Journal()]
    journals[1].rows = PythonRowWriter(journals[1], ROWS)
    for kind, number, payload in found:
        for journal in journals:
            journal.rows.add(kind, number, payload)
    one, other = ([bytes(chunk.buffer) for chunk in journal.streams.of(ROWS)] for journal in journals)
    assert one == other
    assert journals[0].rows.position() == journals[1].rows.position()


@pytest.mark.parametrize("offset", [0, 1])
def test_rows_of_any_length_have_the_checksum_that_readers_work_out(offset: int) -> None:
    """C takes the long ones sixteen bytes at a time."""
    text = bytes(each * 37 % 251 for each in range(4096))
    lengths = [*range(40, 200), 1000, 1007, 1008, 1009, 4000]
    journal = Journal()
    for length in lengths:
        journal.rows.add(layout.NOTE, length, text[offset : offset + length])
    (chunk,) = journal.streams.of(ROWS)
    assert [(number, payload) for _, number, payload in found_in(chunk)] == [
        (length, text[offset : offset + length]) for length in lengths
    ]


def test_a_damaged_row_costs_itself_alone() -> None:
    whole = written(9)
    everything, content = found_in(whole), bytes(whole.buffer)
    begins = [whole.start, *(behind for behind, _ in rows_in(whole))]
    for at in range(begins[4], begins[5]):
        for bit in range(8):
            changed = bytearray(content)
            changed[at] ^= 1 << bit
            found = found_in(Chunk(changed, ROWS, 0, 0))
            assert found[:4] == everything[:4]
            assert set(found) < set(everything)
            if at >= begins[4] + 4:  # else its length is another, and where the next one begins is not known
                assert found == everything[:4] + everything[5:]
