"""The data flow opened to a depth: boxes in boxes, and edges between the innermost ones, for drawing tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torchglass.views.graph.edges import BORDER, BoxLevel, Edge
from torchglass.views.graph.flow import Flow
from torchglass.views.graph.outline import Box
from torchglass.views.graph.view import REPEAT, SIGN, VIEW, Label, Shapes, label_of, outside_word

End = tuple[int, int]
"""A box by its item's number, and -1; or a level's number and which value from outside."""


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge between two ends that are drawn."""

    source: End
    target: End
    value: int = field(compare=False)
    label: str
    """The shape; below it, where that was measured, what was in it."""
    is_back: bool = False
    """Whether it leads from one round to the next."""
    is_bad: bool = False
    """Whether something in it was not finite."""


@dataclass(slots=True)
class Drawn:
    """What a drawing tool is told."""

    flow: Flow
    open: set[int] = field(default_factory=set[int])
    """Items that are drawn with what is in them."""
    lines: list[DrawnEdge] = field(default_factory=list[DrawnEdge])
    outside: dict[int, list[tuple[End, str]]] = field(default_factory=dict[int, list[tuple[End, str]]])
    """Values from outside by the item that they are drawn in (-1: none)."""

    def label(self, item: Box) -> Label:
        return label_of(self.flow, item)

    def inside(self, item: Box) -> Sequence[Box]:
        """What is drawn in an item."""
        return item.children if item.number in self.open else ()


def drawn_of(flow: Flow, depth: int | None) -> Drawn:
    """Open all boxes down to a depth, and find the edges between those that stay closed."""
    drawn = Drawn(flow)
    pending = [(item, 0) for item in flow.outline.top]
    while pending:
        item, level = pending.pop()
        if item.children and (depth is None or level < depth):
            drawn.open.add(item.number)
            pending += [(child, level + 1) for child in item.children]
    shapes, seen = Shapes(flow), set[DrawnEdge]()
    for number in (-1, *sorted(drawn.open)):
        _name_outside(drawn, number)
        for edge in flow.levels[number].edges:
            if edge.target == BORDER:
                continue
            source_item = _children(drawn, number)[edge.source] if edge.source >= 0 else None
            label = shapes.word(edge.value) if source_item is None else shapes.given(source_item, edge.value)
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


def _children(drawn: Drawn, number: int) -> Sequence[Box]:
    return drawn.flow.outline.items[number].children if number >= 0 else drawn.flow.outline.top


def _sources(drawn: Drawn, number: int, edge: Edge) -> Iterator[End]:
    """Where an edge begins: in an open box with whoever gives that result in it.

    What comes from the border of the box itself is drawn from the level around it.
    """
    pending, seen = [(number, edge)], set[tuple[int, int, int, int]]()
    while pending:
        at, each = pending.pop()
        if (at, each.source, each.out, each.target) in seen:
            continue  # what a box hands on to itself, round by round
        seen.add((at, each.source, each.out, each.target))
        if each.source < BORDER:
            yield at, -2 - each.source
        elif each.source != BORDER:
            item = _children(drawn, at)[each.source]
            if item.number not in drawn.open:
                yield item.number, -1
                continue
            inner = _edges(drawn.flow.levels[item.number], target=BORDER, into=each.out)
            within = [(item.number, other) for other in inner if other.source != BORDER]
            # What an open box only hands on comes from whoever gave it to the box.
            handed = {other.out for other in inner if other.source == BORDER}
            before = [(at, other) for other in drawn.flow.levels[at].edges if other.target == each.source]
            pending += within + [pair for pair in before if pair[1].into in handed]


def _targets(drawn: Drawn, number: int, edge: Edge) -> Iterator[End]:
    """Where an edge ends: in an open box with everybody in it who takes that argument."""
    pending = [(number, edge)]
    while pending:
        at, each = pending.pop()
        if each.target == BORDER:
            continue
        item = _children(drawn, at)[each.target]
        if item.number not in drawn.open:
            yield item.number, -1
        else:
            inner = _edges(drawn.flow.levels[item.number], source=BORDER, out=each.into)
            pending += [(item.number, other) for other in inner]


def _edges(level: BoxLevel, **ends: int) -> list[Edge]:
    return [edge for edge in level.edges if all(getattr(edge, name) == end for name, end in ends.items())]


# ---------------------------------------------------------------- dot

# The data flow in Graphviz's language, boxes in boxes as clusters.

CLOSED, OPEN, END = "closed", "open", "end"
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
        back = ", style=dashed, constraint=false" if line.is_back else ""
        red = ', fontcolor="#b91c1c"' if line.is_bad else ""
        yield f"  {node_name(line.source)} -> {node_name(line.target)} [label={quoted(line.label)}{back}{red}];"
    yield "}"


def _nested(drawn: Drawn) -> Iterator[tuple[str, Box, str]]:
    """Boxes in boxes in order, with an indent: those that stay closed, and where the open ones begin and end."""
    pending = [(item, 1, False) for item in reversed(drawn.flow.outline.top)]
    while pending:
        item, depth, is_end = pending.pop()
        inside = () if is_end else drawn.inside(item)
        yield END if is_end else OPEN if inside else CLOSED, item, "  " * depth
        pending += [(item, depth, True)] if inside else []
        pending += [(child, depth + 1, False) for child in reversed(inside)]


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


# ---------------------------------------------------------------- mermaid

# The data flow as a Mermaid flowchart, which Markdown pages draw.


def mermaid(drawn: Drawn) -> Iterator[str]:
    """The lines of a flowchart."""
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
        arrow = "-.->" if line.is_back else "-->"
        label = f"|{escaped(line.label.replace(chr(10), ' '))}|" if line.label else ""
        yield f"  {node_name(line.source)} {arrow}{label} {node_name(line.target)}"
    yield "  classDef quiet fill:#fff,stroke:#e3e7ee,color:#6b7685"


def _outside_of_chart(drawn: Drawn, number: int, indent: str) -> Iterator[str]:
    for end, word in drawn.outside.get(number, ()):
        yield f"{indent}{node_name(end)}([{escaped(word)}]):::quiet"


def _line(drawn: Drawn, item: Box) -> str:
    label = drawn.label(item)
    often = f" {label.often}" if label.often else ""
    return " ".join(filter(None, (f"{label.title} {label.detail}".strip() + often, label.rounds)))


def _box(drawn: Drawn, item: Box) -> str:
    label, name = drawn.label(item), node_name((item.number, -1))
    if label.kind == SIGN:
        return f"{name}(({escaped(label.title)}))"
    text = escaped(_line(drawn, item))
    return f"{name}({text}):::quiet" if label.kind == VIEW else f"{name}[{text}]"


def escaped(text: str) -> str:
    """A quoted label in which nothing of the program is read as markup or as Mermaid."""
    safe = "".join(char if char.isalnum() or char in " .,_:–×▸✗" else f"#{ord(char)};" for char in text)
    return f'"{safe or " "}"'
