"""Connects the compiled engine: what C asks Python, and what Python asks C.

The C files in this folder are the extension ``torchglass._fast``. When something occurs for the first time (a form, a
stack, metadata, a module), C asks here; the Python engine's own tables answer, and C remembers the answer.
"""

from __future__ import annotations

import os
from typing import Any

from torchglass import compiled
from torchglass.capture.engine.fast.names import torch_names
from torchglass.capture.engine.fast.value_table import FastValues as FastValues
from torchglass.capture.engine.forms import Describe, Form, form_bytes, form_of_result
from torchglass.capture.engine.host import SessionLike
from torchglass.capture.engine.milestones import find_stack
from torchglass.capture.torch.names import HAS_TORCH

extension = compiled.extension
_has_torch_names = False
"""Whether ``make_ready`` has given torch's names to C."""


def make_ready() -> bool:
    """Prepare the compiled engine, and return whether recordings that begin now use it.

    The first call gives torch's names to C and registers what C does in a forked child. If this torch lacks a name, the
    engine in Python is used from then on.
    """
    global _has_torch_names
    if compiled.engine() != compiled.COMPILED:
        return False
    if not _has_torch_names:
        try:
            if not HAS_TORCH:
                raise TypeError("torch is not installed")
            extension.set_torch(torch_names())
        except Exception as reason:
            compiled.give_up(f"this torch is not what was expected ({reason})")
            return False
        os.register_at_fork(after_in_child=extension.after_fork)
        _has_torch_names = True
    return True


def make_engine(session: SessionLike) -> Any:
    """Return the compiled engine of a session; None if everything is done in Python."""
    if not make_ready():
        return None
    engine = extension.Engine(session, session.journal.values, session.stacks.tracers)
    engine.ask(_Answers(session).functions())
    engine.ask(_shared_tables(session))
    return engine


def _shared_tables(session: SessionLike) -> dict[str, Any]:
    """Return the tables and writers that C uses directly, by the names that they have in C."""
    stacks = session.stacks
    journal = session.journal
    return {
        "stack_ids": stacks.ids,
        "stack_numbers": stacks.numbers,
        "codes_kept": stacks.codes.kept,
        "watched_stacks": stacks.rounds.watched,
        # The rows of a journal that is a ring: rows stay, passing rows go with the records that refer to them.
        "rows": journal.rows,
        "passing": journal.passing,
    }


class _Answers:
    """What C asks about something that occurs for the first time, or that it does not read itself."""

    def __init__(self, session: SessionLike) -> None:
        self._session = session
        self._describe_read_tensors: Describe | None = None

    def functions(self) -> dict[str, Any]:
        """Return the functions that C calls, by the names that they have in C."""
        return {
            "meta_id": self.meta_id,
            "value_of_unusual": self.value_of_unusual,
            "write_value": self._session.journal.values.write,
            "make_call_form": self.make_call_form,
            "make_result_form": self.make_result_form,
            "intern_call": self.intern_call,
            "intern_result": self.intern_result,
            "form_bytes": form_bytes,
            "is_opaque": self.is_opaque,
            "find_stack": self.find_stack,
            "code_number": self._session.stacks.codes.add,
            "meet_stack": self._session.stacks.rounds.meet,
            "look_at_rounds": self._session.stacks.rounds.look,
        }

    def meta_id(self, meta: tuple[Any, ...]) -> int:
        return self._session.values.meta_id(meta)

    def value_of_unusual(self, tensor: Any) -> int:
        return self._session.values.value_of_unusual(tensor, type(tensor))

    def is_opaque(self, cls: type) -> bool:
        return self._session.forms.is_opaque(cls)

    def find_stack(self, anchor: int, base: int, frame: Any) -> int:
        return find_stack(self._session.stacks, anchor, base, frame)

    def make_call_form(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Form:
        """Return the form of a call. C has read the ids of its tensors already, so nothing reads them again."""
        return _form_of_call(args, kwargs, self._describe_without_ids(), [])

    def make_result_form(self, result: Any) -> Form:
        """Return the form of a result, or of a variable. C has read the ids of its tensors already."""
        return form_of_result(self._describe_without_ids()(result, []))

    def intern_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> tuple[int, list[int]]:
        """Return the number of a call's form, and the ids of its tensors: C cannot read this call."""
        ids: list[int] = []
        return self._number(_form_of_call(args, kwargs, self._session.forms.describe, ids)), ids

    def intern_result(self, result: Any, from_op: bool) -> tuple[int, list[int]]:
        """Return the number of a result's form, and the ids of its tensors: C cannot read this result."""
        forms = self._session.forms
        describe = forms.describe_made if from_op else forms.describe
        ids: list[int] = []
        return self._number(form_of_result(describe(result, ids))), ids

    def _describe_without_ids(self) -> Describe:
        """Return a describe function that reads no tensor. It is made at its first use."""
        describe = self._describe_read_tensors or self._session.forms.describing(_no_id)
        self._describe_read_tensors = describe
        return describe

    def _number(self, form: Form) -> int:
        forms = self._session.forms
        number = forms.ids.get(form)
        if number is None:
            return forms.intern(form)
        return number


def _form_of_call(
    args: tuple[Any, ...], kwargs: dict[str, Any] | None, describe: Describe, ids: list[int]
) -> Form:
    form: list[Any] = [len(args)]
    for arg in args:
        form.append(describe(arg, ids))
    # Not items(): where memory runs out, Python 3.11 itself fails at the pair that their iterator keeps.
    named: dict[str, Any] = kwargs or {}
    for name in named:
        form += (name, describe(named[name], ids))
    return tuple(form)


def _no_id(tensor: Any) -> int:
    return 0
