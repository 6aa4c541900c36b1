"""Offers Tensor Tracker's interface: logs what goes in and out of decorated functions, and how variables change.

    from torchglass.compat.ttracker import auto_diff, var_tracker, log2file, h4logger, logger

    logger.addHandler(h4logger())     # also into logs/<LTAG>/process_<pid>_thread_<tid>.log

    @auto_diff
    def process_data(inputs): ...

It works without torch, for numpy programs. ``TORCHGLASS_LANG=zh`` selects the words of Tensor Tracker's document,
``TORCHGLASS_CONSOLE=0`` prints nothing to the console, and ``TORCHGLASS=0`` turns everything off. Under
``torch.compile``, decorated functions run uncompiled.
"""

from torchglass.compat.ttracker.decorators import auto_diff, var_tracker
from torchglass.compat.ttracker.output import h4logger, log2file, logger
from torchglass.compat.ttracker.texts import _log_change

__all__ = ["_log_change", "auto_diff", "h4logger", "log2file", "logger", "var_tracker"]
