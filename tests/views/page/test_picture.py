"""Pictures without a browser: an SVG that is well formed whatever the names, and PNG where a converter is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import torchglass as tg
from scripts.gallery_models import MODELS
from tests.handmade import HandmadeTrace, Maker, tensor
from torchglass.views.options import GraphOptions
from torchglass.views.page.html import svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", ["mlp", "resnet", "unet", "experts"])
@pytest.mark.parametrize("depth", [None, 0, 9])
def test_a_picture_names_the_boxes_that_are_open(name: str, depth: int | None) -> None:
    run = MODELS[name]()
    with tg.record() as trace:
        run()
    drawn = svg(trace, GraphOptions(depth=depth))
    root = ElementTree.fromstring(drawn)
    titles = [each.text for each in root.iter(f"{SVG}text") if "title" in (each.get("class") or "")]
    roots = {event.name for event in trace.events() if event.kind == "module" and event.parent is None}
    assert roots <= set(titles)
    assert (len(titles) > len(roots)) == (depth != 0)


def test_names_are_text_in_a_picture() -> None:
    make = Maker()
    hostile = ["</text><script>alert(1)</script>", "a & b < c", "\x00\x1b", "\ud800", "]]>"]
    for at, name in enumerate(hostile):
        given = [tensor((2,), id=at, producer=at - 1 if at else None)]
        make.add("function", name, None, name, inputs=given, outputs=[tensor((2,), id=at + 1, producer=at)])
    root = ElementTree.fromstring(svg(HandmadeTrace(make.made), GraphOptions(fold=False)))
    assert not list(root.iter(f"{SVG}script"))
    assert "a & b < c" in [each.text for each in root.iter(f"{SVG}text")]


def test_an_empty_and_a_failed_trace_have_pictures() -> None:
    ElementTree.fromstring(svg(HandmadeTrace([]), GraphOptions()))
    with pytest.raises(RuntimeError), tg.record() as trace:
        nn.Linear(3, 3)(torch.ones(2, 4))
    assert 'class="box card layer failed"' in svg(trace, GraphOptions())


def test_png_by_its_suffix(tmp_path: Path) -> None:
    trace = tg.trace(nn.Linear(3, 3), torch.ones(2, 3))
    tg.export(trace, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    tg.export(trace, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<svg")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trace = tg.trace(nn.Linear(3, 3), torch.ones(2, 3))
    for name in ("resvg_py", "cairosvg"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tg.MissingExtra, match="resvg-py"):
        tg.export(trace, tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "quickjs", None)
    with pytest.raises(tg.MissingExtra, match=r"pip install 'torchglass\[picture\]'"):
        tg.export(trace, tmp_path / "a.svg")


@pytest.mark.parametrize("name", ["mlp", "unet"])
def test_the_pictures_in_the_documents_are_what_is_drawn(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    run = MODELS[name]()
    with tg.record(name=name) as trace:
        run()
    tg.export(trace, tmp_path / "a.svg", **({"depth": 1} if name == "unet" else {}))
    kept = Path(__file__).resolve().parents[3] / "docs" / "gallery" / f"{name}.svg"
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == kept.read_text(encoding="utf-8"), "run `make gallery`"


def test_what_is_not_finite_is_at_the_edges_that_carry_it() -> None:
    with tg.record(values="stats") as trace:
        x = torch.tensor([-1.0, 1.0, 4.0])
        y = x.log()
        (y * 2).sum() + x.sum()
    drawn = svg(trace, GraphOptions())
    assert re.findall(r'class="(?:shape|port) bad"[^>]*>([^<>]*)<', drawn) == ["1 NaN", "1 NaN", "[] 1 NaN"]
    with tg.record() as trace:
        torch.tensor([-1.0]).log().sum()
    assert " bad" not in svg(trace, GraphOptions())
