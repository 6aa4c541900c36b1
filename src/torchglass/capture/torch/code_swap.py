"""Replaces the code of two functions of torch by code that goes straight to the compiled engine.

``nn.Module._wrapped_call_impl`` runs for every call of a module. A Python function of torch finds the rule for every
op below a dispatch mode. The functions stay where they are; only their code is another one while something records. In
the new code, what it calls stands among the constants, because its globals are those of torch.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from torchglass.capture.engine import fast
from torchglass.capture.torch import private
from torchglass.capture.transparency.modes import compiled_op_mode
from torchglass.capture.transparency.patches import Patch


class CodeSwap:
    """Replaces the code of one function while it is installed.

    Setting ``nn.Module.__call__`` makes Python look at each of its hundreds of subclasses, which takes 0.3 ms.
    Replacing the code of the existing function avoids this, and tracebacks still show its frame, name and line.
    """

    def __init__(self, function: FunctionType, make: Callable[[CodeType], CodeType]) -> None:
        self.function = function
        self.original = function.__code__
        """The code to replace and to restore. If the program sets other code, that code stays in place."""
        self._replacement = make(self.original)

    def install(self) -> None:
        if self.function.__code__ is self.original:
            self.function.__code__ = self._replacement

    def remove(self) -> None:
        if self.function.__code__ is self._replacement:
            self.function.__code__ = self.original


class ModuleCalls(CodeSwap):
    """Replaces the code of ``nn.Module.__call__``. If the program has replaced the function, wraps that one instead."""

    def __init__(self, function: FunctionType, fallback: Patch) -> None:
        super().__init__(function, _calling_code)
        self._fallback = fallback

    def install(self) -> None:
        if nn.Module.__call__ is self.function and self.function.__code__ is self.original:
            super().install()
        else:
            self._fallback.install()

    def remove(self) -> None:
        super().remove()
        self._fallback.remove()


def _calling_code(original: CodeType) -> CodeType:
    """Return code that passes its arguments to C. In tracebacks it looks like the original's call of ``_call_impl``."""
    place = _place_of(original)
    assert place is not None  # `can_be_swapped` has found it
    tree = ast.parse(
        "def f(self, *args, **kwargs):\n call = 'call'; return call(self, args, kwargs)"
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.lineno = original.co_firstlineno
            node.end_lineno = place[1]
        elif isinstance(node, (ast.stmt, ast.expr, ast.arg)):
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = place
    module = compile(tree, original.co_filename, "exec")
    code = next(each for each in module.co_consts if isinstance(each, CodeType))
    code = _with_constants(code, {"call": fast.extension.module_call})
    return code.replace(co_name=original.co_name, co_qualname=original.co_qualname)


def _with_constants(code: CodeType, objects: dict[str, Any]) -> CodeType:
    """Return code in which the objects stand in the place of the strings that name them.

    The code needs no globals then, so it works with the globals of whatever function it is put into.
    """
    constants: list[Any] = []
    for constant in code.co_consts:
        if isinstance(constant, str) and constant in objects:
            constants.append(objects[constant])
        else:
            constants.append(constant)
    return code.replace(co_consts=tuple(constants))


def finds_rules(function: Any) -> bool:
    """Return whether ``function`` is torch's Python function that finds the rule for an op and a dispatch mode."""
    return (
        type(function) is FunctionType
        and not function.__code__.co_freevars
        and function.__code__.co_varnames[: function.__code__.co_argcount]
        == ("op", "torch_dispatch_class")
    )


def skip_our_mode(original: CodeType) -> CodeType:
    """Return code that returns None for our mode, which has no rules, and calls the original for all other modes."""
    module = compile(
        "def f(op, torch_dispatch_class):\n ours = 'ours'; find = 'find'\n"
        " return None if torch_dispatch_class is ours else find(op, torch_dispatch_class)",
        original.co_filename,
        "exec",
    )
    code = next(each for each in module.co_consts if isinstance(each, CodeType))
    find = FunctionType(original, private.find_dispatch_rule.__globals__)
    code = _with_constants(code, {"ours": compiled_op_mode(), "find": find})
    return code.replace(
        co_name=original.co_name,
        co_qualname=original.co_qualname,
        co_firstlineno=original.co_firstlineno,
    )


def can_be_swapped(function: Any) -> bool:
    """Return whether ``function`` is torch's ``_wrapped_call_impl`` as ``ModuleCalls`` expects it."""
    if type(function) is not FunctionType or function.__code__.co_freevars:
        return False
    return _place_of(function.__code__) is not None


def _place_of(code: CodeType) -> tuple[int, int, int, int] | None:
    """Return the lines and columns where torch's code calls ``_call_impl``.

    Return None if the code does not call it, or takes other arguments.
    """
    if code.co_varnames[:3] != ("self", "args", "kwargs"):
        return None
    is_named = False
    for each in dis.get_instructions(code):
        is_named |= each.argval == "_call_impl"
        if is_named and each.opname == "CALL_FUNCTION_EX" and each.positions is not None:
            at = each.positions
            place = (at.lineno, at.end_lineno, at.col_offset, at.end_col_offset)
            if None in place:
                return None
            return place  # type: ignore[return-value]
    return None
