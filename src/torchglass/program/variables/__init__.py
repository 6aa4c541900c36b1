"""The changes of each variable: in which call they happened, and where the values came from.

A *life* is one variable in one call, from its first change to its last. A *story* says where a value came from.

- ``changes.py`` reads the changes that were recorded with ``variables=``.
- ``targets.py`` reconstructs changes without that, from the names that results were assigned to.
- ``lives.py`` finds the life that each change belongs to.
- ``origins.py`` finds the story of each new value: the call that made it, and which other variables hold it.
- ``shown.py`` builds the tree that the variables view folds: lives or calls, the loops in them, and the changes.
"""
