"""Read the source expression of an instruction: its text, its operands, and the names that its result is assigned to.

Several syntax nodes may have the range of an instruction. There is one reader for each kind of instruction, and it
picks the node that compiles to such an instruction.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from torchglass.source.instructions import CALLS, COMPARISONS, Instruction
from torchglass.source.stores import STORES, store_text
from torchglass.source.syntax import Located, Syntax
from torchglass.source.targets import assigned_value, assignment_to, target_names, targets_of

_Node = TypeVar("_Node", bound=ast.AST)

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_COMPOUND = (
    ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.For | ast.AsyncFor | ast.While | ast.If
    | ast.With | ast.AsyncWith | ast.Match | ast.Try | ast.TryStar | ast.ExceptHandler
)  # fmt: skip
_PRIMARY = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Call,
    ast.List,
    ast.Dict,
    ast.ListComp,
    ast.Constant,
)
"""Expressions that an index can follow without parentheses."""
_MAX_ITEMS = 256
"""Number of elements up to which those of a written-out list or dict are read."""

_BINARY_SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.BitAnd: "&", ast.FloorDiv: "//", ast.LShift: "<<", ast.MatMult: "@", ast.Mult: "*",
    ast.Mod: "%", ast.BitOr: "|", ast.Pow: "**", ast.RShift: ">>", ast.Sub: "-", ast.Div: "/",
    ast.BitXor: "^",
}  # fmt: skip
_COMPARE_SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_PROTOCOLS = {
    "GET_ITER": "__iter__",
    "BEFORE_WITH": "__enter__",
    "FORMAT_VALUE": "__format__",
    "FORMAT_SIMPLE": "__format__",
    "FORMAT_WITH_SPEC": "__format__",
}
"""The special method that an instruction calls."""

Key = int | str
"""An index or a key of an element; in a slice ``start``, ``stop`` or ``step``."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One operand or argument, as written."""

    text: str
    """``""`` if it has no text."""
    starred: bool = False
    """Whether it is ``*xs`` or ``**options``."""
    literal: bool = False
    """Whether it is a constant, a lambda or a written-out container, which is never a tensor itself."""
    primary: bool = True
    """Whether an index can follow the text without parentheses."""
    items: tuple[tuple[Key | None, Argument], ...] | None = None
    """The elements of a list, tuple, dict or slice that is written out."""


@dataclass(frozen=True, slots=True)
class CallShape:
    """The operands of the call or operator at a site, as written."""

    positional: tuple[Argument, ...]
    """The positional arguments of a call, or the operands of an operator in the order that its method expects."""
    receiver: Argument | None = None
    """What precedes the dot: ``x`` in ``x.f(…)``, but also ``torch`` in ``torch.f(…)``."""
    keywords: tuple[tuple[str | None, Argument], ...] = ()
    """The name and value of each keyword argument. The name of ``**options`` is None."""
    callee: str | None = None
    """The last name of the called expression, or ``""`` if it has none. None for operators and other syntax."""
    runs: str = ""
    """The special method that this syntax runs, or ``""`` if several are possible."""


@dataclass(frozen=True, slots=True)
class Expression:
    """The source expression of one instruction."""

    code: str
    """Its text."""
    target: tuple[str, ...] = ()
    """The names that its result is assigned to."""
    shape: CallShape | None = None
    """Its operands."""
    operator: str | None = None
    """Its operator, if that does not follow from the instruction."""


def read_expression(syntax: Syntax, instruction: Instruction) -> Expression | None:
    """Return the expression that compiled to the instruction, or None if none fits its range and kind."""
    nodes = [node for node in syntax.nodes_at(instruction.range) if syntax.is_exact(node)]
    read = _READERS.get(instruction.name, _read_protocol)
    if instruction.name == "CALL_INTRINSIC_1" and instruction.operator:
        read = _read_unary
    expression = None
    if nodes:
        expression = read(syntax, nodes, instruction)
    if expression is None:
        # A pattern of a ``match`` compares, indexes and unpacks with all kinds of instructions.
        pattern = _first_of(nodes, ast.pattern)
        if pattern is not None:
            return Expression(syntax.text(pattern))
    return expression


def _first_of(nodes: list[Located], kind: type[_Node] | tuple[type[_Node], ...]) -> _Node | None:
    return next((node for node in nodes if isinstance(node, kind)), None)


def _read_call(syntax: Syntax, nodes: list[Located], instruction: Instruction) -> Expression | None:
    call = _first_of(nodes, ast.Call)
    if call is not None:
        if _is_second_call(syntax, call, instruction):
            return Expression(syntax.text(call))
        return Expression(syntax.text(call), targets_of(syntax, call), _call_shape(syntax, call))
    comprehension = _first_of(nodes, _COMPREHENSIONS)
    if comprehension is not None:
        return Expression(syntax.text(comprehension), targets_of(syntax, comprehension))
    return _read_protocol(syntax, nodes, instruction)


def _is_second_call(syntax: Syntax, call: ast.Call, instruction: Instruction) -> bool:
    """Return whether an instruction calls what ``f(x)`` returned, with the same range.

    ``@f(x)`` calls the decorator that ``f`` returned, and ``with f(x):`` calls its ``__exit__``.
    """
    parent = syntax.parent(call)
    if not isinstance(parent, ast.withitem) and call not in getattr(parent, "decorator_list", ()):
        return False
    first_call = instruction.offsets_of_same_range(CALLS - {"PRECALL"})[0]
    return instruction.offset > first_call


def _call_shape(syntax: Syntax, call: ast.Call) -> CallShape:
    function = call.func
    receiver = None
    name = ""
    if isinstance(function, ast.Attribute):
        receiver = argument(syntax, function.value)
        name = function.attr
    elif isinstance(function, ast.Name):
        name = function.id
    return CallShape(
        positional=_arguments(syntax, *call.args),
        receiver=receiver,
        keywords=tuple((keyword.arg, _keyword(syntax, keyword)) for keyword in call.keywords),
        callee=name,
    )


def _keyword(syntax: Syntax, keyword: ast.keyword) -> Argument:
    if keyword.arg is None:
        return Argument(f"**{syntax.text(keyword.value)}", starred=True)
    return argument(syntax, keyword.value)


def argument(syntax: Syntax, node: ast.expr) -> Argument:
    """Return an operand or argument, with its elements if it is a written-out container."""
    if isinstance(node, ast.Starred):
        return Argument(f"*{syntax.text(node.value)}", starred=True)
    items = _items(syntax, node)
    literal = items is not None or isinstance(node, ast.Constant | ast.JoinedStr | ast.Lambda)
    primary = isinstance(node, _PRIMARY)
    return Argument(syntax.text(node), literal=literal, primary=primary, items=items)


def _arguments(syntax: Syntax, *nodes: ast.expr) -> tuple[Argument, ...]:
    return tuple(argument(syntax, node) for node in nodes)


def _items(syntax: Syntax, node: ast.expr) -> tuple[tuple[Key | None, Argument], ...] | None:
    """Return the elements of a written-out list, tuple, dict or slice; None for anything else."""
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) <= _MAX_ITEMS:
        return tuple(enumerate(_arguments(syntax, *node.elts)))
    if isinstance(node, ast.Dict) and len(node.keys) <= _MAX_ITEMS:
        keys = map(_constant_key, node.keys)
        return tuple(zip(keys, _arguments(syntax, *node.values), strict=True))
    if isinstance(node, ast.Slice):
        parts = {"start": node.lower, "stop": node.upper, "step": node.step}
        return tuple((key, argument(syntax, part)) for key, part in parts.items() if part)
    return None


def _constant_key(node: ast.expr | None) -> int | str | None:
    value = None
    if isinstance(node, ast.Constant):
        value = node.value
    if isinstance(value, int | str):
        return value
    return None


def _read_binary(
    syntax: Syntax, nodes: list[Located], instruction: Instruction
) -> Expression | None:
    node = _first_of(nodes, (ast.BinOp, ast.AugAssign))
    if isinstance(node, ast.AugAssign):
        if instruction.operator != f"{_BINARY_SYMBOLS[type(node.op)]}=":
            return None
        target = (syntax.text(node.target),)
        shape = CallShape(_arguments(syntax, node.target, node.value))
        return Expression(syntax.text(node), target, shape)
    if isinstance(node, ast.BinOp):
        if instruction.operator != _BINARY_SYMBOLS[type(node.op)]:
            return None
        shape = CallShape(_arguments(syntax, node.left, node.right))
        return Expression(syntax.text(node), targets_of(syntax, node), shape)
    return _read_subscript(syntax, nodes, instruction)


def _read_unary(
    syntax: Syntax, nodes: list[Located], instruction: Instruction
) -> Expression | None:
    node = _first_of(nodes, ast.UnaryOp)
    if node is None:
        return None
    shape = CallShape(_arguments(syntax, node.operand))
    operator = None
    if isinstance(node.op, ast.Not):
        # From Python 3.13 on, `not x` is compiled to two instructions, one of which tests the truth of x.
        operator = "not"
    return Expression(syntax.text(node), targets_of(syntax, node), shape, operator)


def _read_compare(
    syntax: Syntax, nodes: list[Located], instruction: Instruction
) -> Expression | None:
    node = _first_of(nodes, ast.Compare)
    negated = _first_of(nodes, ast.UnaryOp)
    if negated is not None and isinstance(negated.operand, ast.Compare):
        # From Python 3.13 on, the comparison in `not a < b` has the range of the whole.
        node = negated.operand
    if node is None:
        return None
    index = _index_in_chain(node, instruction)
    if index is None:
        return Expression(syntax.text(node))
    operands = [node.left, *node.comparators][index : index + 2]
    runs = ""
    if instruction.name == "CONTAINS_OP":
        # `x in xs` runs xs.__contains__(x).
        operands.reverse()
        runs = "__contains__"
    target = ()
    if index == len(node.ops) - 1:
        target = targets_of(syntax, node)
    shape = CallShape(_arguments(syntax, *operands), runs=runs)
    return Expression(syntax.text(node), target, shape)


def _index_in_chain(node: ast.Compare, instruction: Instruction) -> int | None:
    """Return which comparison of ``a < b < c`` an instruction is, from 0, or None if that is uncertain."""
    # `is` and `is not` compile to other instructions.
    indices = [index for index, op in enumerate(node.ops) if type(op) in _COMPARE_SYMBOLS]
    offsets = instruction.offsets_of_same_range(COMPARISONS)
    if not indices or len(offsets) % len(indices):
        return None
    # The condition of a loop is compiled twice, each time with all its comparisons.
    index = indices[offsets.index(instruction.offset) % len(indices)]
    if _COMPARE_SYMBOLS[type(node.ops[index])] == instruction.operator:
        return index
    return None


def _read_subscript(
    syntax: Syntax, nodes: list[Located], instruction: Instruction
) -> Expression | None:
    node = _first_of(nodes, ast.Subscript)
    if node is None:
        return None
    shape = CallShape(_arguments(syntax, node.value, node.slice), runs="__getitem__")
    return Expression(syntax.text(node), targets_of(syntax, node), shape)


def _read_attribute(
    syntax: Syntax, nodes: list[Located], instruction: Instruction
) -> Expression | None:
    node = _first_of(nodes, ast.Attribute)
    if node is None:
        return None
    shape = CallShape(_arguments(syntax, node.value))
    return Expression(syntax.text(node), targets_of(syntax, node), shape)


def _read_store(
    syntax: Syntax, nodes: list[Located], instruction: Instruction
) -> Expression | None:
    node = _first_of(nodes, (ast.Subscript, ast.Attribute))
    if node is None:
        return None
    operands = [argument(syntax, node.value)]
    if isinstance(node, ast.Subscript):
        operands.append(argument(syntax, node.slice))
    statement = assignment_to(syntax, node)
    if statement is None or isinstance(statement, ast.Delete):
        return Expression(syntax.text(statement or node), (), CallShape(tuple(operands)))
    value = assigned_value(syntax, node)
    if isinstance(statement, ast.AugAssign):
        # `x[i] += y` stores the new x[i].
        value = node
    if value is None:
        # The value was unpacked, so it has no text.
        operands.append(Argument(""))
    else:
        operands.append(argument(syntax, value))
    runs = ""
    if isinstance(node, ast.Subscript):
        runs = "__setitem__"
    target = (syntax.text(node),)
    return Expression(syntax.text(statement), target, CallShape(tuple(operands), runs=runs))


def _read_unpack(
    syntax: Syntax, nodes: list[Located], instruction: Instruction
) -> Expression | None:
    node = _first_of(nodes, (ast.Tuple, ast.List))
    statement = None
    if node:
        statement = assignment_to(syntax, node)
    if node is None or statement is None:
        return Expression(syntax.text(node or nodes[0]))
    value = assigned_value(syntax, node)
    shape = None
    if value:
        shape = CallShape((argument(syntax, value),), runs="__iter__")
    return Expression(syntax.text(statement), target_names(syntax, node), shape)


def _read_protocol(
    syntax: Syntax, nodes: list[Located], instruction: Instruction
) -> Expression | None:
    """Read the expression that a loop, condition, context, format or import works on."""
    name = instruction.name
    if name == "TO_BOOL" and isinstance(_first_of(nodes, ast.UnaryOp), ast.UnaryOp):
        return _read_unary(syntax, nodes, instruction)
    node = _first_of(nodes, ast.expr) or nodes[0]
    if isinstance(node, ast.Await | ast.YieldFrom):
        return Expression(syntax.text(node), targets_of(syntax, node))
    if isinstance(node, ast.pattern):
        return Expression(_pattern_text(syntax, node, instruction))
    subject = _subject(node, instruction)
    operand = subject.node
    if isinstance(operand, _COMPOUND):
        return Expression(syntax.text(operand).partition("\n")[0].rstrip())
    if instruction.tests_truth:
        runs = "__bool__"
    else:
        runs = _PROTOCOLS.get(name)
    if not subject.is_certain:
        runs = None
    shape = None
    if runs and isinstance(operand, ast.expr) and not isinstance(operand, _COMPREHENSIONS):
        shape = CallShape(_arguments(syntax, operand), runs=runs)
    return Expression(syntax.text(operand), (), shape)


class _Subject(NamedTuple):
    """What an instruction works on."""

    node: Located
    is_certain: bool
    """Whether the instruction works on nothing else that the node contains."""


def _subject(node: Located, instruction: Instruction) -> _Subject:
    """Return the expression that an instruction with the range of a node works on.

    Before Python 3.12 the instruction has the range of the whole statement, and before 3.13 also in loops and contexts.
    """
    name = instruction.name
    if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp) and instruction.tests_truth:
        return _condition(node.test)
    if isinstance(node, ast.BoolOp):
        first = node.values[0]
        is_only_test = len(node.values) == 2 and not isinstance(first, ast.BoolOp | ast.Compare)
        if is_only_test:
            return _Subject(first, is_certain=True)
        return _Subject(node, is_certain=False)
    if isinstance(node, ast.For | ast.AsyncFor) and "ITER" in name:
        return _Subject(node.iter, is_certain=True)
    if isinstance(node, _COMPREHENSIONS) and "ITER" in name and len(node.generators) == 1:
        return _Subject(node.generators[0].iter, is_certain=True)
    if isinstance(node, ast.With | ast.AsyncWith) and len(node.items) == 1:
        return _Subject(node.items[0].context_expr, is_certain=True)
    return _formatted(node)


def _condition(test: ast.expr) -> _Subject:
    """Return the tested expression of a condition, without ``not``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _condition(test.operand)
    is_chain = isinstance(test, ast.Compare) and len(test.ops) > 1
    tests_several = is_chain or isinstance(test, ast.BoolOp | ast.IfExp)
    return _Subject(test, is_certain=not tests_several)


def _formatted(node: Located) -> _Subject:
    """Return the formatted expression of an f-string if it has only one; for other nodes, the node itself."""
    if isinstance(node, ast.JoinedStr):
        fields = [part for part in node.values if isinstance(part, ast.FormattedValue)]
        is_nested = any(field.format_spec for field in fields)
        if len(fields) == 1 and not is_nested:
            return _Subject(fields[0].value, is_certain=True)
        return _Subject(node, is_certain=False)
    if isinstance(node, ast.FormattedValue):
        return _Subject(node.value, is_certain=True)
    return _Subject(node, is_certain=not isinstance(node, ast.Compare))


def _pattern_text(syntax: Syntax, pattern: ast.pattern, instruction: Instruction) -> str:
    """Return the text of a pattern, with its guard if the guard is tested.

    Before Python 3.12 the test of a guard has the range of the pattern.
    """
    case = syntax.parent(pattern)
    while case is not None and not isinstance(case, ast.match_case):
        case = syntax.parent(case)
    if case is None or case.guard is None or not instruction.tests_truth:
        return syntax.text(pattern)
    return syntax.between(case.pattern, case.guard)


_Reader = Callable[[Syntax, list[Located], Instruction], Expression | None]
_READERS: dict[str, _Reader] = {
    **dict.fromkeys(CALLS, _read_call),
    **dict.fromkeys(COMPARISONS, _read_compare),
    **dict.fromkeys(("BINARY_SUBSCR", "BINARY_SLICE"), _read_subscript),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"), _read_attribute),
    **dict.fromkeys(("STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR"), _read_store),
    **dict.fromkeys(("STORE_ATTR", "DELETE_ATTR"), _read_store),
    **dict.fromkeys(("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "UNARY_NOT"), _read_unary),
    **dict.fromkeys(("UNPACK_SEQUENCE", "UNPACK_EX"), _read_unpack),
    **dict.fromkeys(STORES, lambda syntax, nodes, _: Expression(store_text(syntax, nodes))),
    "BINARY_OP": _read_binary,
}
