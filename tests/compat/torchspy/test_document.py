"""torchspy's document works with the import changed, and every name is where its users look for it."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from torchglass.compat.torchspy import CallTracer, DebugContext, TensorSaver
from torchglass.compat.torchspy.saver import spy_save


class MyModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj_q = nn.Linear(4, 4)

    def forward(self, x):
        q = self.proj_q(x)
        spy_save("q", q, self)
        return q


def test_saving_tensors_as_the_document_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, inputs = nn.Sequential(MyModule(), nn.ReLU(), MyModule()), torch.randn(3, 4)
    model(inputs)
    saver = TensorSaver("./debug_tensors")
    saver.register_modules(model, target_classes=(MyModule,))
    with DebugContext(saver, prefix="step0"):
        output = model(inputs)
    model(inputs)
    written = sorted(path.name for path in Path("debug_tensors").iterdir())
    assert written == ["step0.0.q.call0.pt", "step0.2.q.call0.pt"]
    first, last = (torch.load(f"debug_tensors/{name}", weights_only=True) for name in written)
    assert torch.equal(first, model[0].proj_q(inputs))
    assert torch.equal(last, output)


def test_tracing_module_calls_as_the_document_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential()
    model.add_module("encoder", nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    tracer = CallTracer("./traces")
    tracer.register_hooks(model, target_classes=(nn.Linear,))
    model(torch.randn(2, 3, 8))
    path = tracer.save_trace("forward.txt")
    assert path == Path("traces/forward.txt")
    expected = [f"encoder.layers.{layer}.linear{part}" for layer in (0, 1) for part in (1, 2)]
    assert path.read_text().splitlines() == expected == tracer.call_trace


NAMES = {
    "": ["BaseDebugger", "CallTracer", "DebugContext", "TensorSaver", "get_debug_context", "spy_save"],
    "._base": ["BaseDebugger"],
    ".saver": ["TensorSaver", "spy_save"],
    ".context": ["DebugContext", "get_debug_context"],
    ".tracer": ["CallTracer"],
    ".trace_graph": ["Node", "parse_trace", "build_tree"],
    ".trace_to_graph": ["main"],
}


@pytest.mark.parametrize("module", NAMES)
def test_the_names_are_where_torchspy_has_them(module):
    found = importlib.import_module("torchglass.compat.torchspy" + module)
    for name in NAMES[module]:
        assert callable(getattr(found, name))
        assert name in dir(found)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        importlib.import_module("torchglass.compat.torchspy").no_such_name


FILTERS = {"model": ..., "target_classes": (nn.Module,), "target_names": None, "exclude_names": None}
DRAWN = {"tree": ..., "show_repetition": True, "prune_leaves_flag": True, "squash_name": False}
SIZES = {"dpi": 150, "figwidth": None, "figheight": None}
SIGNATURES = {
    "TensorSaver": {"output_dir": ..., "enabled": True},
    "TensorSaver.register_modules": FILTERS,
    "TensorSaver.save": {"name": ..., "tensor": ..., "call_idx": None, "norm_only": False},
    "CallTracer": {"output_dir": ..., "enabled": True},
    "CallTracer.register_hooks": FILTERS,
    "CallTracer.save_trace": {"filename": "call_trace.txt"},
    "DebugContext": {"saver": ..., "prefix": "", "module_path_override": None},
    "spy_save": {"name": ..., "tensor": ..., "module": None},
    "trace_graph.Node": dict.fromkeys(["name", "children", "count", "first_seen", "parents", "indices"], ...),
    "trace_graph.construct_graph": DRAWN,
    "trace_graph.apply_graph_render_options": {"dot": ...} | SIZES,
    "trace_graph.render_graph": DRAWN | SIZES,
    "trace_graph.save_tree_json": {"tree": ..., "json_path": ...},
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_parameters_and_defaults_are_torchspys(name):
    importlib.import_module("torchglass.compat.torchspy.trace_graph")
    found = importlib.import_module("torchglass.compat.torchspy")
    for part in name.split("."):
        found = getattr(found, part)
    parameters = {key: value.default for key, value in inspect.signature(found).parameters.items() if key != "self"}
    assert list(parameters) == list(SIGNATURES[name])
    for key, default in SIGNATURES[name].items():
        assert default is ... or parameters[key] == default


def test_drawing_needs_no_torch():
    code = """
import sys
sys.modules["torch"] = None
import torchglass.cli.graph
from torchglass.compat.torchspy import trace_graph
print(trace_graph.render_graph(trace_graph.build_tree(["a.b.c"])).source.count("label"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "2\n", done.stderr
