"""From a code object and an instruction to file, line, columns, expression and names; each site once."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.events.types import Location
from torchglass.source.codes import Code, Instruction, instruction_at
from torchglass.source.expressions import Expression, read_expression
from torchglass.source.operands import Argument, CallShape, Slot, Slots, is_written_call, texts_of
from torchglass.source.origins import origin_of
from torchglass.source.syntax import char_column
from torchglass.source.text import SourceText

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
