"""TensorSaver writes what it was given, at once and whole, and never disturbs the program."""

from __future__ import annotations

import copy
import io
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import torchglass as tg
from tests.work import work_of
from torchglass.compat.torchspy import DebugContext, TensorSaver, spy_save
from torchglass.errors import WrongType


@pytest.fixture
def saver(tmp_path):
    return TensorSaver(tmp_path / "out" / "tensors")


def only_file(saver):
    (path,) = saver.output_dir.iterdir()
    return path


def loaded(saver):
    return torch.load(only_file(saver), weights_only=True)


class Marked(torch.Tensor):
    pass


class Dispatching(torch.Tensor):
    """Makes its own kind of everything that is computed with it."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        with torch._C._DisableTorchDispatch():
            out = func(*args, **(kwargs or {}))
        return out.as_subclass(cls) if isinstance(out, torch.Tensor) else out


PLAIN = {
    "float32": torch.randn(2, 3),
    "bfloat16": torch.randn(2, 3).bfloat16(),
    "complex64": torch.randn(3, dtype=torch.complex64),
    "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    "float8": torch.randn(4).to(torch.float8_e4m3fn),
    "bool": torch.tensor([True, False]),
    "scalar": torch.tensor(3),
    "empty": torch.empty(0, 4),
    "transposed": torch.randn(2, 3).t(),
    "expanded": torch.randn(1).expand(1000, 1000),
    "parameter": nn.Parameter(torch.randn(3)),
    "subclass": torch.randn(3).as_subclass(Marked),
    "dispatching subclass": torch.Tensor._make_subclass(Dispatching, torch.randn(3)),
    "result of autograd": torch.randn(3, requires_grad=True) * 2,
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_loaded_is_what_was_saved_as_a_plain_tensor(saver, name):
    tensor = PLAIN[name]
    saver.save("t", tensor)
    back = loaded(saver)
    assert type(back) is torch.Tensor
    assert not back.requires_grad
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(back.view(torch.uint8) if name == "float8" else back, _comparable(tensor, name))


def _comparable(tensor, name):
    with torch._C._DisableTorchDispatch():
        plain = tensor.detach().as_subclass(torch.Tensor)
    return plain.view(torch.uint8) if name == "float8" else plain


def odd_tensors():
    eye = torch.eye(4)
    yield "coo", eye.to_sparse()
    yield "csr", eye.to_sparse_csr()
    yield "quantised", torch.quantize_per_tensor(eye, 0.1, 0, torch.qint8)
    yield "nested", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    yield "jagged", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    yield "mkldnn", eye.to_mkldnn()


def can_be_loaded_safely(tensor):
    """Torch 2.15 no longer loads nested tensors with weights_only, whoever saved them."""
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    try:
        torch.load(file, weights_only=True)
    except pickle.UnpicklingError:
        return False
    return True


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["coo", "csr", "quantised", "nested", "jagged", "mkldnn"])
def test_tensors_of_other_layouts_come_back_with_their_values(saver, name):
    tensor = dict(odd_tensors())[name]
    saver.save("t", tensor)
    if tensor.is_nested and not can_be_loaded_safely(tensor):
        back = torch.load(only_file(saver), weights_only=False)
    else:
        back = loaded(saver)
    parts = (lambda t: t.unbind()) if "ed" in name and name != "quantised" else (lambda t: [t])
    for one, other in zip(parts(back), parts(tensor), strict=True):
        assert torch.equal(_dense(one), _dense(other))


def _dense(tensor):
    if tensor.is_quantized:
        return tensor.dequantize()
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def test_a_meta_tensor_keeps_what_it_has(saver):
    saver.save("t", torch.empty(3, 5, device="meta", dtype=torch.float16))
    back = loaded(saver)
    assert (back.device.type, back.shape, back.dtype) == ("meta", (3, 5), torch.float16)


@pytest.mark.parametrize("cut", [slice(5, 7), slice(0, 2_000_000, 1_000_000)])
def test_a_view_takes_no_more_room_than_its_own_values(saver, cut):
    whole = torch.arange(2_000_000.0)
    saver.save("t", whole[cut])
    assert only_file(saver).stat().st_size < 4000
    assert torch.equal(loaded(saver), whole[cut])


def test_later_writes_do_not_reach_the_file(saver):
    tensor = torch.zeros(3)
    saver.save("t", tensor)
    tensor.fill_(7)
    assert torch.equal(loaded(saver), torch.zeros(3))


def test_calls_are_counted_for_each_name_and_an_index_of_ones_own_is_not(saver):
    for _ in range(2):
        saver.save("a", torch.ones(1))
    saver.save("b", torch.ones(1))
    saver.save("c", torch.ones(1), call_idx=42)
    names = sorted(path.name for path in saver.output_dir.iterdir())
    assert names == ["a.call0.pt", "a.call1.pt", "b.call0.pt", "c.call42.pt"]
    assert [saver.call_counts[name] for name in "abc"] == [2, 1, 0]
    saver.reset_counts()
    assert saver.call_counts["a"] == 0


def test_no_file_and_no_count_when_disabled(tmp_path):
    saver = TensorSaver(tmp_path, enabled=False)
    saver.save("t", torch.ones(1))
    assert (list(tmp_path.iterdir()), dict(saver.call_counts)) == ([], {})


def test_the_environment_switches_it_off(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHGLASS", "0")
    TensorSaver(tmp_path).save("t", torch.ones(1))
    assert list(tmp_path.iterdir()) == []


NORMS = {
    "three dimensions": (torch.randn(2, 3, 4), lambda t: t.pow(2).sum((1, 2)).sqrt()),
    "not contiguous": (torch.randn(4, 3, 2).transpose(0, 2), lambda t: t.pow(2).sum((1, 2)).sqrt()),
    "a vector": (torch.tensor([3.0, -4.0]), lambda t: t.abs()),
    "a scalar": (torch.tensor(-2.0), lambda t: t.abs()),
    "integers": (torch.tensor([[3, 4], [6, 8]]), lambda t: torch.tensor([5.0, 10.0])),
    "large halves": (torch.full((1, 4), 60000.0).half(), lambda t: torch.tensor([120000.0])),
    "complex": (torch.tensor([[3 + 4j, 0]]), lambda t: torch.tensor([5.0])),
    "no items": (torch.empty(0, 3), lambda t: torch.empty(0)),
}


@pytest.mark.parametrize("name", NORMS)
def test_norm_only_keeps_one_norm_for_each_batch_item(saver, name):
    tensor, norm = NORMS[name]
    saver.save("t", tensor, norm_only=True)
    torch.testing.assert_close(loaded(saver), norm(tensor), check_dtype=name != "large halves")


# ---------------------------------------------------------------- what cannot be saved


def test_what_is_no_tensor_is_a_warning_and_nothing_else(saver, caplog):
    for value in (None, [torch.ones(1)], 3.0):
        saver.save("q\x1b[2J", value)
        saver.save("q\x1b[2J", value)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert "NoneType" in caplog.text
    assert "q\\" in caplog.text
    assert "\x1b" not in caplog.text
    assert list(saver.output_dir.iterdir()) == []


def test_a_tensor_without_values_is_a_warning(saver, caplog):
    from torch._subclasses import FakeTensorMode
    from torch.testing._internal.two_tensor import TwoTensor

    with FakeTensorMode():
        saver.save("fake", torch.ones(3))
    saver.save("wrapped", TwoTensor(torch.ones(3), torch.ones(3)))
    torch.vmap(lambda row: (saver.save("batched", row), row)[1])(torch.ones(2, 3))
    assert len(caplog.records) == 3
    assert "a FakeTensor has no memory of its own" in caplog.text
    assert "a TwoTensor has no memory of its own" in caplog.text
    assert list(saver.output_dir.iterdir()) == []


def test_a_folder_that_is_gone_is_a_warning(saver, caplog):
    saver.output_dir.rmdir()
    saver.save("t", torch.ones(1))
    assert "No such file or directory" in caplog.text


def test_a_full_disk_costs_the_file_and_not_the_program(tmp_path):
    code = f"""
import resource, torch
from torchglass.compat.torchspy import TensorSaver
saver = TensorSaver({str(tmp_path)!r})
saver.save("small", torch.ones(2))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
saver.save("large", torch.ones(1_000_000))
print("the program went on")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "the program went on\n"), done.stderr
    assert "tensor 'large' was not saved: File too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["small.call0.pt"]


@pytest.mark.parametrize("name", ["a/b", "../up", "nul\0", "line\nline", "x" * 300, "/etc/x", "\ud800"])
def test_odd_names_stay_in_the_folder_and_can_be_loaded(saver, name):
    saver.save(name, torch.ones(2))
    saver.save(name, torch.zeros(2))
    paths = sorted(saver.output_dir.iterdir())
    assert [path.name[-9:] for path in paths] == [".call0.pt", ".call1.pt"]
    assert torch.equal(torch.load(paths[0], weights_only=True), torch.ones(2))
    assert list(saver.output_dir.parent.iterdir()) == [saver.output_dir]


def test_killed_at_any_moment_it_leaves_only_whole_files(tmp_path):
    code = f"""
import torch
from torchglass.compat.torchspy import TensorSaver
saver = TensorSaver({str(tmp_path)!r})
while True:
    saver.save("t", torch.full((300_000,), float(saver.call_counts["t"])))
"""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("*.pt"))) < 5 and time.monotonic() < deadline:
            time.sleep(0.003)
        process.send_signal(signal.SIGKILL)
    written = list(tmp_path.glob("*.pt"))
    assert len(written) >= 5
    for path in written:
        number = float(path.name.split("call")[1].removesuffix(".pt"))
        assert torch.equal(torch.load(path, weights_only=True), torch.full((300_000,), number))


# ---------------------------------------------------------------- the program around it


def test_threads_never_get_the_same_number(saver):
    def work():
        for _ in range(25):
            saver.save("t", torch.ones(1))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(saver.output_dir.glob("t.call*.pt"))) == saver.call_counts["t"] == 200


def test_values_gradients_versions_and_random_numbers_are_as_without(saver):
    def step(save):
        torch.manual_seed(0)
        weight = torch.randn(4, 4, requires_grad=True)
        hidden = weight.sin()
        save("hidden", hidden)
        loss = (hidden * torch.rand(4)).sum()
        loss.backward()
        return weight.grad, hidden._version, loss.detach(), torch.get_rng_state()

    plain = step(lambda *_: None)
    for saving in (saver.save, lambda name, tensor: saver.save(name, tensor, norm_only=True)):
        for one, other in zip(plain, step(saving), strict=True):
            assert torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def test_neither_a_recording_nor_the_programs_own_modes_see_the_copying(saver):
    seen = []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    tensor = torch.ones(8)[2:4]
    with tg.record() as trace, Count():
        saver.save("t", tensor)
        saver.save("n", tensor, norm_only=True)
    assert seen == []
    assert [event.name for event in trace.events(kind="function")] == []
    assert len(list(saver.output_dir.iterdir())) == 2


# ---------------------------------------------------------------- modules


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(2)


def paths_of(saver, model, **filters):
    saver.module_paths.clear()
    saver.register_modules(model, **filters)
    return list(saver.module_paths.values())


def test_filters_mean_what_they_say(saver):
    model = nn.Sequential(Block(), Block())
    everything = ["root", "0", "0.attn", "0.norm", "1", "1.attn", "1.norm"]
    assert paths_of(saver, model) == everything
    assert paths_of(saver, model, target_classes=(nn.Linear, nn.LayerNorm)) == [p for p in everything if len(p) == 6]
    assert paths_of(saver, model, target_classes=nn.Linear) == ["0.attn", "1.attn"]
    assert paths_of(saver, model, target_names=["attn"]) == ["0.attn", "1.attn"]
    assert paths_of(saver, model, target_names="attn") == ["0.attn", "1.attn"]
    assert paths_of(saver, model, target_names=["attn", "norm"], exclude_names=["0"]) == ["1.attn", "1.norm"]
    assert paths_of(saver, model, target_classes=(nn.Linear,), target_names=["norm"]) == []
    assert paths_of(saver, model, target_names=[]) == []


def test_a_module_is_known_by_itself_and_not_by_a_number_used_again(saver):
    model = nn.Linear(2, 2)
    assert saver.get_module_path(model) == "unknown"
    saver.register_modules(model)
    assert saver.get_module_path(model) == "root"
    number = id(model)
    del model
    later = [nn.Linear(2, 2) for _ in range(200)]
    heirs = [module for module in later if id(module) == number]
    assert all(saver.get_module_path(module) == "unknown" for module in heirs or later)


def test_registering_takes_a_model(saver):
    with pytest.raises(WrongType, match="not list"):
        saver.register_modules([nn.Linear(1, 1)])


def test_a_model_that_holds_a_saver_can_be_copied_and_pickled(saver):
    model = nn.Linear(2, 2)
    model.saver = saver
    saver.register_modules(model)
    assert copy.deepcopy(model).saver.output_dir == saver.output_dir
    assert pickle.loads(pickle.dumps(saver)).enabled


def test_an_output_folder_that_is_a_file_is_refused_with_the_cure(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(OSError, match="taken") as caught:
        TensorSaver(tmp_path / "taken")
    assert "takes a folder" in caught.value.__notes__[0]


def test_spy_save_does_next_to_nothing_outside_a_context():
    tensor = torch.ones(1)
    assert work_of(lambda: spy_save("q", tensor)) <= 4  # the lambda, spy_save itself, and the question for a context


def test_saving_works_in_a_compiled_model(saver):
    class Compiled(nn.Module):
        def forward(self, x):
            y = x * 2
            spy_save("y", y, self)
            return y + 1

    model = Compiled()
    saver.register_modules(model)
    compiled = torch.compile(model, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    with DebugContext(saver):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert only_file(saver).name == "root.y.call0.pt"
    assert torch.equal(loaded(saver), torch.full((2,), 2.0))
