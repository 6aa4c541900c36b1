"""Which code is watched (the user's, and what that gives to exec), and in which scope a variable of it is told."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from torchglass.source.sites import origin_of

if TYPE_CHECKING:
    from torchglass.capture.engine.stack import StackTable

_AROUND = "execnet|ipykernel|jupyter_client|zmq|tornado|debugpy"
"""What a test runner, a notebook or a debugger talks through, on threads of its own beside the program's."""
_NOT_MEANT = re.compile(rf"[\\/](site|dist)-packages[\\/]((numpy|{_AROUND})[\\/]|typing_extensions\.py$)")
_PACKAGES = re.compile(r"[\\/](site|dist)-packages[\\/]")
INSTALLED = frozenset({"torch", "stdlib", "ours"})
_MACHINERY = "<frozen importlib"
_RUN_MODULES = frozenset({"exec_module", "load_module"})
"""What a loader of an installed package is asked for when it runs a module, which may be the user's."""
ATTRIBUTE_METHODS = frozenset({"__getattribute__", "__getattr__", "__setattr__", "__delattr__"})
"""What Python calls for a dot: a third of all changes on GPT-2 were arguments of its configuration's."""
_INNER_COMPREHENSION = re.compile(r"<(?:list|set|dict)comp>\.(?:<locals>\.)?")


def is_user_code(code: CodeType) -> bool:
    """All but torch, numpy, the standard library, torchglass, generated code and what brings messages to the process.

    numpy counts elsewhere as the user's, as other packages do; but who watches ``a`` does not mean the ``a`` of
    every numpy function written in Python, nor that of a notebook's messages, which come in at any moment.
    typing_extensions is the standard library's ``typing`` of later versions.
    """
    filename = code.co_filename
    return origin_of(filename) == "user" and not _NOT_MEANT.search(filename)


def is_of_an_import(frame: FrameType) -> bool:
    """Whether a call is Python at importing something installed: the body of a module of a package or of the standard
    library, or a finder. Who follows variables does not mean those; one large package has a hundred thousand of them.
    """
    code, caller = frame.f_code, frame.f_back
    if caller is None or not caller.f_code.co_filename.startswith(_MACHINERY):
        return False
    filename = code.co_filename
    if filename.startswith(_MACHINERY) or code.co_name in _RUN_MODULES:
        return False
    return origin_of(filename) in INSTALLED or _PACKAGES.search(filename) is not None


def is_text(code: CodeType) -> bool:
    """Whether it was compiled from a text that is no file: whoever executes it says whose it is."""
    return code.co_filename.startswith("<") and not code.co_filename.startswith("<frozen")


_MOST_REMEMBERED = 8192
REFUSED: dict[int, CodeType] = {}
"""Code of torch and of the standard library, which nobody follows who does not ask for it; by ``id``, and kept."""
ACCEPTED: dict[int, CodeType] = {}
"""Code that is followed wherever nobody says otherwise."""


def remember(code: CodeType, where: dict[int, CodeType]) -> None:
    """Let the next engines know at once whether code is meant; but not of what may depend on who calls it.

    That is text, an attribute's method, and what an import may begin with.
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
    """Qualified name without comprehensions around it, which have no frame from Python 3.12 on."""
    name = code.co_qualname
    return _INNER_COMPREHENSION.sub("", name) if "comp>." in name else name


def comprehension_scope(code: CodeType, kind: str) -> str:
    """The name that a comprehension written in this code has where it has a frame of its own."""
    name = scope_name(code)
    if name == "<module>":
        return kind
    is_function = bool(code.co_flags & 0x1)
    return f"{name}.<locals>.{kind}" if is_function else f"{name}.{kind}"


def owner_scope(code: CodeType, name: str, outer_of: Callable[[CodeType], CodeType | None]) -> str:
    """The function that a free variable belongs to; by the names alone where the outer code was not seen."""
    outer = outer_of(code)
    while outer is not None and name in outer.co_freevars:
        outer = outer_of(outer)
    if outer is not None:
        return scope_name(outer)
    around, _, _ = scope_name(code).rpartition(".<locals>.")
    return around or scope_name(code)


# ---------------------------------------------------------------- comprehensions

# They have no frame of their own from Python 3.12 on: their variables are told as if they had one.

INLINED = sys.version_info >= (3, 12)
"""Whether a comprehension may be part of its function's own code."""
MARK = "comp>"
"""How the scopes of comprehensions end: ``f.<locals>.<listcomp>``."""


class InnerStacks:
    """Stacks as they were up to Python 3.11: the function's at the comprehension, then the comprehension itself."""

    def __init__(self, stacks: StackTable) -> None:
        self._stacks = stacks
        self._codes: dict[tuple[int, str], tuple[CodeType, CodeType]] = {}
        """By ``id`` of a function's code and scope: that code, which is kept so, and the comprehension's."""

    def below(self, above: int, frame: FrameType, scope: str, offset: int) -> int:
        """The stack inside a comprehension; ``above`` is that of the function at it."""
        return self._stacks.intern_renamed(above, frame, self._code(frame.f_code, scope), offset)

    def _code(self, code: CodeType, scope: str) -> CodeType:
        """The function's code under the name of the comprehension; settling reads names and places from it."""
        known = self._codes.get((id(code), scope))
        if known is None:
            known = self._codes[id(code), scope] = (code, code.replace(co_qualname=scope))
        return known[1]
