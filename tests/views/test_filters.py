"""``path=``, ``hide=`` and ``only=`` are one filter in every view, and what fits nothing is an error."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import torchglass as tg
from tests.modules import module_of
from torchglass.errors import NotRecorded
from torchglass.events.selection import fits_path, in_package, is_installed
from torchglass.views import VIEWS

HELPER = """\
import torch

class Inner(torch.nn.Module):
    def forward(self, y):
        hidden = y.sin()
        return hidden
"""
MAIN = """\
import torch
from {helper} import Inner

class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        start = x.exp()
        return self.inner(start).cos()

def main():
    out = Outer()(torch.ones(2))
"""


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tg.Trace:
    """Two files: one calls a module of the other."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"filters_helper_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(HELPER)
    module: ModuleType = module_of(tmp_path, MAIN.format(helper=name))
    with tg.record() as trace:
        module.main()
    return trace


@pytest.mark.parametrize(
    ("view", "of_main", "of_helper"),
    [("tree", "exp()", "sin()"), ("code", "x.exp", "y.sin"), ("variables", "start", "hidden"),
     ("listing", "def main", "hidden ="), ("graph", "exp", "sin"), ("calls", "Outer", "inner"),
     ("table", "Outer", "inner")],
)  # fmt: skip
def test_files_are_chosen_in_every_view(trace: tg.Trace, view: str, of_main: str, of_helper: str) -> None:
    only_main = tg.render(trace, view, path="sample.py")
    assert of_main in only_main
    if view not in ("calls", "table"):  # the call of the inner module is written in the outer file
        assert of_helper not in only_main
        assert of_helper in tg.render(trace, view, path="filters_helper*")
    else:
        assert of_helper in only_main


@pytest.mark.parametrize("view", ["tree", "variables", "graph", "listing"])
def test_what_is_hidden_is_left_out(trace: tg.Trace, view: str) -> None:
    package = next(Path(file).stem for file in trace.sources if "filters_helper" in file)
    whole, rest = tg.render(trace, view), tg.render(trace, view, hide=package)
    assert "sin" in whole
    assert "sin" not in rest
    assert "exp" in rest


def test_a_selection_has_the_same_criteria(trace: tg.Trace) -> None:
    named = {event.name for event in trace.events(path="filters_helper*", kind="function")}
    assert named == {"Tensor.sin"}
    assert tg.render(trace, only=tg.select(path="sample.py")) == tg.render(trace, path="sample.py")
    both = tg.render(trace, path="sample.py", only=tg.select(function="exp"))
    assert "exp" in both
    assert "cos" not in both


@pytest.mark.parametrize("view", [view for view in VIEWS if view != "failure"])
@pytest.mark.parametrize(
    ("options", "near"),
    [({"path": "sampel.py"}, "did you mean 'sample.py'?"), ({"hide": "no_such_package"}, "choose from: "),
     ({"only": tg.select(module="iner")}, "did you mean 'inner'?"),
     ({"only": tg.select(function="Tensor.sinn")}, "did you mean 'Tensor.sin'?"),
     ({"only": tg.select(op="bmm")}, "record(ops=True)")],
)  # fmt: skip
def test_a_pattern_that_fits_nothing_is_an_error_with_near_names(
    trace: tg.Trace, view: str, options: dict[str, object], near: str
) -> None:
    with pytest.raises(NotRecorded) as caught:
        tg.render(trace, view, **options)
    assert near in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("file", "package", "within"),
    [("/x/lib/python3.11/site-packages/transformers/utils/hub.py", "transformers", True),
     ("/x/lib/python3.11/site-packages/transformers/utils/hub.py", "transformers.utils", True),
     ("/x/lib/python3.11/site-packages/transformers/utils/hub.py", "utils.transformers", False),
     ("/srv/project/model.py", "model", True), ("/srv/project/models.py", "model", False)],
)  # fmt: skip
def test_packages(file: str, package: str, within: bool) -> None:
    assert in_package(file, package) is within
    assert fits_path(file, Path(file).name)
    assert not fits_path(file, Path(file).name[1:])


@pytest.mark.parametrize(
    ("file", "installed"),
    [("/p/.venv/bin/pytest", True), ("/p/.venv/bin/torchrun", True), ("C:\\p\\Scripts\\tune-script.py", True),
     ("/usr/lib/python3/dist-packages/x.py", True), ("/p/bin/train.py", False), ("/p/train.py", False),
     ("/p/train", False), ("<ipython-input-1>", False)],
)  # fmt: skip
def test_files_of_an_environment_are_never_the_users(file: str, installed: bool) -> None:
    assert is_installed(file) is installed
