"""What stands in the place of single names of torch, given each kind of object that torch has there."""

from __future__ import annotations

import pytest

from torchglass.capture.torch import guards


class OfPython(dict[str, int]):
    """Its ``apply`` is a class method as torch writes it until 2.14."""

    @classmethod
    def apply(cls, names: str, value: int) -> OfPython:
        return cls(dict.fromkeys(names, value))


class OfC(dict[str, int]):
    """Its ``apply`` is a class method of C's, which is what torch has from 2.15 on."""

    apply = vars(dict)["fromkeys"]


@pytest.mark.parametrize("home", [OfPython, OfC])
def test_apply_passes_through_whatever_kind_of_class_method_it_is(home: type) -> None:
    class Recorded(home):  # type: ignore[misc]
        apply = guards.make_apply(vars(home)["apply"])

    class Used(Recorded): ...

    made = Used.apply("ab", 1)  # type: ignore[attr-defined]
    assert type(made) is Used
    assert made == {"a": 1, "b": 1}
