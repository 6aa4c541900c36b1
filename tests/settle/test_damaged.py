"""A journal that is cut at any byte, or in which bits have flipped: one clear error, or a smaller trace."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import torchglass as tg
from tests.journal.stored import read_bytes
from tests.settle.journals import journal_of, unsealed
from torchglass._trace import FixedTables, Trace
from torchglass.errors import BundleError
from torchglass.events.schema import Meta
from torchglass.events.tables import Tables
from torchglass.journal.layout import PAGE, RECORDING, RECORDS, ROWS, START, Chunk, rows_in
from torchglass.journal.reader import BadJournal
from torchglass.settle.journal_rows import JournalRows
from torchglass.settle.value_columns import UNKNOWN, meta_of
from torchglass.store import load
from torchglass.store.checks import check_tables
from torchglass.store.layout import Unsound
from torchglass.store.loading import settle_stored

SEEN: set[Meta] = set()
"""What tensors were like that no event of the trace took or gave: a damaged number may lead there."""
MUTATIONS = int(os.environ.get("TORCHGLASS_MUTATIONS", "300"))
"""Of each journal, in each way; set it higher to look longer."""
LONGEST = 20.0
"""Seconds that reading a small journal may take on the slowest machine: far less than for ever."""
PROGRAMS = {
    "mlp": {},
    "training_step": {"ops": True},
    "threads": {"variables": ("*",)},
    "generation": {"max_events": 60},
}
Stored = tuple[bytes, Tables, dict[str, str]]


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stored]:
    """By program: the bytes of its journal, what they mean, and the source texts by digest."""
    found: dict[str, Stored] = {}
    for name, options in PROGRAMS.items():
        path = tmp_path_factory.mktemp(name) / "run.trace"
        unsealed(path, name, **options)
        content = journal_of(path).read_bytes()
        texts = {each.stem: each.read_text() for each in (path / "sources").iterdir()}
        found[name] = (content, settled(content, texts), texts)
        journal_rows = JournalRows(read_bytes(content))
        journal_rows.update()
        SEEN.update(meta_of(row) for row in journal_rows.metas.values())
    return found


def settled(content: bytes, texts: dict[str, str]) -> Tables:
    return settle_stored(read_bytes(content), 0, texts.get).tables


def looked_at(content: bytes, texts: dict[str, str]) -> Tables | None:
    """What can be had of a journal, looked at from all sides; None where it is refused as it should be."""
    began, refused = time.monotonic(), ""
    tables = Tables()
    try:
        tables = settled(content, texts)
        check_tables(tables)
    except (BadJournal, Unsound) as reason:
        refused = str(reason)
    assert time.monotonic() - began < LONGEST
    assert "\n" not in refused
    if refused:
        return None
    trace = Trace(FixedTables(tables))
    for event in trace.events():
        assert event.key
    list(trace.values())
    trace.modules()
    tg.render(trace)
    str(trace)
    return tables


def invents_nothing(found: Tables, whole: Tables) -> None:
    """All that is told was told before: names, places, shapes, texts; only gaps and what is not known are new."""
    assert len(found) <= len(whole) + len(found.threads)
    names = {(callee.kind, callee.name) for callee in whole.callees} | {("unseen", "gap"), ("module", "?")}
    assert {(callee.kind, callee.name) for callee in found.callees} <= names
    assert {site.location.file for site in found.sites} <= {site.location.file for site in whole.sites}
    texts = [*whole.sources.values(), *(site.code for site in whole.sites)]
    assert all(any(site.code in text for text in texts) for site in found.sites)
    assert set(found.metas) <= {*whole.metas, *SEEN, UNKNOWN}
    assert set(found.texts) <= {*whole.texts, "?"}
    assert {(row.path, row.name) for row in found.modules} <= {(row.path, row.name) for row in whole.modules} | {
        (row.path, "?") for row in whole.modules
    }
    began = min(whole.start_ns)
    assert all(began - 10**12 < start < began + 2**54 for start in found.start_ns)


@pytest.mark.parametrize("name", PROGRAMS)
def test_cut_at_any_byte(name: str, journals: dict[str, Stored]) -> None:
    content, whole, texts = journals[name]
    used = len(content.rstrip(b"\0"))
    chance = random.Random(name)
    lengths = {*(chance.randrange(used) for _ in range(MUTATIONS)), 0, 1, PAGE - 1, PAGE, PAGE + 1, used - 1}
    kept = 0
    for length in sorted(lengths):
        found = looked_at(content[:length], texts)
        if found is not None:
            invents_nothing(found, whole)
            assert len(found) >= kept - len(found.threads)
            kept = max(kept, len(found))
    assert kept > 0
    found = looked_at(content, texts)
    assert found is not None
    assert len(found) == len(whole)


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Some bits flipped, some bytes overwritten, a piece zeroed or repeated elsewhere."""
    used = len(content.rstrip(b"\0"))
    changed = bytearray(content)
    kind = chance.randrange(4)
    if kind <= 1:
        for _ in range(chance.choice([1, 1, 2, 10, 100])):
            changed[chance.randrange(used)] ^= 1 << chance.randrange(8)
    elif kind == 2:
        at, length = chance.randrange(used), chance.choice([8, 96, 500, PAGE])
        changed[at : at + length] = bytes(min(length, len(changed) - at))
    else:
        at, to, length = chance.randrange(used), chance.randrange(used), chance.choice([8, 96, 500, PAGE])
        piece = content[at : at + length][: len(changed) - to]
        changed[to : to + len(piece)] = piece
    return bytes(changed)


@pytest.mark.parametrize("name", PROGRAMS)
def test_flipped_bits(name: str, journals: dict[str, Stored]) -> None:
    content, whole, texts = journals[name]
    chance = random.Random(name)
    refused = 0
    for _ in range(MUTATIONS):
        found = looked_at(mutated(content, chance), texts)
        refused += found is None
        if found is not None:
            invents_nothing(found, whole)
    assert refused < MUTATIONS // 2, "most damage costs a few events, not all of them"


def words_of(content: bytes) -> Iterator[tuple[bytearray, memoryview, Chunk]]:
    """For each chunk of records: a copy of the whole journal, and the words of that chunk in it."""
    streams = read_bytes(content)
    for (stream, owner), chunks in streams.chunks.items():
        for chunk in chunks:
            if stream == RECORDS and owner == 0:
                changed = bytearray(content)
                at = content.index(bytes(chunk.buffer[: chunk.start]))
                yield changed, memoryview(changed)[at + chunk.start : at + len(chunk.buffer)].cast("q"), chunk


EXTREMES = [-(2**63), -(2**40), -3, -2, 0, 1, 2**31, 2**40, 2**62, 2**63 - 1]


@pytest.mark.parametrize("word", range(12))
def test_every_word_of_a_record_with_numbers_that_make_no_sense(word: int, journals: dict[str, Stored]) -> None:
    content, whole, texts = journals["mlp"]
    changed, words, chunk = next(words_of(content))
    for record in (0, 1, chunk.written() - chunk.first - 1):
        before = words[record * 12 + word]
        for number in EXTREMES:
            words[record * 12 + word] = number
            found = looked_at(bytes(changed), texts)
            assert found is not None
            invents_nothing(found, whole)
        words[record * 12 + word] = before
    assert len(settled(bytes(changed), texts)) == len(whole)


def test_a_record_whose_end_was_being_written_has_no_result(journals: dict[str, Stored]) -> None:
    """The words are zeros first: each of them would be some row, and some value."""
    content, whole, texts = journals["mlp"]
    changed, words, _ = next(words_of(content))
    closed = next(number for number in range(len(whole)) if whole.result[number] >= 0)
    for zeros in range(1, 6):
        words[closed * 12 + 11 - zeros : closed * 12 + 11] = memoryview(bytes(8 * zeros)).cast("q")
        found = settled(bytes(changed), texts)
        assert (found.end_ns[closed], found.result[closed], found.error[closed]) == (-1, -1, -1)
        assert [found.callee[n] for n in range(len(found))] == [whole.callee[n] for n in range(len(whole))]


def test_a_missing_chunk_is_damage_and_no_limit(tmp_path: Path) -> None:
    """Nothing was dropped on purpose where there was room for a million."""
    with tg.record(to=tmp_path / "living"):
        for _ in range(5000):
            torch.ones(2)
        shutil.copytree(tmp_path / "living", tmp_path / "run.trace")
    path = journal_of(tmp_path / "run.trace")
    content = path.read_bytes()
    chunks = read_bytes(content).of(RECORDS)
    assert len(chunks) > 2
    at = content.index(bytes(chunks[1].buffer[: chunks[1].start]))
    path.write_bytes(content[:at] + bytes(8) + content[at + 8 :])
    trace = tg.load(tmp_path / "run.trace")
    (gap,) = [event for event in trace.events() if event.name == "gap"]
    lost = chunks[1].last - chunks[1].first
    assert f"{lost:,} events in " in (gap.note or "")
    assert "are not there: the journal is damaged" in (gap.note or "")
    assert any(note.startswith(f"{lost:,} events are not there") for note in trace.notes)


def test_times_out_of_order_in_several_threads(journals: dict[str, Stored]) -> None:
    """A clock that was damaged changes neither the order nor whose child an event is."""
    content, whole, texts = journals["threads"]
    changed, words, _ = next(words_of(content))
    words[3 * 12 + START], words[4 * 12 + START] = words[4 * 12 + START] + 10**6, words[3 * 12 + START]
    found = looked_at(bytes(changed), texts)
    assert found is not None
    assert len(found) == len(whole)
    for number in range(len(found)):
        assert found.parent[number] == -1 or found.thread[found.parent[number]] == found.thread[number]


def test_what_says_what_was_recorded_is_gone(journals: dict[str, Stored]) -> None:
    content, _, texts = journals["mlp"]
    chunks = read_bytes(content).of(ROWS)  # in the first are the codes of those who called the program
    rows, behind = next((each, end) for each in chunks for end, (kind, _, _) in rows_in(each) if kind == RECORDING)
    changed = bytearray(content)
    changed[content.index(bytes(rows.buffer[: rows.start])) + behind - 2] ^= 1
    with pytest.raises(BadJournal, match="does not say what was recorded"):
        settled(bytes(changed), texts)
    assert len(settled(content[:PAGE], texts)) == 0


def test_through_the_front_door(tmp_path: Path) -> None:
    """The error names the file, and the cure."""
    unsealed(tmp_path / "run.trace", "mlp")
    path = journal_of(tmp_path / "run.trace")
    content = path.read_bytes()
    for changed, words in (
        (content[:5], "cannot be read: it does not begin like a journal; `torchglass repair"),
        (content.replace(b"format 1", b"format 2", 1), "cannot be read here: it has format 2, .* update torchglass"),
        (content.replace(b"order little", b"order bigger", 1), "cannot be read here: .* the other byte order"),
    ):
        path.write_bytes(changed)
        with pytest.raises(BundleError, match=rf"journal-0 {words}") as caught:
            load(tmp_path / "run.trace")
        assert "\n" not in str(caught.value)
        assert ("repair" in str(caught.value)) == ("repair" in words)
