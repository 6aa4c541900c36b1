"""Removes our modes and patches while compiled code runs, so that torch.compile traces the program, not the recorder.

Otherwise our mode would be traced into the graph and cause a recompilation on every call. We replace four names in
``torch._dynamo.eval_frame`` that torch looks up at each call, and so see when a compiled region is entered and left. In
between, our modes are off their stacks and our patches are removed. The region is recorded as one ``unseen`` event.

``torch.export.export(strict=True)`` and ``aot_compile`` read a whole function without running it. We see this by
replacing names in ``torch._dynamo.convert_frame`` and ``torch._dynamo.aot_compile``. No code of the program runs then,
so there is no event. A call of the function that ``aot_compile`` returned is a compiled region.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.session import UNSEEN
from torchglass.capture.torch import private
from torchglass.capture.transparency.features import Feature
from torchglass.capture.transparency.modes import FUNCTION_MODES, OP_MODES
from torchglass.capture.transparency.patches import Patch, PatchGroup, SharedFeatures
from torchglass.journal.layout import NONE, RESULT
from torchglass.system import get_ident

__tracebackhide__ = True  # makes pytest leave our frames out of its reports

DOOR = "torch._dynamo.eval_frame"
CAPTURE = "torch._dynamo.convert_frame"
AHEAD = "torch._dynamo.aot_compile"
NOTE = "compiled: its inside is not seen; to look inside, run it with torch.compiler.set_stance('force_eager')"
NOTE_AHEAD = (
    "compiled ahead of time: its inside is not seen; to look inside, call what it was made from"
)
NO_RESULT = "this version of torch does not show what a compiled region returned; a newer one does"

BLIND = "module calls of other threads were not seen while a thread ran a compiled region"


_NOT_KNOWN = object()


def _nothing() -> None:
    """Replace an original that does not exist."""


class Region:
    """A compiled region that is running in one thread, and the state to restore when it ends."""

    def __init__(self, log: ThreadLog, frame_id: int = 0) -> None:
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
    """Replaces the names in dynamo while it is installed. If dynamo is not imported yet, it waits for the import."""

    def __init__(self, patches: SharedFeatures) -> None:
        self.patches = patches
        self.regions: dict[int, Region] = {}
        self.finder: _DoorFinder | None = None
        self._names: dict[str, tuple[ModuleType, Feature]] = {}
        """Keyed by module name: the module, and the feature that replaces names in it."""
        self._replaced = {
            DOOR: self._replaced_in_door,
            CAPTURE: self._replaced_in_capture,
            AHEAD: self._replaced_ahead,
        }

    def install(self) -> None:
        for name in self._replaced:
            module = sys.modules.get(name)
            if module is not None and not getattr(module.__spec__, "_initializing", False):
                self.put_up(module)
            elif self.finder is None:
                self.finder = _DoorFinder(self)
                sys.meta_path.insert(0, self.finder)

    def remove(self) -> None:
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
        self.finder = None
        for _, names in self._names.values():
            names.remove()
        self.regions = {}

    def put_up(self, module: ModuleType) -> None:
        """Replace the names in one of dynamo's modules, which may have just been imported."""
        name = module.__name__
        known, names = self._names.get(name, (None, None))
        if known is not module or names is None:
            make = self._replaced[name]
            names = Feature(f"names of {name}", private.COMPILED, lambda: make(module))
            self._names[name] = (module, names)
        names.install()

    @property
    def problem(self) -> str | None:
        """Why names could not be replaced, or None if there is no problem."""
        problems = [names.problem for _, names in self._names.values()]
        return "; ".join(each for each in problems if each is not None) or None

    def _replaced_in_door(self, module: ModuleType) -> PatchGroup:
        names = {
            "set_eval_frame": self._make_set,
            "_callback_from_stance": self._make_callback,
            "_maybe_set_eval_frame": self._make_maybe,
        }
        self.stance = lambda: module._stance.stance
        for make in (*names.values(), self._make_compile):
            # Dynamo must not trace our replacements. Their code is the same for every original.
            module.skip_code(make(_nothing).__code__)
        for code in _codes_called_by_python():
            module.skip_code(code)
        wanted = [Patch(module, name, make) for name, make in names.items()]
        return PatchGroup(
            *wanted, Patch(module._TorchDynamoContext, "__call__", self._make_compile)
        )

    def _replaced_in_capture(self, module: ModuleType) -> PatchGroup:
        if not hasattr(module, "fullgraph_capture"):
            # In this older torch, the names in `eval_frame` cover these functions too.
            return PatchGroup()
        return PatchGroup(
            Patch(module, "_get_frame", self._make_compile),
            Patch(module, "_fullgraph_capture_frame", self._make_capture),
        )

    def _replaced_ahead(self, module: ModuleType) -> PatchGroup:
        return PatchGroup(
            Patch(module, "aot_compile_fullgraph", self._make_capture),
            Patch(module.AOTCompiledFunction, "__call__", self._make_call),
            Patch(module.AOTCompiledModel, "__call__", self._make_call),
        )

    def _make_set(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def set_eval_frame(callback: Any) -> Any:
            # Call the original first: as long as the old callback is set, dynamo would trace our code here.
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
        def __call__(*args: Any, **kwargs: Any) -> Any:
            # torch keeps bound methods of the function to compile, and must not find our wrappers there.
            self.patches.suspend()
            try:
                return original(*args, **kwargs)
            finally:
                self.patches.resume()

        return __call__

    def _make_capture(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture(*args: Any, **kwargs: Any) -> Any:
            log = self._log_outside()
            if log is None:
                return original(*args, **kwargs)
            region = Region(log)
            self._step_aside(region)
            try:
                return original(*args, **kwargs)
            finally:
                self._come_back(region)

        return capture

    def _make_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __call__(compiled: Any, *args: Any, **kwargs: Any) -> Any:
            log = self._log_outside()
            if log is None:
                return original(compiled, *args, **kwargs)
            region = Region(log)
            self._open_event(region, NOTE_AHEAD, sys._getframe(1), args, kwargs)
            self._step_aside(region)
            result: Any = None
            try:
                result = original(compiled, *args, **kwargs)
                return result
            finally:
                args, kwargs = (
                    (),
                    {},
                )  # a traceback keeps this frame, which must not keep the tensors alive
                self._come_back(region)
                self._close_event(region, result)

        return __call__

    def _log_outside(self) -> ThreadLog | None:
        """Return this thread's log, or None if the thread is not recorded or is already in a compiled region."""
        log = LOGS.get(get_ident())
        if log is None or not log.on or log.ident in self.regions:
            return None
        return log

    def enter(self, frame_id: int, frame: FrameType) -> None:
        log = self._log_outside()
        if log is None or self.stance() == "force_eager":
            return
        region = Region(log, frame_id)
        given = frame.f_locals
        self._open_event(region, NOTE, frame.f_back, given.get("args", ()), given.get("kwargs"))
        self._step_aside(region)

    def leave(self, region: Region, frame: FrameType) -> None:
        self._come_back(region)
        self._close_event(region, frame.f_locals.get("result", _NOT_KNOWN))

    def _step_aside(self, region: Region) -> None:
        """Remove our modes and patches, which would be traced, and pause recording in this thread."""
        log = region.log
        if len(LOGS) > 1:
            for other in LOGS.values():
                other.session.note(BLIND)
        log.on = False
        self._take_modes(region)
        self.patches.suspend()
        self.regions[log.ident] = region

    def _come_back(self, region: Region) -> None:
        """Put back our modes and patches, and continue recording in this thread."""
        log = region.log
        self.regions.pop(log.ident, None)
        self.patches.resume()
        if region.mode is not None:
            FUNCTION_MODES.insert(region.mode, region.modes_above)
        if region.op_mode is not None:
            OP_MODES.insert(region.op_mode, region.op_modes_above)
        log.on = log.session.running
        log.parent, log.anchor, log.base, log.module = region.state

    def _open_event(
        self, region: Region, note: str, caller: FrameType | None, args: Any, kwargs: Any
    ) -> None:
        log = region.log
        if log.steps:
            log.session.heal_steps(log, sys._getframe(1))
        try:
            with private.no_functions():
                what = log.session.what(UNSEEN, "compiled", note)
                region.event = log.session.open_event(log, what, caller, args, kwargs)
        except BaseException as fault:
            log.session.forgive(fault)

    def _close_event(self, region: Region, result: Any) -> None:
        if region.event < 0:
            return
        try:
            self._end_event(region, sys.exc_info()[1], result)
        except BaseException as fault:
            region.log.session.forgive(fault)

    def _end_event(self, region: Region, error: BaseException | None, result: Any) -> None:
        """End the region's event. Its result is a local variable of torch's wrapper that some versions do not have."""
        session = region.log.session
        log = region.log
        with private.no_functions():
            if error is not None and error is not region.error_before:
                session.fail_event(log, region.event, error)
                return
            if result is _NOT_KNOWN:
                result = None
                session.note(NO_RESULT)
            session.close_event(log, region.event, result)
            if result is _NOT_KNOWN:
                log.set_word(region.event, RESULT, session.forms.intern((1, "…")))

    def _take_modes(self, region: Region) -> None:
        """Take only our modes off the stacks. A running handler may have removed them already."""
        session = region.log.session
        region.mode, region.modes_above = FUNCTION_MODES.take(session.function_mode)
        if session.op_mode is not None:
            region.op_mode, region.op_modes_above = OP_MODES.take(session.op_mode)


def _codes_called_by_python() -> Iterator[CodeType]:
    """Yield the code of our functions that Python calls while it runs the program.

    Dynamo would take these functions for a part of the program. They are the callbacks for calls and variables, and all
    functions that the callbacks may call, so this yields the code of every function in ``torchglass.capture``.
    """
    has_monitoring = hasattr(sys, "monitoring")
    importlib.import_module("torchglass.capture.calls.probe")
    importlib.import_module(
        f"torchglass.capture.calls.{'monitoring' if has_monitoring else 'profiling'}"
    )
    importlib.import_module(
        f"torchglass.capture.variables.{'monitoring' if has_monitoring else 'settrace'}"
    )
    for name, module in list(sys.modules.items()):
        if not name.startswith("torchglass.capture."):
            continue
        for each in list(vars(module).values()):
            if isinstance(each, type):
                members = list(vars(each).values())
            else:
                members = [each]
            for function in members:
                if isinstance(function, FunctionType) and function.__module__ == name:
                    yield from _with_inner(function.__code__)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _with_inner(each)


class _DoorFinder:
    """An import hook that replaces names in dynamo right after dynamo is imported during a recording."""

    def __init__(self, door: CompileDoor) -> None:
        self.door = door

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in (DOOR, CAPTURE, AHEAD):
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
