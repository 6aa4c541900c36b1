"""A recording that is also looked at, so that a fault of the recorder or of a view is found too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torchglass as tg
from tests.conformance.compare import Alone, Case, Context, alone, differences


def failures(case: Case, plain: Alone | None = None, **options: Any) -> list[str]:
    """In what `case` differs under recording, and what went wrong in the recorder itself."""
    traces: list[tg.Trace] = []
    found = differences(case, _keeping(traces, options), plain)
    return found + [f"{case.name}: {fault}" for trace in traces for fault in _faults(trace)]


def failures_of_each(case: Case, *probes: dict[str, Any]) -> list[str]:
    """The same under each of some options, without what `ops=True` has by design."""
    plain = alone(case)
    found = [(options, line) for options in probes for line in failures(case, plain, **options)]
    return [f"{options}: {line}" for options, line in found if not (options.get("ops") and is_price_of_ops(line))]


def is_price_of_ops(line: str) -> bool:
    """Whether a difference is one that `ops=True` has by design.

    While any dispatch mode is on, torch's backward formulas compute out of place: gradients have the same bits, but
    other versions, and one has other strides (docs/how-it-works.md).
    """
    return bool(_PRICE.search(line))


_PRICE = re.compile(r": out\['gradients'\]\S*\._version: |^ormqr.*: out\['gradients'\]\S*\.stride: ")


def _keeping(traces: list[tg.Trace], options: dict[str, Any]) -> Context:
    @contextmanager
    def context() -> Iterator[None]:
        with tg.record(**options) as trace:
            traces.append(trace)
            yield

    return context


def _faults(trace: tg.Trace) -> list[str]:
    assert tg.render(trace)
    assert all(event.end_ns is not None for event in trace.events())
    return [note for note in trace.notes if "failed to record" in note]
