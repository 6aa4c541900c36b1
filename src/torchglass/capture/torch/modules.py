"""Records every call of an ``nn.Module``, by wrapping ``nn.Module.__call__`` while a recording runs.

The wrapper costs a sixth of a global hook. It also sees what hooks do not: keyword arguments, Ctrl-C, and outputs after
the module's own hooks.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from torch import nn

from torchglass.capture.engine.jit import TRACES, pause_trace, resume_trace
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.engine.module_paths import ModuleAtPath
from torchglass.capture.session import Session
from torchglass.capture.torch import private
from torchglass.capture.torch.settings import Settings, settings_of
from torchglass.journal import layout
from torchglass.journal.layout import NONE, STACK
from torchglass.journal.rows import encoded_described, encoded_module, quoted
from torchglass.system import get_ident

__tracebackhide__ = True  # makes pytest leave our frames out of its reports

_no_modes = private.no_functions
_frame, _gettrace, _settrace = sys._getframe, sys.gettrace, sys.settrace
MOST_PATHS = 8
"""The most paths to keep for one module below one root. A module that is shared, or contains itself, has several."""


def make_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the replacement for ``nn.Module.__call__``.

    Torch's own ``__call__`` only chooses between ``_compiled_call_impl`` and ``_call_impl``. Choosing here keeps the
    stack as deep as it is without recording, so that a ``RecursionError`` comes at the same depth.
    """
    chooses = original is private.wrapped_call

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_modules:
            return original(self, *args, **kwargs)
        if log.steps:
            log.session.heal_steps(log, _frame(1))
        parent = log.parent
        anchor = log.anchor
        base = log.base
        module = log.module
        tracers = log.session.stacks.tracers
        tracer = None
        if tracers:
            tracer = tracers.get(_gettrace())
        at = NONE
        try:
            try:
                if tracer is not None:
                    _settrace(None)  # as in edges.py, but it also covers the calls that follow
                at = _open(log, self, _frame(1), args, kwargs)
                if at >= 0:
                    log.anchor, log.base = (
                        id(_frame()),
                        log.stack if log.at == at + 1 else log.word(at, STACK),
                    )
            except BaseException as fault:
                log.parent = parent
                log.anchor = anchor
                log.base = base
                log.module = module
                at = NONE
                log.session.forgive(fault)
            finally:
                if tracer is not None:
                    # A signal handler may raise in this call too, so there is an outer `try`.
                    _settrace(tracer)
            if chooses and at >= 0 and self._compiled_call_impl is None:
                result = self._call_impl(*args, **kwargs)
            else:
                result = original(self, *args, **kwargs)
        except BaseException as error:
            row = log.module
            log.module = module
            log.parent = parent
            log.anchor = anchor
            log.base = base
            if at >= 0:
                _fail(log, at, row, self, error)
            args = kwargs = None  # type: ignore[assignment]  # the traceback must not keep tensors alive
            raise
        if at < 0:
            return result
        row = log.module
        log.module = module
        log.parent = parent
        log.anchor = anchor
        log.base = base
        tracer = None
        if tracers:
            tracer = tracers.get(_gettrace())
        try:
            if tracer is not None:
                _settrace(None)
            _close(log, at, row, self, result)
        except BaseException as fault:
            log.session.forgive(fault)
        finally:
            if tracer is not None:
                _settrace(tracer)
        return result

    return __call__


def answers(session: Session) -> dict[str, Any]:
    """Return the functions about modules that the compiled engine calls (capture/engine/fast/modules.c)."""

    def describe(log: ThreadLog, row: int, module: nn.Module) -> None:
        if not session.modules[row].described:
            _describe(log, row, module)

    return {
        "identify": lambda caller, module: _identify(session, caller, module),
        "describe": describe,
        "settings": read_settings,
        "fail_module": _fail,
    }


def _open(log: ThreadLog, module: nn.Module, frame: Any, args: Any, kwargs: Any) -> int:
    session = log.session
    known = session.module_ids.get((log.module, id(module)))
    if known is not None and known.module() is module:
        row = known.number
    else:
        row = _identify(session, log.module, module)
    with _no_modes():
        at = session.open_event(log, -2 - row, frame, args, kwargs)
    if at >= 0:
        log.module = row
    return at


def _close(log: ThreadLog, at: int, row: int, module: nn.Module, result: Any) -> None:
    session = log.session
    with _no_modes():
        if not session.modules[row].described:
            _describe(log, row, module)
        if log.undescribed and log.module == NONE:
            read_settings(log)
        session.close_event(log, at, result)


def _fail(log: ThreadLog, at: int, row: int, module: nn.Module, error: BaseException) -> None:
    with _no_modes():
        try:
            if not log.session.modules[row].described:
                _describe(log, row, module)
            if log.module == NONE:
                read_settings(log)
        except BaseException as fault:
            log.session.forgive(fault)
        log.session.fail_event(log, at, error)


def _describe(log: ThreadLog, row: int, module: nn.Module) -> None:
    """Describe a module's parameters and settings when its first call ends. A lazy module does not have them before."""
    described = log.session.modules[row]
    described.described = True
    traced = None
    if TRACES:
        traced = pause_trace()
    try:
        _take_parameters(log, described, module)
        # Do this now, because the model may be freed before the recording ends.
        if described.root == NONE:
            try:
                _add_uncalled_below(log, described, module)
            except BaseException as fault:
                log.session.forgive(fault)
    finally:
        resume_trace(traced)
    # For the same reason, or because a live view shows it.
    if described.root == NONE or log.listening:
        read_settings(log)


def _take_parameters(log: ThreadLog, row: ModuleAtPath, module: nn.Module) -> None:
    """Write the parameters of a module. An uncalled module is written again when it is called."""
    session = log.session
    row.cls = session.class_number(type(module))
    value_of = session.values.value_of
    row.parameters = "".join(
        [
            f",{quoted(name)},{value_of(each)}"
            for name, each in module._parameters.items()
            if each is not None
        ]
    )
    log.undescribed.append(row)


def read_settings(log: ThreadLog) -> None:
    """Read the settings of the modules whose first call has ended.

    The modules of a model wait for the end of its outermost call. Reading them one after the other takes a quarter of
    the time of reading each between the operations of the model, when the processor's caches hold other data.
    """
    if not log.undescribed:
        return
    session = log.session
    described = list[str]()
    known = Settings()
    traced = None
    if TRACES:
        traced = pause_trace()
    try:
        with _no_modes():  # some classes read their tensors to print themselves
            while True:
                try:
                    row = log.undescribed.pop()
                # Checking the length first is not safe, because a signal handler in between may read them too.
                except IndexError:
                    break
                try:
                    settings = _quoted_settings(session, row, known)
                    described.append(f"[{row.number},{row.cls},{settings}{row.parameters}]")
                except BaseException as fault:
                    session.forgive(fault)
    finally:
        resume_trace(traced)
        if described:
            session.journal.rows.add(layout.DESCRIBED, 0, encoded_described(described))


def read_all_settings(session: Session) -> None:
    """Read the settings for all threads, including models that are still running, because a live view shows them."""
    for log in session.logs:
        read_settings(log)


def _quoted_settings(session: Session, row: ModuleAtPath, known: Settings) -> str:
    """Return the settings of a module as quoted text for a row. The text is empty if they cannot be read."""
    try:
        module = row.module()
        if module is not None:
            return quoted(settings_of(module, known))
    except BaseException as fault:
        session.forgive(fault)
    return '""'


def _identify(session: Session, caller: int, module: nn.Module) -> int:
    """Return the row of a module that was called by the module of row ``caller``. Make the row if it is new.

    ``caller`` is NONE if no module called it. The path of the module leads through its caller. A module that the
    caller's root does not contain becomes a root itself.
    """
    root = NONE
    path = ""
    if caller != NONE:
        above = session.modules[caller]
        owner = above.module()
        if owner is module:  # a module that calls itself has the same path
            session.module_ids[caller, id(module)] = above
            return caller
        top = caller
        if above.root != NONE:
            top = above.root
        way = None
        if owner is not None:
            way = _path_through(above, owner, module)
        if way is None:
            way = _path_below(session.modules[top], above.path, module)
        if way:
            root = top
            path = way
    known = _row_at(session, root, path, module) or _add_row(session, root, path, module)
    session.module_ids[caller, id(module)] = known
    return known.number


def _row_at(session: Session, root: int, path: str, module: nn.Module) -> ModuleAtPath | None:
    known = session.modules_met.get(id(module))
    while known is not None and not (
        known.root == root and known.path == path and known.module() is module
    ):
        known = known.other
    return known


def _add_row(session: Session, root: int, path: str, module: nn.Module) -> ModuleAtPath:
    with session.journal.lock:
        known = _row_at(session, root, path, module)
        if known is not None:
            return known  # another thread has just made the row
        cls = session.class_number(type(module))
        payload = encoded_module(cls, root, path)
        number = next(session.module_numbers)
        known = ModuleAtPath(
            number, weakref.ref(module), cls, root, path, session.modules_met.get(id(module))
        )
        session.journal.rows.add(layout.MODULE, number, payload)
        session.modules[number] = session.modules_met[id(module)] = known
    return known


def _path_through(caller: ModuleAtPath, owner: nn.Module, module: nn.Module) -> str | None:
    """Return the path of a module that its caller holds directly or in a list, without searching the model.

    Return None if the module is not there.
    """
    name = None
    if caller.near is not None:
        name = caller.near.get(id(module))
    if name is None or _at(owner, name) is not module:
        caller.near = _names_near(owner)  # there were no names yet, or the model has changed
        name = caller.near.get(id(module))
    if name is None or not caller.path:
        return name
    return f"{caller.path}.{name}"


def _names_near(owner: nn.Module) -> dict[int, str]:
    """Return the names of the modules that a module holds, itself or in its children, keyed by ``id``."""
    names: dict[int, str] = {}
    for name, child in owner._modules.items():
        if child is not None:
            names.update((id(inner), f"{name}.{key}") for key, inner in child._modules.items())
    names.update((id(child), name) for name, child in owner._modules.items())
    return names


def add_uncalled(session: Session) -> None:
    """Add the uncalled modules at the end of the recording, because a model may have changed after its first call."""
    read_all_settings(session)
    for root in [row for row in session.modules.values() if row.root == NONE]:
        owner = root.module()
        if owner is not None:
            _add_uncalled_below(session.logs[0], root, owner)
    read_settings(session.logs[0])


def _add_uncalled_below(log: ThreadLog, root: ModuleAtPath, owner: nn.Module) -> None:
    """Add rows for modules that hold parameters but were not called, because their owner may use the parameters."""
    session = log.session
    if not owner._modules:
        return
    modules = session.modules  # modules below a root have higher numbers than the root
    later = [modules.get(number) for number in range(root.number + 1, len(modules))]
    rows = [row for row in later if row is not None and row.root == root.number]
    if not _has_uncalled(owner, {id(row.module()) for row in rows}):
        return
    called = {row.path for row in rows}
    for paths in (root.below or _paths_below(owner)).values():
        module = None
        if paths[0] and called.isdisjoint(paths):
            module = _at(owner, paths[0])
        if module is not None and module._parameters:
            _take_parameters(log, _add_row(session, root.number, paths[0], module), module)


def _has_uncalled(owner: nn.Module, called: set[int]) -> bool:
    """Return whether there is anything to add. Mostly there is not, and then no paths need to be computed."""
    seen = {id(owner)}
    pending = [owner]
    while pending:
        for child in pending.pop()._modules.values():
            if child is None or id(child) in seen:
                continue
            if child._parameters and id(child) not in called:
                return True
            seen.add(id(child))
            if child._modules:
                pending.append(child)
    return False


def _path_below(root: ModuleAtPath, caller_path: str, module: nn.Module) -> str | None:
    """Return the path of a module below a root, or None if the root does not contain it.

    If the module has several paths, prefer a path through its caller.
    """
    owner = root.module()
    if owner is None:
        return None
    for _ in range(2):
        paths = (root.below or {}).get(id(module), ())
        path = next(
            (each for each in paths if each.startswith(f"{caller_path}.")),
            paths[0] if paths else None,
        )
        if path is not None and _at(owner, path) is module:
            return path
        root.below = _paths_below(owner)  # there were no paths yet, or the model has changed
    return None


def _at(owner: nn.Module, path: str) -> nn.Module | None:
    found: nn.Module | None = owner
    for name in path.split(".") if path else ():
        if found is not None:
            modules = found._modules
        else:
            modules = {}
        found = modules[name] if name in modules else None  # noqa: SIM401 (a ScriptModule has no get)
    return found


def _paths_below(owner: nn.Module) -> dict[int, list[str]]:
    """Return the shortest paths to every module below a root, keyed by ``id``.

    Modules may be shared, or contain themselves.
    """
    paths = {id(owner): [""]}
    level: deque[tuple[str, nn.Module]] = deque([("", owner)])
    while level:
        prefix, each = level.popleft()
        for name, child in each._modules.items():
            if child is None:
                continue
            known = paths.setdefault(id(child), [])
            if len(known) < MOST_PATHS:
                known.append(prefix + name)
                if child._modules:
                    level.append((f"{prefix}{name}.", child))
    return paths
