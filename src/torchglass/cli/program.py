"""Runs a script or module in this process as ``python`` itself would: same names, paths, errors and status."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
import os
import pkgutil
import runpy
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType, SimpleNamespace, TracebackType
from typing import Any, NoReturn

Found = tuple[CodeType, dict[str, Any]]
"""The code of a program, and what its ``__main__`` module knows of itself."""
runpy_parts: Any = runpy
"""``python -m`` is written in Python, so finding a module and its error messages are taken from there, as pdb does."""


class CannotStart(Exception):
    """There is nothing to run. The error has the message and the exit status that python itself would give."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status

    def report(self) -> int:
        """Print the message as python does, and return the exit status."""
        print(f"{sys.executable}: {self}", file=sys.stderr)
        return self.status


@dataclass(frozen=True)
class Script:
    """What to run, and what ``sys`` shows while it runs."""

    argv: list[str]
    folder: str
    """The first entry of ``sys.path``."""
    title: str
    """The name for a bundle if nobody gives one."""
    find: Callable[[], Found]
    """Finds the code; of a module only once it runs, because that imports the packages which it is in."""
    by_runpy: bool = False
    """Whether python would have run it through ``runpy``, which then shows in its tracebacks."""

    def run(self) -> None:
        """Run this program as ``__main__``, which stays for what runs at exit and for pickling."""
        main = ModuleType("__main__")
        vars(main).update(__builtins__=sys.modules["builtins"], __annotations__={})
        sys.modules["__main__"] = main
        # torch imported multiprocessing, which took our main module for the program's main module.
        if "__mp_main__" in sys.modules:
            sys.modules["__mp_main__"] = main
        sys.argv[:] = self.argv
        put_first(self.folder)
        code, names = self.find()
        vars(main).update(names)
        exec(code, vars(main))


def put_first(folder: str) -> None:
    """Put a folder first in ``sys.path``, in place of the one that python put there for us."""
    if not sys.flags.safe_path:
        del sys.path[:1]
    if folder:
        sys.path.insert(0, folder)


def find_script(path: str, arguments: list[str]) -> Script:
    """Return the program of ``python PATH arguments…``: a file, or the ``__main__.py`` of a folder or zip archive."""
    absolute = os.path.abspath(path)  # noqa: PTH100 (as python: nothing is resolved)
    title = Path(absolute).stem
    importer: Any = pkgutil.get_importer(absolute)
    if importer is not None:
        if importer.find_spec("__main__") is None:
            raise CannotStart(f"can't find '__main__' module in {absolute!r}")
        return Script([path, *arguments], absolute, title, _find_main, by_runpy=True)
    found = _read(absolute)
    folder = "" if sys.flags.safe_path else os.path.dirname(os.path.realpath(absolute))  # noqa: PTH120
    return Script([path, *arguments], folder, title, lambda: found)


def _read(path: str) -> Found:
    """Return the code of a file."""
    try:
        if path.endswith(".pyc"):
            loader = importlib.machinery.SourcelessFileLoader("__main__", path)
            code = loader.get_code("__main__")
            assert code is not None
        else:
            loader = importlib.machinery.SourceFileLoader("__main__", path)
            code = loader.source_to_code(loader.get_data(path), path)
    except OSError as error:
        raise CannotStart(
            f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}", 2
        ) from None
    names = {"__name__": "__main__", "__file__": path, "__loader__": loader}
    return code, {**names, "__spec__": None, "__package__": None, "__cached__": None}


def _find_main() -> Found:
    """Return the ``__main__`` of the folder or archive that is first in ``sys.path``."""
    return _as_main(runpy_parts._get_main_module_details(CannotStart))


def find_module(name: str, arguments: list[str]) -> Script:
    """Return the program of ``python -m NAME arguments…``: a module, or the ``__main__`` of a package."""
    if sys.flags.safe_path:
        folder = ""
    else:
        folder = str(Path.cwd())

    def find() -> Found:
        found = _as_main(runpy_parts._get_module_details(name, CannotStart))
        sys.argv[0] = found[1]["__file__"]
        return found

    program = Script(["-m", *arguments], folder, name, find, by_runpy=True)
    if not _seems_to_be_there(name, folder):
        put_first(folder)
        find()
    return program


def _seems_to_be_there(name: str, folder: str) -> bool:
    """Return whether such a module seems to exist, without importing the packages that it is in."""
    paths: list[str] | None = [folder, *sys.path[0 if sys.flags.safe_path else 1 :]]
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        spec = _spec_at(".".join(parts[:count]), paths if count > 1 or folder else None)
        if spec is None:
            return False
        if spec.submodule_search_locations is None:
            return count == len(parts)
        paths = list(spec.submodule_search_locations)
    return _spec_at(f"{name}.__main__", paths) is not None


def _spec_at(name: str, paths: list[str] | None) -> importlib.machinery.ModuleSpec | None:
    try:
        if "." not in name and (name in sys.builtin_module_names or name in sys.modules):
            return importlib.util.find_spec(name)
        return importlib.machinery.PathFinder.find_spec(name, paths)
    except (ImportError, ValueError):
        return None


def _as_main(details: tuple[str, importlib.machinery.ModuleSpec, CodeType]) -> Found:
    _, spec, code = details
    names = {
        "__name__": "__main__",
        "__file__": spec.origin,
        "__cached__": spec.cached,
        "__loader__": spec.loader,
    }
    return code, {**names, "__package__": spec.parent, "__spec__": spec}


# ---------------------------------------------------------------- uncaught

# Prints the traceback of an uncaught exception as Python would print it without recording.

OUR_FOLDER = str(Path(__file__).resolve().parents[1]) + os.sep
MODULE_CALL = str(Path(OUR_FOLDER) / "capture" / "torch" / "modules.py")
HANDOVER = "handle_torch_function"
"""The function through which a torch function written in Python calls whoever listens."""
Place = tuple[FrameType, int, int]
"""A frame, and the instruction and line at which it calls another."""


def print_uncaught(error: BaseException, by_runpy: bool = False) -> None:
    """Print a traceback as python would, without our frames.

    With ``by_runpy`` it has the frames above the program's own that python would show.
    """
    clean_tracebacks(error)
    if by_runpy:
        error.__traceback__ = _below_runpy(error.__traceback__)
    sys.last_type = type(error)
    sys.last_value = error
    sys.last_traceback = error.__traceback__
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit:
        raise
    except BaseException as failed:  # the program's own hook
        clean_tracebacks(failed)
        _say("Error in sys.excepthook:\n")
        sys.__excepthook__(type(failed), failed, failed.__traceback__)
        _say("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        del error  # break the cycle: the traceback may hold this frame (_places)


def raise_printed(error: BaseException) -> NoReturn:
    """End python as an uncaught exception does, without printing this one again."""
    as_usual = sys.excepthook

    def excepthook(kind: Any, value: BaseException, _: TracebackType | None) -> None:
        sys.excepthook = as_usual
        clean_tracebacks(value)
        sys.last_type = kind
        sys.last_value = value
        sys.last_traceback = value.__traceback__

    sys.excepthook = excepthook
    raise error


def watch_others() -> None:
    """Take our frames out of exceptions that are printed in threads, at exit and in finalisers, too."""
    original_excepthook = threading.excepthook
    original_unraisablehook = sys.unraisablehook

    def excepthook(args: Any) -> Any:
        error = args.exc_value
        if error is None:
            return original_excepthook(args)
        clean_tracebacks(error)
        cleaned = (args.exc_type, error, error.__traceback__, args.thread)
        del error  # as in print_uncaught
        return original_excepthook(threading.ExceptHookArgs(cleaned))

    def unraisablehook(args: Any) -> Any:
        error = args.exc_value
        if error is None:
            return original_unraisablehook(args)
        clean_tracebacks(error)
        cleaned = (args.exc_type, error, error.__traceback__, args.err_msg, args.object)
        del error
        return original_unraisablehook(type(args)(cleaned))

    threading.excepthook = excepthook
    sys.unraisablehook = unraisablehook


def clean_tracebacks(error: BaseException) -> None:
    """Take our frames out of an exception, its causes and its contexts."""
    for each in _chain(error):
        each.__traceback__ = without_ours(each.__traceback__)
        del each  # as in print_uncaught
    del error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its causes and its contexts, each once: they may form a circle."""
    pending: list[BaseException] = [error]
    seen = {id(error)}
    while pending:
        each = pending.pop()
        yield each
        others: list[BaseException | None] = [each.__cause__, each.__context__]
        others += each.exceptions if isinstance(each, BaseExceptionGroup) else ()  # pyright: ignore[reportUnknownMemberType]
        for other in others:
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                pending.append(other)


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of recording, and with those that they replaced."""
    kept: list[TracebackType] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(OUR_FOLDER):
            if kept and _is_copied(kept[-1].tb_frame, trace.tb_frame):
                # The last function called our handler, and C called a copy of it, which is this one.
                del kept[-1]
            kept.append(trace)
        elif code.co_filename == MODULE_CALL and _runs(trace.tb_next, "_call_impl"):
            kept += [_entry(place) for place in _places(_call_module)]
        elif kept and kept[-1].tb_frame.f_code.co_name == HANDOVER:
            # The function that called our handler runs again below the handler. Python would show only that frame.
            del kept[-2:]
        trace = trace.tb_next
    return _linked(kept)


def _is_copied(caller: FrameType, called: FrameType) -> bool:
    """Return whether a function runs twice, the second time as our copy that skips the function modes."""
    one = caller.f_code
    two = called.f_code
    if (one.co_filename, one.co_qualname) != (two.co_filename, two.co_qualname):
        return False
    is_same_function = one is two and caller.f_globals is called.f_globals
    return HANDOVER in one.co_names and not is_same_function


def _runs(trace: TracebackType | None, function: str) -> bool:
    return trace is not None and trace.tb_frame.f_code.co_name == function


def _entry(place: Place) -> TracebackType:
    return TracebackType(None, *place)


def _linked(entries: list[TracebackType]) -> TracebackType | None:
    """Link the entries of a traceback, and return the first."""
    following: TracebackType | None = None
    for entry in reversed(entries):
        entry.tb_next = following
        following = entry
    return following


# ---------------------------------------------------------------- lines that Python would show

# Without recording, a traceback has frames of torch and of ``runpy`` that do not run here, because other code of ours
# runs in their place. To show them with the right lines, run the functions that they belong to once more, with harmless
# functions in place of those that they call. One of these replacements reads the frame and line of its caller.


def _places(call: Callable[[Callable[..., Any]], object]) -> list[Place]:
    """Return the places from which ``call`` calls the function that it gets. Empty if it does not call it."""
    found: list[Place] = []

    def note_caller(*_: Any, **__: Any) -> Any:
        frame = inspect.currentframe()
        if frame is not None and frame.f_back is not None:
            caller = frame.f_back
            found.append((caller, caller.f_lasti, caller.f_lineno))
        return _nothing()

    try:
        call(note_caller)
    except Exception:  # this version of torch or Python is different, so the line is missing
        return []
    return found


def _call_module(called: Callable[..., Any]) -> None:
    """Call torch's function that our wrapper of module calls replaces."""
    module: Any = sys.modules["torch.nn.modules.module"]
    module.Module._wrapped_call_impl(SimpleNamespace(_compiled_call_impl=None, _call_impl=called))


def _below_runpy(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback below the functions of ``runpy`` that find and run a module or a folder."""
    if trace is not None and trace.tb_frame.f_globals.get("__name__") == "__main__":
        call = _run_code
    elif _runs(trace, "_get_main_module_details"):
        call = _find_main_module
    else:
        call = _find_named_module
    entries = [_entry(place) for place in _places(call)]
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    return _linked(entries)


def _find_named_module(called: Callable[..., Any]) -> None:
    """Run ``runpy`` up to where it looks for the module of ``python -m NAME``."""
    _run_module_as_main("", _get_module_details=called, _run_code=_nothing)


def _find_main_module(called: Callable[..., Any]) -> None:
    """Run ``runpy`` up to where it looks for the ``__main__`` of a folder or archive."""
    _run_module_as_main("__main__", _get_main_module_details=called, _run_code=_nothing)


def _run_code(called: Callable[..., Any]) -> None:
    """Run ``runpy`` up to where it runs the code: a function that runs modules, and one that it calls for this."""
    _run_module_as_main("", _get_module_details=_nothing, _run_code=called)
    run_code = FunctionType(runpy_parts._run_code.__code__, {"exec": called}, argdefs=(None,) * 5)
    run_code(None, {})


def _nothing(*_: Any) -> tuple[Any, ...]:
    """Return what a search for a module returns: a name, a spec and code, all of them empty."""
    return "", SimpleNamespace(origin=""), None


def _run_module_as_main(name: str, **replaced: Any) -> None:
    """Call the function of ``runpy`` with this name, with other functions in place of those that it calls."""
    names = {
        **replaced,
        "sys": SimpleNamespace(modules={"__main__": SimpleNamespace()}, argv=[""]),
        "_Error": ZeroDivisionError,
    }
    run_module_as_main = FunctionType(runpy_parts._run_module_as_main.__code__, names)
    run_module_as_main(name, name != "__main__")


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
