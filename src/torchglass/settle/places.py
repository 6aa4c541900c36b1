"""Turn the stacks of a journal into sites in the code.

A stack in the journal is a list of (code object, instruction) pairs, innermost frame first, on top of another stack.
A *site* is the place in the source of one such pair. Each site is read once, and its names only where they are shown.
"""

from __future__ import annotations

from typing import NamedTuple

from torchglass.events.schema import NONE, SiteNames
from torchglass.events.tables import Tables
from torchglass.events.types import Location
from torchglass.journal.rows import ClassRow, CodeRow, PlaceRow
from torchglass.settle.journal_rows import JournalRows
from torchglass.settle.sources import Sources
from torchglass.source.instructions import instruction_at
from torchglass.source.sites import Site, location_of, resolve

OURS = "ours"
"""The origin of torchglass's own code, which has no sites."""
StackKey = tuple[int, ...]
"""(number of the stack below, code, instruction, code, instruction, …), innermost frame first."""


class StackFrame(NamedTuple):
    """One frame of a stack."""

    code: int
    instruction: int
    origin: str


class PlaceTable:
    """Fills the site and stack tables of one ``Tables``."""

    def __init__(self, journal_rows: JournalRows, sources: Sources, tables: Tables) -> None:
        self.journal_rows = journal_rows
        self.sources = sources
        self.tables = tables
        self._stack_ids: dict[int, int] = {}
        self.site_ids: dict[tuple[int, int, bool], int] = {}
        """Keyed by code object, instruction, and whether the expression is read."""
        self._sites: dict[int, Site] = {}
        """The names read at each site, by its number in the tables."""
        self._direct: list[bool] = []
        """For each stack in the tables, whether its innermost frame is the user's."""
        self._names: dict[tuple[int, int], str | None] = {}
        """The name of a method, keyed by class and code object. None if the class has no such method."""

    def stack(self, raw: int) -> int:
        """Return the number in the tables of a stack of the journal. Add it and the stacks below it if they are new."""
        new_stacks: list[int] = []
        while raw != NONE and raw not in self._stack_ids:
            new_stacks.append(raw)
            base = self.journal_rows.stacks[raw][0]
            # The recorder writes a base first. In a damaged journal, following the bases might never end.
            if base >= raw:
                raise ValueError(f"stack {raw} is based on stack {base}, which came later")
            raw = base
        number = NONE
        if raw != NONE:
            number = self._stack_ids[raw]
        for new in reversed(new_stacks):
            number = self._stack_ids[new] = self._add_stack(self.journal_rows.stacks[new], number)
        return number

    def direct_site(self, stack: int) -> Site | None:
        """Return the site of the user's expression that made the call itself, or None for calls from inside torch."""
        if self._direct[stack]:
            return self._sites.get(self.tables.stack_user[stack])
        return None

    def innermost(self, raw: int) -> StackFrame | None:
        """Return the innermost frame of a stack of the journal, or None if it has none. The stack need not be kept."""
        while raw in self.journal_rows.stacks:
            key = self.journal_rows.stacks[raw]
            for position in range(1, len(key), 2):
                origin = self.sources.origin(key[position])
                if origin != OURS:
                    return StackFrame(key[position], key[position + 1], origin)
            # In a damaged journal, following the bases might never end.
            if key[0] >= raw:
                return None
            raw = key[0]
        return None

    def owner(self, raw: int, cls: int) -> str | None:
        """Return ``Class.method`` of the innermost frame that is a method of a module, or None if there is none."""
        while raw != NONE:
            key = self.journal_rows.stacks[raw]
            for code in key[1::2]:
                owner = self._method(code, cls)
                if owner is not None:
                    return owner
            raw = key[0]
        return None

    def _add_stack(self, key: StackKey, base: int) -> int:
        """Add a stack to the tables, and return its number there."""
        tables = self.tables
        frames = self._frames(key)
        user_frame = None
        for index, frame in enumerate(frames):
            if frame.origin == "user":
                user_frame = index
                break
        sites: list[int] = []
        for index, frame in enumerate(frames):
            has_expression = index == user_frame
            sites.append(self._site(frame.code, frame.instruction, frame.origin, has_expression))
        user_site = NONE
        if user_frame is not None:
            user_site = sites[user_frame]
        elif base != NONE:
            user_site = tables.stack_user[base]
        number = len(tables.stack_sites)
        tables.stack_base.append(base)
        tables.stack_sites.append(tuple(reversed(sites)))
        tables.stack_user.append(user_site)
        inner_codes = [self.journal_rows.code_rows[frame.code] for frame in frames[:user_frame]]
        self._direct.append(user_frame is not None and all(map(_only_forwards, inner_codes)))
        return number

    def _frames(self, key: StackKey) -> list[StackFrame]:
        """Return the frames of a stack without torchglass's own, innermost first."""
        found: list[StackFrame] = []
        for code, instruction in zip(key[1::2], key[2::2], strict=True):
            origin = self.sources.origin(code)
            if origin != OURS:
                found.append(StackFrame(code, instruction, origin))
        return found

    def _site(self, code: int, lasti: int, origin: str, has_expression: bool) -> int:
        key = (code, lasti, has_expression)
        number = self.site_ids.get(key)
        if number is None:
            number = self.site_ids[key] = len(self.tables.sites)
            self.tables.sites.append(self._read_site(number, code, lasti, origin, has_expression))
        return number

    def _read_site(
        self, number: int, code: int, lasti: int, origin: str, has_expression: bool
    ) -> SiteNames:
        stored = self.journal_rows.places.get((code, lasti, has_expression))
        if stored is not None:
            return names_of_row(stored, self.journal_rows.code_rows[code].file)
        source = self.sources.source(code)
        code_object = self.journal_rows.code(code)
        if not has_expression:
            # The source of the many frames that are only in a stack is not parsed.
            shows_text = source.is_trusted or source.problem_with(code_object) is None
            location = location_of(
                instruction_at(code_object, lasti), source, origin, shows_text, source.is_trusted
            )
            return SiteNames(location, "", (), None, None)
        site = resolve(code_object, lasti, source, origin)
        self._sites[number] = site
        return SiteNames(site.location, site.code, site.target, site.operator, site.problem)

    def read_site(self, code: int, lasti: int, origin: str) -> SiteNames:
        """Return the location of a site that is only in stacks, without names."""
        return self._read_site(NONE, code, lasti, origin, has_expression=False)

    def _method(self, code: int, cls: int) -> str | None:
        """Return ``Class.method`` for a code object, or None if it is not a method of a module.

        The class is that of the running module, ``cls``, if the code is one of its methods, or else the defining one.
        """
        row = self.journal_rows.code_rows[code]
        if cls != NONE:
            key = (cls, code)
            if key not in self._names:
                self._names[key] = _method_name(self.journal_rows.classes[cls], row)
            name = self._names[key]
            if name is not None:
                return f"{self.journal_rows.classes[cls].name}.{name}"
        return row.owner


def names_of_row(row: PlaceRow, file: str) -> SiteNames:
    """Return the names that were read at a site when the recording ended."""
    line, end_line, col, end_col = row.place
    at = Location(file, line, end_line, col, end_col, row.function, row.source, row.origin)
    return SiteNames(at, row.expression, tuple(row.target), row.operator, row.problem)


_FORWARDING = {"fn": "_jit_internal.py", "wrapper": "lr_scheduler.py", "__call__": "eval_frame.py"}
"""Functions of torch that only forward a call, each with its file.

``boolean_dispatch`` chooses between two functions of one name, a learning rate scheduler wraps ``optimizer.step``, and
a compiled module calls the original one.
"""


def _only_forwards(code: CodeRow) -> bool:
    """Return whether a frame of torch only forwards the user's call to the recorded function."""
    return code.name in _FORWARDING and code.file.endswith(_FORWARDING[code.name])


def _method_name(cls: ClassRow, code: CodeRow) -> str | None:
    """Return the name under which a class has this code as a method, or None.

    The code of a decorator is named otherwise.
    """
    owner, _, name = code.qualname.rpartition(".")
    if [code.module, owner] in cls.ancestors:
        return name
    for method, *method_code in cls.others:
        if method_code == [code.file, code.line, code.name]:
            return method
    return None
