"""The text that an error of the TorchScript interpreter lacks is that of the op that failed inside it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torchglass.capture.transparency.scripts import remember_text, restore_text

LACKING = "The following operation failed in the TorchScript interpreter.\nHERE\nRuntimeError: \n"


class OtherError(RuntimeError):
    pass


def restored(*ops: tuple[int, BaseException], function: int) -> str:
    """The text of an interpreter's error that leaves this record after errors have left these."""
    log: Any = SimpleNamespace(op_error=None)
    for op, left in ops:
        remember_text(log, op, left)
    error = RuntimeError(LACKING)
    restore_text(log, function, error)
    return error.args[0]


def test_the_text_of_the_op_inside_is_added() -> None:
    assert restored((5, RuntimeError("sizes differ")), function=4) == f"{LACKING[:-1]}sizes differ\n"


def test_an_error_that_was_caught_before_lends_no_text() -> None:
    assert restored((3, RuntimeError("sizes differ")), function=4) == LACKING


def test_an_error_without_a_text_of_its_own_gets_none_of_an_earlier_one() -> None:
    assert restored((5, RuntimeError("sizes differ")), (6, OtherError("other")), function=4) == LACKING
