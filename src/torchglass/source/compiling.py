"""Compiling source text again, in silence, to prove that a code object comes from it."""

from __future__ import annotations
import __future__ as future

import ast
import re
import warnings
from collections.abc import Iterator
from types import CodeType
from typing import Any

_NAME = "<torchglass compiles again>"
_SILENCE = ("ignore", None, Warning, re.compile(re.escape(_NAME)), 0)
_FEATURES = [getattr(future, name) for name in future.all_feature_names]
_FUTURE_FLAGS = sum({feature.compiler_flag for feature in _FEATURES} - {0x10})
"""All but nested_scopes, whose bit means something else in ``co_flags``."""
_COMPARED = (
    "co_name", "co_firstlineno", "co_code", "co_linetable", "co_exceptiontable", "co_names", "co_varnames",
    "co_freevars", "co_cellvars", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount",
)  # fmt: skip
_FAILURES = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


def parse(text: str) -> ast.Module | None:
    """The syntax tree; None when the text is no Python."""
    tree = _compile(text, "exec", ast.PyCF_ONLY_AST)
    return tree if isinstance(tree, ast.Module) else None


def compile_again(text: str, mode: str = "exec", like: CodeType | None = None) -> CodeType | None:
    """The code of a text, with the ``__future__`` settings of another code; None when it does not compile."""
    code = _compile(text, mode, like.co_flags & _FUTURE_FLAGS if like else 0)
    return code if isinstance(code, CodeType) else None


def contains(root: CodeType, code: CodeType) -> bool:
    """Whether the code, or one that is the same, is part of the root."""
    return any(is_same(each, code) for each in codes_of(root))


def codes_of(root: CodeType) -> Iterator[CodeType]:
    """The code and all code inside it."""
    yield root
    for constant in root.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


def is_same(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects are equal in instructions, positions, names and constants."""
    # Not `==`: in some releases that compares the caches which a running function fills.
    if any(getattr(one, name) != getattr(other, name) for name in _COMPARED):
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    return all(map(_same_constant, one.co_consts, other.co_consts))


def _same_constant(one: object, other: object) -> bool:
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        return is_same(one, other)
    return type(one) is type(other) and one == other


def _compile(text: str, mode: str, flags: int) -> object:
    """Compile without a warning reaching the program, which has had its own already.

    ``warnings.catch_warnings`` would show warnings anew that were to be shown once, and it races with other
    threads. A filter that only matches our file name, put in and taken out of the list itself, does neither.
    """
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters.insert(0, _SILENCE)
    try:
        return compile(text, _NAME, mode, flags=flags, dont_inherit=True)
    except _FAILURES:
        return None
    finally:
        filters.remove(_SILENCE)
