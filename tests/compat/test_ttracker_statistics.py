"""``_log_change``: figures of all kinds of tensors and arrays, without a trace in the program."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass.compat.ttracker import _log_change


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("TORCHGLASS", "TORCHGLASS_CONSOLE", "TORCHGLASS_LANG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def logged(capsys):
    def log(value):
        _log_change("Linear", "x", value, "", 0)
        return capsys.readouterr().out.splitlines()

    return log


def figures(line):
    """{"sum": "6", …} of a line."""
    return dict(part.split("=", 1) for part in line.split(" | ")[2:])


def test_the_line_of_a_tensor(logged):
    assert logged(torch.arange(6.0).view(2, 3)) == [
        "├─ Linear [Tensor] x@0 → shape=torch.Size([2, 3]) | dtype=torch.float32 | sum=15 | mean=2.5 | min=0 | max=5"
    ]


def test_prefix_and_indent_are_the_callers(capsys):
    _log_change("", "video", np.ones(2, "uint8"), "│   ", 575)
    assert capsys.readouterr().out == (
        "│   ├─ [Tensor] video@575 → shape=(2,) | dtype=uint8 | sum=2 | mean=1 | min=1 | max=1\n"
    )


DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_against_python_itself(dtype, logged):
    tensor = torch.tensor([1, 0, 1, 1]).to(dtype)
    (line,) = logged(tensor)
    expected = {"sum": "3", "mean": "0.75", "min": "0", "max": "1"}
    if dtype is torch.bool:
        expected |= {"min": "False", "max": "True"}
    assert figures(line) == expected


def test_long_sums_are_exact(logged):
    tensor = torch.full((1 << 20,), 0.1, dtype=torch.float16)
    (line,) = logged(tensor)
    assert float(figures(line)["sum"]) == pytest.approx(math.fsum(tensor.tolist()), rel=1e-5)
    (line,) = logged(torch.full((1000,), 2**40))
    assert figures(line)["sum"] == str(1000 * 2**40)


@pytest.mark.parametrize("make", [torch.tensor, np.array], ids=["torch", "numpy"])
def test_nan_infinity_complex_and_nothing(make, logged):
    (line,) = logged(make([1.0, math.nan, 3.0]))
    assert set(figures(line).values()) == {"nan"}
    (line,) = logged(make([1.0, math.inf]))
    assert figures(line) == {"sum": "inf", "mean": "inf", "min": "1", "max": "inf"}
    (line,) = logged(make([1 + 2j, 3j]))
    assert figures(line) == {"sum": "1+5j", "mean": "0.5+2.5j", "min": "—", "max": "—"}
    (line,) = logged(make([[], []]))
    assert figures(line) == {"sum": "0", "mean": "—", "min": "—", "max": "—"}


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float64", "complex64", "longdouble"])
def test_numpy_dtypes(dtype, logged):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (line,) = logged(np.array([1, 0, 1, 1], dtype))
    assert figures(line)["mean"] in ("0.75", "0.75+0j")


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(2, device="meta"),
        torch.nn.UninitializedParameter(),
        np.array([object()]),
        np.array(["a"]),
        np.zeros(2, [("a", int)]),
        torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
    ],
    ids=["meta", "lazy", "objects", "strings", "records", "nested"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_has_no_figures_says_so(value, logged):
    (line,) = logged(value)
    assert figures(line)["max"] == "—"


def test_sparse_and_quantised_tensors_have_figures(logged):
    (line,) = logged(torch.tensor([0.0, 3.0, 1.0]).to_sparse())
    assert figures(line) == {"sum": "4", "mean": "1.33333", "min": "0", "max": "3"}


def test_containers_item_by_item(logged):
    lines = logged((torch.ones(1), None, [1, "a"], {"k": np.ones(2), ("t",): 2}, ()))
    assert [line.split("x", 1)[1].split(" | ")[0] for line in lines] == [
        "[0]@0 → shape=torch.Size([1])",
        "[1]@0 value: None",
        "[2][0]@0 value: 1",
        "[2][1]@0 value: 'a'",
        "[3]['k']@0 → shape=(2,)",
        "[3][#1]@0 value: 2",
        "[4]@0 len(value): 0",
    ]


def test_long_deep_and_endless_containers_end(logged):
    loop = []
    loop.append(loop)
    assert logged(loop) == ["├─ Linear [Var] x[0][0][0][0]@0 len(value): 1"]
    lines = logged(list(range(1000)))
    assert len(lines) == 33
    assert lines[-1] == "├─ … 968 more"


def test_the_accuracy_monitor_of_the_document(capsys):
    model_executable = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))

    def check_hook(module, input, output):  # noqa: A002 (as in the document)
        from torchglass.compat.ttracker import _log_change

        _log_change(f"{module.__class__.__name__}", "input", input, "", 0)
        _log_change(f"{module.__class__.__name__}", "output", output, "", 0)

    print(model_executable)
    for _name, layer in model_executable.named_modules():
        layer.register_forward_hook(check_hook)
    capsys.readouterr()
    out = model_executable(torch.ones(5, 4))
    lines = capsys.readouterr().out.splitlines()
    names = [line.split(" | ")[0] for line in lines]
    assert names[0] == "├─ Linear [Tensor] input[0]@0 → shape=torch.Size([5, 4])"
    assert names[-1] == "├─ Sequential [Tensor] output@0 → shape=torch.Size([5, 2])"
    assert len(lines) == 8
    assert float(figures(lines[-1])["sum"]) == pytest.approx(out.double().sum().item(), rel=1e-5)


def test_nothing_is_disturbed(logged):
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    before = (y._version, y.grad_fn, torch.get_rng_state().clone(), torch.is_grad_enabled())
    (line,) = logged(y)
    assert figures(line)["sum"] == "6"
    assert (y._version, y.grad_fn) == before[:2]
    assert torch.equal(torch.get_rng_state(), before[2])
    assert torch.is_grad_enabled()
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))
    with torch.inference_mode():
        assert figures(logged(torch.ones(2))[0])["sum"] == "2"


def test_no_mode_and_no_recording_sees_the_figures(logged):
    class Functions(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Ops(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen = []
    x = torch.ones(2)
    with tg.record(ops=True) as trace, Functions(), Ops():
        logged(x)
    assert seen == []
    assert list(trace.events()) == []


def test_a_subclass_with_data_elsewhere_is_left_alone(logged):
    class Elsewhere(torch.Tensor):
        @staticmethod
        def __new__(cls):
            return torch.Tensor._make_wrapper_subclass(cls, (2,), dtype=torch.float32)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise AssertionError

    assert figures(logged(Elsewhere())[0])["sum"] == "—"
