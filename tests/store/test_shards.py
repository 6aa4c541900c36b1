"""The contents of tensors: there at once by their rows, and for any safetensors reader when the shard is finished."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import torchglass as tg
from torchglass.errors import BundleError
from torchglass.events.schema import SavedTensor
from torchglass.events.tables import Tables
from torchglass.store import load, open_part, save
from torchglass.store import shards as module
from torchglass.store.layout import part_paths, shard_paths
from torchglass.store.shards import HEADER, Shards, new_tensor

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


def keep(path: Path, tensors: Iterable[tuple[SavedTensor, Any]]) -> None:
    """A finished bundle with these tensors and nothing else."""
    part = open_part(path)
    for given, content in tensors:
        part.copy_tensor(given, content)
    part.finish_tables(Tables())
    assert part.problem is None


def given(
    name: str, content: bytes, dtype: str = "uint8", shape: tuple[int, ...] | None = None
) -> tuple[SavedTensor, bytes]:
    return new_tensor(name, dtype, (len(content),) if shape is None else shape, len(content)), content


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.trace"


def test_every_dtype_is_read_back_by_us_and_by_safetensors(path: Path) -> None:
    tensors = {name: of(name, 3, 5) for name in [*DTYPES, *ODD]}
    keep(path, (given(name, raw(tensor), name, tuple(tensor.shape)) for name, tensor in tensors.items()))
    bundle = load(path)
    assert [row.name for row in bundle.saved_tensors()] == list(tensors)
    for row in bundle.saved_tensors():
        content = bundle.open_tensor(row)
        assert bytes(content.data) == raw(tensors[row.name])
        assert (content.dtype, content.shape, content.stride, content.storage_offset) == (row.name, (3, 5), (5, 1), 0)
    theirs = load_file(only_shard(path))
    for number, (name, tensor) in enumerate(tensors.items()):
        found = theirs[f"{name}@{number}"]
        assert raw(found) == raw(tensor)
        assert found.dtype == (tensor.dtype if name in DTYPES else torch.uint8)
        assert found.shape == (tensor.shape if name in DTYPES else (tensor.nbytes,))


def test_tensors_begin_at_round_numbers(path: Path) -> None:
    keep(path, (given("x", bytes(length)) for length in (1, 2, 3, 15, 16, 17, 0, 5)))
    rows = load(path).saved_tensors()
    assert [row.length for row in rows] == [1, 2, 3, 15, 16, 17, 0, 5]
    assert {row.offset % 16 for row in rows} == {0}
    assert load_file(only_shard(path))["x@5"].shape == (17,)


@pytest.mark.parametrize("name", ["a/b", "../../x", "a\0b", "line\nline", "é", "\udc80", "x" * 300, "", "__metadata__"])
def test_names_are_only_names(path: Path, name: str) -> None:
    keep(path, [given(name, b"1234", "float32", (1,))])
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
    keep(path, [(new_tensor("t", "int32", (2, 3), 48, stride=(1, 4), storage_offset=2), bytes(range(48)))])
    (row,) = load(path).saved_tensors()
    content = load(path).open_tensor(row)
    assert (content.shape, content.stride, content.storage_offset, len(content.data)) == ((2, 3), (1, 4), 2, 48)
    assert load_file(only_shard(path))["t@0"].shape == (12,)


def test_a_mark_is_there_when_it_returns(path: Path) -> None:
    """For another process too, and in the block itself."""
    with tg.record(to=path) as trace:
        for number in range(3):
            tg.mark("x", torch.full((5,), number))
            bundle = load(path)
            rows = bundle.saved_tensors()
            assert [bytes(bundle.open_tensor(row).data) for row in rows] == [
                raw(torch.full((5,), each)) for each in range(number + 1)
            ]
        assert [trace.tensor(value).tolist() for value in trace.kept()] == [[each] * 5 for each in range(3)]


def test_the_bytes_are_those_of_the_moment(path: Path) -> None:
    """Views, strides, conjugates, scalars, arrays: as they lie, or through a small buffer."""
    x = torch.arange(24.0).reshape(2, 3, 4)
    complex_one = torch.complex(x, x)
    marked: dict[str, Any] = {
        "plain": x,
        "transposed": x.permute(2, 0, 1),
        "every second": x[..., ::2],
        "conjugate": complex_one.conj(),
        "negative": complex_one.conj().imag,
        "scalar": x.sum(),
        "nothing": x[:, :0],
        "expanded": x[:1].expand(5, 3, 4),
        "array": x.numpy()[:, ::-1],
        "grad": x.clone().requires_grad_() * 2,
    }
    expected = {name: value.tolist() for name, value in marked.items()}
    with tg.record(to=path):
        for name, value in marked.items():
            tg.mark(name, value)
        x.zero_()
    loaded = tg.load(path)
    assert {name: loaded.tensor(value).tolist() for value, name in loaded.kept().items()} == expected


def test_large_ones_go_through_a_buffer_of_bounded_size(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchglass.capture import contents

    monkeypatch.setattr(contents, "PIECE", 1000)
    pieces: list[int] = []
    write_all = module.write_all

    def spy(file: int, content: Any, offset: int) -> None:
        if offset >= HEADER:
            pieces.append(memoryview(content).nbytes)
        write_all(file, content, offset)

    monkeypatch.setattr(module, "write_all", spy)
    x = torch.arange(40 * 50 * 3).reshape(40, 50, 3)
    with tg.record(to=path):
        tg.mark("strided", x.permute(2, 1, 0))
        strided, pieces[:] = pieces[:], []
        tg.mark("plain", x)
        assert pieces == [x.nbytes]
    assert max(strided) <= 1000
    assert sum(strided) == x.nbytes
    loaded = tg.load(path)
    found = {name: loaded.tensor(value) for value, name in loaded.kept().items()}
    assert torch.equal(found["strided"], x.permute(2, 1, 0))
    assert torch.equal(found["plain"], x)


def test_a_full_shard_is_followed_by_another(tmp_path: Path) -> None:
    shards = Shards(tmp_path, shard_bytes=1000)
    for number in range(7):
        shards.append(*_pieces(given("x", bytes([number]) * 400)))
    shards.close()
    assert list(shard_paths(tmp_path)) == [0, 1, 2, 3]
    assert [saved.shard for saved in shards.saved] == [0, 0, 1, 1, 2, 2, 3]
    for shard in shard_paths(tmp_path).values():
        for name, tensor in load_file(shard).items():
            assert name.startswith("padding") or set(tensor.tolist()) == {int(name.partition("@")[2])}


def _pieces(each: tuple[SavedTensor, bytes]) -> tuple[SavedTensor, list[bytes]]:
    return each[0], [each[1]]


def test_a_full_header_is_followed_by_another_shard(path: Path) -> None:
    keep(path, (given("\N{SNOWMAN}" * 200, b"1") for _ in range(7000)))
    (part,) = part_paths(path)
    assert len(shard_paths(part)) > 5
    assert sum(len([k for k in load_file(each) if "@" in k and not k.startswith("padding")])
               for each in shard_paths(part).values()) == 7000  # fmt: skip


def test_several_threads_at_once(path: Path) -> None:
    def work(first: int) -> None:
        for number in range(first, first + 50):
            tg.mark("x", torch.full((1000,), number))

    with tg.record(to=path):
        threads = [threading.Thread(target=work, args=(first,)) for first in (0, 50, 100)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    loaded = tg.load(path)
    found = [loaded.tensor(value) for value in loaded.kept()]
    assert all(torch.equal(each, torch.full((1000,), int(each[0]))) for each in found)
    assert sorted(int(each[0]) for each in found) == list(range(150))


def test_a_full_disk_stops_no_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    def run() -> tg.Trace:
        with tg.record(to=path) as trace:
            tg.mark("kept", torch.arange(4))
            monkeypatch.setattr(module, "write_all", full)
            for number in range(20):
                tg.mark("lost", torch.full((3,), number))
            monkeypatch.undo()
        return trace

    with pytest.warns(RuntimeWarning, match="No space left on device") as told:
        trace = run()
    assert len(told) == 1
    assert len(trace.kept()) == 21
    bundle = tg.load(path)
    assert {name: bundle.tensor(value).tolist() for value, name in bundle.kept().items()} == {"kept": [0, 1, 2, 3]}
    assert any("'lost' is not in the bundle: No space left" in note for note in bundle.notes)


def test_a_shard_that_is_cut_off_or_changed(path: Path) -> None:
    keep(path, [given("x", bytes(100))])
    shard = only_shard(path)
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(
        BundleError, match=r"tensors-0000.safetensors cannot be read: it is not as long .*torchglass repair"
    ):
        load(path)
    headers = {
        "the wrong size": (64).to_bytes(8, "little") + content[8:],
        "appears twice": content[:8]
        + content[8:HEADER].replace(b'{"x@0"', b'{"x@0":{},"x@0"').rstrip()[: HEADER - 8].ljust(HEADER - 8)
        + content[HEADER:],
        "hole": content.replace(b"[0,100]", b"[1,101]"),
        "does not describe all": content.replace(b"[0,100]", b"[0,99] ").replace(b"[100]", b"[99] "),
        "not one of a shard": content.replace(b'"U8"', b'"Z8"'),
    }
    for words, changed in headers.items():
        shard.write_bytes(changed)
        bundle = load(path)
        with pytest.raises(BundleError, match=words):
            bundle.open_tensor(bundle.saved_tensors()[0])


def test_saving_a_trace_with_its_tensors_again(path: Path) -> None:
    keep(path, [given("x", b"abcd", "float32", (1,))])
    one = load(path)
    save(one.tables(), path.with_name("two"), [(row, one.open_tensor(row).data) for row in one.saved_tensors()])
    two = load(path.with_name("two"))
    assert two.saved_tensors() == one.saved_tensors()
    assert bytes(two.open_tensor(two.saved_tensors()[0]).data) == b"abcd"
    with safe_open(only_shard(path.with_name("two")), framework="pt") as opened:
        assert list(opened.keys()) == ["x@0"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list descriptors")
def test_recording_values_leaves_no_descriptor_and_no_mapping(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for further shards nor for further threads, each of which has a region of its own."""
    monkeypatch.setattr(Shards.__init__, "__defaults__", (1 << 20,))
    monkeypatch.setattr(module, "REGION", 1 << 20)

    def work() -> None:
        for _ in range(5):
            torch.ones(1000) + 1

    with tg.record(to=path, values="all"):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(3):
            torch.ones(1 << 19) + 1
    (part,) = part_paths(path)
    assert len(shard_paths(part)) > 1
    opened = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
    assert [file for file in opened if str(path) in file] == []
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_somebody_cuts_a_shard_off(path: Path) -> None:
    """What is mapped behind its end would end the process: it is noticed before the shard grows."""
    part = open_part(path)
    region = part.new_region(1000)
    assert region is not None
    os.truncate(only_shard(path), HEADER)
    with pytest.warns(RuntimeWarning, match="somebody cut it off while it was being written"):
        assert part.new_region(1 << 25) is None
    region[0][:3] = b"abc"
    part.release_region(region[0])
    part.finish_tables(Tables())


TRUNCATED = """
import os, sys
from pathlib import Path
import torch, torchglass as tg
with tg.record(to=sys.argv[1], ops=True, values="all"):
    for _ in range(300):
        y = torch.ones(30, 64) + 1
    for file in Path(sys.argv[1]).rglob("*"):
        if file.is_file():
            os.truncate(file, 100)
print(y.sum().item())
"""


def test_a_program_goes_on_whose_files_somebody_cuts_off_while_it_is_recorded(path: Path) -> None:
    """The end of a recording reads them, which would end the process."""
    command = [sys.executable, "-c", TRUNCATED, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "3840.0\n"
    assert "somebody cut it off while it was being written" in run.stderr
