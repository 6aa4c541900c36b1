"""Two programs that compute the same in other ways: values of one are found in the other with the right word."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchglass as tg


class Attention(nn.Module):
    """Heads side by side, split by view and transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = 4
        self.qkv, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x: Any, mask: Any) -> Any:
        batch, time, _ = x.shape
        q, k, v = (each.view(batch, time, self.heads, -1).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        scores = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + mask, -1)
        mixed = (scores @ v).transpose(1, 2).reshape(batch, time, -1)
        return self.norm(self.out(mixed))


class Rewritten(Attention):
    """The same with the heads in front, by einsum."""

    def forward(self, x: Any, mask: Any) -> Any:
        batch, time, _ = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, -1).permute(2, 3, 0, 1, 4)
        scores = torch.softmax(torch.einsum("hbid,hbjd->hbij", q, k) * 8**-0.5 + mask, -1)
        mixed = torch.einsum("hbij,hbjd->bihd", scores, v).flatten(2)
        return self.norm(nn.functional.linear(mixed, self.out.weight, self.out.bias))


MASK = torch.full((7, 7), -float("inf")).triu(1)


def made(cls: type = Attention) -> Any:
    torch.manual_seed(0)
    return cls().eval()


def recorded(model: Any, x: Any, mask: Any = MASK) -> tg.Trace:
    mask = mask.to(x.dtype)
    with tg.record(values="stats+sketch") as trace, torch.no_grad():
        model(x, mask)
    assert not [note for note in trace.notes if "no sketch" in note]
    return trace


def batch() -> Any:
    return torch.randn(6, 7, 32, generator=torch.Generator().manual_seed(1))


def outputs(trace: tg.Trace) -> list[tuple[str, Any]]:
    return [(event.name, value) for event in trace.events(kind="function") for value in event.outputs]


def likenesses(one: tg.Trace, other: tg.Trace) -> dict[str, set[str]]:
    """By the name of a function of the first: in which ways what it gave is found in the other."""
    found: dict[str, set[str]] = {}
    for name, value in outputs(one):
        found.setdefault(name, set()).update(each.likeness.how for each in other.find(value))
    return found


def pairs(one: tg.Trace, other: tg.Trace) -> list[tuple[str, Any]]:
    """What the same functions of two runs of one program gave, compared."""
    both = zip(outputs(one), outputs(other), strict=True)
    return [(name, tg.same(value, theirs)) for (name, value), (_, theirs) in both]


def test_two_equal_runs_have_equal_bits_throughout() -> None:
    found = pairs(recorded(made(), batch()), recorded(made(), batch()))
    assert len(found) > 15
    assert {str(likeness) for _, likeness in found} == {"equal bits"}


def test_in_bfloat16_every_value_is_close() -> None:
    for one, other in ((torch.float32, torch.bfloat16), (torch.float64, torch.float16)):
        found = pairs(recorded(made().to(one), batch().to(one)), recorded(made().to(other), batch().to(other)))
        assert {likeness.how for _, likeness in found} == {"close"}
        assert max(likeness.error for _, likeness in found) < found[0][1].tolerance / 4
        assert all(str(likeness).startswith("≈ 0.00") for _, likeness in found)


def test_in_float64_the_error_is_that_of_float32() -> None:
    found = pairs(recorded(made(), batch()), recorded(made().double(), batch().double()))
    assert all(likeness.how == "close" and likeness.error < 3e-7 for _, likeness in found)


def test_with_heads_split_otherwise_every_value_is_found() -> None:
    found = likenesses(recorded(made(), batch()), recorded(made(Rewritten), batch()))
    assert all(found.values()), found
    assert "transposed" in found["softmax"]
    assert found["Tensor.chunk"] == {"order"}
    assert {"bits"} <= found["F.linear"]
    assert "close" in found["layer_norm"]


def test_with_a_permuted_batch_every_value_is_found_in_another_order() -> None:
    x, order = batch(), torch.tensor([3, 1, 5, 0, 2, 4])
    found = pairs(recorded(made(), x), recorded(made(), x[order]))
    assert {str(likeness) for _, likeness in found} == {"the same numbers in another order"}


def test_a_permuted_batch_in_bfloat16_too() -> None:
    x, order = batch(), torch.tensor([3, 1, 5, 0, 2, 4])
    found = pairs(recorded(made(), x), recorded(made().bfloat16(), x[order].bfloat16()))
    assert {likeness.how for _, likeness in found} == {"order"}


def changed_bias(model: Any) -> None:
    with torch.no_grad():
        model.qkv.bias[3] += 1e-3


def changed_epsilon(model: Any) -> None:
    model.norm.eps = 2e-5


@pytest.mark.parametrize(("change", "first"), [(changed_bias, "F.linear"), (changed_epsilon, "F.layer_norm")])
@pytest.mark.parametrize("cls", [Attention, Rewritten])
def test_a_changed_bias_or_epsilon_is_distinguished_from_there_on(change: Any, first: str, cls: type) -> None:
    other = made(cls)
    change(other)
    found = pairs(recorded(made(cls), batch()), recorded(other, batch()))
    different = [name for name, likeness in found if not likeness]
    assert different[0] == first
    assert not found[-1][1]
    assert str(found[-1][1]).startswith("≠ ")


def test_a_changed_mask_is_distinguished_by_what_is_not_finite_and_then_by_numbers() -> None:
    other = MASK.clone()
    other[2, 1] = -float("inf")
    found = pairs(recorded(made(), batch()), recorded(made(), batch(), other))
    name, likeness = next((name, likeness) for name, likeness in found if not likeness)
    assert (name, str(likeness)) == ("Tensor.add", "≠ 504 not finite against 528")
    different = dict(found)["softmax"]
    assert not different
    assert 0.01 < different.error < 1


def test_unrelated_numbers_are_never_alike() -> None:
    torch.manual_seed(0)
    shapes = [(1000,), (40, 25), (25, 40), (10, 100)]
    dtypes = (torch.float32, torch.bfloat16, torch.float64)
    with tg.record(values="stats+sketch") as trace:
        for dtype in dtypes:
            for shape in shapes:
                torch.randn(shape, dtype=dtype)
                torch.rand(shape, dtype=dtype)
    values = [value for _, value in outputs(trace)]
    alike = [(a.id, b.id) for a in values for b in values if a.id < b.id and tg.same(a, b)]
    assert len(values) == 24
    assert alike == []


def test_the_error_is_about_that_of_the_numbers() -> None:
    torch.manual_seed(0)
    for scale in (1e-5, 1e-3, 0.1):
        ratios = []
        for _ in range(40):
            x = torch.randn(30, 50)
            y = x + scale * torch.randn(30, 50)
            with tg.record(values="stats+sketch") as trace:
                x + 0
                y + 0
            one, two = [value for _, value in outputs(trace)]
            ratios.append(tg.same(one, two).error / ((x - y).norm() / x.norm()).item())
        assert 0.9 < float(np.mean(ratios)) < 1.1
        assert 0.3 < min(ratios) < max(ratios) < 2


def test_where_the_numbers_of_a_tensor_occur(tmp_path: Path) -> None:
    model, x = made(), batch()
    trace = recorded(model, x)
    tg.save(trace, tmp_path / "x.trace")
    for each in (trace, tg.load(tmp_path / "x.trace")):
        (taken,) = each.find(model.out.weight.detach())
        assert str(taken.likeness) == "equal bits"
        assert taken.event.name == "F.linear"
        assert "test_likeness.py" in str(taken)
        (turned,) = each.find(model.out.weight.detach().t())
        assert str(turned.likeness) == "the same numbers, transposed"
        first = each.find(x.reshape(42, 32))[0]
        assert str(first.likeness) == "equal bits, reshaped"
        assert each.find(x.double().numpy())[0].likeness.how == "close"
        assert each.find(x + 0.01) == []
        assert each.find(torch.zeros(0)) == []


def test_zeros_constants_and_single_numbers() -> None:
    with tg.record(values="stats+sketch") as trace:
        torch.zeros(4)
        torch.zeros(4, dtype=torch.float64)
        torch.ones(4)
        torch.tensor(3.0)
        torch.tensor([[3.0]])
        torch.tensor(True)
        torch.zeros(0, 3)
    zeros, wide, ones, three, boxed, true, empty = [value for _, value in outputs(trace)]
    assert str(tg.same(zeros, wide)) == "≈ 0"
    assert not tg.same(zeros, ones)
    assert str(tg.same(three, boxed)) == "equal bits, reshaped"
    assert str(tg.same(zeros, three)) == "≠ 4 numbers against 1"
    assert not tg.same(true, three)
    assert tg.same(empty, empty)


def test_what_cannot_be_compared_says_how_to() -> None:
    with tg.record(values="stats") as trace:
        torch.ones(3) + 1
    value = next(trace.values())
    with pytest.raises(tg.NotRecorded, match=r"record\(values='stats\+sketch'\)"):
        tg.same(value, value)
    with pytest.raises(tg.NotRecorded, match=r"record\(values='stats\+sketch'\)"):
        trace.find(torch.ones(3))
    with pytest.raises(tg.WrongType, match="two values"):
        tg.same(torch.ones(3), torch.ones(3))  # type: ignore[arg-type]
    sketched = recorded(made(), batch())
    with pytest.raises(tg.WrongType, match="not list"):
        sketched.find([1.0])
    with pytest.raises(tg.WrongType, match="dense"):
        sketched.find(torch.ones(3, 3).to_sparse())


def test_a_tolerance_of_ones_own() -> None:
    one, other = made(), deepcopy(made())
    changed_epsilon(other)
    (_, value), (_, theirs) = outputs(recorded(one, batch()))[-1], outputs(recorded(other, batch()))[-1]
    assert not tg.same(value, theirs)
    assert tg.same(value, theirs, tolerance=0.01)
    assert str(tg.same(value, theirs, tolerance=0.01)).startswith("≈ ")
