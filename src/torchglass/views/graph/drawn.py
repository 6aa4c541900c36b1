"""Draws the data flow down to a depth as nested boxes, with edges between the innermost ones, for
DOT and Mermaid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torchglass.events.spelling import clean
from torchglass.views.graph.edges import BORDER, BoxLevel, Edge
from torchglass.views.graph.flow import Flow
from torchglass.views.graph.labels import BoxKind, Label, label_of
from torchglass.views.graph.outline import Box
from torchglass.views.graph.shapes import Shapes
from torchglass.views.graph.value_names import outside_word

End = tuple[int, int]
"""An end of an edge: (number of a box, -1), or (number of a level, index among its outside values)."""


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge between two ends that are drawn."""

    source: End
    target: End
    value: int = field(compare=False)
    label: str
    """The shape and, on the next line, the statistics if they were measured."""
    is_back: bool = False
    """Whether the edge leads from one iteration to the next."""
    is_bad: bool = False
    """Whether a number in the value was not finite."""


@dataclass(slots=True)
class Drawn:
    """The boxes and edges for a drawing tool."""

    flow: Flow
    open: set[int] = field(default_factory=set[int])
    """The numbers of the boxes that are drawn with their contents."""
    lines: list[DrawnEdge] = field(default_factory=list[DrawnEdge])
    outside: dict[int, list[tuple[End, str]]] = field(
        default_factory=dict[int, list[tuple[End, str]]]
    )
    """Values from outside, keyed by the number of the box in which they are drawn. -1 means in
    none.
    """

    def label(self, item: Box) -> Label:
        return label_of(self.flow, item)

    def inside(self, item: Box) -> Sequence[Box]:
        """Return the boxes that are drawn inside a box."""
        if item.number in self.open:
            return item.children
        return ()


def drawn_of(flow: Flow, depth: int | None) -> Drawn:
    """Open all boxes down to a depth, and find the edges between the boxes that stay closed."""
    drawn = Drawn(flow)
    pending = [(item, 0) for item in flow.outline.top]
    while pending:
        item, level = pending.pop()
        if item.children and (depth is None or level < depth):
            drawn.open.add(item.number)
            pending += [(child, level + 1) for child in item.children]
    shapes = Shapes(flow)
    seen = set[DrawnEdge]()
    for number in (-1, *sorted(drawn.open)):
        _name_outside(drawn, number)
        for edge in flow.levels[number].edges:
            if edge.target == BORDER:
                continue
            source_item = None
            if edge.source >= 0:
                source_item = drawn.flow.outline.children(number)[edge.source]
            if source_item is None:
                label = shapes.word(edge.value)
            else:
                label = shapes.result(source_item, edge.value)
            contents, alarm = shapes.contents(source_item, edge.value)
            label = "\n".join(filter(None, (label, f"{alarm} {contents}".strip())))
            for source in _sources(drawn, number, edge):
                for target in _targets(drawn, number, edge):
                    line = DrawnEdge(source, target, edge.value, label, edge.is_back, bool(alarm))
                    if line not in seen:
                        seen.add(line)
                        drawn.lines.append(line)
    return drawn


def _name_outside(drawn: Drawn, number: int) -> None:
    level = drawn.flow.levels[number]
    words = [outside_word(drawn.flow, each) for each in level.outside]
    drawn.outside[number] = [((number, at), word) for at, word in enumerate(words)]


def _sources(drawn: Drawn, number: int, edge: Edge) -> Iterator[End]:
    """Yield the boxes where an edge begins. In an open box it is the inner box that gives the
    result.

    An edge from the border of the box itself is left out, because it is drawn at the surrounding
    level.
    """
    pending = [(number, edge)]
    seen = set[tuple[int, int, int, int]]()
    while pending:
        at, each = pending.pop()
        if (at, each.source, each.out, each.target) in seen:
            continue  # a box hands the value on to itself in each iteration
        seen.add((at, each.source, each.out, each.target))
        if each.source < BORDER:
            yield at, each.outside
        elif each.source != BORDER:
            item = drawn.flow.outline.children(at)[each.source]
            if item.number not in drawn.open:
                yield item.number, -1
                continue
            inner = _edges(drawn.flow.levels[item.number], target=BORDER, into=each.out)
            within = [(item.number, other) for other in inner if other.source != BORDER]
            # If an open box only hands a value on, the edge begins where the box got it.
            handed = {other.out for other in inner if other.source == BORDER}
            before = [
                (at, other) for other in drawn.flow.levels[at].edges if other.target == each.source
            ]
            pending += within + [pair for pair in before if pair[1].into in handed]


def _targets(drawn: Drawn, number: int, edge: Edge) -> Iterator[End]:
    """Yield the boxes where an edge ends. In an open box these are all inner boxes that take the
    argument.
    """
    pending = [(number, edge)]
    while pending:
        at, each = pending.pop()
        if each.target == BORDER:
            continue
        item = drawn.flow.outline.children(at)[each.target]
        if item.number not in drawn.open:
            yield item.number, -1
        else:
            inner = _edges(drawn.flow.levels[item.number], source=BORDER, out=each.into)
            pending += [(item.number, other) for other in inner]


def _edges(level: BoxLevel, **ends: int) -> list[Edge]:
    return [
        edge
        for edge in level.edges
        if all(getattr(edge, name) == end for name, end in ends.items())
    ]


# ---------------------------------------------------------------- dot

# The data flow in the language of Graphviz, with open boxes as clusters.

CLOSED, OPEN, END = "closed", "open", "end"
HEAD = """  rankdir=TB; compound=true; nodesep=0.3; ranksep=0.35;
  node [shape=box, style="rounded,filled", fillcolor=white, color="#b6bfcc", fontname="Helvetica", fontsize=11];
  node [height=0.3, margin="0.12,0.05"];
  edge [color="#8b96a5", arrowsize=0.6, fontname="Courier", fontsize=9, fontcolor="#0f766e"];"""
GROUP = 'style="rounded,filled"; fillcolor="#f6f7f9"; color="#d3d9e2"; fontname="Helvetica"; fontsize=11;'


def dot(drawn: Drawn, name: str = "") -> Iterator[str]:
    """Yield the lines of a DOT file."""
    yield f"digraph {quoted(clean(name) or 'torchglass')} {{"
    yield HEAD
    yield from _outside(drawn, -1, "  ")
    for what, item, indent in _nested(drawn):
        if what == CLOSED:
            yield f"{indent}{node_name((item.number, -1))} [{_attributes(drawn, item)}];"
        elif what == END:
            yield f"{indent}}}"
        else:
            yield f"{indent}subgraph cluster_{item.number} {{"
            yield f"{indent}  label={quoted(_title(drawn, item))}; labeljust=l; {GROUP}"
            yield from _outside(drawn, item.number, indent + "  ")
    for line in drawn.lines:
        back = ""
        if line.is_back:
            back = ", style=dashed, constraint=false"
        red = ""
        if line.is_bad:
            red = ', fontcolor="#b91c1c"'
        yield f"  {node_name(line.source)} -> {node_name(line.target)} [label={quoted(line.label)}{back}{red}];"
    yield "}"


def _nested(drawn: Drawn) -> Iterator[tuple[str, Box, str]]:
    """Yield nested boxes in order, each with an indent: closed boxes, and the begins and ends of
    open ones.
    """
    pending = [(item, 1, False) for item in reversed(drawn.flow.outline.top)]
    while pending:
        item, depth, is_end = pending.pop()
        inside = ()
        if not is_end:
            inside = drawn.inside(item)
        yield END if is_end else OPEN if inside else CLOSED, item, "  " * depth
        if inside:
            pending += [(item, depth, True)]
        pending += [(child, depth + 1, False) for child in reversed(inside)]


def node_name(end: End) -> str:
    """Return the name of a box or of an outside value. It is the same in all lines."""
    number, outside = end
    if outside < 0:
        return f"n{number}"
    return f"in{number + 1}_{outside}"


def _outside(drawn: Drawn, number: int, indent: str) -> Iterator[str]:
    for end, word in drawn.outside.get(number, ()):
        yield f'{indent}{node_name(end)} [label={quoted(word)}, shape=box, style="rounded,dashed"];'


def _title(drawn: Drawn, item: Box) -> str:
    label = drawn.label(item)
    often = ""
    if label.times:
        often = f"  {label.times}"
    if label.kind == BoxKind.REPEAT:
        detail = ""
    elif label.detail:
        detail = f"  {label.detail}"
    else:
        detail = ""
    return (label.title + detail + often + (f"  {label.rounds}" if label.rounds else "")).strip()


def _attributes(drawn: Drawn, item: Box) -> str:
    label = drawn.label(item)
    often = ""
    if label.times:
        often = f" {label.times}"
    if label.kind == BoxKind.SIGN:
        return f"label={quoted(label.title + often)}, shape=circle, width=0.28, margin=0.02"
    below = ""
    if label.kind not in (BoxKind.VIEW, BoxKind.REPEAT):
        below = label.detail or label.variable
    text = "\n".join(filter(None, (label.title + often, below, label.rounds)))
    quiet = ""
    if label.kind == BoxKind.VIEW:
        quiet = ', color="#e3e7ee", fontcolor="#6b7685"'
    failed = any(
        drawn.flow.outline.events[event].error for event in drawn.flow.outline.events_of(item)[-1:]
    )
    red = ""
    if failed:
        red = ', color="#dc2626", fontcolor="#b91c1c", fillcolor="#fef2f2"'
    return f"label={quoted(text)}{quiet}{red}"


def quoted(text: str) -> str:
    r"""Quote a string for DOT: nothing of the program is read as an escape (``\n`` is our own line break)."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


# ---------------------------------------------------------------- mermaid

# The data flow as a Mermaid flowchart, which Markdown pages draw.


def mermaid(drawn: Drawn) -> Iterator[str]:
    """Yield the lines of a flowchart."""
    yield "flowchart TB"
    yield from _outside_of_chart(drawn, -1, "  ")
    for what, item, indent in _nested(drawn):
        if what == CLOSED:
            yield indent + _box(drawn, item)
        elif what == END:
            yield f"{indent}end"
        else:
            yield f"{indent}subgraph g{item.number}[{escaped(_line(drawn, item))}]"
            yield from _outside_of_chart(drawn, item.number, indent + "  ")
    for line in drawn.lines:
        arrow = "-->"
        if line.is_back:
            arrow = "-.->"
        label = ""
        if line.label:
            label = f"|{escaped(line.label.replace(chr(10), ' '))}|"
        yield f"  {node_name(line.source)} {arrow}{label} {node_name(line.target)}"
    yield "  classDef quiet fill:#fff,stroke:#e3e7ee,color:#6b7685"


def _outside_of_chart(drawn: Drawn, number: int, indent: str) -> Iterator[str]:
    for end, word in drawn.outside.get(number, ()):
        yield f"{indent}{node_name(end)}([{escaped(word)}]):::quiet"


def _line(drawn: Drawn, item: Box) -> str:
    label = drawn.label(item)
    often = ""
    if label.times:
        often = f" {label.times}"
    return " ".join(filter(None, (f"{label.title} {label.detail}".strip() + often, label.rounds)))


def _box(drawn: Drawn, item: Box) -> str:
    label = drawn.label(item)
    name = node_name((item.number, -1))
    if label.kind == BoxKind.SIGN:
        return f"{name}(({escaped(label.title_and_times)}))"
    text = escaped(_line(drawn, item))
    if label.kind == BoxKind.VIEW:
        return f"{name}({text}):::quiet"
    return f"{name}[{text}]"


def escaped(text: str) -> str:
    """Quote a label so that nothing of the program is read as markup or as Mermaid."""
    safe = "".join(
        char if char.isalnum() or char in " .,_:–×▸✗" else f"#{ord(char)};" for char in text
    )
    return f'"{safe or " "}"'
