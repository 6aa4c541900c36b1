"""The contents of tensors: there at once by their rows, and for any safetensors reader when the shard is finished."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from torchglass.errors import BundleError
from torchglass.events.tables import Tables
from torchglass.store import Belongs, load, open_writer, save
from torchglass.store import shards as module
from torchglass.store.layout import part_paths, shard_paths
from torchglass.store.shards import HEADER, Shards

DTYPES = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32",
    "uint64", "bool", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip
ODD = ["complex64", "complex128", "float8_e4m3fnuz", "float8_e5m2fnuz"]


def raw(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes()) if tensor.numel() else b""


def of(dtype: str, *shape: int) -> torch.Tensor:
    return (torch.arange(1, 1 + int(np.prod(shape))) % 100).reshape(shape).to(getattr(torch, dtype))


def only_shard(path: Path) -> Path:
    (part,) = part_paths(path)
    (shard,) = shard_paths(part).values()
    return shard


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.trace"


def test_every_dtype_is_read_back_by_us_and_by_safetensors(path: Path) -> None:
    writer = open_writer(path)
    given = {name: of(name, 3, 5) for name in [*DTYPES, *ODD]}
    for name, tensor in given.items():
        writer.shards.submit(name, raw(tensor), name, tuple(tensor.shape))
    writer.finish(Tables())
    bundle = load(path)
    assert [row.name for row in bundle.saved_tensors()] == list(given)
    for row in bundle.saved_tensors():
        content = bundle.open_tensor(row)
        assert bytes(content.data) == raw(given[row.name])
        assert (content.dtype, content.shape, content.stride, content.storage_offset) == (row.name, (3, 5), (5, 1), 0)
    theirs = load_file(only_shard(path))
    for number, (name, tensor) in enumerate(given.items()):
        found = theirs[f"{name}@{number}"]
        assert raw(found) == raw(tensor)
        assert found.dtype == (tensor.dtype if name in DTYPES else torch.uint8)
        assert found.shape == (tensor.shape if name in DTYPES else (tensor.nbytes,))


def test_tensors_begin_at_round_numbers(path: Path) -> None:
    writer = open_writer(path)
    for length in (1, 2, 3, 15, 16, 17, 0, 5):
        writer.shards.submit("x", bytes(length), "uint8", (length,))
    writer.finish(Tables())
    rows = load(path).saved_tensors()
    assert [row.length for row in rows] == [1, 2, 3, 15, 16, 17, 0, 5]
    assert {row.offset % 16 for row in rows} == {0}
    assert load_file(only_shard(path))["x@5"].shape == (17,)


@pytest.mark.parametrize("name", ["a/b", "../../x", "a\0b", "line\nline", "é", "\udc80", "x" * 300, "", "__metadata__"])
def test_names_are_only_names(path: Path, name: str) -> None:
    writer = open_writer(path)
    writer.shards.submit(name, b"1234", "float32", (1,))
    writer.finish(Tables())
    (row,) = load(path).saved_tensors()
    assert row.name == name
    assert bytes(load(path).open_tensor(row).data) == b"1234"
    if name != "\udc80":  # which their JSON refuses
        (key,) = load_file(only_shard(path))
        assert key == f"{name[:200]}@0"
    assert {each.name for each in path.rglob("*")} == {
        "manifest.json", "sources", "events.sqlite", "done", "tensors-0000.safetensors", only_shard(path).parent.name,
    }  # fmt: skip


def test_views_over_one_storage(path: Path) -> None:
    writer = open_writer(path)
    writer.shards.submit("t", bytes(range(48)), "int32", (2, 3), Belongs(stride=(1, 4), storage_offset=2))
    writer.finish(Tables())
    (row,) = load(path).saved_tensors()
    content = load(path).open_tensor(row)
    assert (content.shape, content.stride, content.storage_offset, len(content.data)) == ((2, 3), (1, 4), 2, 48)
    assert load_file(only_shard(path))["t@0"].shape == (12,)


def test_rows_are_there_before_the_shard_is_finished(path: Path) -> None:
    writer = open_writer(path)
    writer.shards.submit("x", b"abcd", "float32", (1,))
    writer.shards.drain()
    assert load(path).saved_tensors() == ()
    writer.write(Tables())
    live = load(path)
    (row,) = live.saved_tensors()
    assert bytes(live.open_tensor(row).data) == b"abcd"
    writer.shards.submit("y", b"efgh", "float32", (1,))
    writer.shards.drain()
    writer.write(Tables())
    assert [bytes(live.open_tensor(each).data) for each in live.saved_tensors()] == [b"abcd", b"efgh"]
    writer.finish(Tables())


def test_a_full_shard_is_followed_by_another(path: Path) -> None:
    writer = open_writer(path)
    writer.shards._shard_bytes = 1000  # pyright: ignore[reportPrivateUsage]
    for number in range(7):
        writer.shards.submit("x", bytes([number]) * 400, "uint8", (400,))
    writer.finish(Tables())
    (part,) = part_paths(path)
    assert list(shard_paths(part)) == [0, 1, 2, 3]
    rows = load(path).saved_tensors()
    assert [row.shard for row in rows] == [0, 0, 1, 1, 2, 2, 3]
    assert [load(path).open_tensor(row).data[0] for row in rows] == list(range(7))
    for shard in shard_paths(part).values():
        load_file(shard)


def test_a_full_header_is_followed_by_another_shard(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = open_writer(path)
    for _ in range(7000):
        writer.shards.submit("\N{SNOWMAN}" * 200, b"1", "uint8", (1,))
    writer.finish(Tables())
    assert writer.problem is None
    (part,) = part_paths(path)
    assert len(shard_paths(part)) > 5
    assert sum(len([k for k in load_file(each) if "@" in k and not k.startswith("padding")])
               for each in shard_paths(part).values()) == 7000  # fmt: skip


def test_the_program_waits_when_too_much_is_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more bytes in flight than allowed, and all of them arrive."""
    gate, most = threading.Event(), []
    write_all = module.write_all
    shards = Shards(tmp_path, pytest.fail, in_flight=1000)

    def slow(file: int, content: bytes | memoryview, offset: int) -> None:
        gate.wait(5)
        most.append(shards._flying)  # pyright: ignore[reportPrivateUsage]
        write_all(file, content, offset)

    monkeypatch.setattr(module, "write_all", slow)
    threading.Timer(0.1, gate.set).start()
    begun = time.perf_counter()
    for number in range(8):
        shards.submit("x", bytes([number]) * 300, "uint8", (300,))
    assert time.perf_counter() - begun > 0.09
    shards.submit("bigger than all", bytes(5000), "uint8", (5000,))
    shards.close()
    assert len(shards.written()) == 9
    assert max(most[:-1]) <= 5000
    assert max(each for each in most if each != 5000) <= 1000


def test_a_full_disk_stops_no_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    writer = open_writer(path, told.append)
    writer.shards.submit("x", b"kept", "uint8", (4,))
    writer.shards.drain()
    writer.write(Tables())

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(module, "write_all", full)
    writer.shards.limit = 10
    for _ in range(20):
        writer.shards.submit("x", bytes(100), "uint8", (100,))
    writer.shards.drain()
    assert not writer.write(Tables())
    assert not writer.finish(Tables())
    assert told == [writer.problem]
    assert "No space left on device" in told[0]
    bundle = load(path)
    assert not bundle.tables().complete
    assert any("No space left" in note for note in bundle.tables().notes)
    assert [bytes(bundle.open_tensor(row).data) for row in bundle.saved_tensors()] == [b"kept"]


def test_a_shard_that_is_cut_off_or_changed(path: Path) -> None:
    writer = open_writer(path)
    writer.shards.submit("x", bytes(100), "uint8", (100,))
    writer.finish(Tables())
    shard = only_shard(path)
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(
        BundleError, match=r"tensors-0000.safetensors cannot be read: it is not as long .*torchglass repair"
    ):
        load(path)
    headers = {
        "another size": (64).to_bytes(8, "little") + content[8:],
        "comes twice": content[:8]
        + content[8:HEADER].replace(b'{"x@0"', b'{"x@0":{},"x@0"').rstrip()[: HEADER - 8].ljust(HEADER - 8)
        + content[HEADER:],
        "hole": content.replace(b"[0,100]", b"[1,101]"),
        "not speak of all": content.replace(b"[0,100]", b"[0,99] ").replace(b"[100]", b"[99] "),
        "is none": content.replace(b'"U8"', b'"Z8"'),
    }
    for words, changed in headers.items():
        shard.write_bytes(changed)
        bundle = load(path)
        with pytest.raises(BundleError, match=words):
            bundle.open_tensor(bundle.saved_tensors()[0])


def test_saving_a_trace_with_its_tensors_again(path: Path) -> None:
    writer = open_writer(path)
    writer.shards.submit("x", b"abcd", "float32", (1,))
    writer.finish(Tables())
    one = load(path)
    save(one.tables(), path.with_name("two"), [(row, one.open_tensor(row).data) for row in one.saved_tensors()])
    two = load(path.with_name("two"))
    assert two.saved_tensors() == one.saved_tensors()
    assert bytes(two.open_tensor(two.saved_tensors()[0]).data) == b"abcd"
    with safe_open(only_shard(path.with_name("two")), framework="pt") as opened:
        assert list(opened.keys()) == ["x@0"]


@pytest.mark.parametrize("after", [0, 2], ids=["nothing more", "more"])
def test_before_a_fork_there_is_no_thread_and_after_it_all_goes_on(path: Path, after: int) -> None:
    writer = open_writer(path)
    given = [of("float32", 3, number + 1) for number in range(3 + after)]
    for number, tensor in enumerate(given):
        if number == 3:
            writer.shards.rest()
        writer.shards.submit(f"t{number}", raw(tensor), "float32", tuple(tensor.shape))
    ended = writer.shards.rest()
    assert ended is not None
    assert not ended.is_alive()
    assert not [each for each in threading.enumerate() if each.name == "torchglass tensors"]
    writer.finish(Tables())
    theirs = load_file(only_shard(path))
    assert all(torch.equal(theirs[f"t{number}@{number}"], tensor) for number, tensor in enumerate(given))
