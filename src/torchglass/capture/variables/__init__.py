"""Follows the variables of running code: reports every assignment and change to a sink as it happens.

::

    class Sink:
        def changed(self, change, frame): ...        # a VariableChange; look at the frame, but do not keep it

    with Engine(Watch(("video", "hidden_*", "self.cache")), Sink()) as engine:
        ...
    engine.faults, engine.notes, engine.never_seen()

``docs/variables.md`` lists what is reported and what is missed.

The files, from what Python reports to what the sink gets:

* ``watch.py`` says what to follow (``Watch``) and what a sink receives. Its ``stamp`` detects changes in place of types
  that the engine does not know, such as tensors.
* ``settrace.py`` (Python 3.11) reports lines, ``monitoring.py`` (from 3.12 on) reports instructions. Both implement
  ``engine.Core``.
* ``bytecode.py`` and ``plan.py`` find out once for each code object where it stores variables and where values may
  change.
* ``activation.py`` looks there while a call runs, and compares with the ``snapshots.py`` of what it last saw.
* ``events.py`` is the sink of a recording; ``arrays.py`` knows numpy.

The package uses only the standard library: it never imports torch, and uses numpy only if the program has imported it.
"""

from torchglass.capture.variables.engine import Engine
from torchglass.capture.variables.watch import (
    REPORTED,
    UNBOUND,
    CallSink,
    Fields,
    PreviousValue,
    Sink,
    VariableChange,
    Watch,
)

__all__ = [
    "REPORTED",
    "UNBOUND",
    "CallSink",
    "Engine",
    "Fields",
    "PreviousValue",
    "Sink",
    "VariableChange",
    "Watch",
]
