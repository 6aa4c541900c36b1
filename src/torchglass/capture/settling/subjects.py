"""What torch calls its functions and ops: names, parameters and notes. Imported only where some were recorded."""

from __future__ import annotations

from typing import Any

from torchglass.capture import cures, fused
from torchglass.capture.naming import public_name
from torchglass.capture.ops import op_name
from torchglass.capture.session import FUNCTION, OP
from torchglass.capture.settling.forms import Names
from torchglass.capture.settling.signatures import function_parameters, op_parameters
from torchglass.events.tables import What


def name_function(func: Any, ops_recorded: bool) -> tuple[What, Names]:
    """A torch function as it is shown, and the names of its parameters."""
    name = public_name(func)
    note = fused.NOTE if name in fused.FUSED else None
    if ops_recorded and func in cures.sensitive_functions():
        note = cures.NOTE
    return What(FUNCTION, name, note), function_parameters(func)


def name_op(op: Any, note: str | None) -> tuple[What, Names]:
    """The same for an op."""
    return What(OP, op_name(op), note), op_parameters(op)
