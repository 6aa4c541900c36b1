"""Programs with a bad value each, at the line marked ``# here``; and some whose infinities are meant."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

INF, NAN = float("inf"), float("nan")


def log_of_zero() -> None:
    p = torch.tensor([0.5, 0.0, 0.5])
    logs = p.log()  # here
    (p * logs).sum()


def log_of_a_negative_number() -> None:
    x = torch.linspace(-1, 1, 5)
    (x + 0.1).log().mean()  # here


def zero_by_zero() -> None:
    mask = torch.zeros(4)
    total = mask.sum()
    share = mask / total  # here
    share.mean() + 1


def one_by_zero() -> None:
    x = torch.ones(3)
    y = 1 / (x - 1)  # here
    y.mean()


def square_root_of_a_negative_number() -> None:
    x = torch.randn(8)
    (x - 10).sqrt().sum()  # here


def variance_of_one_number() -> None:
    x = torch.ones(1)
    x.std()  # here


def zero_variance_by_hand() -> None:
    x = torch.ones(2, 4)
    centred = x - x.mean(-1, keepdim=True)
    normed = centred / centred.std(-1, keepdim=True)  # here
    normed.sum()


def half_that_overflows() -> None:
    x = torch.full((4,), 300.0, dtype=torch.float16)
    y = x * x  # here
    y.float().mean()


def half_matmul_that_overflows() -> None:
    x = torch.full((2, 64), 60.0, dtype=torch.float16)
    scores = x @ x.T  # here
    scores.softmax(-1)


def exponential_that_overflows() -> None:
    x = torch.tensor([1.0, 100.0])
    odds = torch.exp(x)  # here
    odds / odds.sum()


def softmax_by_hand_of_large_numbers() -> None:
    x = torch.tensor([1000.0, 1000.0])
    e = x.exp()  # here
    e / e.sum()


def power_that_overflows() -> None:
    x = torch.tensor(1e30)
    (x**2).sqrt()  # here


def infinity_minus_infinity_in_place() -> None:
    x = torch.tensor([3.0, 1.0])
    x.div_(torch.tensor([0.0, 1.0]))  # here
    x.sub_(x)


def in_place_in_a_view() -> None:
    x = torch.ones(4, 4)
    x[1].log_()
    x[1, 2:].div_(torch.zeros(2))  # here
    x.sum()


def a_row_that_is_masked_wholly() -> None:
    scores = torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu().bool(), -INF)
    weights = scores.softmax(-1)  # here
    weights @ torch.ones(3, 2)


def attention_without_a_key() -> None:
    scores = torch.randn(2, 4) + torch.full((2, 4), -INF)
    probabilities = F.softmax(scores, dim=-1)  # here
    probabilities.sum()


def cross_entropy_of_a_masked_class() -> None:
    logits = torch.zeros(2, 3)
    logits[:, 0] = -INF
    F.cross_entropy(logits, torch.tensor([0, 1]))  # here


def mean_of_nothing() -> None:
    x = torch.randn(4)
    kept = x[x > 100]
    kept.mean()  # here


class _Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Any) -> Any:
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number == 2:
                x = x / (x - x)  # here
        return x.relu()


def in_the_third_layer() -> None:
    _Deep()(torch.randn(2, 4)).sum().sigmoid()


def a_batch_made_bad() -> None:
    batch = torch.randn(4, 3)
    batch[2, 1] = NAN  # here
    nn.Linear(3, 2)(batch).mean()


def a_tensor_made_bad() -> None:
    x = torch.tensor([1.0, NAN])  # here
    x * 2


def arccosine_beyond_one() -> None:
    cosine = torch.tensor([0.5, 1.0001])
    angle = torch.acos(cosine)  # here
    angle.mean()


def norm_and_its_inverse() -> None:
    v = torch.zeros(3)
    v * torch.rsqrt(v.square().sum())  # here


def complex_division() -> None:
    z = torch.zeros(2, dtype=torch.complex64)
    w = (z + 1) / z  # here
    w.abs()


def optimizer_state_that_overflows() -> None:
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.full((2,), 1e30)
    adam = torch.optim.Adam([p], foreach=False)
    adam.step()  # here
    p * 2


FORWARD = [
    log_of_zero, log_of_a_negative_number, zero_by_zero, one_by_zero, square_root_of_a_negative_number,
    variance_of_one_number, zero_variance_by_hand, half_that_overflows, half_matmul_that_overflows,
    exponential_that_overflows, softmax_by_hand_of_large_numbers, power_that_overflows,
    infinity_minus_infinity_in_place, in_place_in_a_view, a_row_that_is_masked_wholly, attention_without_a_key,
    cross_entropy_of_a_masked_class, mean_of_nothing, in_the_third_layer, a_batch_made_bad, a_tensor_made_bad,
    arccosine_beyond_one, norm_and_its_inverse, complex_division, optimizer_state_that_overflows,
]  # fmt: skip


def square_root_at_zero() -> None:
    x = torch.zeros(2, requires_grad=True)
    y = x.sqrt()  # forward
    y.sum().backward()  # here


def norm_at_zero() -> None:
    x = torch.zeros(3, requires_grad=True)
    n = x.pow(2).sum().sqrt()  # forward
    (n * 2).backward()  # here


def where_that_hides_a_division() -> None:
    x = torch.zeros(2, requires_grad=True)
    y = torch.where(x > 0, torch.ones(2), x.pow(0.5))  # forward
    y.sum().backward()  # here


class _Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient / (gradient - gradient)  # here


def a_backward_of_ones_own() -> None:
    x = torch.ones(2, requires_grad=True)
    _Wrong.apply(x).sum().backward()


BACKWARD = [square_root_at_zero, norm_at_zero, where_that_hides_a_division, a_backward_of_ones_own]


# Nothing is bad in these


def causal_mask() -> None:
    q = torch.randn(2, 4, 8)
    mask = torch.full((4, 4), -INF).triu(1)
    scores = q @ q.transpose(-1, -2) + mask
    (scores.softmax(-1) @ q).mean()


def mask_from_a_logarithm() -> None:
    keep = torch.tensor([1.0, 0.0, 1.0])
    mask = keep.log()
    scores = torch.randn(2, 3) + mask[None]
    F.softmax(scores, dim=-1)


def mask_made_before(mask: Any = torch.tensor([0.0, -INF])) -> None:  # noqa: B008 (made outside of the recording)
    (torch.randn(3, 2) + mask).softmax(-1)


def mask_whose_memory_is_used_again() -> None:
    mask = torch.tensor([1.0, 0.0]).log()
    (torch.randn(3, 2) + mask).softmax(-1)
    mask.zero_()
    mask / 3


def masked_attention_of_torchs_own() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 4, 8)
    attention(x, x, x, attn_mask=torch.full((4, 4), -INF).triu(1), need_weights=False)
    F.scaled_dot_product_attention(x, x, x, attn_mask=torch.ones(4, 4).tril().bool())


def smallest_so_far() -> None:
    best = torch.full((3,), INF)
    best = torch.minimum(best, torch.tensor([1.0, 2.0, 3.0]))
    best + 1


def parameters_in_memory_that_was_used_before() -> None:
    for _ in range(20):
        torch.full((64, 64), INF)  # its memory is given to the next
        nn.Linear(64, 64)(torch.ones(1, 64))


MEANT = [
    causal_mask, mask_from_a_logarithm, mask_made_before, mask_whose_memory_is_used_again,
    masked_attention_of_torchs_own, smallest_so_far, parameters_in_memory_that_was_used_before,
]  # fmt: skip
