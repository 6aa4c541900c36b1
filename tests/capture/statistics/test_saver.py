"""What values="all" keeps: each value as it was at its event, up to a number of bytes."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import torchglass as tg
from tests import programs
from tests.work import work_of
from torchglass.capture.statistics.saved import PythonSavedBytes, SavedBytes


class Cloning(TorchDispatchMode):
    """Keeps a copy of what each op gives."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        with _disable_current_modes():
            self.copies += [each.detach().clone() for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
        return result


def same(one: Any, two: Any) -> bool:
    return one.dtype == two.dtype and torch.equal(one.nan_to_num(), two.nan_to_num())


@pytest.mark.parametrize("in_bundle", [False, True], ids=["memory", "bundle"])
@pytest.mark.parametrize("name", ["inplace_and_views", "loss_and_backward", "mlp"])
def test_each_value_is_as_it_was_at_its_event(name: str, in_bundle: bool, tmp_path: Path) -> None:
    cloning = Cloning()
    with tg.record(ops=True, values="all", to=tmp_path / "x" if in_bundle else None) as trace, cloning:
        programs.load(name).main()
    if in_bundle:
        trace = tg.load(tmp_path / "x")
    ops = sorted((event for event in trace.events() if event.kind == "op"), key=lambda event: event.end_ns or 0)
    saved = [trace.tensor(value) for event in ops for value in event.outputs]
    assert len(saved) == len(cloning.copies) > 5
    assert all(same(one, two) for one, two in zip(saved, cloning.copies, strict=True))


def test_saved_tensors_are_those_that_plain_hooks_and_debug_mode_collect() -> None:
    """Three runs of one program: the hooks' and DebugMode's copies are their own, not of the recorded run."""

    def program() -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2))
        return model, torch.randn(4, 6)

    model, x = program()
    hooked: list[Any] = []
    for layer in model:
        layer.register_forward_hook(lambda _, args, result: hooked.extend([args[0].clone(), result.clone()]))
    model(x)
    model, x = program()
    with DebugMode() as mode, DebugMode.record_outputs():
        model(x).square_().sum().backward()
    debugged = [call.record["output"] for call in mode.logs if "output" in (getattr(call, "record", None) or {})]
    model, x = program()
    with tg.record(values="all", ops=True) as trace:
        model(x).square_().sum().backward()
    layers = [event for event in trace.events(kind="module") if event.module]
    saved = [trace.tensor(value) for event in layers for value in (*event.inputs[:1], *event.outputs)]
    assert len(saved) == len(hooked) == 8
    assert all(same(one, two) for one, two in zip(saved, hooked, strict=True))
    ops = list(trace.events(kind="op"))
    given = [each for result in debugged for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
    ours = [trace.tensor(value) for event in ops for value in event.outputs]
    assert len(ours) == len(given) > 15
    assert all(same(one, two) for one, two in zip(ours, given, strict=True))


def test_a_budget_that_is_reached_is_said() -> None:
    with tg.record(values="all", max_bytes=100) as trace:
        small = torch.ones(10)
        large = small.expand(1 << 40, 10)
        large[0]
        torch.zeros(20)
    first, expanded, row, last = [event.outputs[0] for event in trace.events()]
    assert torch.equal(trace.tensor(first), torch.ones(10))
    assert torch.equal(trace.tensor(row), torch.ones(10))
    assert trace.tensor(expanded).shape == (1 << 40, 10)
    with pytest.raises(tg.NotRecorded, match=r"only the shape .* was kept.*record\(values='all'\)"):
        trace.tensor(last)
    assert last.stats is not None
    assert trace.notes == (
        "record(values='all') kept 3 values of 40 bytes; of the others only the statistics: max_bytes=… keeps more",
    )


def views(writes: bool = True) -> Any:
    """A chain of views, a write between, and views again."""
    x = torch.arange(4096.0).view(64, 64)
    first = [x.t(), x[3], x[:, 5], x.view(8, 8, 8, 8).permute(2, 0, 3, 1), x[1:9].view(torch.int32), x[0].expand(9, 64)]
    if writes:
        x.mul_(2)
    return first, [x.view(-1), *x.chunk(4, dim=1), x[::7]]


def in_shards(bundle: Path) -> int:
    """Bytes of tensors, without the headers."""
    return sum(path.stat().st_size - (1 << 20) for path in bundle.rglob("*.safetensors"))


@pytest.mark.parametrize("way", ["memory", "bundle", "saved", "killed"])
def test_views_of_the_same_memory_share_its_bytes(way: str, tmp_path: Path) -> None:
    """16 KiB before the write and 16 KiB after it, however many views there are; also where no compiled engine is."""
    if way == "killed":
        code = (
            "import os, torchglass as tg; from tests.capture.statistics.test_saver import views\n"
            f"with tg.record(values='all', to={str(tmp_path / 'x')!r}):\n    views(); os.kill(os.getpid(), 9)"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
        assert "finished" in tg_repair(tmp_path / "x")
    else:
        with tg.record(values="all", to=tmp_path / "x" if way == "bundle" else None) as trace:
            views()
        if way == "saved":
            tg.save(trace, tmp_path / "x")
    if way != "memory":
        trace = tg.load(tmp_path / "x")
        assert in_shards(tmp_path / "x") == 2 * 4096 * 4
    given = {each.id: trace.tensor(each) for event in trace.events(kind="function") for each in event.outputs}
    for wanted in (*views(writes=False)[0], *views()[1]):
        assert any(is_the_same_view(each, wanted) for each in given.values())
    assert len(given) > 14


def is_the_same_view(one: Any, two: Any) -> bool:
    return one.dtype == two.dtype and one.stride() == two.stride() and torch.equal(one, two)


def tg_repair(path: Path) -> str:
    from torchglass.store import repair

    return " ".join(repair(path))


def test_the_bytes_that_views_share_are_counted_once_in_the_budget() -> None:
    with tg.record(values="all", max_bytes=2 * 4096 * 4) as trace:
        views()
    assert trace.notes == ()
    with tg.record(values="all", max_bytes=2 * 4096 * 4 - 1) as trace:
        views()
    assert "of the others only the statistics" in trace.notes[0]


def test_what_numpy_writes_between_two_views_is_in_the_second() -> None:
    """Torch counts no version then: the bytes themselves are asked."""
    with tg.record(values="all") as trace:
        x = torch.zeros(6)
        x.view(2, 3)
        x.numpy()[4] = 7
        x.view(3, 2)
    before, after = (next(trace.events(function="view", where=has)).outputs[0] for has in (_is((2, 3)), _is((3, 2))))
    assert trace.tensor(before).sum() == 0
    assert trace.tensor(after).tolist() == [[0, 0], [0, 0], [7, 0]]


def _is(shape: tuple[int, ...]) -> Any:
    return lambda event: event.outputs[0].shape == shape


def test_the_python_way_and_the_compiled_one_say_the_same() -> None:
    """Random pieces of a few storages, changed now and then: the same places, and the same bytes there."""
    rng = random.Random(0)
    storages = [bytearray(rng.randbytes(300)) for _ in range(5)]
    addresses = [(ctypes.c_char * 300).from_buffer(each) for each in storages]
    found = []
    for cls in {PythonSavedBytes, SavedBytes}:
        rng.seed(1)
        regions: list[bytearray] = []

        def more(size: int, unused: int, regions: list[bytearray] = regions) -> Any:
            regions.append(bytearray(max(size, 1000)))
            return regions[-1], -len(regions), 0, 1 << 40, -1

        saved, told = cls(more, 9000), list[Any]()
        for number in range(300):
            at = rng.randrange(5)
            first, length, item = rng.randrange(200), rng.randrange(1, 100), rng.choice([1, 4])
            if rng.random() < 0.2:
                storages[at][rng.randrange(300)] ^= 255
            base = ctypes.addressof(addresses[at])
            words = saved.keep(number, base, base + first, length, item, rng.random() < 0.1)
            told.append(words)
            if isinstance(words, tuple):
                offset, _, before, place = words
                copy = regions[-1 - place][offset + before : offset + before + length]
                assert copy == storages[at][first : first + length]
        found.append((told, saved.used, saved.kept, saved.is_full))
    assert found[0] == found[-1]
    assert found[0][3]


def test_what_is_written_to_a_file_is_in_its_mapping_and_never_in_one_of_the_program(tmp_path: Path) -> None:
    """Large values go through the descriptor; when the program has closed that, its number is another file's."""
    first, other = tmp_path / "shard", tmp_path / "program"
    file = os.open(first, os.O_RDWR | os.O_CREAT)
    os.truncate(file, 1 << 16)
    mapping = mmap.mmap(file, 1 << 16)
    saved = SavedBytes(lambda size, unused: (mapping, 0, 0, 1 << 40, file), 1 << 20)
    for number in range(8):
        content = random.Random(number).randbytes(100 if number % 2 else 5000)
        if number == 4:
            os.close(file)
            assert os.open(other, os.O_RDWR | os.O_CREAT) == file
        held = ctypes.create_string_buffer(content, len(content))
        address = ctypes.addressof(held)
        begin, length, _, _ = saved.keep(number, address, address, len(content), 1, False)
        assert mapping[begin : begin + length] == content == first.read_bytes()[begin : begin + length]
    os.close(file)
    assert other.read_bytes() == b""


def test_copies_that_only_dropped_events_show_are_released_and_free_their_budget() -> None:
    """80 MB go through 4,000 events, of which 400 are kept; the budget is 20 MB."""
    with tg.record(values="all", max_bytes=20_000_000, max_events=400) as trace:
        x = torch.zeros(5_000)
        for _ in range(4_000):
            x = x + 1
    last = list(trace.events(function="add"))[-1]
    assert not any("statistics" in note for note in trace.notes)
    assert torch.equal(trace.tensor(last.outputs[0]), torch.full((5_000,), 4_000.0))
    assert len(trace.kept()) < 900


def test_a_mark_next_to_it_is_the_same_value() -> None:
    with tg.record(values="all") as trace:
        x = torch.ones(3) + 1
        tg.mark("x", x)
    made, marked = [event.outputs[0] for event in trace.events() if event.name == "Tensor.add"], trace.kept()
    assert marked[made[0].id] == "x"
    assert torch.equal(trace.tensor(made[0]), torch.full((3,), 2.0))


def test_small_values_take_little_more_than_their_bytes_on_disk(tmp_path: Path) -> None:
    x = torch.arange(16.0)
    with tg.record(to=tmp_path / "run", values="all") as trace:
        for number in range(5000):
            x + number
    shards = sorted((tmp_path / "run").rglob("*.safetensors"))
    header = 1 << 20
    assert sum(shard.stat().st_size for shard in shards) < len(shards) * header + 5000 * 3 * 64
    loaded = tg.load(tmp_path / "run")
    for event in list(loaded.events())[::97]:
        content, given = loaded.tensor(event.outputs[0]), float(event.args.rpartition(", ")[2])
        assert torch.equal(content, x + given)
    assert len(trace) == 5000


def test_a_value_that_is_read_inside_of_the_block_is_no_event() -> None:
    with tg.record(values="all", ops=True) as trace:
        torch.ones(3).exp()
        before = len(trace)
        content = trace.tensor(next(trace.events()).outputs[0])
        assert (len(trace), content.tolist()) == (before, [1.0] * 3)


def test_to_read_a_value_takes_as_much_work_among_many(tmp_path: Path) -> None:
    def work(count: int) -> list[int]:
        x, path = torch.arange(16.0), tmp_path / str(count)
        with tg.record(to=path, values="all") as trace:
            for number in range(count):
                x + number
        found: list[int] = []
        for each in (trace, tg.load(path)):
            value = next(each.events()).outputs[0]
            each.tensor(value)
            found.append(work_of(lambda each=each, value=value: each.tensor(value)))
        return found

    few, many = work(10), work(300)
    assert all(more < 2 * less for less, more in zip(few, many, strict=True))
