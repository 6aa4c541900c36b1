"""The modules probe: every ``nn.Module`` call, by wrapping ``nn.Module.__call__`` while something records.

The wrapper costs a sixth of a global hook, and sees what hooks do not: keyword arguments, Ctrl-C, outputs after
the module's own hooks.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any

from torch import nn

from torchglass.capture.engine.codes import CLASS_BYTES
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.engine.module_paths import ModuleAtPath
from torchglass.capture.session import Session
from torchglass.capture.torch import private
from torchglass.capture.torch.settings import NEVER, Settings, depends_on, settings_of
from torchglass.journal import layout
from torchglass.journal.layout import NONE, STACK
from torchglass.journal.rows import encoded_described, encoded_module, quoted

__tracebackhide__ = True  # pytest leaves our frames out of its reports

_no_modes = private.no_functions
_frame, _gettrace, _settrace = sys._getframe, sys.gettrace, sys.settrace
MOST_PATHS = 8
"""Of one module in one root."""
MOST_CHILDREN = 256
"""That are looked at one by one; in larger modules the paths of all are worked out once."""


def make_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement for ``nn.Module.__call__``.

    Torch's own ``__call__`` only chooses between ``_compiled_call_impl`` and ``_call_impl``; doing that here keeps
    the stack as deep as it is without us, so that recursion ends where it would.
    """
    chooses = original is private.wrapped_call

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        log = LOGS.get(get_ident())
        if log is None or not log.on or not log.session.records_modules:
            return original(self, *args, **kwargs)
        if log.steps:
            log.session.heal_steps(log, _frame(1))
        parent, anchor, base, module = log.parent, log.anchor, log.base, log.module
        tracers = log.session.stacks.tracers
        tracer = tracers.get(_gettrace()) if tracers else None
        at = NONE
        try:
            try:
                if tracer is not None:
                    _settrace(None)  # as in edges.py; here it spares the calls of what follows, too
                at = _open(log, self, _frame(1), args, kwargs)
                if at >= 0:
                    log.anchor, log.base = id(_frame()), log.stack if log.at == at + 1 else log.word(at, STACK)
            except BaseException as fault:
                log.parent, log.anchor, log.base, log.module = parent, anchor, base, module
                at = NONE
                log.session.forgive(fault)
            finally:
                if tracer is not None:
                    _settrace(tracer)  # a signal's exception may come out of this call, too: hence the outer `try`
            if chooses and at >= 0 and self._compiled_call_impl is None:
                result = self._call_impl(*args, **kwargs)
            else:
                result = original(self, *args, **kwargs)
        except BaseException as error:
            row, log.module = log.module, module
            log.parent, log.anchor, log.base = parent, anchor, base
            if at >= 0:
                _fail(log, at, row, self, error)
            args = kwargs = None  # type: ignore[assignment]  # the traceback must not keep tensors alive
            raise
        if at < 0:
            return result
        row, log.module = log.module, module
        log.parent, log.anchor, log.base = parent, anchor, base
        tracer = tracers.get(_gettrace()) if tracers else None
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
    """What the compiled engine asks of modules (capture/engine/fast/), and the tables that it shares."""

    def describe(log: ThreadLog, row: int, module: nn.Module) -> None:
        if not session.modules[row].described:
            _describe(log, row, module)

    return {
        "identify": lambda caller, module: _identify(session, caller, module),
        "describe": describe,
        "settings": lambda row, classes: _settings(session, row, classes),
        "fail_module": _fail,
        "module_table": session.modules,
        "modules_met": session.modules_met,
        "module_numbers": session.module_numbers,
        "class_number": session.class_number,
        "class_rows_known": CLASS_BYTES, "classes_met": session.classes_met, "class_numbers": session.class_numbers,
        "encoded_module": encoded_module, "quoted": quoted,
    }  # fmt: skip


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
        if log.unread and log.module == NONE:
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
    """Settings and parameters, read when the first call ends: a lazy module has them only then."""
    described = log.session.modules[row]
    described.described = True
    _take_parameters(log, described, module)
    if described.root == NONE:  # nobody else may hold the model: when all is over it may be gone
        try:
            _add_uncalled_below(log, described, module)
        except BaseException as fault:
            log.session.forgive(fault)
    if described.root == NONE or log.listening:  # the same; or somebody shows it now
        read_settings(log)


def _take_parameters(log: ThreadLog, row: ModuleAtPath, module: nn.Module) -> None:
    """What is known of one that was not called is written again when it is: then it is described."""
    session = log.session
    row.cls = session.class_number(type(module))
    value_of = session.values.value_of
    row.parameters = "".join(
        [f",{quoted(name)},{value_of(each)}" for name, each in module._parameters.items() if each is not None]
    )
    log.unread.append(row)


def read_settings(log: ThreadLog) -> None:
    """Read the settings of the modules whose first call has ended.

    Those that belong to a model wait for the end of its outermost call: one after the other they take a quarter of
    the time that they take between the operations of the model, where each finds the caches cold.
    """
    session = log.session
    if session.engine is not None:
        with _no_modes():
            session.engine.read_settings(log)
        return
    described, known = list[str](), Settings()
    try:
        with _no_modes():  # some classes ask their tensors
            while True:
                try:
                    row = log.unread.pop()
                except IndexError:  # not asked before: a signal handler may come in between, and read them too
                    break
                try:
                    settings, _ = _settings(session, row, known)
                    described.append(f"[{row.number},{row.cls},{settings}{row.parameters}]")
                except BaseException as fault:
                    session.forgive(fault)
    finally:
        if described:
            session.journal.rows.add(layout.DESCRIBED, 0, encoded_described(described))


def read_all_settings(session: Session) -> None:
    """The same for all threads, also of models that are still at work: somebody looks."""
    for log in session.logs:
        read_settings(log)


def _settings(session: Session, row: ModuleAtPath, known: Settings) -> tuple[str, int]:
    """The settings of a module as they stand in a row, and what they depend on (settings.py)."""
    try:
        module = row.module()
        if module is not None:
            return quoted(settings_of(module, known)), depends_on(module, known)
    except BaseException as fault:
        session.forgive(fault)
    return '""', NEVER


def _identify(session: Session, caller: int, module: nn.Module) -> int:
    """The row of a module called by the module of row ``caller`` (NONE: by no module), made if new.

    Its path is the way through its caller; a module that its root does not contain is a root of its own.
    """
    root, path = NONE, ""
    if caller != NONE:
        above = session.modules[caller]
        owner = above.module()
        if owner is module:  # calls itself: the same place
            session.module_ids[caller, id(module)] = above
            return caller
        top = caller if above.root == NONE else above.root
        way = _path_through(owner, above.path, module)
        if way is None:
            way = _path_below(session.modules[top], above.path, module)
        if way:
            root, path = top, way
    known = _row_at(session, root, path, module) or _add_row(session, root, path, module)
    session.module_ids[caller, id(module)] = known
    return known.number


def _row_at(session: Session, root: int, path: str, module: nn.Module) -> ModuleAtPath | None:
    known = session.modules_met.get(id(module))
    while known is not None and not (known.root == root and known.path == path and known.module() is module):
        known = known.other
    return known


def _add_row(session: Session, root: int, path: str, module: nn.Module) -> ModuleAtPath:
    with session.journal.lock:
        known = _row_at(session, root, path, module)
        if known is not None:
            return known  # another thread was first
        cls = session.class_number(type(module))
        payload, number = encoded_module(cls, root, path), next(session.module_numbers)
        known = ModuleAtPath(number, weakref.ref(module), cls, root, path, session.modules_met.get(id(module)))
        session.journal.rows.add(layout.MODULE, number, payload)
        session.modules[number] = session.modules_met[id(module)] = known
    return known


def _path_through(caller: nn.Module | None, caller_path: str, module: nn.Module) -> str | None:
    """The path of a module that its caller holds itself or in a list, as most do: the model need not be searched."""
    if caller is None or len(caller._modules) > MOST_CHILDREN:
        return None
    prefix = f"{caller_path}." if caller_path else ""
    for name, child in caller._modules.items():
        if child is module:
            return prefix + name
    for name, child in caller._modules.items():
        if child is not None and 0 < len(child._modules) <= MOST_CHILDREN:
            for inner, grandchild in child._modules.items():
                if grandchild is module:
                    return f"{prefix}{name}.{inner}"
    return None


def add_uncalled(session: Session) -> None:
    """Look again when all is over: models change, and a module may have been put in after the first call."""
    read_all_settings(session)
    for root in [row for row in session.modules.values() if row.root == NONE]:
        owner = root.module()
        if owner is not None:
            _add_uncalled_below(session.logs[0], root, owner)
    read_settings(session.logs[0])


def _add_uncalled_below(log: ThreadLog, root: ModuleAtPath, owner: nn.Module) -> None:
    """Rows for modules that hold parameters of a model but were not called: their owner reads them itself."""
    session = log.session
    if not owner._modules or (session.engine is not None and not session.engine.has_uncalled(owner, root.number)):
        return
    modules = session.modules  # in the order of their numbers: what is below a root comes behind it
    later = [modules.get(number) for number in range(root.number + 1, len(modules))]
    rows = [row for row in later if row is not None and row.root == root.number]
    if not _has_uncalled(owner, {id(row.module()) for row in rows}):
        return
    called = {row.path for row in rows}
    for paths in (root.below or _paths_below(owner)).values():
        module = _at(owner, paths[0]) if paths[0] and called.isdisjoint(paths) else None
        if module is not None and module._parameters:
            _take_parameters(log, _add_row(session, root.number, paths[0], module), module)


def _has_uncalled(owner: nn.Module, called: set[int]) -> bool:
    """Whether there is anything to add; mostly there is not, and then no paths need to be worked out."""
    seen, pending = {id(owner)}, [owner]
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
    """The path of a module in its root, through its caller if it has several; None when it is not below it."""
    owner = root.module()
    if owner is None:
        return None
    for _ in range(2):
        paths = (root.below or {}).get(id(module), ())
        path = next((each for each in paths if each.startswith(f"{caller_path}.")), paths[0] if paths else None)
        if path is not None and _at(owner, path) is module:
            return path
        root.below = _paths_below(owner)  # not asked yet, or the model has changed since
    return None


def _at(owner: nn.Module, path: str) -> nn.Module | None:
    found: nn.Module | None = owner
    for name in path.split(".") if path else ():
        modules = found._modules if found is not None else {}
        found = modules[name] if name in modules else None  # noqa: SIM401 (a ScriptModule has no get)
    return found


def _paths_below(owner: nn.Module) -> dict[int, list[str]]:
    """The shortest paths to every module below, by id; modules may be shared, or contain themselves."""
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
