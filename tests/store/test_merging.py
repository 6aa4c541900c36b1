"""The parts of several processes as one trace."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from torchglass.events.schema import Callee
from torchglass.events.tables import Tables
from torchglass.store.merging import in_order, merged
from torchglass.store.reader import PartContents

NEVER = "the variable {!r} never appeared in the block; did you mean 'x'?"


def part(process: int, notes: list[str], *variables: str) -> PartContents:
    """What one process wrote; only what the notes are compared with is filled in."""
    tables = Tables(process=process, notes=notes)
    tables.callees = [Callee("function", "video"), *(Callee("variable", name, detail="assigned") for name in variables)]
    tables.callee = array("q", range(len(tables.callees)))
    return PartContents(tables)


def notes_of(*parts: PartContents) -> list[str]:
    tables, _ = merged(parts, [Path(f"part-{each.tables.process}") for each in parts])
    return tables.notes


@pytest.mark.parametrize(("asked", "seen"), [("video", "video"), ("vid*", "video"), ("batch['x']", "batch['x']")])
def test_a_variable_that_another_process_has_seen_is_not_missed(asked: str, seen: str) -> None:
    parent, child = part(1, [NEVER.format(asked), "something else"]), part(2, [], seen)
    assert notes_of(parent, child) == ["part-1: something else"]
    assert notes_of(child, parent) == ["part-1: something else"]


def test_a_variable_that_no_process_has_seen_is_missed() -> None:
    """A function of the same name is no variable."""
    note = NEVER.format("video")
    assert notes_of(part(1, [note]), part(2, [], "audio")) == [f"part-1: {note}"]
    assert notes_of(part(1, [note], "audio")) == [note]


def test_numbers_of_python_calls_count_on() -> None:
    one, two = part(1, [], "x", "x"), part(2, [], "x")
    one.tables.python_call, two.tables.python_call = array("q", [-1, 0, 1]), array("q", [-1, 0])
    tables, _ = merged([one, two], [Path("part-1"), Path("part-2")])
    assert list(tables.python_call) == [-1, 0, 1, -1, 2]


def test_a_file_that_changed_between_two_processes_is_said_and_text_without_a_file_is_not() -> None:
    one, two = part(1, []), part(2, [])
    one.tables.sources = {"train.py": "x = 1", "<string>": "spawn_main(3)"}
    two.tables.sources = {"train.py": "x = 2", "<string>": "spawn_main(4)"}
    assert notes_of(one, two) == ["part-2: train.py had other text in this process than in the ones before"]


def threads_of(*folders: str, threads: tuple[str, ...] = ("MainThread",)) -> list[str]:
    parts = [part(int(folder.rpartition("pid")[2]), []) for folder in folders]
    for each in parts:
        each.tables.threads = list(threads)
    return merged(parts, [Path(folder) for folder in folders])[0].threads


def test_what_ranks_did_is_told_apart() -> None:
    assert threads_of("rank00000-pid7", "rank00001-pid8") == ["rank 0", "rank 1"]
    threads = threads_of("rank00000-pid7", "rank00012-pid8", threads=("MainThread", "DataLoader worker 0"))
    assert threads == ["rank 0", "rank 0, DataLoader worker 0", "rank 12", "rank 12, DataLoader worker 0"]
    assert threads_of("rank00000-pid6", "rank00000-pid7", "rank00001-pid8") == ["rank 0", "rank 0, process 7", "rank 1"]


def test_the_main_thread_of_a_forked_child_is_not_that_of_its_parent() -> None:
    assert threads_of("rank00000-pid7", "rank00000-pid8") == ["MainThread", "process 8"]
    assert threads_of("rank00000-pid7") == ["MainThread"]


def test_workers_of_the_next_epoch_are_those_of_the_one_before() -> None:
    names = threads_of("rank00000-pid7", "rank00000-pid8", threads=("DataLoader worker 0",))
    assert names == ["DataLoader worker 0"] * 2


def test_processes_that_were_stopped_are_one_note() -> None:
    note = "the recording in {} has no end: its process was stopped"
    parts = [part(1, ["first"]), part(2, [note.format("part-2")]), part(3, [note.format("part-3"), "else"])]
    assert notes_of(*parts[:2]) == ["part-1: first", note.format("part-2")]
    once = "the recording in part-2, and in 1 more, has no end: its process was stopped"
    assert notes_of(*parts) == ["part-1: first", once, "part-3: else"]


def test_processes_stand_as_they_began_also_where_their_numbers_began_again() -> None:
    def began(at: float) -> PartContents:
        return PartContents(Tables(started_at=at))

    folders = ["rank00000-pid301", "rank00000-pid32760", "rank00001-pid299", "rank00000-pid302"]
    contents, paths = in_order([began(20.0), began(10.0), began(5.0), began(0.0)], [Path(each) for each in folders])
    assert [path.name for path in paths] == [folders[1], folders[0], folders[3], folders[2]]
    assert [each.tables.started_at for each in contents] == [10.0, 20.0, 0.0, 5.0]  # the third wrote nothing


def test_a_launcher_leaves_it_to_the_rank_that_failed_first_to_tell_how_it_ended() -> None:
    texts = (
        ("ChildFailedError: \n====",),
        (),
        ("ConnectionError: peer is gone",),
        ("ValueError: rank 1 is bad", "KeyError"),
    )
    parts = [part(process, []) for process in range(1, 5)]
    for each, left_by, ended in zip(parts, texts, (9, 9, 5, 4), strict=True):
        each.tables.left_by, each.tables.duration_ns = left_by, ended
    tables, _ = merged(parts, [Path(f"part-{each.tables.process}") for each in parts])
    assert tables.left_by == (*texts[3], *texts[0], *texts[2])
    assert tables.left_process == 4
