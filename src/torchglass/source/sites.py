"""From a code object and an instruction to file, line, columns, expression and names; each site once."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torchglass.events.types import Location
from torchglass.source.codes import Code, Instruction, instruction_at
from torchglass.source.expressions import Expression, read_expression
from torchglass.source.operands import Argument, CallShape, Slot, Slots, is_written_call, texts_of
from torchglass.source.syntax import char_column
from torchglass.source.text import SourceText, is_cell

__all__ = ["Argument", "CallShape", "Site", "Slot", "Slots", "is_direct", "operands", "origin_of", "resolve"]

NO_COLUMNS = "Python keeps no columns here (-X no_debug_ranges)"
NO_EXPRESSION = "no expression of the source fits this instruction"

_NOTHING = Expression("")


@dataclass(frozen=True, slots=True)
class Site:
    """One place in the code, as far as it could be read."""

    location: Location
    code: str
    """The exact expression; ``""`` when ``problem`` says why it is not known."""
    target: tuple[str, ...]
    operator: str | None
    call: CallShape | None
    problem: str | None


def resolve(code: Code, lasti: int, source: SourceText, origin: str | None = None) -> Site:
    """Read what is written at an instruction; what is not certain is left out and ``problem`` says why.

    ``origin``: whose code it is, where that is known. Sites are kept with their text, which outlives a recording.
    """
    key = (code.qualname, code.line, lasti, code.instructions, code.digest, code.opcodes.python, origin)
    known = source.sites.get(key)
    if known is None:
        known = source.sites[key] = _resolve(code, lasti, source, origin)
    return known


def _resolve(code: Code, lasti: int, source: SourceText, origin: str | None) -> Site:
    instruction = instruction_at(code, lasti)
    problem = source.problem_with(code)
    origin = origin or origin_of(code.file, source_known=problem is None)
    expression, readable = _NOTHING, problem is None
    if readable and source.syntax:
        if instruction.range.col is None:
            problem = NO_COLUMNS
        else:
            found = read_expression(source.syntax, instruction)
            problem, readable = (None, True) if found else (NO_EXPRESSION, False)
            expression = found or _NOTHING
    return Site(
        location=_location(instruction, source, readable, origin),
        code=expression.code,
        target=expression.target,
        operator=expression.operator or instruction.operator,
        call=expression.shape,
        problem=problem,
    )


def is_direct(site: Site, slots: Slots) -> bool:
    """Whether what is written at the site made this call itself.

    ``sum(xs)`` adds and ``x in xs`` compares tensors out of sight: then target, operator and operands of the
    site are not those of the call.
    """
    return site.call is not None and is_written_call(site.call, slots)


def operands(site: Site, slots: Slots) -> tuple[str, ...]:
    """The source text of each tensor argument of a call made at this site; ``()`` when one is not certain."""
    return texts_of(site.call, site.operator, slots)


def _location(instruction: Instruction, source: SourceText, readable: bool, origin: str) -> Location:
    """Columns are in characters where the text is known, else in the bytes that Python counts."""
    code, where = instruction.code, instruction.range
    line = where.line if where.line is not None else code.line
    end_line = where.end_line if where.end_line is not None else line
    return Location(
        file=code.file,
        line=line,
        end_line=end_line,
        col=_column(source, line, where.col, readable),
        end_col=_column(source, end_line, where.end_col, readable),
        function=code.qualname,
        source=source.line(line) if readable and where.line is not None else "",
        origin=origin,
    )


def _column(source: SourceText, line: int, byte: int | None, readable: bool) -> int:
    if byte is None:
        return 0
    if not readable or not 0 < line <= len(source.lines):
        return byte
    return char_column(source.lines[line - 1], byte)


# ---------------------------------------------------------------- origins

# Whose code a file is: the user's, torch's, the standard library's, generated, or our own.

_GENERATED = re.compile(
    r"<(eval_with_key|__array_function__ internals|attrs generated|decorator-gen|makefun-gen|lambdifygen)|"
    r"namedtuple_|.*[\\/]torchinductor_[^\\/]*[\\/]"
)
_SITE_PACKAGES = re.compile(r"[\\/](site|dist)-packages[\\/]")


def origin_of(filename: str, source_known: bool = False) -> str:
    """``user``, ``torch``, ``stdlib``, ``generated`` or, for torchglass itself, ``ours``.

    ``source_known`` matters only for names that are no file, as ``<string>``: what a user gave to exec has
    a known source, what dataclasses make has none.
    """
    return _origin_by_name(filename, source_known) if filename.startswith("<") else _origin_by_path(filename)


@cache
def _origin_by_name(filename: str, source_known: bool) -> str:
    if filename.startswith("<frozen"):
        return "stdlib"
    if _GENERATED.match(filename):
        return "generated"
    return "user" if source_known or filename == "<stdin>" or is_cell(filename) else "generated"


@cache
def _origin_by_path(filename: str) -> str:
    if _GENERATED.match(filename):
        return "generated"
    path = _spelling(Path(filename).absolute())
    for origin, roots in (("ours", _our_roots()), ("torch", _torch_roots())):
        if path.startswith(roots):
            return origin
    below = next((path[len(root) - 1 :] for root in _stdlib_roots() if path.startswith(root)), None)
    return "user" if below is None or _SITE_PACKAGES.match(below) else "stdlib"


@cache
def _our_roots() -> tuple[str, ...]:
    return _roots([Path(__file__).parents[1]])


@cache
def _torch_roots() -> tuple[str, ...]:
    """The folders of torch and of what is shipped with it, found without importing them."""
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    if spec is None and "torch" not in sys.modules:
        spec = importlib.util.find_spec("torch")
    places = [Path(each) for each in spec.submodule_search_locations or ()] if spec else []
    return _roots([*places, *(each.with_name(name) for each in places for name in ("functorch", "torchgen"))])


@cache
def _stdlib_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    zipped = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    archives = [Path(each) for each in sys.path if Path(each).name == zipped]
    return _roots([Path(paths["stdlib"]), Path(paths["platstdlib"]), Path(os.__file__).parent, *archives])


def _roots(folders: Iterable[Path]) -> tuple[str, ...]:
    """Each folder as given and with its links followed, with a separator at the end."""
    spellings = {_spelling(each) for folder in folders for each in (folder.absolute(), folder.resolve())}
    return tuple(sorted(each + os.sep for each in spellings))


def _spelling(path: Path) -> str:
    # Not resolve(): a link from a project into another folder is still the project's file.
    return os.path.normcase(os.path.normpath(path))
