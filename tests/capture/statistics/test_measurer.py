"""What is measured while programs run: every op's outputs as they were then, whatever is written into them later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import torchglass as tg
from tests import programs
from tests.capture.statistics.oracle import differences, statistics_of
from torchglass.capture.engine.log import LOGS
from torchglass.capture.statistics import measurer
from torchglass.compiled import extension
from torchglass.events.types import Stats
from torchglass.events.uninitialised import returns_uninitialised
from torchglass.journal.layout import NUMBER_MASK
from torchglass.system import get_ident

WAY = "numpy" if extension is None else "the compiled engine"

PROGRAMS = (
    "attention autocast checkpointing complex_numbers convolution custom_function foreach indexing inplace_and_views "
    "loss_and_backward mlp operators out_argument reshapes training_step unfused_attention"
).split()


class Oracle(TorchDispatchMode):
    """Measures a copy of what each op gives, by numpy; ours is below it and sees the same ops."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[Stats]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        with _disable_current_modes():
            given = [each for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
            self.seen.append((func.name(), [statistics_of(each) for each in given]))
        return result


def given(trace: tg.Trace) -> list[tuple[str, list[Any]]]:
    """What each op gave, in the order in which they ended, by its name."""
    ops = sorted((event for event in trace.events() if event.kind == "op"), key=lambda event: event.end_ns or 0)
    return [(event.name, [value.stats for value in event.outputs]) for event in ops]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_outputs_of_every_op_are_measured_as_they_were_then(name: str) -> None:
    oracle = Oracle()
    with tg.record(ops=True, values="stats") as trace, oracle:
        programs.load(name).main()
    ours = given(trace)
    wanted = [(name, stats) for name, stats in oracle.seen if stats]
    found = [(name, stats) for name, stats in ours if stats]
    found = [each for each in found if each[0] in {name for name, _ in wanted}]
    assert len(wanted) > 3
    assert [name for name, _ in found] == [name for name, _ in wanted]
    for (op, ours_of), (_, theirs_of) in zip(found, wanted, strict=True):
        for mine, theirs in zip(ours_of, theirs_of, strict=True):
            if returns_uninitialised(op) and theirs.count:
                assert mine is None, op
            else:
                assert differences(mine, theirs) == [], op


@pytest.mark.parametrize("ops", [False, True])
def test_leaves_and_parameters_are_measured_before_they_are_written_into(ops: bool) -> None:
    x, weight = torch.ones(3), nn.Parameter(torch.full((3,), 2.0))
    with tg.record(ops=ops, values="stats") as trace:
        y = x * weight
        x.mul_(5)
        x.view(3, 1)
        y.sum()
    values = {value.id: value for value in trace.values()}
    assert all(value.stats is not None for value in values.values())
    first = next(event for event in trace.events() if event.kind == "function")
    assert [value.stats.mean for value in first.inputs if value.stats] == [1.0, 2.0]
    last = [event for event in trace.events() if event.outputs][-1]
    assert last.outputs[0].stats is not None
    assert last.outputs[0].stats.mean == 6.0
    written = [event for event in trace.events() if "mul_" in event.name][-1]
    assert written.inputs[0].stats is not None
    assert (written.inputs[0].stats.mean, written.outputs[0].stats) == (1.0, statistics_of(torch.full((3,), 5.0)))


def test_a_view_of_what_an_op_wrote_into_is_measured_anew() -> None:
    base = torch.zeros(4, 4)
    with tg.record(ops=True, values="stats") as trace:
        whole = base.view(16)
        whole.add_(3)
        base.t()
        base[0].mul_(2)
        base.t()
    outputs = [event.outputs[0].stats for event in trace.events() if event.name == "aten::t"]
    assert [each.mean for each in outputs if each] == [3.0, 3.75]


@pytest.mark.skipif(extension is None, reason="only the compiled engine takes such care")
def test_a_parameter_is_not_read_again_for_a_gradient_that_was_set_or_for_its_views() -> None:
    """Seen by what the price of it is (docs/decisions/0019-statistics.md): numpy's writes are not noticed."""
    weight = nn.Parameter(torch.ones(3, 2))
    with torch.no_grad():
        weight.add_(1)
    unseen = weight.detach().numpy()
    with tg.record(ops=True, values="stats") as trace:
        weight.sum()
        unseen[0, 0] = float("nan")
        weight.grad = None
        weight.t()
        weight.view(6)
        with torch.no_grad():
            weight.mul_(2)
    means = {event.name: event.outputs[0].stats for event in trace.events() if event.outputs}
    assert [means[name].nan for name in ("aten::t", "aten::view", "aten::mul_.Tensor") if means[name]] == [0, 0, 1]


@pytest.mark.parametrize("ops", [False, True])
def test_writes_that_no_version_counts_are_measured_in_their_own_views(ops: bool) -> None:
    x = torch.ones(4, 4)
    x.add_(1)
    with tg.record(ops=ops, values="stats") as trace:
        x.sum()
        y = x.data
        y[0].add_(4)
        y.view(16)
        z = torch.zeros(2, dtype=torch.complex64)
        z.sum()
        z.real = torch.ones(2)
        z.view(2, 1)
    means = [event.outputs[0].stats for event in trace.events() if event.name in ("aten::view", "Tensor.view")]
    assert [each.mean for each in means if each] == [3.0] * (1 + ops) + [0.5] * (1 + ops)


def test_without_being_asked_nothing_is_measured() -> None:
    with tg.record() as trace:
        torch.ones(3) + 1
    assert not trace.measured
    assert all(value.stats is None for value in trace.values())
    assert trace.sql("SELECT count, mean FROM tensor_values") == [(None, None)] * 2


def test_of_two_recordings_the_one_that_asked_has_statistics() -> None:
    with tg.record() as outer:
        x = torch.ones(3)
        with tg.record(values="stats") as inner:
            y = x + 1
        y * 2
    assert [event.outputs[0].stats for event in outer.events()] == [None] * 3
    (event,) = inner.events()
    assert event.outputs[0].stats == statistics_of(torch.full((3,), 2.0))


def test_odd_tensors_have_statistics_or_none_and_never_a_fault() -> None:
    with tg.record(ops=True, values="stats") as trace:
        torch.empty(0, 3) * 2
        torch.tensor(2.5) + 1
        torch.zeros(2).expand(1 << 40, 2)
        torch.eye(3).to_sparse() * 2
        torch.randn(3, dtype=torch.complex64).conj()
        torch.ones(3, device="meta") + 1
        torch.vmap(lambda row: row.sum())(torch.ones(4, 3))
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) * 2
        torch.ones(4).to(torch.float8_e5m2)
        torch.arange(3).bool()
        with torch.inference_mode():
            torch.ones(3).add_(1).view(1, 3)
    assert [note for note in trace.notes if "failed" in note] == []
    meta = [value for value in trace.values() if value.device == "meta"]
    assert meta
    assert all(value.stats is None for value in meta)
    others = [value for value in trace.values() if value.device != "meta" and value.kind == "tensor"]
    assert [value for value in others if value.stats is None] == []


def test_the_numbers_of_a_local_part_of_a_distributed_tensor(tmp_path: Path) -> None:
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        spread = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
        with tg.record(values="stats") as trace:
            spread + 1
        assert [event.outputs[0].stats for event in trace.events()][-1] == statistics_of(torch.arange(1.0, 5.0))
    finally:
        destroy_process_group()


def test_a_program_that_has_numpy_raise_is_not_disturbed() -> None:
    with np.errstate(all="raise"), tg.record(values="stats") as trace:
        torch.tensor([1e-310, 1e300, float("inf"), float("nan")], dtype=torch.float64) * 1.0
    assert trace.notes == ()
    assert next(trace.events()).outputs[0].stats is not None


def test_statistics_are_kept_in_bundles_and_asked_in_sql(tmp_path: Path) -> None:
    with tg.record(values="stats", to=tmp_path / "x") as trace:
        torch.tensor([0.0, 3.0, float("nan")]) * 2
    for each in (trace, tg.load(tmp_path / "x")):
        assert each.measured
        assert each.sql(
            "SELECT count, nan, zeros, min, max, mean, std FROM tensor_values ORDER BY id DESC LIMIT 1"
        ) == [(3, 1, 1, 0.0, 6.0, 3.0, 3.0)]
        assert f"statistics of 2 values, by {WAY}" in str(each)


def test_a_negative_zero_is_shown_alike_before_and_after_saving(tmp_path: Path) -> None:
    """SQLite keeps no sign of a zero: what a view prints must not depend on where the trace comes from."""
    with tg.record(values="stats") as trace:
        torch.full((3,), -0.0).clone()
    tg.save(trace, tmp_path / "zero.trace")
    loaded = tg.load(tmp_path / "zero.trace")
    told = [[str(value.stats) for value in each.values()] for each in (trace, loaded)]
    assert told[0] == told[1]
    assert tg.render(trace, "tree") == tg.render(loaded, "tree")


def test_what_was_measured_before_a_kill_is_there(tmp_path: Path) -> None:
    program = (
        "import os, signal, torch, torchglass as tg\n"
        f"with tg.record(values='stats', to={str(tmp_path / 'x')!r}):\n"
        "    for number in range(3000):\n"
        "        x = torch.full((3,), float(number))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    trace = tg.load(tmp_path / "x")
    assert not trace.complete
    assert [event.outputs[0].stats.mean for event in trace.events() if event.outputs[0].stats] == list(
        map(float, range(3000))
    )


def test_of_a_ring_the_kept_values_have_their_own_statistics() -> None:
    with tg.record(values="stats", max_events=500) as trace:
        for number in range(5000):
            torch.full((2,), float(number))
    kept = [event for event in trace.events() if event.kind == "function"]
    assert len(kept) < 600
    for event in kept:
        assert event.outputs[0].stats is not None
        assert event.args.startswith(f"(2,), {event.outputs[0].stats.mean}")


def test_an_unknown_word_is_refused_with_those_there_are() -> None:
    with pytest.raises(tg.UsageError, match=r"record\(values=…\) takes 'stats', .*'all', a select\(…\) or None"):
        tg.record(values="everything")


def test_only_so_many_tensors_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled engine calls ``measure`` for what it leaves to Python."""
    monkeypatch.setattr(measurer, "MOST_SEEN", 10)
    tensors = [torch.ones(2) for _ in range(50)]
    with tg.record(values="stats+sketch"):
        session = LOGS[get_ident()].session
        for tensor in tensors:
            session.measurer.measure(tensor, session.values.value_of(tensor) & NUMBER_MASK, False)
            assert len(session.measurer._seen) <= 10
            assert len(session.measurer._sketched) <= 10


def test_the_fingerprint_of_a_changed_tensor_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Any] = []

    def counting(*args: Any) -> bytes:
        computed.append(args)
        return original(*args)

    original = measurer.sketch_of
    monkeypatch.setattr(measurer, "sketch_of", counting)
    tensor = torch.ones(2)
    with tg.record(values="stats+sketch"):
        session = LOGS[get_ident()].session
        number = session.values.value_of(tensor) & NUMBER_MASK
        session.measurer.measure(tensor, number, True)
        session.measurer.measure(tensor, number, False)
        assert len(computed) == 1
        session.measurer.measure(tensor, number, True)
        assert len(computed) == 2
