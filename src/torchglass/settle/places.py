"""Raw stacks turned into places in the code: each site is resolved once, names are read only where they show."""

from __future__ import annotations

from collections.abc import Callable

from torchglass.events.schema import NONE, SiteNames
from torchglass.events.tables import Tables
from torchglass.journal.rows import ClassRow, CodeRow
from torchglass.settle.interned import Interned
from torchglass.source.codes import Code, instruction_at
from torchglass.source.sites import Site, location_of, origin_of, resolve
from torchglass.source.text import (
    FOLDERS,
    NOT_AVAILABLE,
    SourceText,
    known_text,
    read_source,
    read_unchanged,
    text_holding,
)

OURS = "ours"
StackKey = tuple[int, ...]
"""(base, code, instruction, code, instruction …), innermost frame first."""


class PlaceTable:
    """Fills the site and stack tables of one ``Tables``."""

    def __init__(self, interned: Interned, sources: Sources, tables: Tables) -> None:
        self.interned = interned
        self.sources = sources
        self.tables = tables
        self._stack_ids: dict[int, int] = {}
        self._site_ids: dict[tuple[int, int, bool], int] = {}
        self._sites: dict[int, Site] = {}
        """The names read at a site, by its number; only of sites that are some event's own."""
        self._direct: list[bool] = []
        """Whether the innermost frame of a stack is the user's."""
        self._names: dict[tuple[int, int], str | None] = {}
        """By which name a class has a code object as a method."""

    def stack(self, raw: int) -> int:
        """The number of a stack in the tables; its bases come first."""
        chain: list[int] = []
        while raw != NONE and raw not in self._stack_ids:
            chain.append(raw)
            base = self.interned.stacks[raw][0]
            if base >= raw:  # a stack is known before those on top of it: else it would have no end
                raise ValueError(f"stack {raw} stands on stack {base}, which came later")
            raw = base
        number = NONE if raw == NONE else self._stack_ids[raw]
        for each in reversed(chain):
            number = self._stack_ids[each] = self._add_stack(self.interned.stacks[each], number)
        return number

    def direct_site(self, stack: int) -> Site | None:
        """The names at the expression that made the call itself; None for calls from inside torch."""
        return self._sites.get(self.tables.stack_user[stack]) if self._direct[stack] else None

    def owner(self, raw: int, cls: int) -> str | None:
        """``Class.method`` of the innermost frame that is a method of a module."""
        while raw != NONE:
            key = self.interned.stacks[raw]
            for code in key[1::2]:
                owner = self._method(code, cls)
                if owner is not None:
                    return owner
            raw = key[0]
        return None

    def _add_stack(self, key: StackKey, base: int) -> int:
        tables = self.tables
        frames: list[tuple[int, int, str]] = []
        for position in range(1, len(key), 2):
            origin = self.sources.origin(key[position])
            if origin != OURS:
                frames.append((key[position], key[position + 1], origin))
        user = next((index for index, (_, _, origin) in enumerate(frames) if origin == "user"), None)
        sites = [self._site(code, lasti, origin, index == user) for index, (code, lasti, origin) in enumerate(frames)]
        number = len(tables.stack_sites)
        tables.stack_base.append(base)
        tables.stack_sites.append(tuple(reversed(sites)))
        inherited = tables.stack_user[base] if base != NONE else NONE
        tables.stack_user.append(inherited if user is None else sites[user])
        passed = [self.interned.code_rows[frame[0]] for frame in frames[:user]]
        self._direct.append(user is not None and all(map(_passes_through, passed)))
        return number

    def _site(self, code: int, lasti: int, origin: str, named: bool) -> int:
        key = (code, lasti, named)
        number = self._site_ids.get(key)
        if number is None:
            number = self._site_ids[key] = len(self.tables.sites)
            self.tables.sites.append(self._read_site(number, code, lasti, origin, named))
        return number

    def _read_site(self, number: int, code: int, lasti: int, origin: str, named: bool) -> SiteNames:
        source, read = self.sources.source(code), self.interned.code(code)
        if not named:  # nothing is parsed for the many frames that only stand in a stack
            readable = source.trusted or source.problem_with(read) is None
            at = location_of(instruction_at(read, lasti), source, origin, readable, source.trusted)
            return SiteNames(at, "", (), None, None)
        site = resolve(read, lasti, source, origin)
        self._sites[number] = site
        return SiteNames(site.location, site.code, site.target, site.operator, site.problem)

    def _method(self, code: int, cls: int) -> str | None:
        """The class under way if the code is one of its methods, else the class that defines it."""
        row = self.interned.code_rows[code]
        if cls != NONE:
            key = (cls, code)
            if key not in self._names:
                self._names[key] = _method_name(self.interned.classes[cls], row)
            name = self._names[key]
            if name is not None:
                return f"{self.interned.classes[cls].name}.{name}"
        return row.owner


_WRAPPERS = {"fn": "_jit_internal.py", "wrapper": "lr_scheduler.py", "__call__": "eval_frame.py"}
"""Of torch's own: ``boolean_dispatch`` chooses between two functions of one name, a learning rate scheduler wraps
``optimizer.step``, and a compiled module hands its call on."""


def _passes_through(code: CodeRow) -> bool:
    """Whether a frame of torch's only stands between a call that is written and the one that is meant."""
    return code.name in _WRAPPERS and code.file.endswith(_WRAPPERS[code.name])


def _method_name(cls: ClassRow, code: CodeRow) -> str | None:
    """By which name a class has this code as a method; a decorator's code has another name of its own."""
    owner, _, name = code.qualname.rpartition(".")
    if [code.module, owner] in cls.ancestors:
        return name
    return next((other[0] for other in cls.others if other[1:] == [code.file, code.line, code.name]), None)


# ---------------------------------------------------------------- sources

# The source texts that places are read from: kept copies, or the files themselves where they are unchanged.

Texts = Callable[[str], str | None]
"""The kept text of a digest."""


class Sources:
    """Source texts by file name, and by code object for code that has no file."""

    def __init__(self, interned: Interned, texts: Texts, is_here: bool) -> None:
        """``is_here``: the journal is this process's own."""
        self._interned = interned
        self._texts = texts
        self._is_here = is_here
        self._files: dict[str, SourceText] = {}
        self._executed: dict[int, SourceText] = {}
        self._defined_by_exec: dict[int, str | None] = {}

    def source(self, number: int) -> SourceText:
        """The source of a code object."""
        code, executed = self._interned.code(number), self.executed(number)
        if executed is not None:
            if number not in self._executed:
                self._executed[number] = SourceText(code.file, executed)
            return self._executed[number]
        if code.file not in self._files:
            self._files[code.file] = self._find(code)
        return self._files[code.file]

    def origin(self, number: int) -> str:
        """Whose code it is; code without a file is the user's where its source is known."""
        row = self._interned.code_rows[number]
        if self.executed(number) is not None:
            return "user"
        if not row.file.startswith("<"):
            return row.origin
        known = self.source(number).problem_with(self._interned.code(number)) is None
        return origin_of(row.file, source_known=known)

    def executed(self, number: int) -> str | None:
        """The text given to ``exec``, for code of that text and for functions that it defined."""
        row = self._interned.code_rows[number]
        if row.text is not None or row.file.startswith(FOLDERS):
            return row.text
        if number not in self._defined_by_exec:
            texts = {each.text for each in self._interned.code_rows.values() if each.text is not None}
            self._defined_by_exec[number] = text_holding(self._interned.code(number), texts) if texts else None
        return self._defined_by_exec[number]

    def texts(self) -> dict[str, str]:
        """What a trace keeps of the user's sources."""
        found = {row.file: self._texts(row.digest) for row in self._interned.sources.values() if row.digest is not None}
        return {file: text for file, text in found.items() if text is not None and _is_users(file)}

    def _find(self, code: Code) -> SourceText:
        row = self._interned.sources.get(code.file)
        text = None if row is None or row.digest is None else self._texts(row.digest)
        if row is not None and (text is not None or row.problem is not None):
            return known_text(code.file, text, row.problem, row.unproven)
        if self._is_here:
            return read_source(code.file)
        return SourceText(code.file, None, NOT_AVAILABLE) if row is None else read_unchanged(code.file, row.state)


def _is_users(file: str) -> bool:
    """Not what torch writes and has Python run; a file of the user's may be anywhere."""
    return not file.startswith("<") or origin_of(file, source_known=True) == "user"
