"""`tg.mark` puts a named event with a copy of the value into the trace, and changes nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import torchglass as tg
from torchglass.errors import NotRecorded

EITHER = pytest.mark.parametrize("kept", ["memory", "file"])


@pytest.fixture
def options(kept: str, tmp_path: Path) -> dict[str, Any]:
    return {"to": tmp_path / "run.trace"} if kept == "file" else {}


def contents(trace: tg.Trace, name: str) -> list[Any]:
    """What was kept under a name, in order."""
    return [trace.tensor(value) for event in trace.events(kind="mark") if event.name == name for value in event.inputs]


def notes(trace: tg.Trace) -> list[str]:
    """But for those about this file, in which pytest rewrites assertions."""
    return [note for note in trace.notes if "source changed" not in note]


def marks(trace: tg.Trace) -> list[tuple[str, str]]:
    return [(event.name, event.args) for event in trace.events(kind="mark")]


# The copy


@EITHER
def test_later_writes_do_not_reach_the_copy(options: dict[str, Any]) -> None:
    x, array = torch.zeros(3), np.zeros(2)
    with tg.record(**options) as trace:
        tg.mark("x", x)
        for write in (lambda: x.add_(1), lambda: x.data.add_(1), lambda: np.add(x.numpy(), 1, out=x.numpy())):
            write()
            tg.mark("x", x)
        tg.mark("array", array)
        array += 7
        tg.mark("array", array)
    assert [each.tolist() for each in contents(trace, "x")] == [[n] * 3 for n in (0.0, 1.0, 2.0, 3.0)]
    assert [each.tolist() for each in contents(trace, "array")] == [[0, 0], [7, 7]]
    values = [event.inputs[0].id for event in trace.events(kind="mark")]
    assert len(set(values)) == len(values)


@EITHER
def test_whatever_is_marked_is_given_back_and_described(options: dict[str, Any]) -> None:
    x = torch.ones(2)
    given: list[Any] = [x, [x, {"k": (x, 3)}], 3, 2.5, "text", None, object(), np.float32(3)]
    given.append([given])
    with tg.record(**options) as trace:
        for value in given:
            assert tg.mark("value", value) is value
    assert [text for _, text in marks(trace)] == [
        "f32[2]",
        "[f32[2], {'k': (f32[2], 3)}]",
        "3",
        "2.5",
        "'text'",
        "None",
        "<object>",
        "3.0",
        marks(trace)[-1][1],
    ]
    assert [value.kind for value in trace.event(1).inputs] == ["tensor", "tensor"]


class Own(torch.Tensor):
    """A subclass that adds nothing."""


def numbers() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


def in_inference() -> torch.Tensor:
    with torch.inference_mode():
        return numbers() + 1


PLAIN: dict[str, Callable[[], Any]] = {
    "transposed": lambda: numbers().t(),
    "expanded": lambda: torch.arange(3.0)[None].expand(4, 3),
    "channels_last": lambda: torch.arange(16.0).reshape(1, 2, 2, 4).contiguous(memory_format=torch.channels_last),
    "conjugated": lambda: torch.complex(numbers(), numbers()).conj(),
    "negated": lambda: torch.complex(numbers(), numbers()).conj().imag,
    "empty": lambda: torch.empty(0, 3),
    "one_number": lambda: torch.tensor(3),
    "one_of_a_row": lambda: torch.rand(1, 5)[:, 0],
    "parameter": lambda: torch.nn.Parameter(numbers()),
    "subclass": lambda: numbers().as_subclass(Own),
    "inference": in_inference,
    "bool": lambda: numbers() > 2,
    **{
        dtype: lambda dtype=dtype: numbers().to(getattr(torch, dtype))
        for dtype in ("bfloat16", "float16", "float8_e4m3fn", "float8_e8m0fnu", "complex128", "complex32", "uint16")
    },
}
ARRAYS: dict[str, Callable[[], Any]] = {
    "array": lambda: np.arange(6).reshape(2, 3),
    "fortran": lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "reversed": lambda: np.arange(6)[::-1],
    "empty": lambda: np.empty((0, 3)),
    "one_number": lambda: np.array(5.0),
    "big_endian": lambda: np.arange(3, dtype=">i4"),
    "text": lambda: np.array(["a", "bc"]),
    "dates": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "masked": lambda: np.ma.array([1, 2, 3], mask=[False, True, False]),
}


def raw(tensor: torch.Tensor) -> bytes:
    plain = (
        tensor.detach()
        .as_subclass(torch.Tensor)
        .resolve_conj()
        .resolve_neg()
        .clone(memory_format=torch.contiguous_format)
    )
    plain = plain.reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


@EITHER
@pytest.mark.parametrize("name", PLAIN)
def test_every_kind_of_tensor(name: str, options: dict[str, Any]) -> None:
    tensor = PLAIN[name]()
    with tg.record(**options) as trace:
        tg.mark(name, tensor)
    (copy,) = contents(trace, name)
    assert (copy.shape, copy.dtype, raw(copy)) == (tensor.shape, tensor.dtype, raw(tensor))
    assert type(copy) is torch.Tensor
    assert not copy.requires_grad
    assert not copy.is_inference()
    assert notes(trace) == []


@EITHER
@pytest.mark.parametrize("name", ARRAYS)
def test_every_kind_of_array(name: str, options: dict[str, Any]) -> None:
    array = ARRAYS[name]()
    with tg.record(**options) as trace:
        tg.mark(name, array)
    (copy,) = contents(trace, name)
    assert (copy.shape, copy.dtype) == (array.shape, array.dtype)
    assert (copy == np.asarray(array)).all()
    assert type(copy) is np.ndarray
    assert not np.shares_memory(copy, array)


WITHOUT_BYTES: dict[str, Callable[[], Any]] = {
    "sparse": lambda: torch.eye(2).to_sparse(),
    "csr": lambda: torch.eye(2).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "quantised": lambda: torch.quantize_per_tensor(numbers(), 0.1, 0, torch.qint8),
    "meta": lambda: torch.empty(2, device="meta"),
    "objects": lambda: np.array([object()]),
    "records": lambda: np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WITHOUT_BYTES)
def test_what_has_no_plain_bytes_stays_in_memory(name: str, tmp_path: Path) -> None:
    value = WITHOUT_BYTES[name]()
    with tg.record(to=tmp_path / "run.trace") as trace:
        for _ in range(3):
            tg.mark(name, value)
    copies = contents(trace, name)
    assert len(copies) == 3
    assert all(each.dtype == value.dtype for each in copies)
    (note,) = notes(trace)
    assert note.startswith(f"the content of the mark {name!r} is not in the bundle: ")
    loaded = tg.load(tmp_path / "run.trace")
    assert marks(loaded) == marks(trace)
    assert loaded.notes == trace.notes
    with pytest.raises(NotRecorded):
        loaded.tensor(loaded.event(0).inputs[0])


def test_a_value_that_cannot_be_copied_is_marked_all_the_same() -> None:
    class Stubborn(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise ValueError("no")

    stubborn = torch.Tensor._make_wrapper_subclass(Stubborn, (2,))
    with tg.record() as trace:
        tg.mark("stubborn", [stubborn, torch.ones(1)])
    assert marks(trace) == [("stubborn", "[f32[2], f32[1]]")]
    assert notes(trace) == ["the content of the mark 'stubborn' is not kept: ValueError: no"]
    assert trace.tensor(trace.event(1).inputs[1]).tolist() == [1.0]


# Nothing else changes


def step(mark: Callable[[str, Any], Any]) -> list[Any]:
    torch.manual_seed(0)
    x = torch.randn(3, requires_grad=True)
    y = mark("y", x * 2)
    y.register_hook(lambda gradient: mark("gradient", gradient))
    with torch.no_grad():
        y.add_(1)
    loss = mark("loss", (mark("y", y) * torch.rand(3)).sum())
    loss.backward()
    return [x.grad, loss.detach(), x._version, y._version, type(y.grad_fn).__name__, torch.get_rng_state()]


@pytest.mark.parametrize("options", [{}, {"ops": True}], ids=["functions", "ops"])
@EITHER
def test_the_program_does_the_same(options: dict[str, Any], kept: str, tmp_path: Path) -> None:
    where: dict[str, Any] = {"to": tmp_path / "run.trace"} if kept == "file" else {}
    plain = step(lambda name, value: value)
    with tg.record(**options) as unmarked:
        step(lambda name, value: value)
    with tg.record(**options, **where) as trace:
        marked = step(tg.mark)
    for one, two in zip(plain, marked, strict=True):
        assert torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two
    seen = [(event.kind, event.name) for event in trace.events() if event.kind != "mark"]
    assert seen == [(event.kind, event.name) for event in unmarked.events()], "the copying is not seen"
    assert [name for name, _ in marks(trace)] == ["y", "y", "loss", "gradient"]
    assert [event.phase for event in trace.events(kind="mark")][-1] == "backward"
    first, second = contents(trace, "y")
    assert torch.equal(first + 1, second)


def test_modes_of_the_program_do_not_see_the_copying() -> None:
    seen: list[Any] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    with tg.record() as trace, Functions(), Ops():
        tg.mark("x", x)
    assert seen == []
    assert contents(trace, "x")[0].tolist() == [1, 1]


def test_inside_of_transforms_the_whole_batch_is_kept() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    with tg.record() as trace:
        torch.func.vmap(lambda row: tg.mark("row", row * 2).sum())(x)
        torch.func.grad(lambda each: tg.mark("each", each * 2).sum())(x)
    assert torch.equal(contents(trace, "row")[0], x * 2)
    assert torch.equal(contents(trace, "each")[0], x * 2)
    assert notes(trace) == []


def test_a_traced_function_is_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    def graph(mark: Callable[[str, Any], Any]) -> list[str]:
        traced = torch.jit.trace(lambda x: mark("x", x * 2) + 1, (torch.ones(2),))
        return [node.kind() for node in traced.graph.nodes()]  # type: ignore[union-attr]

    with tg.record() as trace:
        assert graph(tg.mark) == graph(lambda name, value: value)
    assert marks(trace)


@pytest.mark.filterwarnings("ignore")
def test_in_a_compiled_region_the_result_is_the_same() -> None:
    """What runs inside is not seen, a mark neither."""
    compiled = torch.compile(lambda x: tg.mark("x", x * 2) + 1, backend="eager")
    with tg.record() as trace:
        assert compiled(torch.ones(2)).tolist() == [3, 3]
    assert [event.name for event in trace.events(kind="unseen")] == ["compiled"]
    assert not [note for note in trace.notes if "failed" in note]
    torch.compiler.reset()


# Where and when


def test_in_a_thread() -> None:
    with tg.record() as trace:
        thread = threading.Thread(target=lambda: tg.mark("x", torch.ones(2)), name="other")
        thread.start()
        thread.join()
    (event,) = trace.events(kind="mark")
    assert event.thread == "other"
    assert contents(trace, "x")[0].tolist() == [1, 1]


def test_a_mark_is_where_it_was_made() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return tg.mark("half way", x * 2) + 1

    trace = tg.trace(Net(), torch.ones(2))
    (event,) = trace.events(kind="mark")
    assert (event.module, event.root, event.parent) == ("", "Net", 0)
    assert event.location is not None
    assert event.location.function.endswith("Net.forward")
    assert event.start_ns == event.end_ns
    assert trace.event(event.inputs[0].producer or 0).name == "Tensor.mul"
    assert event.code == 'tg.mark("half way", x * 2)'


def test_nothing_is_kept_beyond_the_limit() -> None:
    with tg.record(max_events=3, keep="begin") as trace:
        for _ in range(5):
            tg.mark("x", torch.tensor(1))
    assert len(marks(trace)) + sum(1 for _ in trace.events(kind="function")) == 3
    assert len(trace.kept()) == len(marks(trace))
    assert any("max_events" in note for note in trace.notes)


@pytest.mark.parametrize("outer_to_file", [True, False])
def test_two_recordings_at_once(outer_to_file: bool, tmp_path: Path) -> None:
    to: dict[str, Any] = {"to": tmp_path / "run.trace"}
    with tg.record(**(to if outer_to_file else {})) as outer, tg.record(**({} if outer_to_file else to)) as inner:
        tg.mark("x", torch.ones(2))
    for trace in (outer, inner, tg.load(tmp_path / "run.trace")):
        assert [each.tolist() for each in contents(trace, "x")] == [[1, 1]]


class Nameless:
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_names_that_are_no_text() -> None:
    """What works unrecorded works recorded, and making a text of a name is no step of the program."""
    x = torch.ones(2)
    names: list[Any] = [3, None, x, Path("a"), Nameless()]
    for name in names:
        assert tg.mark(name, x) is x
    with tg.record() as trace:
        for name in names:
            assert tg.mark(name, x) is x
    assert [event.name for event in trace.events()] == ["3", "None", "tensor([1., 1.])", "a", "<Nameless>"]
    assert {event.kind for event in trace.events()} == {"mark"}


def test_wrong_arguments_and_nothing_recorded() -> None:
    x = torch.ones(2)
    assert tg.mark("x", x) is x
    with tg.record() as trace, pytest.raises(TypeError):
        tg.mark(x)  # type: ignore[call-arg]
    assert len(trace) == 0
    with pytest.raises(NotRecorded, match="no value 0"):
        trace.tensor(0)


def test_odd_names(tmp_path: Path) -> None:
    names = ["a/b", "../up", "nul\0", "line\nline", "x" * 300, "\x1b[31m", "", "\ud800"]
    with tg.record(to=tmp_path / "run.trace") as trace:
        for name in names:
            tg.mark(name, torch.ones(1))
    loaded = tg.load(tmp_path / "run.trace")
    assert [name for name, _ in marks(trace)] == names
    assert [name for name, _ in marks(loaded)] == names
    assert all(contents(loaded, name)[0].tolist() == [1] for name in names)
    assert {path.parent for path in tmp_path.iterdir()} == {tmp_path}
    assert all(line.isprintable() for line in tg.render(loaded).splitlines())
