"""Steps aside at the door of compiled regions, so that torch.compile traces the program and not the recorder.

Left alone, our mode would be traced into the graph and cause a recompilation on every call. Four names in
``torch._dynamo.eval_frame``, all looked up at call time, tell when a region is entered and left; in between our
modes are off their stacks and the patches are back at their originals. The region is one ``unseen`` event.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable
from threading import get_ident
from types import FrameType, ModuleType
from typing import Any

from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.session import UNSEEN
from torchglass.capture.torch import private
from torchglass.capture.transparency.modes import FUNCTION_MODES, OP_MODES
from torchglass.capture.transparency.patches import Patch, Patches, PatchSet
from torchglass.journal.layout import NONE, RESULT

__tracebackhide__ = True  # pytest leaves our frames out of its reports

DOOR = "torch._dynamo.eval_frame"
NOTE = "compiled: its inside is not seen; to look inside, run it with torch.compiler.set_stance('force_eager')"


BLIND = "module calls of other threads were not seen while a thread ran a compiled region"


_NOT_KNOWN = object()


def _nothing() -> None:
    """In the place of an original."""


class Region:
    """A compiled region under way in one thread: what to put back when it ends."""

    def __init__(self, log: ThreadLog, frame_id: int) -> None:
        self.log = log
        self.frame_id = frame_id
        self.entering = False
        self.state = (log.parent, log.anchor, log.base, log.module)
        self.event = NONE
        self.mode: Any = None
        self.modes_above = 0
        self.op_mode: Any = None
        self.op_modes_above = 0
        self.error_before = sys.exc_info()[1]


class CompileDoor:
    """Installed and removed like a patch; waits for dynamo if it is not imported yet."""

    def __init__(self, patches: PatchSet) -> None:
        self.patches = patches
        self.regions: dict[int, Region] = {}
        self.finder: _DoorFinder | None = None
        self._names: tuple[ModuleType | None, Patches] = None, Patches()
        """What is replaced, and of which module."""

    def install(self) -> None:
        module = sys.modules.get(DOOR)
        if module is not None and hasattr(module, "_TorchDynamoContext"):
            self.put_up(module)
        else:
            self.finder = _DoorFinder(self)
            sys.meta_path.insert(0, self.finder)

    def remove(self) -> None:
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
        self.finder = None
        self._names[1].remove()
        self.regions = {}

    def put_up(self, module: ModuleType) -> None:
        if self._names[0] is not module:
            self._names = module, self._replaced_in(module)
        self._names[1].install()

    def _replaced_in(self, module: ModuleType) -> Patches:
        names = {
            "set_eval_frame": self._make_set,
            "_callback_from_stance": self._make_callback,
            "_maybe_set_eval_frame": self._make_maybe,
        }
        if not all(name in vars(module) for name in names):
            return Patches()  # another torch: compiled regions are then recorded as torch.compile leaves them
        self.stance = lambda: module._stance.stance
        for make in (*names.values(), self._make_compile):
            module.skip_code(make(_nothing).__code__)  # dynamo must not trace it; the same whatever stood there
        wanted = [Patch(module, name, make) for name, make in names.items()]
        return Patches(*wanted, Patch(module._TorchDynamoContext, "__call__", self._make_compile))

    def _make_set(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def set_eval_frame(callback: Any) -> Any:
            # First the original: with its callback still set, dynamo would trace what we do here.
            prior = original(callback)
            frame = sys._getframe(1)
            if frame.f_code.co_name == "compile_wrapper" and get_ident() in LOGS:
                self.enter(id(frame), frame)
            return prior

        return set_eval_frame

    def _make_callback(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _callback_from_stance(callback: Any) -> Any:
            region = self.regions.get(get_ident())
            if region is not None and region.frame_id == id(sys._getframe(1)):
                region.entering = True
            return original(callback)

        return _callback_from_stance

    def _make_maybe(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _maybe_set_eval_frame(callback: Any) -> Any:
            region = self.regions.get(get_ident())
            if region is None or region.frame_id != id(sys._getframe(1)):
                return original(callback)
            if region.entering:
                region.entering = False
                return original(callback)
            try:
                return original(callback)
            finally:
                self.leave(region, sys._getframe(1))

        return _maybe_set_eval_frame

    def _make_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(context: Any, fn: Any) -> Any:
            # torch.compile keeps bound methods of what it is given: it must not find our wrappers there.
            self.patches.suspend()
            try:
                return original(context, fn)
            finally:
                self.patches.resume()

        return __call__

    def enter(self, frame_id: int, frame: FrameType) -> None:
        log = LOGS[get_ident()]
        if log.ident in self.regions or not log.on or self.stance() == "force_eager":
            return
        if log.steps:
            log.session.heal_steps(log, frame)
        region = Region(log, frame_id)
        try:
            with private.no_functions():
                what = log.session.what(UNSEEN, "compiled", NOTE)
                given = frame.f_locals
                args, kwargs = given.get("args", ()), given.get("kwargs")
                region.event = log.session.open_event(log, what, frame.f_back, args, kwargs)
        except BaseException as fault:
            log.session.forgive(fault)
        if len(LOGS) > 1:
            for other in LOGS.values():
                other.session.note(BLIND)
        log.on = False
        self._take_modes(region)
        self.patches.suspend()
        self.regions[log.ident] = region

    def leave(self, region: Region, frame: FrameType) -> None:
        log = region.log
        self.regions.pop(log.ident, None)
        self.patches.resume()
        if region.mode is not None:
            FUNCTION_MODES.insert(region.mode, region.modes_above)
        if region.op_mode is not None:
            OP_MODES.insert(region.op_mode, region.op_modes_above)
        log.on = log.session.running
        log.parent, log.anchor, log.base, log.module = region.state
        if region.event >= 0:
            try:
                self._end_event(region, sys.exc_info()[1], frame.f_locals.get("result", _NOT_KNOWN))
            except BaseException as fault:
                log.session.forgive(fault)

    def _end_event(self, region: Region, error: BaseException | None, result: Any) -> None:
        """The region's result is a variable of torch's own wrapper; some versions of torch have none."""
        session, log = region.log.session, region.log
        with private.no_functions():
            if error is not None and error is not region.error_before:
                session.fail_event(log, region.event, error)
                return
            session.close_event(log, region.event, None if result is _NOT_KNOWN else result)
            if result is _NOT_KNOWN:
                log.set_word(region.event, RESULT, session.forms.intern((1, "…")))

    def _take_modes(self, region: Region) -> None:
        """Take only our modes off the stacks (a running handler may have done so already)."""
        session = region.log.session
        region.mode, region.modes_above = FUNCTION_MODES.take(session.function_mode)
        if session.op_mode is not None:
            region.op_mode, region.op_modes_above = OP_MODES.take(session.op_mode)


class _DoorFinder:
    """Sees dynamo being imported inside a recording, and puts the door up right after."""

    def __init__(self, door: CompileDoor) -> None:
        self.door = door

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != DOOR:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            if self.door.finder is self:
                self.door.put_up(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
