"""Protocol of the engine for the modules that the engine imports, which avoids an import cycle.

Activations and cores (``settrace.py``, ``monitoring.py``) use it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any, Protocol

from torchglass.capture.variables.plan import Plan
from torchglass.capture.variables.snapshots import Known, Snapshots

ENDED: Any = SimpleNamespace(closed=True)
"""Replaces an engine that was released, and its sink."""


class Following(Protocol):
    """The engine (capture/variables/engine.py). ``Activation`` is `Any` here, because activations import this file."""

    closed: bool
    snapshots: Snapshots
    plans: dict[int, Plan | None]
    running: dict[int, Any]
    imports: dict[int, int]
    found_paths: set[str]
    on_interrupt: Callable[[Callable[..., Any]], None]
    tell: Callable[[Any, FrameType], bool]

    def note(self, text: str) -> None: ...

    def fault(self, error: BaseException) -> None: ...

    def unmute(self, plan: Plan) -> None: ...

    def owns_thread(self) -> bool: ...

    def begins_import(self, frame: FrameType) -> bool: ...

    def ends_import(self, frame: FrameType) -> None: ...

    def plan_for(self, frame: FrameType) -> Plan | None: ...

    def begin(self, frame: FrameType, plan: Plan, silent: bool) -> Any: ...

    def left(self, activation: Any, error: BaseException | str | None) -> None: ...

    def ended(self, serial: int, scope: str, name: str) -> None: ...

    def space_of(self, namespace: dict[str, Any]) -> Any: ...

    def cell_entry(self, cell: Any, is_new: bool) -> Known: ...

    def path_entry(self, owner: Any, step: Any) -> tuple[Known, bool]: ...
