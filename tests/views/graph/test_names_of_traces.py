"""The name of a trace is the program's text: in a picture's source and in a page's title it is spelt out."""

from pathlib import Path

import torch

import torchglass as tg

NAME = 'a"b\\</title><script>alert(1)</script>\x1b[2J\u202e\x00\n]; x -> y ['


def test_a_name_cannot_end_its_place_nor_turn_the_text_around(tmp_path: Path) -> None:
    with tg.record(name=NAME) as trace:
        torch.relu(torch.ones(2))
    for suffix in ("dot", "mmd", "html", "perfetto.json"):
        path = tmp_path / f"x.{suffix}"
        trace.export(path)
        text = path.read_text(encoding="utf-8")
        assert "<script>alert" not in text or suffix in ("dot", "perfetto.json"), suffix  # where it is a quoted string
        assert all(char.isprintable() or char in "\n\t" for char in text), suffix
    first = (tmp_path / "x.dot").read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith('digraph "a\\"b')
    assert first.endswith('x -> y [" {')
