"""Raw stacks turned into places in the code: each site is resolved once, names are read only where they show."""

from __future__ import annotations

import sys
from types import CodeType, FunctionType
from typing import Any

from torchglass.capture.settling.shelf import Shelf
from torchglass.capture.stack import FOLDERS, StackKey, StackTable
from torchglass.capture.torch_names import Module
from torchglass.events.tables import NONE, SiteNames, Tables
from torchglass.events.types import Location
from torchglass.source.instructions import instruction_at
from torchglass.source.sites import Site, resolve
from torchglass.source.syntax import char_column
from torchglass.source.text import SourceText, text_holding

OURS = "ours"


class Places:
    """Fills the site and stack tables of one ``Tables``."""

    def __init__(self, stacks: StackTable, shelf: Shelf, tables: Tables) -> None:
        self.stacks = stacks
        self.shelf = shelf
        self.tables = tables
        self._keys: list[StackKey | None] = []
        self._stack_ids: dict[int, int] = {}
        self._site_ids: dict[tuple[int, int, bool], int] = {}
        self._sites: dict[int, Site] = {}
        """The names read at a site, by its number; only of sites that are some event's own."""
        self._defined_by_exec: dict[int, str | None] = {}
        self._direct: list[bool] = []
        """Whether the innermost frame of a stack is the user's."""
        self._methods: dict[int, str | None] = {}
        self._names: dict[tuple[int, int], str | None] = {}
        """By which name a class has a code object as a method."""

    def stack(self, raw: int) -> int:
        """The number of a stack in the tables; its bases come first."""
        chain: list[int] = []
        while raw != NONE and raw not in self._stack_ids:
            chain.append(raw)
            raw = self._key(raw)[0]
        number = NONE if raw == NONE else self._stack_ids[raw]
        for each in reversed(chain):
            number = self._stack_ids[each] = self._add_stack(self._key(each), number)
        return number

    def direct_site(self, stack: int) -> Site | None:
        """The names at the expression that made the call itself; None for calls from inside torch."""
        return self._sites.get(self.tables.stack_user[stack]) if self._direct[stack] else None

    def owner(self, raw: int, cls: type | None) -> str | None:
        """``Class.method`` of the innermost frame that is a method of a module."""
        while raw != NONE:
            key = self._key(raw)
            for code_id in key[1::2]:
                code = self.stacks.codes[code_id]
                owner = self._method(code, code_id, cls)
                if owner is not None:
                    return owner
            raw = key[0]
        return None

    def _key(self, raw: int) -> StackKey:
        if raw >= len(self._keys):
            known = dict(self.stacks.ids)  # a copy: other threads may be adding
            self._keys = [None] * (max(known.values()) + 1)
            for key, number in known.items():
                self._keys[number] = key
        key = self._keys[raw]
        assert key is not None
        return key

    def _add_stack(self, key: StackKey, base: int) -> int:
        tables = self.tables
        frames: list[tuple[CodeType, int, str]] = []
        for position in range(1, len(key), 2):
            code = self.stacks.codes[key[position]]
            origin = self.shelf.origin(code, self._executed(code))
            if origin != OURS:
                frames.append((code, key[position + 1], origin))
        user = next((index for index, (_, _, origin) in enumerate(frames) if origin == "user"), None)
        sites = [self._site(code, lasti, origin, index == user) for index, (code, lasti, origin) in enumerate(frames)]
        number = len(tables.stack_sites)
        tables.stack_base.append(base)
        tables.stack_sites.append(tuple(reversed(sites)))
        inherited = tables.stack_user[base] if base != NONE else NONE
        tables.stack_user.append(inherited if user is None else sites[user])
        self._direct.append(user is not None and all(_passes_through(frame[0]) for frame in frames[:user]))
        return number

    def _site(self, code: CodeType, lasti: int, origin: str, named: bool) -> int:
        key = (id(code), lasti, named)
        number = self._site_ids.get(key)
        if number is None:
            number = self._site_ids[key] = len(self.tables.sites)
            self.tables.sites.append(self._read_site(number, code, lasti, origin, named))
        return number

    def _read_site(self, number: int, code: CodeType, lasti: int, origin: str, named: bool) -> SiteNames:
        source = self.shelf.source(code, self._executed(code))
        if not named:
            return SiteNames(_line_only(code, lasti, source, origin), "", (), None, None)
        site = resolve(code, lasti, source)
        self._sites[number] = site
        return SiteNames(site.location, site.code, site.target, site.operator, site.problem)

    def _executed(self, code: CodeType) -> str | None:
        """The text given to ``exec``, for code of that text and for functions that it defined."""
        known = self.stacks.exec_sources
        if not known or id(code) in known:
            return known.get(id(code))
        if id(code) not in self._defined_by_exec:
            unknown = not code.co_filename.startswith(FOLDERS)
            self._defined_by_exec[id(code)] = text_holding(code, set(known.values())) if unknown else None
        return self._defined_by_exec[id(code)]

    def _method(self, code: CodeType, code_id: int, cls: type | None) -> str | None:
        """The class under way if the code is one of its methods, else the class that defines it."""
        name = None
        if cls is not None:
            key = (id(cls), code_id)  # who asks keeps the class
            if key not in self._names:
                self._names[key] = _method_name(cls, code)
            name = self._names[key]
        if cls is not None and name is not None:
            return f"{cls.__name__}.{name}"
        if code_id not in self._methods:
            found = _defining_class(code, self.stacks.module_names.get(code_id))
            is_ours = found is not None and issubclass(found, Module) and found is not Module
            self._methods[code_id] = f"{found.__name__}.{code.co_name}" if found is not None and is_ours else None
        return self._methods[code_id]


def _passes_through(code: CodeType) -> bool:
    """``boolean_dispatch``: a frame of torch's that only chooses between two functions of the same name."""
    return code.co_name == "fn" and code.co_filename.endswith("_jit_internal.py")


def _method_name(cls: type, code: CodeType) -> str | None:
    """By which name a class has this code as a method; a decorator's code has another name of its own."""
    for each in cls.__mro__:
        if each is Module:
            return None
        for name in (code.co_name, *vars(each)):
            method = vars(each).get(name)
            if _runs(getattr(method, "__func__", method), code):
                return name
    return None


def _runs(function: Any, code: CodeType) -> bool:
    """Whether this function, or what it wraps, runs that code."""
    for _ in range(8):
        if type(function) is FunctionType and function.__code__ is code:
            return True
        function = getattr(function, "__wrapped__", None)
        if function is None:
            return False
    return False


def _defining_class(code: CodeType, module_name: str | None) -> type | None:
    """By qualified name, where the class can be reached so."""
    found: Any = sys.modules.get(module_name or "")
    *owners, method = code.co_qualname.split(".")
    if found is None or not owners or "<locals>" in owners:
        return None
    for name in owners:
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
        if found is None:
            return None
    return found if isinstance(found, type) and method in vars(found) else None


def _line_only(code: CodeType, lasti: int, source: SourceText, origin: str) -> Location:
    """The place without its names: nothing is parsed for the many frames that only stand in a stack."""
    where = instruction_at(code, lasti).range
    line = where.line or code.co_firstlineno
    end_line = where.end_line or line
    return Location(
        file=code.co_filename,
        line=line,
        end_line=end_line,
        col=_column(source, line, where.col),
        end_col=_column(source, end_line, where.end_col),
        function=code.co_qualname,
        source=source.line(line) if source.trusted or source.problem_with(code) is None else "",
        origin=origin,
    )


def _column(source: SourceText, line: int, byte: int | None) -> int:
    """Python counts columns in bytes; people in characters."""
    if byte is None or not source.trusted or not 0 < line <= len(source.lines):
        return byte or 0
    return char_column(source.lines[line - 1], byte)
