"""Writes a journal row for each code object and each module class, when a recording first sees it.

A row holds everything that decoding the journal later needs, because the object itself may be gone by then. The encoded
bytes of a row are cached for the process, so the next recording only copies them.

The text of a file is *in doubt* if the file may have changed since its code was compiled (source/text.py). The row of
such code also holds a digest of the code, so that the decoder can check whether the text still belongs to it.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from itertools import count
from os import stat_result
from types import CodeType, FrameType, FunctionType
from typing import Any

from torchglass.capture.torch.names import Module
from torchglass.capture.torch.signatures import forward_parameters
from torchglass.journal import layout
from torchglass.journal.rows import ClassRow, CodeRow, encoded, packed
from torchglass.journal.writer import Journal
from torchglass.source.codes import digest_of
from torchglass.source.exec_source import find_exec_source
from torchglass.source.origins import origin_of
from torchglass.source.text import ABSOLUTE_PREFIXES, doubt_and_status

MOST_KEPT = 8192
"""The most rows in one cache. A full cache is emptied, so that programs that create code without end do not fill the
memory."""
DEEPEST_WRAPPER = 8
"""How many ``__wrapped__`` attributes to follow from a decorated method."""
MOST_FRAMES = 50
"""The most frames to keep of an exception's traceback. The innermost frames are kept."""
Seen = Callable[[str, str, stat_result | None], bytes | None]
"""A function that is called with (name, origin, status) of each file when its code first occurs in a recording.

The function returns the row that it wrote, or None for a file of the user.
"""

_code_bytes: dict[int, tuple[CodeType, bytes]] = {}
"""The encoded rows of code whose file's text is not in doubt, keyed by ``id`` of the code object."""
_doubtful_bytes: dict[int, tuple[CodeType, bytes]] = {}
"""The encoded rows of code whose file's text is in doubt, keyed by ``id`` of the code object."""
_own_files: dict[str, bytes] = {}
"""The rows of files of torch and of the standard library, keyed by file name.

A row describes the file as it was when its code in ``_code_bytes`` first occurred.
"""
CLASS_BYTES: dict[int, tuple[weakref.ref[type], bytes]] = {}
"""The encoded rows of classes, keyed by ``id`` of the class. References are weak, so that a class can be freed."""


class CodeTable:
    """Numbers the code objects of one session.

    The table keeps a reference to each code object, so that no new object can get the same ``id``.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.kept: dict[int, tuple[CodeType, int]] = {}
        """Each code object and its number, keyed by ``id``, because hashing a code object costs 7 µs."""
        self._numbers = count()
        self._files: dict[str, bool] = {}
        """Whether the text of a file is in doubt, keyed by file name."""
        self.seen: Seen = _ignore
        self.keeps_text = True
        """Whether the source text of code that was passed to ``exec`` may be written."""
        self.has_text = False
        """Whether such a text has been written."""

    def number(self, frame: FrameType) -> int:
        """Return the number of a frame's code. Write the code's row if the code is new."""
        known = self.kept.get(id(frame.f_code))
        if known is None:
            return self.add(frame)
        return known[1]

    def renamed(self, code: CodeType, frame: FrameType) -> int:
        """Return the number of ``code``, which is the frame's code under another name."""
        known = self.kept.get(id(code))
        if known is None:
            return self.add(frame, code)
        return known[1]

    def frames_of(self, error: BaseException) -> list[list[Any]]:
        """Return the innermost frames of an exception's traceback, in the form that ``EndedRow`` stores."""
        found = deque[list[Any]](maxlen=MOST_FRAMES)
        each = error.__traceback__
        while each is not None:
            code = each.tb_frame.f_code
            origin = origin_of(code.co_filename)
            if origin != "ours":
                found.append([code.co_filename, each.tb_lineno or 0, code.co_qualname, origin])
            if origin == "user":
                self.number(each.tb_frame)
            each = each.tb_next
        return list(found)

    def add(self, frame: FrameType, code: CodeType | None = None) -> int:
        """Write the row of new code and return the code's number. Reuse the bytes of an earlier recording if any."""
        code = code or frame.f_code
        file = code.co_filename
        number = next(self._numbers)
        in_doubt = self._files.get(file)
        if in_doubt is None:
            in_doubt = self._files[file] = self._meet(file, code)
        known = (_doubtful_bytes if in_doubt else _code_bytes).get(id(code))
        if known is not None and known[0] is code:
            payload = known[1]
        else:
            payload = self._bytes(code, frame, in_doubt)
        self._journal.rows.add(layout.CODE, number, payload)
        self.kept[id(code)] = (code, number)
        return number

    def _meet(self, file: str, code: CodeType) -> bool:
        """Write the row of a file that is new to this recording, and return whether the file's text is in doubt.

        This reads the file's status. For torch and the standard library, the cached row is reused instead if the code
        object is still the cached one: the code that runs is then the code that the row describes.
        """
        known = _code_bytes.get(id(code))
        row = _own_files.get(file)
        if row is not None and known is not None and known[0] is code:
            self._journal.rows.add(layout.SOURCE, 0, row)
            return False
        origin = origin_of(file)
        (in_doubt, found) = doubt_and_status(file)
        row = self.seen(file, origin, found)
        if row is not None and not in_doubt and origin in ("torch", "stdlib"):
            _own_files[file] = row
        else:
            _own_files.pop(file, None)
        return in_doubt

    def _bytes(self, code: CodeType, frame: FrameType, in_doubt: bool) -> bytes:
        row = _code_row(code, frame, in_doubt, self.keeps_text)
        self.has_text |= row.text is not None
        payload = encoded(row)
        if code.co_filename.startswith(ABSOLUTE_PREFIXES):
            kept = _code_bytes
            if in_doubt:
                kept = _doubtful_bytes
            if len(kept) >= MOST_KEPT:
                kept.clear()
            kept[id(code)] = (code, payload)
        return payload


def _ignore(file: str, origin: str, met: stat_result | None) -> bytes | None:
    return None


def _code_row(code: CodeType, frame: FrameType, in_doubt: bool, keeps_text: bool) -> CodeRow:
    name = frame.f_globals.get("__name__")
    caller = frame.f_back
    text = None
    module = None
    if type(name) is str:
        module = name
    has_file = code.co_filename.startswith(ABSOLUTE_PREFIXES)
    if keeps_text and not has_file:
        text = find_exec_source(
            frame.f_code, caller and caller.f_code, {} if caller is None else caller.f_globals
        )
    return CodeRow(
        file=code.co_filename,
        name=code.co_name,
        qualname=code.co_qualname,
        line=code.co_firstlineno,
        flags=code.co_flags,
        names=[] if has_file else [*code.co_names, *code.co_varnames],
        instructions=packed(code.co_code),
        positions=packed(code.co_linetable),
        digest=digest_of(code) if in_doubt else None,
        origin=origin_of(code.co_filename),
        module=module,
        owner=_owner(code, module),
        text=text,
    )


def _owner(code: CodeType, module: str | None) -> str | None:
    """Return ``Class.method`` for a method of an ``nn.Module`` class.

    Return None for all other code, and for classes that cannot be reached by their qualified name, such as classes
    that a function defines.
    """
    found: Any = sys.modules.get(module or "")
    *owners, method = code.co_qualname.split(".")
    if found is None or not owners or "<locals>" in owners:
        return None
    for name in owners:
        if hasattr(found, "__dict__"):
            found = vars(found).get(name)
        else:
            found = None
        if found is None:
            return None
    is_module = (
        isinstance(found, type)
        and issubclass(found, Module)
        and found is not Module
        and method in vars(found)
    )
    if is_module:
        return f"{found.__name__}.{code.co_name}"
    return None


def class_bytes(cls: type) -> bytes:
    """Return the encoded row of a module class."""
    known = CLASS_BYTES.get(id(cls))
    if known is None or known[0]() is not cls:
        if len(CLASS_BYTES) >= MOST_KEPT:
            CLASS_BYTES.clear()
        known = CLASS_BYTES[id(cls)] = (weakref.ref(cls), encoded(_class_row(cls)))
    return known[1]


def _class_row(cls: type) -> ClassRow:
    names, rest = forward_parameters(cls)
    if Module in cls.__mro__:
        own = cls.__mro__[: cls.__mro__.index(Module)]
    else:
        own = cls.__mro__[:-1]
    others: list[list[Any]] = []
    for each in own:
        # A copy, because another thread may add attributes meanwhile.
        for name, method in list(vars(each).items()):
            others += _odd(each, name, method)
    ancestors = [[str(each.__module__), each.__qualname__] for each in own]
    return ClassRow(cls.__name__, list(names), rest, ancestors, others)


def _odd(cls: type, name: str, method: Any) -> list[list[Any]]:
    """Return [name, file, line, code name] for each function of a method whose qualified name is not the method's.

    The functions are the method itself and those that it wraps. For example, a decorator that does not use
    ``functools.wraps`` leaves ``decorator.<locals>.wrapper`` in the class under the name ``forward``.
    """
    found: list[list[Any]] = []
    function = method
    if type(method) in (staticmethod, classmethod):
        function = getattr(method, "__func__", None)
    for _ in range(DEEPEST_WRAPPER):
        if type(function) is not FunctionType:
            break
        code = function.__code__
        if code.co_qualname != f"{cls.__qualname__}.{name}":
            found.append([name, code.co_filename, code.co_firstlineno, code.co_name])
        function = function.__dict__.get("__wrapped__")
    return found
