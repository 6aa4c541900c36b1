"""The compiled engine, wired: what C asks of Python, and what Python asks of C.

The C files beside this one are the extension ``torchglass._fast``. Whatever they meet for the first time (a form, a
stack, metadata, a module) they ask here, where the Python engine's own tables give the answer; they remember it.
"""

from __future__ import annotations

import os
from typing import Any

from torchglass import compiled
from torchglass.capture.engine.fast.direct import read_directly
from torchglass.capture.engine.fast.names import torch_names
from torchglass.capture.engine.fast.values import FastValues as FastValues
from torchglass.capture.engine.forms import Describe, Form, form_bytes
from torchglass.capture.engine.host import Host
from torchglass.capture.engine.milestones import find_stack
from torchglass.capture.engine.values import meta_bytes
from torchglass.capture.torch.names import HAS_TORCH

extension = compiled.extension
_is_ready: list[bool] = []


def is_used() -> bool:
    """Whether recordings that begin now are written by C; the names of torch are handed over on the first question."""
    if compiled.engine() != compiled.COMPILED:
        return False
    if not _is_ready:
        try:
            if not HAS_TORCH:
                raise TypeError("torch is not installed")
            extension.set_torch(torch_names())
            read_directly()
        except Exception as reason:
            compiled.give_up(f"this torch is not what was expected ({reason})")
            return False
        os.register_at_fork(after_in_child=extension.after_fork)
        _is_ready.append(True)
    return True


def make_engine(session: Host) -> Any:
    """The compiled engine of a session; None where all is done in Python."""
    if not is_used():
        return None
    engine = extension.Engine(session, session.journal.values, session.stacks.tracers)
    engine.ask(_Answers(session).by_name())
    return engine


class _Answers:
    """What C asks when it meets something for the first time, or something that it does not read itself."""

    def __init__(self, session: Host) -> None:
        self._session = session
        self._without_values: Describe | None = None

    def by_name(self) -> dict[str, Any]:
        return {
            "meta_id": self.meta_id,
            "meta_bytes": meta_bytes,
            "reluctant": self.reluctant,
            "write_value": self._session.journal.values.write,
            "form_of_call": self.form_of_call,
            "form_of_result": self.form_of_result,
            "describe_call": self.describe_call,
            "describe_result": self.describe_result,
            "form_bytes": form_bytes,
            "is_opaque": self.is_opaque,
            "find_stack": self.find_stack,
            "code_number": self._session.stacks.codes.add,
            **self._shared(),
            "passing": self._session.journal.passing,
        }

    def _shared(self) -> dict[str, Any]:
        """Tables of Python's that C looks into, and writes to."""
        stacks, journal = self._session.stacks, self._session.journal
        return {
            "stack_ids": stacks.ids,
            "stack_numbers": stacks.numbers,
            "codes_kept": stacks.codes.kept,
            **stacks.codes.shared(),
            "rows": journal.rows,
            "take_lock": journal.lock.acquire,
            "leave_lock": journal.lock.release,
        }

    def meta_id(self, meta: tuple[Any, ...]) -> int:
        return self._session.values.meta_id(meta)

    def reluctant(self, tensor: Any) -> int:
        return self._session.values.reluctant(tensor, type(tensor))

    def is_opaque(self, cls: type) -> bool:
        return self._session.forms.is_opaque(cls)

    def find_stack(self, anchor: int, base: int, frame: Any) -> int:
        return find_stack(self._session.stacks, anchor, base, frame)

    def form_of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Form:
        """A form whose values C has read."""
        return self._form(args, kwargs, self._described_without_values(), [])

    def form_of_result(self, result: Any) -> Form:
        return (1, self._described_without_values()(result, []))

    def _described_without_values(self) -> Describe:
        described = self._without_values or self._session.forms.describing(_not_read)
        self._without_values = described
        return described

    def describe_call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[int, list[int]]:
        """The number of a form, and the values in it."""
        found: list[int] = []
        return self._number(self._form(args, kwargs, self._session.forms.describe, found)), found

    def describe_result(self, result: Any, from_op: bool) -> tuple[int, list[int]]:
        forms, found = self._session.forms, list[int]()
        described = (forms.describe_made if from_op else forms.describe)(result, found)
        return self._number((1, described)), found

    def _form(self, args: Any, kwargs: Any, describe: Describe, found: list[int]) -> Form:
        form: list[Any] = [len(args)]
        for arg in args:
            form.append(describe(arg, found))
        # Not items(): where memory runs out, Python 3.11 itself fails at the pair that their iterator keeps.
        for name in kwargs or ():
            form += (name, describe(kwargs[name], found))
        return tuple(form)

    def _number(self, form: Form) -> int:
        forms = self._session.forms
        number = forms.ids.get(form)
        return forms.intern(form) if number is None else number


def _not_read(tensor: Any) -> int:
    return 0
