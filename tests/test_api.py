"""The public functions: what they say to bad input, and tensors of every odd kind."""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import torchglass as tg

X = torch.ones(2, 3)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert torch._C._len_torch_function_stack() == 0


class TestBadInput:
    @pytest.mark.parametrize("thing", [None, 3, "model", X, [nn.ReLU()]], ids=lambda thing: type(thing).__name__)
    def test_trace_of_what_cannot_be_called(self, thing: Any) -> None:
        with pytest.raises(tg.WrongType, match=rf"trace\(\) takes something to call .*, not {type(thing).__name__}"):
            tg.trace(thing, X)

    @pytest.mark.parametrize("thing", [None, 3, nn.ReLU(), tg.record(), [1]], ids=lambda thing: type(thing).__name__)
    @pytest.mark.parametrize("door", [tg.show, tg.render])
    def test_show_of_something_else(self, door: Callable[..., Any], thing: Any) -> None:
        with pytest.raises(tg.WrongType, match=rf"takes a trace.*record\(\) .*not {type(thing).__name__}$"):
            door(thing)

    def test_an_unknown_view(self) -> None:
        trace = tg.trace(nn.ReLU(), X)
        with pytest.raises(tg.UnknownView, match="no view 'tre'; did you mean 'tree'"):
            tg.show(trace, "tre")
        with pytest.raises(
            tg.UnknownView,
            match="choose from: calls, code, failure, first_bad, gradients, graph, listing, table, tree, variables",
        ):
            tg.render(trace, "..")
        with pytest.raises(tg.UnknownView):
            tg.render(trace, 3)  # type: ignore[arg-type]
        assert tg.render(trace, None) == tg.render(trace, "tree")

    def test_a_name_is_no_stream(self) -> None:
        trace = tg.trace(nn.ReLU(), X)
        with pytest.raises(tg.WrongType, match=r"show\(file=…\) takes something to print to.* not str; .* path="):
            tg.show(trace, "listing", file="test_api.py")  # type: ignore[arg-type]
        with pytest.raises(tg.UnknownOption, match=r"the view 'listing' has no option 'file'; .*\bpath\b"):
            tg.render(trace, "listing", file="test_api.py")

    def test_an_unknown_option(self) -> None:
        trace = tg.trace(nn.ReLU(), X)
        with pytest.raises(tg.UnknownOption, match=r"the view 'tree' has no option 'dept'; did you mean 'depth'\?"):
            tg.show(trace, dept=2)
        with pytest.raises(TypeError):
            tg.render(trace, "table", colour=True)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"fused": "shut"}, "takes 'keep' or 'open', not 'shut'"),
            ({"max_events": 0}, "from 1 on, or None for all, not 0"),
            ({"max_events": "9"}, "not '9'"),
            ({"max_events": True}, "not True"),
            ({"only": "encoder.*"}, "takes a selection made by select"),
        ],
    )
    def test_options_of_record(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(tg.UsageError, match=message):
            tg.record(**options)

    def test_an_unknown_option_of_record(self) -> None:
        with pytest.raises(TypeError, match="ops_"):
            tg.record(ops_=True)  # type: ignore[call-arg]

    def test_decorating_what_cannot_be_called(self) -> None:
        with pytest.raises(tg.WrongType, match="decorates a function, not int"):
            tg.record()(3)  # type: ignore[type-var]

    def test_every_error_is_ours_and_a_builtin_one(self) -> None:
        for error, builtin in ((tg.WrongType, TypeError), (tg.UnknownView, ValueError), (tg.NotRecorded, LookupError)):
            assert issubclass(error, tg.TorchglassError)
            assert issubclass(error, builtin)


class TestNothingRecorded:
    def test_it_says_so_in_every_view(self) -> None:
        with tg.record() as trace:
            pass
        assert len(trace) == 0
        for text in (str(trace), tg.render(trace), tg.render(trace, "table")):
            assert "nothing was recorded" in text.lower()
        assert trace.failure() is None
        assert list(trace.values()) == []
        assert trace.sql("SELECT * FROM events") == []
        with pytest.raises(tg.NotRecorded, match=r"no module 'a' was called; there are none$"):
            trace.outputs("a")
        with pytest.raises(tg.NotRecorded, match="0"):
            trace.event(0)

    def test_a_call_that_makes_no_tensor(self) -> None:
        assert len(tg.trace(lambda: 3)) == 0


def test_show_prints_what_render_gives() -> None:
    trace = tg.trace(nn.ReLU(), X)
    stream = io.StringIO()
    tg.show(trace, file=stream, width=80, color=False)
    assert stream.getvalue() == tg.render(trace, width=80, color=False) + "\n"


def test_trace_gives_all_arguments_to_the_function() -> None:
    seen: list[Any] = []

    def takes(*args: Any, **kwargs: Any) -> None:
        seen.extend((args, kwargs))

    tg.trace(takes, 1, function=2, name=3)
    assert seen == [(1,), {"function": 2, "name": 3}]


def test_the_names_at_the_top() -> None:
    for name in tg.__all__:
        assert getattr(tg, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        tg.nothing_of_the_kind  # type: ignore[attr-defined]


def sparse() -> Tensor:
    return torch.eye(3).to_sparse()


def quantised() -> Tensor:
    return torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.quint8)


def fake() -> Tensor:
    with FakeTensorMode() as mode:
        return mode.from_tensor(torch.ones(2, 3))


def strided_nested() -> Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def jagged() -> Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


ODD: list[tuple[str, Callable[[], Tensor], tuple[int, ...] | None, str, str]] = [
    ("meta", lambda: torch.ones(2, 3, device="meta"), (2, 3), "float32", "strided"),
    ("fake", fake, (2, 3), "float32", "strided"),
    ("quantised", quantised, (2, 3), "quint8", "strided"),
    ("sparse", sparse, (3, 3), "float32", "sparse_coo"),
    ("csr", lambda: torch.eye(3).to_sparse_csr(), (3, 3), "float32", "sparse_csr"),
    ("nested", strided_nested, None, "float32", "strided"),
    ("jagged", jagged, (2, -1), "float32", "jagged"),
    ("complex", lambda: torch.ones(2, dtype=torch.complex64), (2,), "complex64", "strided"),
    ("conjugate", lambda: torch.ones(2, dtype=torch.complex64).conj(), (2,), "complex64", "strided"),
    ("empty", lambda: torch.ones(0, 3), (0, 3), "float32", "strided"),
    ("scalar", lambda: torch.tensor(1.0), (), "float32", "strided"),
    ("half", lambda: torch.ones(2, dtype=torch.float8_e4m3fn), (2,), "float8_e4m3fn", "strided"),
    ("expanded", lambda: torch.ones(1).expand(5, 4), (5, 4), "float32", "strided"),
]


@pytest.mark.parametrize(
    ("make", "shape", "dtype", "layout"), [each[1:] for each in ODD], ids=[each[0] for each in ODD]
)
def test_tensors_of_every_kind_are_plain_records(
    make: Callable[[], Tensor], shape: tuple[int, ...] | None, dtype: str, layout: str
) -> None:
    class Passes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = make()
        with tg.record() as trace:
            result = Passes()(tensor)
            detached = tensor.detach()
    assert result is tensor
    assert detached is not None
    module, function = trace.events()
    assert function.name == "Tensor.detach"
    for value in (*module.inputs, *module.outputs, *function.inputs):
        assert (value.shape, value.dtype, value.layout) == (shape, dtype, layout)
    assert not any("failed" in note for note in trace.notes)
    assert tg.render(trace)
    assert trace.columns("tensor_values")["dtype"][0] == dtype


def test_a_lazy_parameter_has_no_shape() -> None:
    parameter = nn.parameter.UninitializedParameter()
    (event,) = tg.trace(nn.Identity(), parameter).events()
    assert (event.inputs[0].shape, event.args) == (None, "f32[?]")


class Hostile:
    """Raises whatever is asked of it."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the program's own code must not run")

    __repr__ = __str__ = __eq__ = __len__ = __iter__ = __bool__ = __getattr__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class HostileClass(Hostile):
    @property
    def __class__(self) -> Any:
        raise AssertionError("not even its class is asked for")


class HostileDict(dict):
    __repr__ = __len__ = __iter__ = items = keys = Hostile._refuse


class HostileText(str):
    __repr__ = __str__ = __len__ = Hostile._refuse


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (Hostile, "<Hostile>"),
        (HostileClass, "<HostileClass>"),
        (lambda: HostileDict(a=1), "{'a': 1}"),
        (lambda: HostileText("a"), "<HostileText>"),
        (lambda: [Hostile(), 1], "[<Hostile>, 1]"),
        (lambda: Hostile, "<type>"),
        (lambda: range(3), "<range>"),
        (lambda: b"abc", "<bytes of 3>"),
        (lambda: float("nan"), "nan"),
        (lambda: "x" * 300, "'" + "x" * 200 + "'…"),
        (lambda: list(range(100)), "<list of 100>"),
        (lambda: {"k": {1, 2}}, "{'k': <set>}"),
    ],
)
def test_arguments_of_every_kind_run_no_code_of_theirs(make: Callable[[], Any], shown: str) -> None:
    class Takes(nn.Module):
        def forward(self, x: Any, thing: Any) -> Any:
            return thing

    thing = make()
    with tg.record() as trace:
        result = Takes()(X, thing)
    assert result is thing
    (event,) = trace.events()
    assert event.args == f"f32[2, 3], {shown}"
    assert event.result == shown
    assert tg.render(trace)


def test_a_list_that_holds_itself() -> None:
    class Takes(nn.Module):
        def forward(self, thing: Any) -> None:
            return None

    ring: list[Any] = [X]
    ring.append(ring)
    (event,) = tg.trace(Takes(), ring).events()
    assert event.inputs[0].role == "thing[0]"
    assert "<list of 2>" in event.args


def test_lists_that_hold_each_other_many_times_over() -> None:
    """What is written out has a bound, however often the same list is found again."""

    class Takes(nn.Module):
        def forward(self, thing: Any) -> None:
            return None

    thing: list[Any] = [X]
    for _ in range(12):
        thing = [thing] * 10
    (event,) = tg.trace(Takes(), thing).events()
    assert len(event.args) < 20_000


def test_an_exception_whose_text_cannot_be_read() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    class Fails(nn.Module):
        def forward(self) -> None:
            raise Mute

    with pytest.raises(Mute), tg.record() as trace:
        Fails()()
    assert next(trace.events()).error == "Mute"  # its text is not asked for


def test_an_option_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(
        tg.UnknownOption, match=r"^record\(\) has no option 'value'; did you mean 'values'\? choose from: "
    ):
        tg.record(value="stats")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert "values" in inspect.signature(tg.record).parameters


def test_only_what_was_called_is_named_where_outputs_are_asked_for() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model.add_module("unused", nn.Linear(2, 2))
    model.forward = lambda x: model[0](x)  # type: ignore[method-assign]
    with tg.record() as trace:
        model(torch.ones(2))
    assert "unused" in {each.path for each in trace.modules()}
    for path in ("aa", "unused"):
        with pytest.raises(tg.NotRecorded, match=rf"^no module '{path}' was called; choose from: '' \(the root\), 0$"):
            trace.outputs(path)


def test_a_program_that_failed_before_any_torch_call_needs_no_advice_on_recording() -> None:
    with pytest.raises(KeyError), tg.record() as trace:
        raise KeyError("path")
    text = tg.render(trace, "tree")
    assert text.startswith("✗ KeyError: 'path'")
    assert "failed before any module or torch function ran" in " ".join(text.split())
    assert "with record()" not in text
