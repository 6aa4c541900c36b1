"""Find the values of a trace that are uninitialised memory, such as the result of ``torch.empty``.

Such memory has arbitrary content, even NaN, so a trace has no statistics of these values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from torchglass.events.schema import MEASURED_FIELDS, NONE, NOT_MEASURED
from torchglass.events.tables import Tables, form_sizes

RETURNS_UNINITIALISED = re.compile(r"(new_)?empty|resize_")
FILLING = frozenset(
    "uniform_ normal_ zero_ fill_ copy_ trunc_normal_ random_ exponential_ bernoulli_ cauchy_ geometric_ log_normal_ "
    "ones_ zeros_ constant_ eye_".split()
)
"""Functions that overwrite the whole tensor that they are called with."""


def plain_name(name: str) -> str:
    """Return ``softmax`` for ``F.softmax`` and ``aten::softmax.int``."""
    bare = name.partition("::")[2] or name
    if "::" in name:
        return bare.partition(".")[0]
    return bare.rpartition(".")[2]


def returns_uninitialised(name: str) -> bool:
    """Return whether a function of this name returns uninitialised memory: ``torch.empty`` and its like."""
    return RETURNS_UNINITIALISED.match(plain_name(name)) is not None


def overwrites(name: str) -> bool:
    """Return whether a function of this name overwrites its first argument."""
    return plain_name(name) in FILLING or name.startswith("nn.init.")


def forget_uninitialised(tables: Tables, addresses: Sequence[int], previous: Sequence[int]) -> None:
    """Drop the statistics of values that are uninitialised memory.

    For each value, ``addresses`` has the address of its storage, and ``previous`` the value that its tensor had before.
    """
    makers: set[int] = set()
    fillers: set[int] = set()
    for number, callee in enumerate(tables.callees):
        if callee.kind in ("function", "op"):
            if returns_uninitialised(callee.name):
                makers.add(number)
            if overwrites(callee.name):
                fillers.add(number)
    if not tables.value_measured or not makers:
        return
    values = _uninitialised_values(tables, previous, makers)
    values |= _uninitialised_parameters(tables, addresses, values, fillers)
    for value in values:
        # A tensor without elements has no content that could be uninitialised.
        if not tables.value_count[value]:
            continue
        tables.sketches.pop(value, None)
        for name, nothing in zip(MEASURED_FIELDS, NOT_MEASURED, strict=True):
            getattr(tables, name)[value] = nothing


def _uninitialised_values(tables: Tables, previous: Sequence[int], makers: set[int]) -> set[int]:
    """Return the values that events of ``makers`` return, and all views of them.

    A view has the same storage and the same version, so that nothing was written between.
    """
    values: set[int] = set()
    versions = tables.value_version
    storages = tables.value_storage
    counts = form_sizes(tables)
    for value, event in enumerate(tables.value_producer):
        if event == NONE:
            continue
        earlier = previous[value]
        if tables.callee[event] in makers:
            if earlier < 0 or earlier in values:
                values.add(value)
            elif _element_count(tables, value) > _element_count(tables, earlier):
                # resize_ has added elements.
                values.add(value)
            continue
        # A tensor with an earlier value was just changed by this event.
        is_new_tensor = earlier == NONE and versions[value] >= 0
        if values and is_new_tensor:
            first = tables.first_io[event]
            inputs = tables.io[first : first + counts[tables.args[event]]]
            content = (storages[value], versions[value])
            for input_ in inputs:
                if input_ in values and (storages[input_], versions[input_]) == content:
                    values.add(value)
                    break
    return values


def _uninitialised_parameters(
    tables: Tables, addresses: Sequence[int], uninitialised: set[int], fillers: set[int]
) -> set[int]:
    """Return the values of parameters made by ``nn.Parameter(torch.empty(…))``, which no event produces.

    Such a value has the address and metadata of an uninitialised one, and the first event that takes it fills it.
    Without that event it might be another tensor, since an address is reused as soon as it is free.
    """
    values: set[int] = set()
    seen: set[int] = set()

    def address_and_meta(value: int) -> tuple[int, str]:
        return addresses[value], tables.metas[tables.value_meta[value]].word

    known = {address_and_meta(value) for value in uninitialised}
    counts = form_sizes(tables)
    for callee, form, first in zip(tables.callee, tables.args, tables.first_io, strict=True):
        inputs = tables.io[first : first + counts[form]]
        if callee in fillers and inputs and inputs[0] not in seen:
            value = inputs[0]
            is_unchanged = tables.value_producer[value] == NONE and not tables.value_version[value]
            if is_unchanged and address_and_meta(value) in known:
                values.add(value)
        seen.update(inputs)
    return values


def _element_count(tables: Tables, value: int) -> int:
    return prod(tables.metas[tables.value_meta[value]].shape or ())
