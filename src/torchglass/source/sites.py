"""Resolve a site, a code object and an instruction, to its file, line, columns, expression and names."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.events.types import Location
from torchglass.source.codes import Code
from torchglass.source.expressions import CallShape, Expression, read_expression
from torchglass.source.instructions import Instruction, instruction_at
from torchglass.source.location_table import char_column
from torchglass.source.origins import origin_of
from torchglass.source.text import SourceText

NO_COLUMNS = "Python keeps no columns here (-X no_debug_ranges)"
NO_EXPRESSION = "no expression of the source fits this instruction"

_NO_EXPRESSION = Expression("")


@dataclass(frozen=True, slots=True)
class Site:
    """What could be read of one site."""

    location: Location
    code: str
    """The exact expression; ``""`` if it could not be read."""
    target: tuple[str, ...]
    """The names that the result is assigned to."""
    operator: str | None
    """The operator that the instruction was written as, such as ``@``."""
    call: CallShape | None
    """The operands as written."""
    problem: str | None
    """Why the expression could not be read; None if it could."""


def resolve(code: Code, lasti: int, source: SourceText, origin: str | None = None) -> Site:
    """Read what is written at an instruction. Leave out what is uncertain, and say why in ``Site.problem``.

    ``origin`` is passed where it is already known (see origins.py). Each site is read once and cached with its text,
    which later recordings use, too.
    """
    key = (
        code.qualname,
        code.line,
        lasti,
        code.instructions,
        code.digest,
        code.opcodes.python,
        origin,
    )
    site = source.sites.get(key)
    if site is None:
        site = source.sites[key] = _resolve(code, lasti, source, origin)
    return site


def _resolve(code: Code, lasti: int, source: SourceText, origin: str | None) -> Site:
    instruction = instruction_at(code, lasti)
    problem = source.problem_with(code)
    origin = origin or origin_of(code.file, source_known=problem is None)
    expression = None
    fits = problem is None
    if fits and source.syntax:
        if instruction.range.col is None:
            problem = NO_COLUMNS
        else:
            expression = read_expression(source.syntax, instruction)
            if expression is None:
                problem = NO_EXPRESSION
                fits = False
    if expression is None:
        expression = _NO_EXPRESSION
    shows_text = fits and instruction.range.line is not None
    return Site(
        location=location_of(instruction, source, origin, shows_text, in_chars=fits),
        code=expression.code,
        target=expression.target,
        operator=expression.operator or instruction.operator,
        call=expression.shape,
        problem=problem,
    )


def location_of(
    instruction: Instruction, source: SourceText, origin: str, shows_text: bool, in_chars: bool
) -> Location:
    """Return the location of an instruction in the source.

    ``shows_text`` says whether the location may include the text of its line. With ``in_chars`` its columns count
    characters, as people do. Otherwise they count bytes, as Python does, because the text is not certain to fit.
    """
    code = instruction.code
    where = instruction.range
    line = where.line or code.line
    end_line = where.end_line or line
    text = ""
    if shows_text:
        text = source.line(line)
    return Location(
        file=code.file,
        line=line,
        end_line=end_line,
        col=_column(source, line, where.col, in_chars),
        end_col=_column(source, end_line, where.end_col, in_chars),
        function=code.qualname,
        source=text,
        origin=origin,
    )


def _column(source: SourceText, line: int, byte: int | None, in_chars: bool) -> int:
    if byte is None or not in_chars or not 0 < line <= len(source.lines):
        return byte or 0
    return char_column(source.lines[line - 1], byte)
