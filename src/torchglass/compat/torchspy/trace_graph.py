"""Turns a call trace (the text file of CallTracer.save_trace) into a tree of names, and draws the tree.

Only ``construct_graph`` and ``render_graph`` need the Python package graphviz, and nothing needs torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchglass.errors import MissingExtra, UsageError
from torchglass.events.spelling import clean
from torchglass.store.layout import whole_file

if TYPE_CHECKING:
    from graphviz import Digraph

DEEPEST = 200
"""The most segments of a path. The tree is walked by recursion, and no module has a longer path."""

LONGEST_LABEL = 80
"""The most characters in the label of a box."""
ANY_SIDE = 10_000
"""The limit in inches for one side of a picture if only the other side was given."""


@dataclass(eq=False)
class Node:
    """A name in the tree of paths. For example, ``layers`` stands for layers.0, layers.1 … and has the indices 0, 1 …

    ``count`` is the number of indices, at least 1. ``first_seen`` is the line of the trace in which the name first
    occurs. ``parents`` holds the node above.
    """

    name: str
    children: dict[str, Node] = field(default_factory=dict)
    count: int = 1
    first_seen: int = 0
    parents: list[Node] = field(default_factory=list, repr=False)
    indices: set[str] = field(default_factory=set)


def parse_trace(path: str | Path) -> list[str]:
    """Return the paths in a call trace, which has one path a line.

    Raise FileNotFoundError if there is no such file, and ValueError if it holds no paths.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"there is no call trace {path}; CallTracer.save_trace() writes one"
        )
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is a binary file and not a call trace; CallTracer.save_trace() writes one"
        ) from error
    paths = [line.strip() for line in lines if line.strip()]
    if not paths:
        raise UsageError("trace file is empty")
    return paths


def build_tree(paths: Iterable[str]) -> Node:
    """Return the tree of all names under a node ``root``.

    A number is an index of the name before it, as in ``layers.0.attn``. A number at the beginning of a path is a name.
    """
    root = Node("root")
    for line, path in enumerate(paths):
        segments = [segment for segment in path.split(".") if segment]
        if len(segments) > DEEPEST:
            raise UsageError(
                f"line {line + 1} is not the path of a module: it has {len(segments)} segments"
            )
        node = root
        for segment in segments:
            if node is root or not _is_index(segment):
                node = _child(node, segment, line)
            else:
                _add_indices(node, {segment})
    return root


def squash_numeric_indices(tree: Node) -> Node:
    """Return a new tree in which every number below a name is one of its indices.

    ``build_tree`` gives such trees already; this is for trees put together otherwise.
    """
    root = _copy(tree)
    for child in tree.children.values():
        _absorb(child, _child(root, child.name, child.first_seen))
    return root


def prune_leaves(tree: Node) -> Node:
    """Return a new tree without the last segment of each path that is longer than one."""
    root = _copy(tree)
    for child in tree.children.values():
        _adopt(root, _without_leaves(child))
    return root


def construct_graph(
    tree: Node,
    show_repetition: bool = True,
    prune_leaves_flag: bool = True,
    squash_name: bool = False,
) -> Digraph:
    """Draw the tree top-down, with a box for each name and arrows to the names it contains, in the order of the calls.

    ``show_repetition`` writes ``layers x 12``; ``squash_name`` draws equal names as one box, wherever they
    are. The root's own call, noted as ``root``, is drawn only when there is no other.
    """
    digraph = _graphviz().Digraph(
        format="png",
        graph_attr={"rankdir": "TB"} | ({} if squash_name else {"ordering": "out"}),
        node_attr={"shape": "box", "style": "rounded", "fontname": "Helvetica"},
    )
    boxes = _boxes(prune_leaves(tree) if prune_leaves_flag else tree, squash_name)
    names = {key: f"n{at}" for at, key in enumerate(boxes)}
    for key, nodes in boxes.items():
        repeated = 0
        if show_repetition:
            repeated = sum(len(node.indices) for node in nodes)
        digraph.node(names[key], _label(nodes[0].name, repeated))
    for parent, child in _arrows(boxes, squash_name):
        digraph.edge(names[parent], names[child])
    return digraph


def apply_graph_render_options(
    dot: Digraph, dpi: int = 150, figwidth: float | None = None, figheight: float | None = None
) -> None:
    """Set the resolution and the size in inches.

    If one side is given, the picture keeps its proportions. If both sides are given, the picture is stretched.
    """
    for name, value in (("dpi", dpi), ("figwidth", figwidth), ("figheight", figheight)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise UsageError(f"{name} must be a number above 0, not {value}")
    dot.attr(dpi=str(dpi))
    if figwidth is not None and figheight is not None:
        dot.attr(size=f"{figwidth},{figheight}!", ratio="fill")
    elif figwidth is not None or figheight is not None:
        dot.attr(size=f"{figwidth or ANY_SIDE},{figheight or ANY_SIDE}!")


def render_graph(
    tree: Node,
    show_repetition: bool = True,
    prune_leaves_flag: bool = True,
    squash_name: bool = False,
    dpi: int = 150,
    figwidth: float | None = None,
    figheight: float | None = None,
) -> Digraph:
    """Call ``construct_graph`` and ``apply_graph_render_options``; ``render(file)`` of the result makes the picture."""
    dot = construct_graph(tree, show_repetition, prune_leaves_flag, squash_name)
    apply_graph_render_options(dot, dpi, figwidth, figheight)
    return dot


def save_tree_json(tree: Node, json_path: str | Path) -> None:
    """Write the tree as JSON: name, count (how many indices were seen), indices and children of each node."""
    text = json.dumps(_as_json(tree), indent=2, ensure_ascii=False)
    with whole_file(Path(json_path)) as draft:
        draft.write_bytes(text.encode("utf-8", "backslashreplace") + b"\n")


# ---------------------------------------------------------------- trees


def _is_index(segment: str) -> bool:
    return segment.isascii() and segment.isdigit()


def _child(node: Node, name: str, first_seen: int) -> Node:
    child = node.children.get(name)
    if child is None:
        child = Node(name, first_seen=first_seen)
        _adopt(node, child)
    return child


def _adopt(node: Node, child: Node) -> None:
    node.children[child.name] = child
    child.parents.append(node)


def _add_indices(node: Node, indices: set[str]) -> None:
    node.indices |= indices
    node.count = max(node.count, len(node.indices))


def _copy(node: Node) -> Node:
    """Return a new node with the same name, count, order and indices, but without children and parents."""
    return Node(node.name, count=node.count, first_seen=node.first_seen, indices=set(node.indices))


def _without_leaves(node: Node) -> Node:
    kept = _copy(node)
    for child in node.children.values():
        if child.children:
            _adopt(kept, _without_leaves(child))
    return kept


def _absorb(node: Node, into: Node) -> None:
    _add_indices(into, node.indices)
    for child in node.children.values():
        if _is_index(child.name):
            _add_indices(into, {child.name})
            _absorb(child, into)
        else:
            _absorb(child, _child(into, child.name, child.first_seen))


def _as_json(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "count": len(node.indices),
        "indices": sorted(node.indices, key=int),
        "children": [_as_json(child) for child in node.children.values()],
    }


# ---------------------------------------------------------------- drawing


def _boxes(tree: Node, squash_name: bool) -> dict[str, list[Node]]:
    """Return the nodes that each box stands for, in the order of their first calls.

    The keys are paths, or names if ``squash_name`` is set, which draws equal names as one box.
    """
    found: dict[str, list[Node]] = {}
    for path, node in _below(tree):
        if path == "root" and not node.children and len(tree.children) > 1:
            continue  # the call of the model itself
        found.setdefault(node.name if squash_name else path, []).append(node)
    return dict(sorted(found.items(), key=lambda entry: min(node.first_seen for node in entry[1])))


def _below(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    for child in node.children.values():
        if path:
            where = f"{path}.{child.name}"
        else:
            where = child.name
        yield where, child
        yield from _below(child, where)


def _arrows(boxes: dict[str, list[Node]], squash_name: bool) -> Iterator[tuple[str, str]]:
    """Yield (parent, child), each pair once."""
    pairs: dict[tuple[str, str], None] = {}
    for key, nodes in boxes.items():
        for node in nodes:
            for child in node.children.values():
                name = child.name
                if not squash_name:
                    name = f"{key}.{name}"
                pairs[key, name] = None
    return iter(pairs)


def _label(name: str, repeated: int) -> str:
    r"""Return a label such as ``layers x 12``: cut if it is too wide, and with ``\N``, ``&`` and HTML escaped."""
    shown = clean(name)
    if len(shown) > LONGEST_LABEL:
        shown = shown[: LONGEST_LABEL - 21] + "…" + shown[-20:]
    if repeated > 1:
        shown += f" x {repeated}"
    # Escape last, because `escape` returns a special string class.
    return _graphviz().escape(shown.replace("&", "&amp;"))


def _graphviz() -> Any:
    try:
        import graphviz
    except ImportError as error:
        raise MissingExtra(
            "drawing a graph needs the Python package graphviz: pip install 'torchglass[graph]'"
        ) from error
    return graphviz
