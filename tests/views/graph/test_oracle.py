"""The edges between ops, against the graph that torch's own tracer makes of the same program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tests import programs, zoo
from tests.views.graph.oracle import Node, recorded, traced

REFUSED = {"gpt2", "biogpt", "deberta_v2", "roformer", "bart", "clip"}
"""Families that the tracer refuses: they ask a tensor for a number."""
FAMILIES = sorted(set(zoo.FAMILIES) - REFUSED)
PROGRAMS = (
    "default_device early_returns executed_source factories generators odd_arguments operators out_argument"
    " random_numbers reshapes structured_outputs user_modes".split()
)
"""Those without parameters, which we do not draw, and without a backward pass, which the tracer does not run."""


def compare(program: Callable[[], Any]) -> None:
    ours, theirs = recorded(program), traced(program)
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    for (_, drawn), (_, known) in zip(ours, theirs, strict=True):
        assert all(ours[each][0].endswith("_") for each in drawn - known), "an edge that the tracer does not know"
        assert all(leads_to(ours, each, drawn) for each in known - drawn), "an edge is lost"


def leads_to(nodes: Sequence[Node], start: int, ends: frozenset[int]) -> bool:
    """Whether a write stands between: what the tracer takes for the source was overwritten since."""
    pending = [end for end in ends if nodes[end][0].endswith("_")]
    while pending:
        each = pending.pop()
        if each == start:
            return True
        pending += nodes[each][1]
    return False


@pytest.mark.parametrize("name", FAMILIES)
def test_a_transformer_has_the_edges_that_the_tracer_finds(name: str) -> None:
    model, inputs = zoo.FAMILIES[name]()
    with torch.no_grad():
        model(**inputs)  # what is done only once is done now
    compare(lambda: model(**inputs))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_the_edges_that_the_tracer_finds(name: str) -> None:
    compare(programs.load(name).main)


def test_enough_is_compared() -> None:
    assert len(FAMILIES) + len(PROGRAMS) >= 40
