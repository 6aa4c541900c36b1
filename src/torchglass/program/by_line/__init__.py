"""Finds what each line of the source did: how often it ran, what it assigned, returned or computed, what it raised.

A *step* is an event of a line. A line can run in many calls and iterations, so the files work in this order:

- ``frames.py`` builds the tree of calling lines, with the steps of each;
- ``made.py`` finds the steps that the line's own expression made;
- ``settled.py`` counts how often a line ran under each caller, and collects what it gave there;
- ``notes.py`` adds that up by line, and corrects it by the counts of the program tree;
- ``followed.py`` adds what followed variables held.

``ran.py`` is the entry point.
"""
