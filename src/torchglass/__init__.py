"""See what your tensors do: one recorder, one trace, every view.

    import torchglass as tg

    with tg.record() as trace:
        y = model(x)
    trace.show()

Nothing heavy is imported until it is used.

PYTEST_DONT_REWRITE: this package holds a pytest plugin, and pytest would warn that it was imported before pytest could
rewrite its asserts, as it is under ``torchglass run -m pytest``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Import it now: it keeps functions of Python that a test may replace later.
from torchglass import system as system
from torchglass._version import __version__

if TYPE_CHECKING:
    from torchglass._trace import Trace
    from torchglass.api import (
        compare,
        export,
        first_bad,
        last_trace,
        load,
        mark,
        record,
        render,
        save,
        show,
        trace,
    )
    from torchglass.errors import (
        BadValue,
        BundleError,
        MissingExtra,
        NotRecorded,
        TorchglassError,
        UnknownOption,
        UnknownView,
        UsageError,
        WrongType,
    )  # fmt: skip
    from torchglass.events.likeness import same
    from torchglass.events.selection import select
    from torchglass.events.types import Event, Value

__all__ = [
    "BadValue", "BundleError", "Event", "MissingExtra", "NotRecorded", "TorchglassError", "Trace", "UnknownOption",
    "UnknownView", "UsageError", "Value", "WrongType", "__version__", "compare", "export", "first_bad", "last_trace",
    "load", "mark", "record", "render", "same", "save", "select", "show", "trace",
]  # fmt: skip

_NAMES = {
    "api": "compare export first_bad last_trace load mark record render save show trace",
    "errors": "BadValue BundleError MissingExtra NotRecorded TorchglassError UnknownOption UnknownView UsageError "
    "WrongType",
    "events.likeness": "same",
    "events.selection": "select",
    "_trace": "Trace",
    "events.types": "Event Value",
    # The other tools' main names: reachable here, but not part of __all__.
    "compat.tracy_nn": "Tracer trace_model",
    "compat.torch_code_tracing": "TracingMode",
    "compat.ttracker": "auto_diff log2file var_tracker",
    "compat.torchspy": "CallTracer DebugContext TensorSaver spy_save",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'torchglass' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"torchglass.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
