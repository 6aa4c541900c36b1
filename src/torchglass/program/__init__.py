"""What the program did: one tree, and the data flow between its events, for all views and answers.

``program_of(trace)`` builds it once and keeps it with the trace::

    program = program_of(trace)
    tree, flow = program.tree, program.flow

Nodes of the tree are numbers. The first are the events, by their ids; then come threads, calls of functions, loops
and the iterations of loops::

    for node in range(len(tree)):
        tree.kind(node)              # "event", "thread", "call", "loop" or "iteration"
        tree.parent[node]            # the node around it; -1 for a thread
        tree.children(node)          # the nodes directly in it, in order
        tree.first(node), tree.last(node)   # the first and the last event in it
        tree.count(node)             # of a loop: .number is 7, .exact is False where there may have been more or fewer
        tree.site(node)              # of a call or a loop: where it is written, as tree.site(node).at.line

An event and its place in the tree::

    program.event(5)                 # the Event itself, with its values
    program.distinct.sample(5)       # an event like it, with other values: cheaper, since no Event has to be made
    tree.around(5)                   # the nodes around the event, innermost first
    tree.iterations(5)               # the iterations that it is in, outermost first; tree.number(…) says which
    tree.call(5)                     # the nearest call around it, be it an event or a call of a function
    program.statement(5)             # its statement: .node is the syntax tree
    program.frames(5)                # the frames of the program's own functions around it, outermost first
    program.inside(node)             # the events in a node

Data flow is between values. They are numbers (``Value.id``)::

    flow.takes[5], flow.gives[5]     # the values that an event read and made, followed through writes in place
    flow.producer(value)             # the innermost event that made it; None if it was made before the recording
    flow.users(value)                # the events that read it
    flow.upstream([value])           # the events that it comes from, nearest first
    flow.downstream([value])         # the events that it goes into, in order
    flow.reaches(value, other)       # whether one went into the other
    flow.written_after(value)        # writes in place that changed its memory later: Write(event, value, time)
    flow.is_write(5)                 # whether an event changed memory in place

The part of the tree that a view shows, ready to fold::

    ShownNodes(program)              # program/shown.py: chosen nodes, each under the nearest chosen one around it
    LineTree(program, …)             # program/lines.py: events under the lines of their stacks

What each line of the source did, in all calls and iterations together::

    Ran(trace, None).notes_of(file)  # program/by_line/: LineNote by line: how often it ran, what it gave and raised

Modules, calls and counts::

    modules = program.modules
    modules.parent[m], modules.calls[m]     # the module that contains module m, and the events of m's calls
    PythonCalls(program.distinct, tree)     # program/calls.py: which call of a generator or coroutine was resumed
    StatementCounts(tree, distinct, texts)  # program/counts.py: calls by function, iterations by loop

This package imports the standard library, ``events`` and ``source``. Views and answers import it.
"""

from __future__ import annotations

from torchglass.program.program import Program, program_of
from torchglass.program.recorded import HasTables, Recorded

__all__ = ["HasTables", "Program", "Recorded", "program_of"]
