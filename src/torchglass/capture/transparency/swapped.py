"""What the compiled engine replaces in torch: the inside of ``nn.Module.__call__``, and the way to function modes.

Setting ``nn.Module.__call__`` makes Python look at each of its hundreds of subclasses, which takes 0.3 ms. Giving the
function that stands there another code does not, and leaves its frame in tracebacks, with its name and line. Warnings
are counted past the frames of functions that we call a second time.
"""

from __future__ import annotations

import ast
import dis
import sys
import warnings
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from torchglass.capture.engine import fast
from torchglass.capture.torch import private
from torchglass.capture.transparency.modes import compiled_op_mode
from torchglass.capture.transparency.patches import Patch

_HANDLER = "handle_torch_function"


def is_possible() -> bool:
    """Whether the code of ``nn.Module.__call__`` can be exchanged: it is torch's own, and C is at work."""
    return fast.is_used() and nn.Module.__call__ is private.wrapped_call and _can_be_exchanged(private.wrapped_call)


def patches() -> list[Any]:
    """What is replaced for the compiled engine; nothing where there is none."""
    if not fast.is_used():
        return []
    made: list[Any] = [_handler_in(module) for module in _modules_that_ask()]
    if is_possible():
        made.append(CodeSwap(private.wrapped_call, _calling_code))
    if _asks_for_rules(private.find_dispatch_rule):
        made.append(CodeSwap(private.find_dispatch_rule, _finding_code))
    if warnings.warn is _warn:
        made.append(_WARN)
    return made


_warn = warnings.warn
_WARN = Patch(warnings, "warn", lambda _: fast.extension.warn)


@cache
def _handler_in(module: Any) -> Patch:
    return Patch(module, _HANDLER, _make_handle)


def _make_handle(_: Any) -> Any:
    return fast.extension.handle_torch_function


def _modules_that_ask() -> list[Any]:
    """The modules whose functions find ``handle_torch_function`` among their own names."""
    names = ("torch.nn.functional", "torch.functional", "torch._tensor")
    modules = [sys.modules[name] for name in names if name in sys.modules]
    return [module for module in modules if vars(module).get(_HANDLER) is private.handle_torch_function]


class CodeSwap:
    """Another code for one function, put in and taken out like a patch."""

    def __init__(self, function: FunctionType, other: Callable[[CodeType], CodeType]) -> None:
        self._function = function
        self._other = other
        self._original: CodeType | None = None

    def install(self) -> None:
        self._original = self._function.__code__
        self._function.__code__ = self._other(self._original)

    def remove(self) -> None:
        """Put the original back; where the program has set another in the meantime, that stays."""
        original, self._original = self._original, None
        if original is not None and self._function.__code__ is self._other(original):
            self._function.__code__ = original


@cache
def _calling_code(original: CodeType) -> CodeType:
    """Code that hands its arguments to C, and says that it is the original, at the place of its plain call."""
    place = _place_of(original)
    assert place is not None
    tree = ast.parse("def f(self, *args, **kwargs):\n call = 'call'; return call(self, args, kwargs)")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.lineno, node.end_lineno = original.co_firstlineno, place[1]
        elif isinstance(node, (ast.stmt, ast.expr, ast.arg)):
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = place
    module = compile(tree, original.co_filename, "exec")
    code = next(each for each in module.co_consts if isinstance(each, CodeType))
    constants = tuple(fast.extension.module_call if each == "call" else each for each in code.co_consts)
    return code.replace(co_consts=constants, co_name=original.co_name, co_qualname=original.co_qualname)


def _asks_for_rules(function: Any) -> bool:
    """Whether torch's way to a dispatch mode leads through a function of this kind."""
    return (
        type(function) is FunctionType
        and not function.__code__.co_freevars
        and function.__code__.co_varnames[: function.__code__.co_argcount] == ("op", "torch_dispatch_class")
    )


@cache
def _finding_code(original: CodeType) -> CodeType:
    """Code that knows that nobody has written a rule for our mode, and asks the original about all others."""
    module = compile(
        "def f(op, torch_dispatch_class):\n ours = 'ours'; find = 'find'\n"
        " return None if torch_dispatch_class is ours else find(op, torch_dispatch_class)",
        original.co_filename,
        "exec",
    )
    code = next(each for each in module.co_consts if isinstance(each, CodeType))
    found = {"ours": compiled_op_mode(), "find": FunctionType(original, private.find_dispatch_rule.__globals__)}
    constants = tuple(found.get(each, each) if isinstance(each, str) else each for each in code.co_consts)
    return code.replace(
        co_consts=constants, co_name=original.co_name, co_qualname=original.co_qualname,
        co_firstlineno=original.co_firstlineno,
    )  # fmt: skip


def _can_be_exchanged(function: Any) -> bool:
    if type(function) is not FunctionType or function.__code__.co_freevars:
        return False
    return _place_of(function.__code__) is not None


@cache
def _place_of(code: CodeType) -> tuple[int, int, int, int] | None:
    """Where torch's own code calls ``_call_impl``; None where it does not, or takes other arguments."""
    if code.co_varnames[:3] != ("self", "args", "kwargs"):
        return None
    is_named = False
    for each in dis.get_instructions(code):
        is_named |= each.argval == "_call_impl"
        if is_named and each.opname == "CALL_FUNCTION_EX" and each.positions is not None:
            at = each.positions
            found = (at.lineno, at.end_lineno, at.col_offset, at.end_col_offset)
            return None if None in found else found  # type: ignore[return-value]
    return None
