"""The order in which items of folded rounds stand: that of the rounds, and where they do not agree that of the code."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence


class Order:
    """An order in which several sequences agree as far as they do: what is new stands behind what came before it.

    Of two that never came together, the branches of an ``if``, the one whose line comes first stands first.
    """

    def __init__(self, line: Callable[[Hashable], int]) -> None:
        self._line = line
        self._after: dict[Hashable, Hashable] = {}
        self._first: Hashable = None

    def add(self, places: Sequence[Hashable]) -> None:
        """One more sequence."""
        known = self._after
        new = [place not in known for place in places]
        if not any(new):
            return
        here = set(places)
        before: Hashable = None
        is_alone = all(new)
        for place, is_new in zip(places, new, strict=True):
            if is_new and place not in known:
                before = self._behind(before, place, here, is_alone)
                known[place] = self._first if before is None else known[before]
                if before is None:
                    self._first = place
                else:
                    known[before] = place
            before = place

    def _behind(self, before: Hashable, place: Hashable, here: set[Hashable], is_alone: bool) -> Hashable:
        """What a new place comes behind: what it came behind, and what was never there with it and is written above.

        Where no lines are known a sequence that shares nothing with the others comes behind them.
        """
        line = self._line(place)
        while True:
            following = self._first if before is None else self._after[before]
            if following is None or following in here:
                return before
            if not (is_alone if line == 0 else 0 < self._line(following) <= line):
                return before
            before = following

    def places(self) -> Iterator[Hashable]:
        """All of them, in order."""
        place = self._first
        while place is not None:
            yield place
            place = self._after[place]
