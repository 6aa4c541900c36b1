"""Compiling source text again, in silence, to prove that a code object comes from it."""

from __future__ import annotations
import __future__ as future

import ast
import re
import warnings
from collections.abc import Iterator
from types import CodeType
from typing import Any

from torchglass.source.codes import HERE, Code, digest_of

_NAME = "<torchglass compiles again>"
_SILENCE = ("ignore", None, Warning, re.compile(re.escape(_NAME)), 0)
_FEATURES = [getattr(future, name) for name in future.all_feature_names]
_FUTURE_FLAGS = sum({feature.compiler_flag for feature in _FEATURES} - {0x10})
"""All but nested_scopes, whose bit means something else in ``co_flags``."""
_FAILURES = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


def parse(text: str) -> ast.Module | None:
    """The syntax tree; None when the text is no Python."""
    tree = _compile(text, "exec", ast.PyCF_ONLY_AST)
    return tree if isinstance(tree, ast.Module) else None


def compile_again(text: str, mode: str = "exec", like: Code | None = None) -> CodeType | None:
    """The code of a text, with the ``__future__`` settings of another code; None when it does not compile."""
    code = _compile(text, mode, like.flags & _FUTURE_FLAGS if like else 0)
    return code if isinstance(code, CodeType) else None


def contains(root: CodeType, code: Code) -> bool:
    """Whether the code, or one that is the same, is part of the root."""
    return any(is_same(each, code) for each in codes_of(root))


def codes_of(root: CodeType) -> Iterator[CodeType]:
    """The code and all code inside it."""
    yield root
    for constant in root.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


def is_same(one: CodeType, other: Code) -> bool:
    """Whether code that was just compiled is what ran: equal in instructions, positions, names and constants."""
    if (one.co_name, one.co_firstlineno) != (other.name, other.line):
        return False
    return other.opcodes == HERE and digest_of(one) == other.digest


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
