"""Calls in all the places that Python allows: comprehensions, lambdas, walrus, decorators, unpacking."""

import functools

import torch


def doubled(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return wrapper


@doubled
def shifted(x, *, by=1):
    return x + by


class Box:
    def __init__(self, x):
        self.x = x.neg()


def main():
    torch.manual_seed(0)
    x = torch.randn(4, 4)
    comprehension = [row.exp() for row in x if row.sum() > -100]
    table = {i: x[i].abs() for i in range(2)}
    lazily = sum(t.cos() for t in x)
    square = lambda t: t.mul(t)  # noqa: E731
    if (total := x.sum()) < 1000:
        total = total.sin()
    first, *rest = x.unbind(0)
    (a, b), c = x.chunk(2), x.mean(dim=1, keepdim=True)
    chained = x.relu().softmax(-1).log().clamp(min=-5)
    multi = (
        torch.cat(
            [first.unsqueeze(0), rest[0].unsqueeze(0)],
            dim=0,
        )
        + c[:2]
    )
    box = Box(x)
    box.x = box.x + 1
    best = max(rest, key=lambda t: t.sum().item())
    text = f"{x.mean():.3f}"
    return (
        comprehension,
        table,
        lazily,
        square(x),
        total,
        a,
        b,
        chained,
        multi,
        box.x,
        best,
        shifted(x, by=3),
        len(text),
    )
