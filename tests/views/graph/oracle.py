"""Someone else's word on data flow: the graph that torch's own tracer (`make_fx`, real tensors) makes of a program.

The normalisation, all of it: ops without tensors are left out; a function that ran no op (`x.to(x.dtype)`)
is passed through; `lift_fresh` and the copy that the tracer makes in its
place are one; several results of an op are one node; parameters, constants and inputs are no nodes; and an edge that
we draw because memory was written in place through another name is not known to the tracer, which follows names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import torchglass as tg
from torchglass.views.graph.drawn import drawn_of
from torchglass.views.graph.flow import flow_of
from torchglass.views.options import GraphOptions

Node = tuple[str, frozenset[int]]
"""The name of an op, and the nodes that its tensors come from."""


def recorded(program: Callable[[], Any]) -> list[Node]:
    """The ops of a program and their edges, as the innermost boxes of our graph have them."""
    with tg.record(ops=True) as trace, torch.no_grad():
        program()
    flow = flow_of(trace, GraphOptions(inner=True, fold=False))
    events = list(trace.events())
    shown = [item for item in flow.outline.items if events[item.nodes[0]].kind == "op"]
    ops = sorted(
        (item.nodes[0], item.number) for item in shown if events[item.nodes[0]].inputs or events[item.nodes[0]].outputs
    )
    place = {number: at for at, (_, number) in enumerate(ops)}
    before: dict[int, set[int]] = {}
    given = {item.number: flow.values.gives[item.nodes[0]] for item in flow.outline.items}
    for line in drawn_of(flow, None).lines:
        target = line.target[0]
        if line.source[1] < 0 and (target in place or line.value in given[target]):
            before.setdefault(target, set()).add(line.source[0])
    return [(events[event].name, frozenset(_ops_before(number, before, place))) for event, number in ops]


def _ops_before(number: int, before: dict[int, set[int]], place: dict[int, int]) -> set[int]:
    """The ops that lead to a box, through functions that ran none: `x.to(x.dtype)` hands its argument on."""
    found, seen, pending = set[int](), {number}, list(before.get(number, ()))
    while pending:
        each = pending.pop()
        if each in place:
            found.add(place[each])
        elif each not in seen:
            seen.add(each)
            pending += before.get(each, ())
    return found


def traced(program: Callable[[], Any]) -> list[Node]:
    """The same, as torch's tracer has it."""
    with torch.no_grad():
        graph = make_fx(lambda: _tensors(program()), tracing_mode="real")().graph
    nodes: list[Node] = []
    place: dict[Any, int] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target.__name__ == "getitem":
            if node.args[0] in place:
                place[node] = place[node.args[0]]
            continue
        place[node] = len(nodes)
        taken = frozenset(place[each] for each in node.all_input_nodes if each in place)
        nodes.append((_name(node.target), taken))
    return nodes


def _name(op: Any) -> str:
    name = f"{op.namespace}::{op._opname}".replace("lift_fresh_copy", "lift_fresh")
    return name if op._overloadname == "default" else f"{name}.{op._overloadname}"


def _tensors(given: Any) -> list[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        return [given]
    inside = given.values() if hasattr(given, "values") else given if isinstance(given, (list, tuple)) else ()
    return [tensor for each in inside for tensor in _tensors(each)]
