"""Out of sight of a recording that goes on, and of the program's own modes: for torch functions that we call ourselves.

A page counts the numbers of kept tensors, for example, and may be made inside of the block.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack


def unseen() -> ExitStack:
    """A context in which no mode sees what is called; where torch was never imported there is nothing to hide."""
    hidden = ExitStack()
    if "torch" in sys.modules:
        from torchglass.capture.torch.private import no_functions, no_modes

        hidden.enter_context(no_functions())
        hidden.enter_context(no_modes())
    return hidden
