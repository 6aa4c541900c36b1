"""The filter language: what each criterion keeps, how they combine, what wrong ones say."""

from __future__ import annotations

import pytest

from tests.handmade import Maker
from torchglass.errors import UnknownOption, UsageError, WrongType
from torchglass.events.selection import Selection, fits_path, select
from torchglass.events.types import Event


def event(kind: str = "function", name: str = "F.softmax", module: str | None = "encoder.layer.0") -> Event:
    make = Maker()
    return make.made[make.add(kind, name, module=module)]


@pytest.mark.parametrize(
    ("pattern", "module", "kept"),
    [
        ("encoder", "encoder", True),
        ("encoder", "encoder.layer.0", False),
        ("encoder.*", "encoder.layer.0", True),
        ("encoder.*", "encoder", True),
        ("encoder.*", "decoder.layer.0", False),
        ("*.layer.?", "encoder.layer.0", True),
        ("", "", True),
        ("*", None, False),
        (("decoder", "encoder.*"), "encoder.x", True),
    ],
)
def test_modules_by_path(pattern: str | tuple[str, ...], module: str | None, kept: bool) -> None:
    assert select(module=pattern).matches(event(module=module)) is kept


def test_the_call_of_a_module_is_not_below_the_module() -> None:
    assert not select(module="encoder.*").matches(event("module", "Encoder", module="encoder"))
    assert select(module="encoder").matches(event("module", "Encoder", module="encoder"))


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("t5.py", False),
        ("modeling_t5.py", True),
        ("models/modeling_t5.py", True),
        ("*_t5.py", True),
        ("models", True),
        ("ing_t5", True),
    ],
)
def test_the_name_of_a_file_is_a_whole_name(pattern: str, kept: bool) -> None:
    assert fits_path("/srv/project/models/modeling_t5.py", pattern) is kept


@pytest.mark.parametrize(
    ("criterion", "kind", "name"),
    [
        ({"function": "softmax"}, "function", "F.softmax"),
        ({"function": "F.softmax"}, "function", "F.softmax"),
        ({"function": "torch.cat"}, "function", "cat"),
        ({"function": "mat*"}, "function", "Tensor.matmul"),
        ({"op": "aten::mul.Tensor"}, "op", "aten::mul.Tensor"),
        ({"op": "mul"}, "op", "aten::mul.Tensor"),
        ({"op": "aten::mm"}, "op", "aten::mm"),
        ({"variable": "q"}, "variable", "q"),
        ({"kind": ("mark", "step")}, "step", "AdamW"),
    ],
)
def test_names_with_and_without_prefix(criterion: dict[str, str], kind: str, name: str) -> None:
    assert select(**criterion).matches(event(kind, name))  # type: ignore[arg-type]


def test_a_name_is_looked_for_in_its_own_kind_only() -> None:
    assert not select(function="q").matches(event("variable", "q"))
    assert select(function="q", variable="q").matches(event("variable", "q"))


def test_module_and_any_of_the_names() -> None:
    chosen = select(module="encoder.*", function="softmax", op="mm")
    assert chosen.matches(event("function", "F.softmax"))
    assert chosen.matches(event("op", "aten::mm"))
    assert not chosen.matches(event("function", "F.relu"))
    assert not chosen.matches(event("function", "F.softmax", module="decoder"))
    assert not chosen.matches(event("module", "Linear"))


def test_where_has_the_last_word() -> None:
    assert not select(function="softmax", where=lambda each: each.line == 7).matches(event())
    assert select(where=lambda each: each.line == 1).matches(event())


def test_no_criteria_mean_everything() -> None:
    assert select() == Selection()
    assert select().matches(event(module=None))


def test_an_unknown_criterion_names_those_there_are() -> None:
    with pytest.raises(UnknownOption, match=r"'modul'.*did you mean 'module'.*function, hide, kind, module, op"):
        select(modul="x")


@pytest.mark.parametrize(
    "wrong", [{"module": 3}, {"function": ["softmax"]}, {"op": ()}, {"module": ("a", 1)}, {"where": 1}]
)
def test_wrong_types_say_what_is_taken(wrong: dict[str, object]) -> None:
    with pytest.raises(WrongType, match=rf"select\({next(iter(wrong))}=\) takes"):
        select(**wrong)  # type: ignore[arg-type]


def test_an_unknown_kind_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="did you mean 'module'"):
        select(kind="modules")
