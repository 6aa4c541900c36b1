"""Shortened expressions keep names, the last call and its keyword arguments."""

from __future__ import annotations

import pytest

from torchglass.views.text.labels import shortened

SOFTMAX = "p = torch.nn.functional.softmax(self.project(hidden) + mask, dim=1)"


@pytest.mark.parametrize(
    ("label", "room", "short"),
    [
        (SOFTMAX, 99, SOFTMAX),
        (SOFTMAX, 50, "p = F.softmax(self.project(hidden) + mask, dim=1)"),
        (SOFTMAX, 46, "p = F.softmax(self.project(…) + mask, dim=1)"),
        (SOFTMAX, 40, "p = F.softmax(self.proj…) + mask, dim=1)"),
        (SOFTMAX, 32, "p = F.softmax(self.…mask, dim=1)"),
        (SOFTMAX, 24, "p = F.softmax(self.proj…"),
        ("nn.functional.relu(x)", 9, "F.relu(x)"),
        ("my_nn.functional.relu(x)", 18, "my_nn.functional.…"),
        ("keys = proj(x).view(2, 4).transpose(1, 2)", 30, "keys = ….transpose(1, 2)"),
        ("net(torch.randn(16, 16), torch.zeros(16, 16))", 36, "net(torch.randn(…), torch.zeros(…))"),
        ("first_long_name * second_name + 1", 26, "first_long_name * second_…"),
        ("x = torch.cat([first, second, third], dim=-1)", 29, "x = torch.cat([…], dim=-1)"),
        ("1.0 + tanh(sqrt(2 / pi) * (x + 0.04 * pow(x, 3)))", 30, "1.0 + tanh(sqrt(…) * (…))"),
        ("x[0]", 3, "x[…"),
    ],
)
def test_what_stays(label: str, room: int, short: str) -> None:
    assert shortened(label, room) == short


@pytest.mark.parametrize("room", range(1, 80))
@pytest.mark.parametrize("label", [SOFTMAX, "a = b = c[1:2].d(e, 'f(', g=[1, 2]) - h", "))((", "x = (", "", "=", " = "])
def test_it_always_fits(label: str, room: int) -> None:
    assert len(shortened(label, room)) <= room
