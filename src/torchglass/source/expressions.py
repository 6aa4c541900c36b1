"""What is written at an instruction: its text, the names its result goes to, the texts of its operands."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from torchglass.source.codes import CALLS, COMPARISONS, Instruction
from torchglass.source.statements import STORES, store_text
from torchglass.source.syntax import Located, Syntax, assigned_value, assignment_to, target_names, targets_of

_Node = TypeVar("_Node", bound=ast.AST)

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_COMPOUND = (
    ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.For | ast.AsyncFor | ast.While | ast.If
    | ast.With | ast.AsyncWith | ast.Match | ast.Try | ast.TryStar | ast.ExceptHandler
)  # fmt: skip
_PRIMARY = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.List, ast.Dict, ast.ListComp, ast.Constant)
_MOST_ITEMS = 256

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


Key = int | str


@dataclass(frozen=True, slots=True)
class Argument:
    """One operand or argument, as written."""

    text: str
    """``""`` when it has no text of its own."""
    starred: bool = False
    literal: bool = False
    """A constant or a display: never a tensor itself."""
    primary: bool = True
    """Whether an index can be put behind the text without parentheses."""
    items: tuple[tuple[Key | None, Argument], ...] | None = None
    """The elements of a list, tuple, dict or slice that is written out."""


@dataclass(frozen=True, slots=True)
class CallShape:
    """What is written at a site, as far as it names operands."""

    positional: tuple[Argument, ...]
    """A call's positional arguments, an operator's operands in the order in which its method takes them."""
    receiver: Argument | None = None
    """``x`` of ``x.f(…)``; also ``torch`` of ``torch.f(…)``: only the call that happened tells them apart."""
    keywords: tuple[tuple[str | None, Argument], ...] = ()
    """Name and text; None is ``**``."""
    callee: str | None = None
    """The last name of what is called; ``""`` when it has none; None when this is no call."""
    runs: str = ""
    """The special method that this syntax runs; ``""`` when that is open."""


@dataclass(frozen=True, slots=True)
class Expression:
    """What is written at one instruction."""

    code: str
    target: tuple[str, ...] = ()
    shape: CallShape | None = None
    operator: str | None = None
    """Where the instruction does not tell."""


def read_expression(syntax: Syntax, instruction: Instruction) -> Expression | None:
    """The expression that compiled to the instruction; None when nothing fits its range and its kind."""
    nodes = [node for node in syntax.nodes_at(instruction.range) if syntax.is_exact(node)]
    read = _READERS.get(instruction.name, _read_protocol)
    if instruction.name == "CALL_INTRINSIC_1" and instruction.operator:
        read = _read_unary
    found = read(syntax, nodes, instruction) if nodes else None
    if found is None and (pattern := _pick(nodes, ast.pattern)):
        return Expression(syntax.text(pattern))  # a pattern compares, indexes and unpacks without saying so
    return found


def _pick(nodes: list[Located], kind: type[_Node] | tuple[type[_Node], ...]) -> _Node | None:
    return next((node for node in nodes if isinstance(node, kind)), None)


def _read_call(syntax: Syntax, nodes: list[Located], instruction: Instruction) -> Expression | None:
    call = _pick(nodes, ast.Call)
    if call is not None:
        if _is_called_again(syntax, call) and instruction.alike(CALLS - {"PRECALL"})[0] < instruction.offset:
            # The decorator that f(x) gave is applied, or the context that it gave is left.
            return Expression(syntax.text(call))
        return Expression(syntax.text(call), targets_of(syntax, call), _call_shape(syntax, call))
    comprehension = _pick(nodes, _COMPREHENSIONS)
    if comprehension is not None:
        return Expression(syntax.text(comprehension), targets_of(syntax, comprehension))
    return _read_protocol(syntax, nodes, instruction)


def _is_called_again(syntax: Syntax, call: ast.Call) -> bool:
    parent = syntax.parent(call)
    return isinstance(parent, ast.withitem) or call in getattr(parent, "decorator_list", ())


def _call_shape(syntax: Syntax, call: ast.Call) -> CallShape:
    function = call.func
    is_attribute = isinstance(function, ast.Attribute)
    name = function.attr if is_attribute else function.id if isinstance(function, ast.Name) else ""
    return CallShape(
        positional=tuple(argument(syntax, each) for each in call.args),
        receiver=argument(syntax, function.value) if is_attribute else None,
        keywords=tuple((each.arg, _keyword(syntax, each)) for each in call.keywords),
        callee=name,
    )


def _keyword(syntax: Syntax, keyword: ast.keyword) -> Argument:
    if keyword.arg is None:
        return Argument(f"**{syntax.text(keyword.value)}", starred=True)
    return argument(syntax, keyword.value)


def argument(syntax: Syntax, node: ast.expr) -> Argument:
    """An operand or argument with, where it is written out, its elements."""
    if isinstance(node, ast.Starred):
        return Argument(f"*{syntax.text(node.value)}", starred=True)
    items = _items(syntax, node)
    literal = items is not None or isinstance(node, ast.Constant | ast.JoinedStr | ast.Lambda)
    return Argument(syntax.text(node), False, literal, isinstance(node, _PRIMARY), items)


def _items(syntax: Syntax, node: ast.expr) -> tuple[tuple[int | str | None, Argument], ...] | None:
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) <= _MOST_ITEMS:
        return tuple((index, argument(syntax, each)) for index, each in enumerate(node.elts))
    if isinstance(node, ast.Dict) and len(node.keys) <= _MOST_ITEMS:
        pairs = zip(node.keys, node.values, strict=True)
        return tuple((_constant_key(key), argument(syntax, value)) for key, value in pairs)
    if isinstance(node, ast.Slice):
        parts = {"start": node.lower, "stop": node.upper, "step": node.step}
        return tuple((key, argument(syntax, part)) for key, part in parts.items() if part)
    return None


def _constant_key(node: ast.expr | None) -> int | str | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int | str) else None


def _read_binary(syntax: Syntax, nodes: list[Located], instruction: Instruction) -> Expression | None:
    node = _pick(nodes, (ast.BinOp, ast.AugAssign))
    if isinstance(node, ast.AugAssign):
        if instruction.operator != f"{_BINARY_SYMBOLS[type(node.op)]}=":
            return None
        operands = (argument(syntax, node.target), argument(syntax, node.value))
        return Expression(syntax.text(node), (syntax.text(node.target),), CallShape(operands))
    if isinstance(node, ast.BinOp):
        if instruction.operator != _BINARY_SYMBOLS[type(node.op)]:
            return None
        operands = (argument(syntax, node.left), argument(syntax, node.right))
        return Expression(syntax.text(node), targets_of(syntax, node), CallShape(operands))
    return _read_subscript(syntax, nodes, instruction)


def _read_unary(syntax: Syntax, nodes: list[Located], instruction: Instruction) -> Expression | None:
    node = _pick(nodes, ast.UnaryOp)
    if node is None:
        return None
    shape = CallShape((argument(syntax, node.operand),))
    # From 3.13 on `not x` asks for the truth of x in an instruction of its own.
    operator = "not" if isinstance(node.op, ast.Not) else None
    return Expression(syntax.text(node), targets_of(syntax, node), shape, operator)


def _read_compare(syntax: Syntax, nodes: list[Located], instruction: Instruction) -> Expression | None:
    node = _pick(nodes, ast.Compare)
    negated = _pick(nodes, ast.UnaryOp)
    if negated is not None and isinstance(negated.operand, ast.Compare):
        node = negated.operand  # 3.13 gives the comparison of `not a < b` the range of the whole
    if node is None:
        return None
    place = _place_in_chain(node, instruction)
    if place is None:
        return Expression(syntax.text(node))
    operands = [node.left, *node.comparators][place : place + 2]
    contains = instruction.name == "CONTAINS_OP"
    pair = tuple(argument(syntax, each) for each in (reversed(operands) if contains else operands))
    target = targets_of(syntax, node) if place == len(node.ops) - 1 else ()
    return Expression(syntax.text(node), target, CallShape(pair, runs="__contains__" if contains else ""))


def _place_in_chain(node: ast.Compare, instruction: Instruction) -> int | None:
    """Which comparison of ``a < b < c`` this is; None when that cannot be told."""
    places = [place for place, each in enumerate(node.ops) if type(each) in _COMPARE_SYMBOLS]
    alike = instruction.alike(COMPARISONS)
    if not places or len(alike) % len(places):
        return None
    # The condition of a loop is compiled twice, each time whole.
    place = places[alike.index(instruction.offset) % len(places)]
    return place if _COMPARE_SYMBOLS[type(node.ops[place])] == instruction.operator else None


def _read_subscript(syntax: Syntax, nodes: list[Located], instruction: Instruction) -> Expression | None:
    node = _pick(nodes, ast.Subscript)
    if node is None:
        return None
    shape = CallShape((argument(syntax, node.value), argument(syntax, node.slice)), runs="__getitem__")
    return Expression(syntax.text(node), targets_of(syntax, node), shape)


def _read_attribute(syntax: Syntax, nodes: list[Located], instruction: Instruction) -> Expression | None:
    node = _pick(nodes, ast.Attribute)
    if node is None:
        return None
    return Expression(syntax.text(node), targets_of(syntax, node), CallShape((argument(syntax, node.value),)))


def _read_store(syntax: Syntax, nodes: list[Located], instruction: Instruction) -> Expression | None:
    node = _pick(nodes, (ast.Subscript, ast.Attribute))
    if node is None:
        return None
    place = [node.value, node.slice] if isinstance(node, ast.Subscript) else [node.value]
    operands = [argument(syntax, each) for each in place]
    statement = assignment_to(syntax, node)
    if statement is None or isinstance(statement, ast.Delete):
        return Expression(syntax.text(statement or node), (), CallShape(tuple(operands)))
    value = assigned_value(syntax, node)
    # `x[i] += y` stores what is then x[i]; a value that was unpacked has no text of its own.
    written = node if isinstance(statement, ast.AugAssign) else value
    operands.append(argument(syntax, written) if written else Argument(""))
    runs = "__setitem__" if isinstance(node, ast.Subscript) else ""
    return Expression(syntax.text(statement), (syntax.text(node),), CallShape(tuple(operands), runs=runs))


def _read_unpack(syntax: Syntax, nodes: list[Located], instruction: Instruction) -> Expression | None:
    node = _pick(nodes, (ast.Tuple, ast.List))
    statement = assignment_to(syntax, node) if node else None
    if node is None or statement is None:
        return Expression(syntax.text(node or nodes[0]))
    value = assigned_value(syntax, node)
    shape = CallShape((argument(syntax, value),), runs="__iter__") if value else None
    return Expression(syntax.text(statement), target_names(syntax, node), shape)


def _read_protocol(syntax: Syntax, nodes: list[Located], instruction: Instruction) -> Expression | None:
    """Loops, conditions, contexts, formatting, imports …: shown is the expression they are about."""
    name = instruction.name
    if name == "TO_BOOL" and isinstance(_pick(nodes, ast.UnaryOp), ast.UnaryOp):
        return _read_unary(syntax, nodes, instruction)
    node = _pick(nodes, ast.expr) or nodes[0]
    if isinstance(node, ast.Await | ast.YieldFrom):
        return Expression(syntax.text(node), targets_of(syntax, node))
    if isinstance(node, ast.pattern):
        return Expression(_pattern_text(syntax, node, instruction))
    subject, certain = _subject(node, instruction)
    if isinstance(subject, _COMPOUND):
        return Expression(syntax.text(subject).partition("\n")[0].rstrip())
    runs = "__bool__" if instruction.tests_truth else _PROTOCOLS.get(name)
    shape = None
    if certain and runs and isinstance(subject, ast.expr) and not isinstance(subject, _COMPREHENSIONS):
        shape = CallShape((argument(syntax, subject),), runs=runs)
    return Expression(syntax.text(subject), (), shape)


def _subject(node: Located, instruction: Instruction) -> tuple[Located, bool]:
    """The expression that an instruction of this range is about, and whether it is that one for certain.

    Before 3.12 (loops and contexts: 3.13) the range is the whole statement's.
    """
    name = instruction.name
    if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp) and instruction.tests_truth:
        return _condition(node.test)
    if isinstance(node, ast.BoolOp):
        first = node.values[0]
        only = len(node.values) == 2 and not isinstance(first, ast.BoolOp | ast.Compare)
        return (first, True) if only else (node, False)
    if isinstance(node, ast.For | ast.AsyncFor) and "ITER" in name:
        return node.iter, True
    if isinstance(node, _COMPREHENSIONS) and "ITER" in name and len(node.generators) == 1:
        return node.generators[0].iter, True
    if isinstance(node, ast.With | ast.AsyncWith) and len(node.items) == 1:
        return node.items[0].context_expr, True
    return _formatted(node)


def _condition(test: ast.expr) -> tuple[Located, bool]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _condition(test.operand)
    chain = isinstance(test, ast.Compare) and len(test.ops) > 1
    return test, not (chain or isinstance(test, ast.BoolOp | ast.IfExp))


def _formatted(node: Located) -> tuple[Located, bool]:
    if isinstance(node, ast.JoinedStr):
        fields = [each for each in node.values if isinstance(each, ast.FormattedValue)]
        nested = any(each.format_spec for each in fields)
        return (fields[0].value, True) if len(fields) == 1 and not nested else (node, False)
    if isinstance(node, ast.FormattedValue):
        return node.value, True
    return node, not isinstance(node, ast.Compare)


def _pattern_text(syntax: Syntax, pattern: ast.pattern, instruction: Instruction) -> str:
    """The pattern; before 3.12 a guard is tested at the pattern's range, so then both are shown."""
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
