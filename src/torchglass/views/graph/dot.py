"""The data flow in Graphviz's language, boxes in boxes as clusters."""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.views.graph.drawn import Drawn, End
from torchglass.views.graph.labels import REPEAT, SIGN, VIEW
from torchglass.views.graph.outline import Box

HEAD = """  rankdir=TB; compound=true; nodesep=0.3; ranksep=0.35;
  node [shape=box, style="rounded,filled", fillcolor=white, color="#b6bfcc", fontname="Helvetica", fontsize=11];
  node [height=0.3, margin="0.12,0.05"];
  edge [color="#8b96a5", arrowsize=0.6, fontname="Courier", fontsize=9, fontcolor="#0f766e"];"""
GROUP = 'style="rounded,filled"; fillcolor="#f6f7f9"; color="#d3d9e2"; fontname="Helvetica"; fontsize=11;'


def dot(drawn: Drawn, name: str = "") -> Iterator[str]:
    """The lines of a DOT file."""
    yield f"digraph {quoted(name or 'torchglass')} {{"
    yield HEAD
    yield from _outside(drawn, -1, "  ")
    pending: list[tuple[Box | None, int]] = [(item, 1) for item in reversed(drawn.flow.outline.top)]
    while pending:
        item, depth = pending.pop()
        indent = "  " * depth
        if item is None:
            yield f"{indent}}}"
            continue
        inside = drawn.inside(item)
        if not inside:
            yield f"{indent}{node_name((item.number, -1))} [{_attributes(drawn, item)}];"
            continue
        yield f"{indent}subgraph cluster_{item.number} {{"
        yield f"{indent}  label={quoted(_title(drawn, item))}; labeljust=l; {GROUP}"
        yield from _outside(drawn, item.number, indent + "  ")
        pending.append((None, depth))
        pending += [(child, depth + 1) for child in reversed(inside)]
    for line in drawn.lines:
        back = ", style=dashed, constraint=false" if line.is_back else ""
        red = ', fontcolor="#b91c1c"' if line.is_bad else ""
        yield f"  {node_name(line.source)} -> {node_name(line.target)} [label={quoted(line.label)}{back}{red}];"
    yield "}"


def node_name(end: End) -> str:
    """A name that is the same in all lines: of a box, or of a value from outside."""
    number, outside = end
    return f"n{number}" if outside < 0 else f"in{number + 1}_{outside}"


def _outside(drawn: Drawn, number: int, indent: str) -> Iterator[str]:
    for end, word in drawn.outside.get(number, ()):
        yield f'{indent}{node_name(end)} [label={quoted(word)}, shape=box, style="rounded,dashed"];'


def _title(drawn: Drawn, item: Box) -> str:
    label = drawn.label(item)
    often = f"  {label.often}" if label.often else ""
    detail = "" if label.kind == REPEAT else f"  {label.detail}" if label.detail else ""
    return (label.title + detail + often + (f"  {label.rounds}" if label.rounds else "")).strip()


def _attributes(drawn: Drawn, item: Box) -> str:
    label = drawn.label(item)
    often = f" {label.often}" if label.often else ""
    if label.kind == SIGN:
        return f"label={quoted(label.title + often)}, shape=circle, width=0.28, margin=0.02"
    below = "" if label.kind in (VIEW, REPEAT) else label.detail or label.variable
    text = "\n".join(filter(None, (label.title + often, below, label.rounds)))
    quiet = ', color="#e3e7ee", fontcolor="#6b7685"' if label.kind == VIEW else ""
    failed = any(drawn.flow.outline.events[event].error for event in drawn.flow.outline.events_of(item)[-1:])
    red = ', color="#dc2626", fontcolor="#b91c1c", fillcolor="#fef2f2"' if failed else ""
    return f"label={quoted(text)}{quiet}{red}"


def quoted(text: str) -> str:
    r"""A string of DOT: nothing of the program is read as an escape (``\n`` stands for our own line break)."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
