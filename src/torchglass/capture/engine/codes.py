"""Rows of code objects and of classes: all that settling asks of them, written when they are first met.

The bytes of a row are kept for the process: the next recording only copies them.
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
from torchglass.source.sites import origin_of
from torchglass.source.text import FOLDERS, find_exec_source, look_at

MOST_KEPT = 8192
"""Rows whose bytes are kept."""
DEEPEST_WRAPPER = 8
MOST_FRAMES = 50
Seen = Callable[[str, str, stat_result | None], bytes | None]
"""Told of each file whose code is met for the first time: (name, origin, what the system says of it). Gives the row
that was written of one that is not the user's."""

_code_bytes: dict[int, tuple[CodeType, bytes]] = {}
"""By ``id`` of a code object that has a file, whose text is not in doubt; C looks here, too (learned.c) …"""
_doubtful_bytes: dict[int, tuple[CodeType, bytes]] = {}
"""… and of one whose text is."""
_own_files: dict[str, bytes] = {}
"""The rows of torch's and Python's own files, as they were when the code of theirs was met that is kept."""
CLASS_BYTES: dict[int, tuple[weakref.ref[type], bytes]] = {}
"""By ``id`` of a class, which must be able to go; C looks here, too."""


class CodeTable:
    """The numbers of the code objects of one session; kept, so that an ``id`` stays that code's."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.kept: dict[int, tuple[CodeType, int]] = {}
        """By ``id``: hashing a code object costs 7 µs, its id nothing."""
        self._numbers = count()
        self._files: dict[str, bool] = {}
        """Whether the text of each file is in doubt."""
        self.seen: Seen = _ignore
        self.keeps_text = True
        """Whether texts that were given to ``exec`` may be written down …"""
        self.has_text = False
        """… and whether one was."""

    def number(self, frame: FrameType) -> int:
        """The number of a frame's code, which is written down if it is new."""
        known = self.kept.get(id(frame.f_code))
        return self.add(frame) if known is None else known[1]

    def renamed(self, code: CodeType, frame: FrameType) -> int:
        """The number of code that is a frame's under another name."""
        known = self.kept.get(id(code))
        return self.add(frame, code) if known is None else known[1]

    def frames_of(self, error: BaseException) -> list[list[Any]]:
        """The innermost frames of an exception's traceback, as ``EndedRow`` has them; the user's are to be read."""
        found, each = deque[list[Any]](maxlen=MOST_FRAMES), error.__traceback__
        while each is not None:
            code = each.tb_frame.f_code
            origin = origin_of(code.co_filename)
            if origin != "ours":
                found.append([code.co_filename, each.tb_lineno or 0, code.co_qualname, origin])
            if origin == "user":
                self.number(each.tb_frame)
            each = each.tb_next
        return list(found)

    def shared(self) -> dict[str, Any]:
        """What C looks into, and writes to, for code that the process knows."""
        return {
            "code_rows": _code_bytes,
            "own_files": _own_files,
            "files_met": self._files,
            "code_numbers": self._numbers,
        }

    def add(self, frame: FrameType, code: CodeType | None = None) -> int:
        """In one, as far as code is concerned that the process knows: each block meets it anew."""
        code = code or frame.f_code
        file, number = code.co_filename, next(self._numbers)
        in_doubt = self._files.get(file)
        if in_doubt is None:
            in_doubt = self._files[file] = self._meet(file, code)
        known = (_doubtful_bytes if in_doubt else _code_bytes).get(id(code))
        payload = known[1] if known is not None and known[0] is code else self._bytes(code, frame, in_doubt)
        self._journal.rows.add(layout.CODE, number, payload)
        self.kept[id(code)] = (code, number)
        return number

    def _meet(self, file: str, code: CodeType) -> bool:
        """Tell of a file, and say whether its text is in doubt.

        The system is asked, but not again for the same code of torch's or Python's own: what ran is what was met then.
        """
        known, row = _code_bytes.get(id(code)), _own_files.get(file)
        if row is not None and known is not None and known[0] is code:
            self._journal.rows.add(layout.SOURCE, 0, row)
            return False
        origin, (in_doubt, found) = origin_of(file), look_at(file)
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
        if code.co_filename.startswith(FOLDERS):
            kept = _doubtful_bytes if in_doubt else _code_bytes
            if len(kept) >= MOST_KEPT:
                kept.clear()
            kept[id(code)] = (code, payload)
        return payload


def _ignore(file: str, origin: str, met: stat_result | None) -> bytes | None:
    return None


def _code_row(code: CodeType, frame: FrameType, in_doubt: bool, keeps_text: bool) -> CodeRow:
    name, caller, text = frame.f_globals.get("__name__"), frame.f_back, None
    module = name if type(name) is str else None
    has_file = code.co_filename.startswith(FOLDERS)
    if keeps_text and not has_file:
        text = find_exec_source(frame.f_code, caller and caller.f_code, {} if caller is None else caller.f_globals)
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
    """``Class.method`` of a module's method, by qualified name, where the class can be reached so."""
    found: Any = sys.modules.get(module or "")
    *owners, method = code.co_qualname.split(".")
    if found is None or not owners or "<locals>" in owners:
        return None
    for name in owners:
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
        if found is None:
            return None
    is_module = isinstance(found, type) and issubclass(found, Module) and found is not Module and method in vars(found)
    return f"{found.__name__}.{code.co_name}" if is_module else None


def class_bytes(cls: type) -> bytes:
    """The row of a class of modules."""
    known = CLASS_BYTES.get(id(cls))
    if known is None or known[0]() is not cls:
        if len(CLASS_BYTES) >= MOST_KEPT:
            CLASS_BYTES.clear()
        known = CLASS_BYTES[id(cls)] = (weakref.ref(cls), encoded(_class_row(cls)))
    return known[1]


def _class_row(cls: type) -> ClassRow:
    names, rest = forward_parameters(cls)
    own = cls.__mro__[: cls.__mro__.index(Module)] if Module in cls.__mro__ else cls.__mro__[:-1]
    others = [other for each in own for name, method in list(vars(each).items()) for other in _odd(each, name, method)]
    ancestors = [[str(each.__module__), each.__qualname__] for each in own]
    return ClassRow(cls.__name__, list(names), rest, ancestors, others)


def _odd(cls: type, name: str, method: Any) -> list[list[Any]]:
    """A method's code, and that of what it wraps, where it does not bear the method's name itself."""
    found: list[list[Any]] = []
    function = getattr(method, "__func__", None) if type(method) in (staticmethod, classmethod) else method
    for _ in range(DEEPEST_WRAPPER):
        if type(function) is not FunctionType:
            break
        code = function.__code__
        if code.co_qualname != f"{cls.__qualname__}.{name}":
            found.append([name, code.co_filename, code.co_firstlineno, code.co_name])
        function = function.__dict__.get("__wrapped__")
    return found
