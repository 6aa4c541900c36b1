"""A call trace becomes a tree with every name once, and a drawing that says exactly what the tree does."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compat.torchspy.drawing import path_with_dot
from tests.zoo import FAMILIES
from torchglass.compat.torchspy import CallTracer
from torchglass.compat.torchspy.trace_graph import (
    Node,
    apply_graph_render_options,
    build_tree,
    construct_graph,
    parse_trace,
    prune_leaves,
    render_graph,
    save_tree_json,
    squash_numeric_indices,
)
from torchglass.errors import UsageError

SEGMENTS = st.sampled_from(["a", "b", "layers", "attn", "0", "1", "10", "²"])
PATHS = st.lists(st.lists(SEGMENTS, min_size=1, max_size=5).map(".".join), min_size=1, max_size=12)

BLOCKS = ["embed", *(f"blocks.{n}.{part}" for n in range(12) for part in ("attn.q", "attn.k", "mlp.up")), "head"]


@pytest.fixture
def with_dot(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", path_with_dot(tmp_path))


def named(path):
    """A path without the numbers that follow a name."""
    first, *others = path.split(".")
    return (first, *(part for part in others if not re.fullmatch("[0-9]+", part)))


def nodes(tree):
    """Every node below the root by its path."""
    found = {}
    waiting = [((), tree)]
    while waiting:
        path, node = waiting.pop()
        for child in node.children.values():
            found[(*path, child.name)] = child
            waiting.append(((*path, child.name), child))
    return found


def drawn(digraph):
    """(label of each box, arrows between labels) as they stand in the text for Graphviz."""
    labels = dict(re.findall(r'^\t(n\d+) \[label="?(.*?)"?\]$', digraph.source, re.MULTILINE))
    arrows = [(labels[one], labels[other]) for one, other in re.findall(r"^\t(n\d+) -> (n\d+)$", digraph.source, re.M)]
    return list(labels.values()), arrows


# ---------------------------------------------------------------- reading


def test_a_trace_that_is_missing_empty_or_binary(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        parse_trace(tmp_path / "nowhere.txt")
    (tmp_path / "empty.txt").write_text("\n  \n")
    with pytest.raises(ValueError, match=r"^trace file is empty$"):
        parse_trace(tmp_path / "empty.txt")
    (tmp_path / "binary.pt").write_bytes(b"PK\x03\x04\xff\xfe")
    with pytest.raises(UsageError, match="binary"):
        parse_trace(str(tmp_path / "binary.pt"))


def test_lines_are_paths_without_the_space_around_them(tmp_path):
    (tmp_path / "t.txt").write_text("a.b\r\n\n  c \n注意.0")
    assert parse_trace(tmp_path / "t.txt") == ["a.b", "c", "注意.0"]


# ---------------------------------------------------------------- trees


@given(PATHS)
def test_the_tree_has_each_name_once_with_the_line_that_brought_it(paths):
    found = nodes(build_tree(paths))
    expected = {named(path)[: n + 1] for path in paths for n in range(len(named(path)))}
    assert set(found) == expected
    for path, node in found.items():
        lines = [at for at, each in enumerate(paths) if named(each)[: len(path)] == path]
        assert node.first_seen == lines[0]
        assert [child.parents for child in node.children.values()] == [[node]] * len(node.children)


def test_numbers_are_indices_of_the_name_before_and_a_leading_one_is_a_name():
    tree = build_tree(["encoder.layers.0.a", "encoder.layers.1.a", "encoder.layers.1.b", "0.1.x"])
    layers = tree.children["encoder"].children["layers"]
    assert (layers.indices, layers.count, list(layers.children)) == ({"0", "1"}, 2, ["a", "b"])
    assert (tree.children["0"].indices, list(tree.children["0"].children)) == ({"1"}, ["x"])
    assert tree.children["encoder"].count == 1


@given(PATHS)
def test_pruning_drops_the_last_segment_of_each_longer_path(paths):
    whole = {named(path) for path in paths}
    shorter = [path[:-1] if len(path) > 1 else path for path in whole]
    tree = build_tree(paths)
    kept = nodes(prune_leaves(tree))
    assert set(kept) == {path[: n + 1] for path in shorter for n in range(len(path))}
    before = nodes(tree)
    assert all(before[path].indices == node.indices for path, node in kept.items())
    assert set(before) == set(nodes(build_tree(paths))), "the tree given is left as it was"


@given(PATHS)
def test_squashing_gives_the_tree_that_build_tree_gives(paths):
    raw = Node("root")
    for line, path in enumerate(paths):
        node = raw
        for segment in path.split("."):
            node = node.children.setdefault(segment, Node(segment, first_seen=line))
    for tree in (raw, build_tree(paths)):
        squashed, built = nodes(squash_numeric_indices(tree)), nodes(build_tree(paths))
        assert set(squashed) == set(built)
        assert all(built[path].indices == node.indices for path, node in squashed.items())


def test_a_path_too_long_to_be_one_is_refused():
    with pytest.raises(UsageError, match="line 2"):
        build_tree(["a", "b." * 5000 + "c"])


def test_the_json_has_the_whole_tree(tmp_path):
    save_tree_json(build_tree(BLOCKS), tmp_path / "tree.json")
    tree = json.loads((tmp_path / "tree.json").read_text())
    assert set(tree) == {"name", "count", "indices", "children"}
    assert [child["name"] for child in tree["children"]] == ["embed", "blocks", "head"]
    blocks = tree["children"][1]
    assert (blocks["count"], blocks["indices"]) == (12, [str(n) for n in range(12)])
    assert [child["name"] for child in blocks["children"]] == ["attn", "mlp"]


# ---------------------------------------------------------------- drawings


def test_boxes_and_arrows_in_the_order_of_the_calls():
    tree = build_tree(BLOCKS)
    whole = ["embed", "blocks x 12", "attn", "q", "k", "mlp", "up", "head"]
    arrows = [("blocks x 12", "attn"), ("blocks x 12", "mlp"), ("attn", "q"), ("attn", "k"), ("mlp", "up")]
    labels, found = drawn(construct_graph(tree, prune_leaves_flag=False))
    assert (sorted(labels), labels[0], labels[-1]) == (sorted(whole), "embed", "head")
    assert found == arrows
    assert drawn(construct_graph(tree)) == (["embed", "blocks x 12", "attn", "mlp", "head"], arrows[:2])
    assert drawn(construct_graph(tree, show_repetition=False))[0][1] == "blocks"
    assert "rankdir=TB" in construct_graph(tree).source


def test_equal_names_become_one_box():
    paths = [f"{side}.layers.{n}.attn.q" for side in ("encoder", "decoder") for n in range(6)]
    labels, arrows = drawn(construct_graph(build_tree(paths), squash_name=True))
    assert labels == ["encoder", "layers x 12", "attn", "decoder"]
    assert arrows == [("encoder", "layers x 12"), ("layers x 12", "attn"), ("decoder", "layers x 12")]


def test_the_call_of_the_model_itself_is_drawn_only_when_there_is_no_other():
    assert drawn(construct_graph(build_tree(["a.b", "root"]))) == (["a"], [])
    assert drawn(construct_graph(build_tree(["root"]))) == (["root"], [])
    assert drawn(construct_graph(build_tree(["root.a.b", "x"]))) == (["root", "a", "x"], [("root", "a")])


@given(PATHS)
def test_without_pruning_every_name_is_a_box_and_every_step_an_arrow(paths):
    tree = build_tree(paths)
    labels, arrows = drawn(construct_graph(tree, show_repetition=False, prune_leaves_flag=False))
    assert sorted(labels) == sorted(path[-1] for path in nodes(tree))
    assert sorted(arrows) == sorted(path[-2:] for path in nodes(tree) if len(path) > 1)


HOSTILE = [
    'quote " and \\" and \\',
    "two\nlines",
    "a -> b; c",
    "<b>bold</b>",
    "<table>",
    "\\N \\G \\l",
    "&lt;&amp;&#65;",
    "] [label=x",
    "nul\0",
    "注意",
    "x" * 300,
]
SPELT = {"two\nlines": "two\\nlines", "nul\0": "nul\\x00", "x" * 300: "x" * 59 + "…" + "x" * 20}


@pytest.mark.parametrize("name", HOSTILE)
def test_graphviz_writes_every_name_as_it_is(name, with_dot):
    tree = Node("root", children={name: Node(name, children={"leaf": Node("leaf")})})
    picture = construct_graph(tree, prune_leaves_flag=False).pipe(format="svg")
    texts = [found.text for found in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    written = [text.replace("\xa0", " ") for text in texts if text]
    assert sorted(written) == sorted([SPELT.get(name, name), "leaf"])


def pixels(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


@pytest.mark.parametrize(
    ("size", "dpi"), [({"figwidth": 6.0}, 100), ({"figheight": 4.0}, 100), ({"figwidth": 6.0, "figheight": 2.0}, 50)]
)
def test_the_picture_has_the_size_that_was_asked_for(size, dpi, with_dot):
    width, height = pixels(render_graph(build_tree(BLOCKS), dpi=dpi, **size).pipe())
    for side, key in ((width, "figwidth"), (height, "figheight")):
        if key in size:
            assert side == pytest.approx(size[key] * dpi, rel=0.04)


def test_render_writes_a_png_as_torchspys_users_do_it(tmp_path, with_dot):
    dot = construct_graph(build_tree(BLOCKS))
    apply_graph_render_options(dot, dpi=72)
    path = dot.render(filename=str(tmp_path / "graph"), cleanup=True)
    assert path == str(tmp_path / "graph.png")
    assert min(pixels((tmp_path / "graph.png").read_bytes())) > 20


@pytest.mark.parametrize("wrong", [{"dpi": 0}, {"dpi": -5}, {"figwidth": float("nan")}, {"figheight": 0.0}])
def test_sizes_that_mean_nothing_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        render_graph(build_tree(["a"]), **wrong)


def test_a_real_model_from_its_call_to_its_picture(tmp_path, with_dot):
    network, inputs = FAMILIES["gpt2"]()
    tracer = CallTracer(tmp_path / "traces")
    tracer.register_hooks(network)
    network(**inputs)
    tree = build_tree(parse_trace(tracer.save_trace()))
    called = {named(path) for path in tracer.call_trace}
    assert set(nodes(tree)) == {path[: n + 1] for path in called for n in range(len(path))}
    labels, arrows = drawn(construct_graph(tree))
    assert ("transformer", "h x 2") in arrows
    assert "c_fc" not in labels
    assert construct_graph(tree).pipe(format="pdf")[:4] == b"%PDF"


def test_the_text_is_accepted_by_graphviz_whatever_the_options(with_dot):
    for options in ({}, {"squash_name": True}, {"prune_leaves_flag": False}, {"show_repetition": False}):
        source = render_graph(build_tree(BLOCKS), **options).source
        done = subprocess.run(["dot", "-Tsvg"], input=source.encode(), capture_output=True)
        assert done.returncode == 0, done.stderr
        assert b"<svg" in done.stdout
