"""Restores the text of an error inside a scripted function, which torch drops if a dispatch mode is on.

TorchScript's interpreter quotes the error of the op that failed. But an op's error reaches the interpreter through our
handler as a Python exception, and the interpreter quotes none of those: the program would see an empty
``RuntimeError:``. So we remember the text when the error leaves the op, and add it to the interpreter's error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchglass.capture.engine.log import ThreadLog

_BEGIN = "The following operation failed in the TorchScript interpreter."
_END = "\nRuntimeError: \n"


def remember_text(log: ThreadLog, at: int, error: BaseException) -> None:
    """Keep the text of an error that leaves an op, whose record has the number ``at``."""
    log.op_error = None
    if type(error).__module__ == "builtins" and len(error.args) == 1 and type(error.args[0]) is str:
        log.op_error = (at, error.args[0])


def restore_text(log: ThreadLog, at: int, error: BaseException) -> None:
    """Add the remembered text to an error of the TorchScript interpreter, if it lacks the text.

    The error leaves the record with the number ``at``. The text of an op that ran before that record began is of
    another error, which the program has caught.
    """
    remembered = log.op_error
    log.op_error = None
    if remembered is None or type(error) is not RuntimeError or len(error.args) != 1:
        return
    op, dropped = remembered
    if op < at:
        return
    text = error.args[0]
    if type(text) is str and text.startswith(_BEGIN) and text.endswith(_END):
        error.args = (f"{text[:-1]}{dropped}\n",)
