"""Decides which code is watched, and under which scope its variables are reported.

By default the user's code is watched, and text that the user's code executes with ``exec``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from torchglass.source.origins import origin_of

if TYPE_CHECKING:
    from torchglass.capture.engine.stack import StackTable

_AROUND = "execnet|ipykernel|jupyter_client|zmq|tornado|debugpy"
"""Libraries through which a test runner, a notebook or a debugger communicates, on its own threads."""
_NOT_MEANT = re.compile(
    rf"[\\/](site|dist)-packages[\\/]((numpy|{_AROUND})[\\/]|typing_extensions\.py$)"
)
_PACKAGES = re.compile(r"[\\/](site|dist)-packages[\\/]")
INSTALLED = frozenset({"torch", "stdlib", "ours"})
"""The origins (source/origins.py) of code that is never watched by default."""
_MACHINERY = "<frozen importlib"
_RUN_MODULES = frozenset({"exec_module", "load_module"})
"""Functions with which a loader of an installed package runs a module; the module may be the user's."""
ATTRIBUTE_METHODS = frozenset({"__getattribute__", "__getattr__", "__setattr__", "__delattr__"})
"""Methods that Python calls for each dot.

In a recording of GPT-2, a third of all changes were arguments of these methods of its configuration.
"""
_INNER_COMPREHENSION = re.compile(r"<(?:list|set|dict)comp>\.(?:<locals>\.)?")


def is_user_code(code: CodeType) -> bool:
    """Return whether code is the user's: not torch, numpy, the standard library, torchglass, or generated.

    Elsewhere numpy counts as the user's code, as other packages do. Here it does not: a user who watches ``a`` does not
    want the ``a`` of every numpy function written in Python, or of the code that handles a notebook's messages at any
    moment. typing_extensions is left out because it stands in for the ``typing`` of later Python versions.
    """
    filename = code.co_filename
    return origin_of(filename) == "user" and not _NOT_MEANT.search(filename)


def is_of_an_import(frame: FrameType) -> bool:
    """Return whether a call is part of importing something installed: the body of a module, or a finder.

    Variables are not followed there: they are of no interest, and one large package has a hundred thousand of them.
    """
    code = frame.f_code
    caller = frame.f_back
    if caller is None or not caller.f_code.co_filename.startswith(_MACHINERY):
        return False
    filename = code.co_filename
    if filename.startswith(_MACHINERY) or code.co_name in _RUN_MODULES:
        return False
    return origin_of(filename) in INSTALLED or _PACKAGES.search(filename) is not None


def is_text(code: CodeType) -> bool:
    """Return whether code was compiled from text that is not a file; then the code that executes it decides."""
    return code.co_filename.startswith("<") and not code.co_filename.startswith("<frozen")


_MOST_REMEMBERED = 8192
"""The most code objects in each of the two tables below; then the table is cleared."""
REFUSED: dict[int, CodeType] = {}
"""Code of torch and of the standard library, which is followed only on request.

The keys are ``id``; the table keeps the code alive, so that no other code gets its ``id``.
"""
ACCEPTED: dict[int, CodeType] = {}
"""Code that is followed by default, keyed likewise."""


def remember(code: CodeType, where: dict[int, CodeType]) -> None:
    """Remember for later engines whether code is watched.

    Code for which the answer may depend on the caller is not remembered: text, methods of attributes, and code with
    which an import may begin.
    """
    if (
        is_text(code)
        or code.co_name == "<module>"
        or code.co_name.startswith("find_")
        or code.co_name in ATTRIBUTE_METHODS
    ):
        return
    if len(where) >= _MOST_REMEMBERED:
        where.clear()
    where[id(code)] = code


def scope_name(code: CodeType) -> str:
    """Return the qualified name of code, without the comprehensions around it.

    Comprehensions have no frame from Python 3.12 on.
    """
    name = code.co_qualname
    if "comp>." in name:
        return _INNER_COMPREHENSION.sub("", name)
    return name


def comprehension_scope(code: CodeType, kind: str) -> str:
    """Return the qualified name that a comprehension in this code would have with a frame of its own."""
    name = scope_name(code)
    if name == "<module>":
        return kind
    is_function = bool(code.co_flags & 0x1)
    if is_function:
        return f"{name}.<locals>.{kind}"
    return f"{name}.{kind}"


def owner_scope(code: CodeType, name: str, outer_of: Callable[[CodeType], CodeType | None]) -> str:
    """Return the name of the function that a free variable belongs to.

    If the outer code was not seen, the qualified name alone decides.
    """
    outer = outer_of(code)
    while outer is not None and name in outer.co_freevars:
        outer = outer_of(outer)
    if outer is not None:
        return scope_name(outer)
    around, _, _ = scope_name(code).rpartition(".<locals>.")
    return around or scope_name(code)


# ---------------------------------------------------------------- comprehensions

# Comprehensions have no frame from Python 3.12 on. Their variables are reported as if they had one.

INLINED = sys.version_info >= (3, 12)
"""Whether Python may compile a comprehension into the code of its function."""
MARK = "comp>"
"""The end of the name of each comprehension's scope, such as ``f.<locals>.<listcomp>``."""


class InnerStacks:
    """Makes stacks in which comprehensions have a frame, as they had up to Python 3.11."""

    def __init__(self, stacks: StackTable) -> None:
        self._stacks = stacks
        self._codes: dict[tuple[int, str], tuple[CodeType, CodeType]] = {}
        """Keyed by the ``id`` of a function's code and by the scope: the function's code and the comprehension's.

        The function's code is kept, so that no other code gets its ``id``.
        """

    def below(self, above: int, frame: FrameType, scope: str, offset: int) -> int:
        """Return the stack inside a comprehension; ``above`` is the stack of the function around it."""
        return self._stacks.intern_renamed(above, frame, self._code(frame.f_code, scope), offset)

    def _code(self, code: CodeType, scope: str) -> CodeType:
        """Return the function's code under the name of the comprehension; events get names and places from it."""
        known = self._codes.get((id(code), scope))
        if known is None:
            known = self._codes[id(code), scope] = (code, code.replace(co_qualname=scope))
        return known[1]
