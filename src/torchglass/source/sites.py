"""From a code object and an instruction to file, line, columns, expression and names; each site once."""

from __future__ import annotations

import builtins
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from torchglass.events.types import Location
from torchglass.source.codes import Code, Instruction, char_column, instruction_at
from torchglass.source.expressions import Argument, CallShape, Expression, Key, read_expression
from torchglass.source.text import SourceText, is_cell

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
        location=location_of(instruction, source, origin, readable and instruction.range.line is not None, readable),
        code=expression.code,
        target=expression.target,
        operator=expression.operator or instruction.operator,
        call=expression.shape,
        problem=problem,
    )


def location_of(instruction: Instruction, source: SourceText, origin: str, readable: bool, in_chars: bool) -> Location:
    """Where an instruction stands; ``readable``: the text may be shown.

    ``in_chars``: its columns are counted in characters, as people do; else in bytes, as Python does.
    """
    code, where = instruction.code, instruction.range
    line = where.line or code.line
    end_line = where.end_line or line
    return Location(
        file=code.file,
        line=line,
        end_line=end_line,
        col=_column(source, line, where.col, in_chars),
        end_col=_column(source, end_line, where.end_col, in_chars),
        function=code.qualname,
        source=source.line(line) if readable else "",
        origin=origin,
    )


def _column(source: SourceText, line: int, byte: int | None, in_chars: bool) -> int:
    if byte is None or not in_chars or not 0 < line <= len(source.lines):
        return byte or 0
    return char_column(source.lines[line - 1], byte)


# ---------------------------------------------------------------- operands

# From the arguments of a call that happened to the texts that they were written as.

_MIRRORED = {"<": "gt", ">": "lt", "<=": "ge", ">=": "le"}
_REFLECTED = frozenset(
    f"__r{name}__"
    for name in ("add", "sub", "mul", "matmul", "truediv", "div", "floordiv", "mod", "divmod", "pow",
                 "lshift", "rshift", "and", "or", "xor")
)  # fmt: skip
_UNBOUND = ("Tensor", "operator")
"""What stands before the dot when a method is called with its receiver as first argument."""
_HIGHER_ORDER = frozenset(vars(builtins)) | {
    "reduce", "map", "starmap", "accumulate", "partial", "apply", "index", "count", "remove", "submit",
}  # fmt: skip
"""What runs other functions out of sight, on arguments that are not its own."""


class Slot(NamedTuple):
    """Where one tensor stood among the arguments of a call: ``b`` of ``f(a, [b])`` at 1, path (0,)."""

    position: int | None
    keyword: str | None = None
    path: tuple[Key, ...] = ()
    """Indices and keys inside the argument; of a slice ``start``, ``stop``, ``step``."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The tensor arguments of a call that happened, in order, and what else helps to find their texts."""

    arguments: tuple[Slot, ...]
    positional: int
    """The number of all positional arguments, tensors or not; of a method with the receiver."""
    name: str = ""
    """As in ``Event.name``: ``Tensor.add`` is a method, ``F.relu`` and ``cat`` are not; ``""`` is not known
    (right for modules)."""
    parameters: tuple[str, ...] = ()
    """The names of the positional parameters, where known: torch may pass on by name what came by place."""

    @property
    def function(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def is_method(self) -> bool | None:
        return self.name.startswith("Tensor.") if self.name else None


def operands(site: Site, slots: Slots) -> tuple[str, ...]:
    """The source text of each tensor argument of a call made at this site; ``()`` when one is not certain."""
    shape, texts = site.call, list[str]()
    if shape is None:
        return ()
    find = _operand if shape.callee is None else _argument
    for slot in slots.arguments:
        argument = find(shape, slot, slots, site.operator)
        text = _inner(argument, slot.path) if argument else None
        if not text:
            return ()
        texts.append(text)
    return tuple(texts)


def is_direct(site: Site, slots: Slots) -> bool:
    """Whether what is written at the site made this call itself.

    ``sum(xs)`` adds and ``x in xs`` compares tensors out of sight: then target, operator and operands of the
    site are not those of the call.
    """
    return site.call is not None and _is_written(site.call, slots)


def _is_written(shape: CallShape, slots: Slots) -> bool:
    """Whether the call that happened is the one written, not one that a builtin written there has made."""
    if shape.callee is None:
        return not (shape.runs and slots.name) or _alike(shape.runs, slots.function)
    if not slots.name:
        return shape.callee not in _HIGHER_ORDER
    if _alike(shape.callee, slots.function):
        return True
    if shape.callee in _HIGHER_ORDER or (slots.is_method and shape.receiver is not None):
        return False
    starred = any(argument.starred for argument in shape.positional)
    return starred or slots.positional == len(shape.positional)


def _operand(shape: CallShape, slot: Slot, slots: Slots, operator: str | None) -> Argument | None:
    if slot.position is None or slot.position >= len(shape.positional):
        return None
    if not _is_written(shape, slots):
        return None
    operands = shape.positional[::-1] if _is_reflected(operator, slots.function) else shape.positional
    return operands[slot.position]


def _is_reflected(operator: str | None, function: str) -> bool:
    """``2 - x`` runs ``x.__rsub__(2)``, ``2 < x`` runs ``x.gt(2)``."""
    return function in _REFLECTED or function.strip("_") == _MIRRORED.get(operator or "")


def _argument(shape: CallShape, slot: Slot, slots: Slots, operator: str | None) -> Argument | None:
    bound = _takes_receiver(shape, slots)
    if bound is None or not _is_written(shape, slots):
        return None
    if slot.position is not None:
        index = slot.position - bound
        if index < 0:
            return shape.receiver
        known = slots.parameters[slot.position : slot.position + 1]
        return _at(shape, index) or (_by_keyword(shape, known[0]) if known else None)
    found = _by_keyword(shape, slot.keyword)
    if found is None and slot.keyword in slots.parameters:
        found = _at(shape, slots.parameters.index(slot.keyword) - bound)
    return found or _by_keyword(shape, None)


def _takes_receiver(shape: CallShape, slots: Slots) -> bool | None:
    """Whether what stands before the dot is the first argument; None when that is not certain."""
    extra = slots.positional - len(shape.positional)
    starred = any(argument.starred for argument in shape.positional)
    if shape.receiver is None or slots.is_method is False:
        return False
    if slots.is_method is None:
        certain = not starred and not shape.keywords and extra in (0, 1)
        return extra == 1 if certain else None
    if shape.receiver.text.rpartition(".")[2] in _UNBOUND:
        return False
    if not _alike(shape.callee or "", slots.function):
        return None
    # As many as written: a wrapper that passes some on by name, or an unbound method behind another name.
    return True if extra != 0 or starred or slots.parameters else None


def _alike(name: str, other: str) -> bool:
    return name.strip("_") == other.strip("_")


def _at(shape: CallShape, index: int) -> Argument | None:
    """The positional argument at an index; from a last ``*xs`` on, that."""
    if index < 0:
        return None
    for place, argument in enumerate(shape.positional[: index + 1]):
        if argument.starred:
            return argument if place == len(shape.positional) - 1 else None
    return shape.positional[index] if index < len(shape.positional) else None


def _by_keyword(shape: CallShape, name: str | None) -> Argument | None:
    return next((argument for keyword, argument in shape.keywords if keyword == name), None)


def _inner(argument: Argument, path: tuple[Key, ...]) -> str | None:
    """The text of what lies at a path inside an argument; None when the tensor cannot be that."""
    if argument.starred:
        return argument.text
    if not path:
        return None if argument.literal else argument.text
    if argument.items is None:
        if argument.literal or not argument.text:
            return None
        text = argument.text if argument.primary else f"({argument.text})"
        return text + "".join(f"[{key!r}]" for key in path)
    for key, item in argument.items:
        if key == path[0]:
            return _inner(item, path[1:])
        if item.starred:
            return item.text if item is argument.items[-1][1] else None
    return None


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
