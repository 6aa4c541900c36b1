"""Following the variables of running code: every assignment and change of locals, told to a sink as it happens.

::

    class Sink:
        def changed(self, change, frame): ...        # a Change; the frame only to look at, never to keep

    with Engine(Watch(("video", "hidden_*", "self.cache")), Sink()) as engine:
        ...
    engine.faults, engine.notes, engine.never_seen()

Standard library only: torch is never imported, numpy is used if the program has imported it. A ``Watch`` says which
names of which code; ``stamp`` in it tells of changes in place of types that the engine does not know, as tensors.
A sink that also has ``entered`` and ``left`` is told of the calls.

Two ways of being told what runs, behind one Protocol (``engine.Core``): ``settrace.py`` on Python 3.11, by the line,
and ``monitoring.py`` from 3.12 on, by the instruction. For both, ``bytecode.py`` and ``plan.py`` read once from a
code object where its variables are stored and where values may change; ``activation.py`` looks there.

What is told
    Arguments, at the line of ``def``. Each store that changes what a name holds: another object, or for numbers and
    strings another value. Deletions. Changes in place after whatever may have made them: a call, ``a[i] =``, ``a.b =``,
    ``a +=``, ``with``, ``yield`` and ``await``; and once more, thoroughly, when the call ends. A closure's variable, a
    global and a watched attribute once, in the frame that stores, under the scope that owns it (an attribute or item
    under the function that changed it; when its owner is replaced, it is deleted or has the other owner's value). Not
    the hidden ``del e`` after ``except … as e``.

What is not
    * Changes in place made by other means than the above (an operator or iterator of a foreign type): they are told
      at the next place where is looked. What ``from x import *`` and C code store.
    * Containers and arrays as ``snapshots.py`` and ``arrays.py`` say: the middle of long containers, single elements of
      large arrays, what is inside foreign objects.
    * An assignment and a change in place on one line are one on 3.11, told with the later value.
    * What is written on the very line of ``with Engine(…)``. Frames under way outside the block. Threads that began
      before it (``owns`` may decide otherwise from 3.12 on) or below ``threading``; child processes.
    * Variables of ``__getattribute__``, ``__getattr__``, ``__setattr__`` and ``__delattr__``, which Python calls for
      each dot, unless a name is given exactly.
    * What runs while a module of an installed package or of the standard library is imported, on that thread. A
      module of the user's own that the block imports is watched.
    * On 3.11, all that follows a ``sys.settrace`` of the program's own, such as ``breakpoint()`` and ``continue``:
      ``notes`` says so.
    * On 3.13 two stores may be one instruction: the offset, and so the columns, are then those of the first.
    * With ``sys.settrace``, what is assigned between an exception that a signal handler raises while we look and the
      next event of torch: Python takes away a trace function that an exception leaves.
"""

from torchglass.capture.variables.engine import Engine
from torchglass.capture.variables.watch import TOLD, UNBOUND, CallSink, Fields, Past, Sink, VariableChange, Watch

__all__ = ["TOLD", "UNBOUND", "CallSink", "Engine", "Fields", "Past", "Sink", "VariableChange", "Watch"]
