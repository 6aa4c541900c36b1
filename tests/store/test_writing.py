"""Large pieces through the page cache and past it: the same bytes, and the quicker way is taken."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from torchglass.store.writing import LARGE, PAGE, PastCache, Ways

from torchglass.events.tables import Tables
from torchglass.store import load, open_writer, writing
from torchglass.store.layout import part_paths, shard_paths


def in_pages(length: int, salt: int) -> memoryview:
    """Bytes that begin with a page, as copies on their way do."""
    memory = mmap.mmap(-1, length)
    memory[:] = bytes((at * 7 + salt) % 251 for at in range(251)) * (length // 251) + bytes(length % 251)
    return memoryview(memory)


@pytest.mark.parametrize("way", ["past", "through", "refused", "in turn"])
def test_the_same_bytes_on_every_way(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter([True, False] * 10)
    choose = {"past": lambda: True, "through": lambda: False, "refused": lambda: True, "in turn": lambda: next(turns)}
    monkeypatch.setattr(Ways, "past_cache", lambda _: choose[way]())
    pwrite, direct = os.pwrite, list[int]()

    def written(file: int, content: Any, offset: int) -> int:
        if os.get_blocking(file) and _is_direct(file):
            direct.append(len(content))
            if way == "refused":
                raise OSError(errno.EINVAL, "not here")
        return pwrite(file, content, offset)

    monkeypatch.setattr(writing.os, "pwrite", written)
    lengths = [LARGE, 5, LARGE + 1, LARGE + PAGE, 3, 2 * LARGE + 4095, LARGE - 1, LARGE + 17]
    contents = [in_pages(length, salt) for salt, length in enumerate(lengths)]
    writer = open_writer(tmp_path / "run.trace")
    for content in contents:
        writer.shards.submit("x", content, "uint8", (len(content),))
    writer.finish(Tables())
    bundle = load(tmp_path / "run.trace")
    rows = bundle.saved_tensors()
    assert [bytes(bundle.open_tensor(row).data) for row in rows] == [bytes(each) for each in contents]
    assert {row.offset % PAGE for row in rows if row.length >= LARGE} == {0}
    (shard,) = shard_paths(part_paths(tmp_path / "run.trace")[0]).values()
    theirs = load_file(shard)
    assert all(theirs[f"x@{at}"].tobytes() == bytes(each) for at, each in enumerate(contents))
    if way == "through":
        assert direct == []
    elif hasattr(os, "O_DIRECT"):
        assert direct
        assert {length % PAGE for length in direct} == {0}


def _is_direct(file: int) -> bool:
    import fcntl

    return bool(fcntl.fcntl(file, fcntl.F_GETFL) & getattr(os, "O_DIRECT", 0))


def test_a_full_disk_is_not_tried_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    file = os.open(path, os.O_RDWR | os.O_CREAT)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(writing.os, "pwrite", full)
    with pytest.raises(OSError, match="full"):
        PastCache(path, file, Ways()).write(in_pages(LARGE, 0), 0)
    os.close(file)


def test_the_quicker_way_is_taken_and_the_other_tried_again() -> None:
    ways, seconds = Ways(), {True: 1.0, False: 10.0}
    taken: list[bool] = []

    def go(pieces: int) -> None:
        for _ in range(pieces):
            past_cache = ways.past_cache()
            taken.append(past_cache)
            ways.took(past_cache, seconds[past_cache])

    go(1000)
    assert set(taken[:2]) == {True, False}, "both are tried"
    assert taken[2:].count(False) in (2, 3), "a way ten times as slow costs a thirty-second of the time"
    seconds[False] = 0.1
    taken.clear()
    go(1000)
    assert taken[-1] is False, "the page cache has become quicker"
    seconds[True] = float("inf")
    taken.clear()
    go(3000)
    assert taken.count(True) <= 10
