"""The neighbours of training: each gives the plain result while it is recorded, and shows what its case claims.

`docs/what-is-seen.md` is written from these cases by scripts/seen_page.py; so the page cannot claim what no test shows.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, jacrev, vmap
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import torchglass as tg
from tests.older import SHOWS_COMPILED_RESULT
from torchglass._trace import Trace
from torchglass.capture.transparency.compiled import NO_RESULT
from torchglass.events.gradients import gradients_of
from torchglass.events.types import Event

Program = Callable[[], Any]


@dataclass
class Case:
    """One neighbour of training: a program, what the trace shows of it, and what it does not."""

    what: str
    shows: str
    hides: str
    program: Program
    checks: list[Callable[[Trace], None]] = field(default_factory=list[Callable[[Trace], None]])

    def check(self, test: Callable[[Trace], None]) -> Callable[[Trace], None]:
        """What is to be seen in its trace."""
        self.checks.append(test)
        return test


CASES: list[Case] = []


def case(what: str, shows: str, hides: str = "") -> Callable[[Program], Case]:
    """A program to record, with what is claimed of its trace."""

    def made(program: Program) -> Case:
        CASES.append(Case(what, shows, hides, program))
        return CASES[-1]

    return made


def named(trace: Trace, name: str, **fields: Any) -> list[Event]:
    """Events whose name ends so."""
    found = [event for event in trace.events() if event.name.endswith(name)]
    return [event for event in found if all(getattr(event, key) == value for key, value in fields.items())]


def small() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), torch.randn(5, 4)


def state(net: nn.Module) -> list[Any]:
    return [*net.parameters(), *(each.grad for each in net.parameters())]


# ---------------------------------------------------------------- precision


@case(
    "`torch.autocast`",
    "the dtypes that were really used, as outputs of functions and ops; the casts themselves with `ops=True`",
)
def autocast() -> Any:
    net, x = small()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = net(x)
    low.float().square().mean().backward()
    return low, state(net)


@autocast.check
def _(trace: Trace) -> None:
    linear = named(trace, "F.linear")
    assert [event.outputs[0].dtype for event in linear] == ["bfloat16", "bfloat16"]
    assert linear[0].inputs[0].dtype == "float32"
    assert named(trace, "aten::_to_copy", phase="forward")
    gradients = [value.dtype for event in named(trace, "AccumulateGrad") for value in event.outputs]
    assert set(gradients) == {"float32"}


def scaled(*factors: float) -> Any:
    """A step for each factor of the loss."""
    net, x = small()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for factor in factors:
        optimizer.zero_grad()
        scaler.scale(net(x).square().mean() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
    return state(net), scaler.get_scale()


@case("`GradScaler`", "the scaled loss and gradients, the unscaling, and the step that was made")
def scaler() -> Any:
    return scaled(1.0, 1.0)


@scaler.check
def _(trace: Trace) -> None:
    assert len(list(trace.events(kind="step"))) == 2
    assert len(named(trace, "_amp_foreach_non_finite_check_and_unscale_", kind="function")) == 2
    assert tg.first_bad(trace) is None


@case(
    "`GradScaler` that skips a step",
    "the overflow in its gradients, that no step was made, and `gradients` says how many were skipped; `first_bad` "
    "does not count it",
)
def skipping() -> Any:
    return scaled(1e38, 1.0)


@skipping.check
def _(trace: Trace) -> None:
    (step,) = trace.events(kind="step")  # the second
    assert step.error is None
    bad = [value for event in named(trace, "AccumulateGrad") for value in event.outputs if value.stats]
    assert any(value.stats.posinf or value.stats.neginf or value.stats.nan for value in bad if value.stats)
    assert tg.first_bad(trace) is None
    assert "GradScaler skipped 1 step: gradients overflowed" in tg.render(trace, "gradients")


# ---------------------------------------------------------------- checkpoints


def checkpointed(use_reentrant: bool) -> Any:
    net, x = small()
    x.requires_grad_()
    y = checkpoint(net, x, use_reentrant=use_reentrant)
    y.square().mean().backward()
    return y, x.grad, state(net)


@case(
    "`torch.utils.checkpoint(use_reentrant=False)`",
    "forward, and what was computed once more in backward: marked `recomputed`, folded away unless `inner=True`",
    "a failure: torch stops a recomputation with its exception `_StopRecomputationError`, which is expected",
)
def not_reentrant() -> Any:
    return checkpointed(False)


@case(
    "`torch.utils.checkpoint(use_reentrant=True)`",
    "the checkpoint as one step (`CheckpointFunction.apply`) with what it ran, and the same again in backward, marked "
    "and folded away",
)
def reentrant() -> Any:
    return checkpointed(True)


@not_reentrant.check
@reentrant.check
def _(trace: Trace) -> None:
    calls = named(trace, "Sequential", kind="module")
    assert [event.phase for event in calls] == ["forward", "backward"]
    assert tg.render(trace).count("Sequential(") == 1
    assert "recomputed" in tg.render(trace, inner=True, width=200)
    assert "left by an exception" not in str(trace)
    found = gradients_of(trace.events(), trace.modules())
    assert (found.runs, [len(leaf.accumulated) for leaf in found.leaves]) == (1, [1] * 5)


@reentrant.check
def _(trace: Trace) -> None:
    (applied,) = named(trace, "CheckpointFunction.apply")
    assert [value.shape for value in applied.outputs] == [(5, 2)]


# ---------------------------------------------------------------- gradients and steps


@case("gradient accumulation", "each backward with the sum so far, and the one step that used it")
def accumulation() -> Any:
    net, x = small()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for part in x.split(2):
        (net(part).square().mean() / 3).backward()
    optimizer.step()
    return state(net)


@accumulation.check
def _(trace: Trace) -> None:
    found = gradients_of(trace.events(), trace.modules())
    assert (found.runs, found.steps) == (3, ["SGD"])
    for leaf in found.leaves:
        assert len(leaf.accumulated) == 3
        assert leaf.gradients[0].id == leaf.accumulated[-1].id


@case("`clip_grad_norm_`", "gradients before clipping (after backward) and after it (in the step)")
def clipping() -> Any:
    net, x = small()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    (net(x).square().mean() * 100).backward()
    total = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
    return total, state(net)


@clipping.check
def _(trace: Trace) -> None:
    leaves = gradients_of(trace.events(), trace.modules()).leaves
    before = sum(leaf.accumulated[0].stats.norm ** 2 for leaf in leaves if leaf.accumulated[0].stats) ** 0.5
    after = sum(leaf.gradients[0].stats.norm ** 2 for leaf in leaves if leaf.gradients[0].stats) ** 0.5
    assert before > 1
    assert after == pytest.approx(0.5, rel=1e-4)


def optimized(**options: Any) -> Any:
    net, x = small()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, **options)
    for _ in range(2):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    return state(net)


@case("optimizers, one parameter after the other (`foreach=False`)", "each step with what it took and by how much")
def plain_optimizer() -> Any:
    return optimized(foreach=False)


@case("`foreach` optimizers", "the same, and the `_foreach` functions and ops inside")
def foreach_optimizer() -> Any:
    return optimized(foreach=True)


@case("`fused` optimizers", "the same; the step itself is one op", "what happens inside of that op")
def fused_optimizer() -> Any:
    return optimized(fused=True)


@plain_optimizer.check
@foreach_optimizer.check
@fused_optimizer.check
def _(trace: Trace) -> None:
    found = gradients_of(trace.events(), trace.modules())
    assert found.steps == ["AdamW", "AdamW"]
    assert all(len(leaf.steps) == 2 for leaf in found.leaves)
    assert all(step.update is not None and step.update.stats for leaf in found.leaves for step in leaf.steps)
    assert all(step.update.stats.norm > 0 for leaf in found.leaves for step in leaf.steps if step.update)  # type: ignore[union-attr]


@foreach_optimizer.check
def _(trace: Trace) -> None:
    assert any("_foreach_" in event.name for event in trace.events(kind="op"))


@fused_optimizer.check
def _(trace: Trace) -> None:
    assert len(named(trace, "aten::_fused_adamw_")) == 2


# ---------------------------------------------------------------- torch.func, compiled regions


@case(
    "`torch.func.grad`", "the functions of the program with their lines", "which forward step an op of its backward is"
)
def func_grad() -> Any:
    torch.manual_seed(0)
    return grad(lambda x: x.sin().sum())(torch.randn(4))


@func_grad.check
def _(trace: Trace) -> None:
    (sin,) = named(trace, "Tensor.sin")
    assert sin.code == "x.sin()"
    assert sin.outputs[0].shape == (4,)


@case(
    "`torch.func.vmap`",
    "the functions with the shapes that they see, without the batch",
    "the batch: it is in the outputs of `vmap` itself",
)
def func_vmap() -> Any:
    torch.manual_seed(0)
    return vmap(lambda a, b: a.dot(b))(torch.randn(3, 4), torch.randn(3, 4))


@func_vmap.check
def _(trace: Trace) -> None:
    (dot,) = named(trace, "Tensor.dot")
    assert [value.shape for value in dot.inputs] == [(4,), (4,)]


@case("`torch.func.jacrev`", "the functions of the program, and the backward that it runs")
def func_jacrev() -> Any:
    torch.manual_seed(0)
    return jacrev(lambda x: x.tanh() * x)(torch.randn(3))


@func_jacrev.check
def _(trace: Trace) -> None:
    assert named(trace, "Tensor.tanh")
    assert named(trace, "autograd.grad") or named(trace, "aten::tanh_backward")


@case(
    "`torch.compile`",
    "a compiled region as one `unseen` step, with statistics of what went in and came out; gradients and steps outside",
    "its lines, functions and ops: run it without `torch.compile` to see them",
)
def compiled() -> Any:
    net, x = small()
    torch._dynamo.reset()
    y = torch.compile(net, backend="aot_eager")(x)
    y.square().mean().backward()
    return y, state(net)


@compiled.check
def _(trace: Trace) -> None:
    regions = list(trace.events(kind="unseen"))
    assert len(regions) == 1
    if SHOWS_COMPILED_RESULT:
        assert regions[0].outputs[0].stats is not None
    else:
        assert NO_RESULT in trace.notes
    assert "F.linear" not in {event.name for event in trace.events()}
    assert len(gradients_of(trace.events(), trace.modules()).leaves[0].accumulated) == 1


# ---------------------------------------------------------------- the tests


def run(program: Program, **options: Any) -> tuple[Any, Trace]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with tg.record(**options) as trace:
            result = program()
    return result, trace


@pytest.mark.parametrize("ops", [True, False], ids=["ops", "functions"])
@pytest.mark.parametrize("each", CASES, ids=lambda each: each.program.__name__)
def test_a_neighbour_of_training_is_seen_and_gives_the_plain_result(each: Case, ops: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = tree_leaves(each.program())
    recorded, trace = run(each.program, values="stats", ops=ops)
    for expected, found in zip(plain, tree_leaves(recorded), strict=True):
        if isinstance(expected, Tensor):
            assert expected.dtype == found.dtype
            assert torch.equal(expected.detach().nan_to_num(), found.detach().nan_to_num())
        else:
            assert expected == found
    assert each.checks
    for check in each.checks if ops else ():
        check(trace)


@pytest.mark.parametrize("ops", [True, False])
def test_an_overflow_that_a_scaler_skips_does_not_stop_the_program(ops: bool) -> None:
    _, trace = run(skipping.program, stop_on="nonfinite", values="stats", ops=ops)
    assert len(list(trace.events(kind="step"))) == 1
    assert tg.first_bad(trace) is None


def test_a_bad_gradient_says_how_to_find_its_step() -> None:
    net = nn.Linear(2, 1)
    _, trace = run(lambda: net(torch.zeros(1, 2)).mul(0).sum().sqrt().backward(), values="stats")
    assert "AccumulateGrad: a gradient; record(ops=True) names the step" in str(tg.first_bad(trace))


def test_the_page_is_up_to_date() -> None:
    root = Path(__file__).resolve().parent.parent
    spec = importlib.util.spec_from_file_location("seen_page", root / "scripts" / "seen_page.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (root / "docs" / "what-is-seen.md").read_text(encoding="utf-8") == script.page(CASES)
