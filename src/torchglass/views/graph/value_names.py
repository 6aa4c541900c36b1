"""Finds the names of the values on edges: of a port, of a value from outside, of carried state.

A value has no name of its own. It gets the name under which an event takes it (``mask`` in
``attend(x, mask)``), the variable to which it was assigned, or that of the memory that was written.
A name that is not known is "".
"""

from __future__ import annotations

from torchglass.events.tables import NONE
from torchglass.events.types import Event
from torchglass.views.graph.edges import Outside
from torchglass.views.graph.flow import Flow
from torchglass.views.graph.labels import MAX_TITLE_LENGTH
from torchglass.views.graph.outline import Box
from torchglass.views.text.words import clean, cut, one_line


def role_in(event: Event, value: int) -> str:
    """Return the names of the arguments in which an event takes a value."""
    roles = [clean(each.role) for each in event.inputs if each.id == value]
    return ", ".join(dict.fromkeys(roles))


def outside_word(flow: Flow, outside: Outside) -> str:
    """Return the name of a value that nothing in the trace made, as written where it is first
    taken. Return ``?`` if it is not known.
    """
    if outside.times > 1:
        return f"{outside.times} tensors"
    word = taken_word(flow, outside.reader, outside.value)
    if not word:
        word = "?"
    elif outside.is_unknown:
        word = f"{word} ?"
    return cut(word, MAX_TITLE_LENGTH)


def taken_word(flow: Flow, reader: int, wanted: int) -> str:
    """Return the name of a value where an event takes it: the expression, or the argument."""
    event = flow.outline.event(reader)
    # What the event takes after writes in place: a value may be a later one than was recorded.
    current = flow.values.takes[reader]
    for index, value in enumerate(event.inputs):
        is_wanted = value.id == wanted
        if index < len(current) and current[index] == wanted:
            is_wanted = True
        if not is_wanted:
            continue
        written = ""
        if index < len(event.operands):
            written = event.operands[index]
        if written.startswith("*"):  # ``*args`` names all arguments, not this one
            written = ""
        return one_line(written).removeprefix("self.") or clean(value.role)
    return ""


def port_word(flow: Flow, box: Box, port: int) -> str:
    """Return the name of the value at a port: the argument, or the expression where it is first
    taken.
    """
    level = flow.levels[box.number]
    value = level.takes[port]
    if level.readers:
        word = taken_word(flow, level.readers[port], value)
        if word == "self":
            return ""
        return word
    return role_in(flow.outline.event(box.nodes[0]), value) or state_word(flow, value)


def carried_word(flow: Flow, source: Box, value: int) -> str:
    """Return the name of a value carried to the next iteration: the variable, or the state that was
    written.
    """
    events = flow.outline.events_of(source)
    if not events:
        return state_word(flow, value)
    event = flow.outline.event(events[0])
    outputs = [each.id for each in event.outputs]
    if value not in outputs:
        return state_word(flow, value)
    targets = [clean(name.removeprefix("self.")) for name in event.target]
    if len(targets) == len(outputs):
        return targets[outputs.index(value)]
    return ", ".join(targets)


def state_word(flow: Flow, value: int) -> str:
    """Return the name of memory that was written in place, such as ``self.cache``.

    Without a name it is that of the layer: ``BatchNorm2d state``. Return "" if nothing wrote the
    memory.
    """
    maker = flow.values.producers[value]
    storages = flow.values.storages
    if maker == NONE or not flow.values.is_write(maker):
        return ""
    event = flow.outline.event(maker)
    for index, taken in enumerate(event.inputs):
        is_same = taken.storage is not None and taken.storage == storages[value]
        written = ""
        if index < len(event.operands):
            written = event.operands[index]
        if is_same and written and not written.startswith("*"):
            return cut(one_line(written).removeprefix("self."), MAX_TITLE_LENGTH)
    around = maker
    while around >= 0 and flow.outline.events[around].kind != "module":
        around = flow.outline.distinct.parents[around]
    if around >= 0:
        return f"{clean(flow.outline.events[around].name)} state"
    return ""
