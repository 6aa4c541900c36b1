"""Compile source text silently, to parse it or to prove that a code object comes from it."""

from __future__ import annotations
import __future__ as future

import ast
import re
import warnings
from collections.abc import Iterator
from types import CodeType
from typing import Any

from torchglass.source.codes import HERE, Code, digest_of

_FILENAME = "<torchglass compiles again>"
_NO_WARNINGS = ("ignore", None, Warning, re.compile(re.escape(_FILENAME)), 0)
_FEATURES = [getattr(future, name) for name in future.all_feature_names]
_FUTURE_FLAGS = sum({feature.compiler_flag for feature in _FEATURES} - {0x10})
"""The bits of ``__future__`` settings in ``co_flags``, but for nested_scopes, whose bit there means something else."""
_COMPILE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


def parse(text: str) -> ast.Module | None:
    """Return the syntax tree of a text, or None if the text is not Python."""
    tree = _compile(text, "exec", ast.PyCF_ONLY_AST)
    if isinstance(tree, ast.Module):
        return tree
    return None


def compile_again(text: str, mode: str = "exec", like: Code | None = None) -> CodeType | None:
    """Compile a text with the ``__future__`` settings of the code ``like``. Return None if it does not compile."""
    flags = 0
    if like is not None:
        flags = like.flags & _FUTURE_FLAGS
    code = _compile(text, mode, flags)
    if isinstance(code, CodeType):
        return code
    return None


def contains(root: CodeType, code: Code) -> bool:
    """Return whether the root is, or contains, the same code."""
    return any(is_same(candidate, code) for candidate in codes_of(root))


def codes_of(root: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all code objects in its constants, at any depth."""
    yield root
    for constant in root.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


def is_same(compiled: CodeType, recorded: Code) -> bool:
    """Return whether compiled and recorded code have equal instructions, positions, names and constants."""
    if (compiled.co_name, compiled.co_firstlineno) != (recorded.name, recorded.line):
        return False
    return recorded.opcodes == HERE and digest_of(compiled) == recorded.digest


def _compile(text: str, mode: str, flags: int) -> object:
    """Compile without showing warnings, which the program has already shown when it compiled the text itself.

    ``warnings.catch_warnings`` would reset which warnings were already shown, and it is not safe with threads. So this
    inserts a filter for our file name into the list of filters, and removes it again.
    """
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters.insert(0, _NO_WARNINGS)
    try:
        return compile(text, _FILENAME, mode, flags=flags, dont_inherit=True)
    except _COMPILE_ERRORS:
        return None
    finally:
        filters.remove(_NO_WARNINGS)
