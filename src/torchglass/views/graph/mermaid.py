"""The data flow as a Mermaid flowchart, which Markdown pages draw."""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.views.graph.dot import node_name
from torchglass.views.graph.drawn import Drawn
from torchglass.views.graph.labels import SIGN, VIEW
from torchglass.views.graph.outline import Box


def mermaid(drawn: Drawn) -> Iterator[str]:
    """The lines of a flowchart."""
    yield "flowchart TB"
    yield from _outside(drawn, -1, "  ")
    pending: list[tuple[Box | None, int]] = [(item, 1) for item in reversed(drawn.flow.outline.top)]
    while pending:
        item, depth = pending.pop()
        indent = "  " * depth
        if item is None:
            yield f"{indent}end"
            continue
        inside = drawn.inside(item)
        if not inside:
            yield indent + _box(drawn, item)
            continue
        yield f"{indent}subgraph g{item.number}[{escaped(_title(drawn, item))}]"
        yield from _outside(drawn, item.number, indent + "  ")
        pending.append((None, depth))
        pending += [(child, depth + 1) for child in reversed(inside)]
    for line in drawn.lines:
        arrow = "-.->" if line.is_back else "-->"
        label = f"|{escaped(line.label.replace(chr(10), ' '))}|" if line.label else ""
        yield f"  {node_name(line.source)} {arrow}{label} {node_name(line.target)}"
    yield "  classDef quiet fill:#fff,stroke:#e3e7ee,color:#6b7685"


def _outside(drawn: Drawn, number: int, indent: str) -> Iterator[str]:
    for end, word in drawn.outside.get(number, ()):
        yield f"{indent}{node_name(end)}([{escaped(word)}]):::quiet"


def _title(drawn: Drawn, item: Box) -> str:
    label = drawn.label(item)
    often = f" {label.often}" if label.often else ""
    return " ".join(filter(None, (f"{label.title} {label.detail}".strip() + often, label.rounds)))


def _box(drawn: Drawn, item: Box) -> str:
    label, name = drawn.label(item), node_name((item.number, -1))
    if label.kind == SIGN:
        return f"{name}(({escaped(label.title)}))"
    text = escaped(_title(drawn, item))
    return f"{name}({text}):::quiet" if label.kind == VIEW else f"{name}[{text}]"


def escaped(text: str) -> str:
    """A quoted label in which nothing of the program is read as markup or as Mermaid."""
    safe = "".join(char if char.isalnum() or char in " .,_:–×▸✗" else f"#{ord(char)};" for char in text)
    return f'"{safe or " "}"'
