"""Columns of numbers and a table of texts: what the page reads, made so that repetition costs next to nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LONGEST_TEXT = 4000
LONGEST_SOURCE = 2_000_000


class Texts:
    """Each text once; elsewhere it is a number."""

    def __init__(self) -> None:
        self.all: list[str] = [""]
        self._numbers: dict[str, int] = {"": 0}

    def number(self, text: str, longest: int = LONGEST_TEXT) -> int:
        """The number of a text; a very long one is cut."""
        text = text if len(text) <= longest else text[:longest] + "…"
        found = self._numbers.get(text)
        if found is None:
            # Half of a surrogate pair is no text in any encoding.
            found = self._numbers[text] = len(self.all)
            self.all.append(text.encode("utf-8", "replace").decode("utf-8"))
        return found

    def numbers(self, texts: Iterable[str]) -> list[int]:
        return [self.number(text) for text in texts]


def differences(numbers: Sequence[int]) -> list[int]:
    """Each number as how much it is more than the one before: equal rounds give equal bytes."""
    return [number - before for before, number in zip([0, *numbers], numbers, strict=False)]


def newest_first(ids: Iterable[int]) -> list[int]:
    """Numbers of values in the order of their mention: 0 for one that is new, else how far it lies back."""
    found: list[int] = []
    place: dict[int, int] = {}
    for value in ids:
        at = place.get(value)
        if at is None:
            place[value] = len(place)
            found.append(0)
        else:
            found.append(len(place) - at)
    return found
