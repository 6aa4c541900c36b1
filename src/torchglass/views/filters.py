"""What is asked for and is not there: a pattern that nothing in the trace fits is an error with the near names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torchglass.errors import NotRecorded, closest
from torchglass.events.selection import Selection, base_name, fits_path, in_package, is_installed, module_parts, select
from torchglass.events.spelling import clean
from torchglass.views.digest import Recorded, digest_of
from torchglass.views.options import ViewOptions

MOST_NAMED = 20
HOW = {"op": ": record(ops=True) records them", "variable": ": record(variables=True) follows them"}


def check(trace: Recorded, options: ViewOptions) -> None:
    """Refuse patterns of ``only=``, ``path=`` and ``hide=`` that fit nothing in the trace."""
    only = options.only
    if not len(trace) or (only is None and not options.path and not options.hide):
        return
    samples = digest_of(trace).samples
    steps = {event.file for event in samples if event.file is not None}
    files = steps | {at.file for event in samples for at in event.stack}
    only = only or Selection()
    _each("path", options.path or only.path, files, fits_path, map(base_name, steps))
    _each("hide", options.hide or only.hide, files, in_package, map(_package, steps))
    modules = {event.module for event in samples if event.module is not None}
    _each("module", only.module, modules, lambda path, pattern: Selection(module=(pattern,)).fits_module(path), modules)
    for kind in ("function", "op", "variable"):
        events = [event for event in samples if event.kind == kind]
        for pattern in getattr(only, kind):
            wanted = select(**{kind: pattern})
            if not any(map(wanted.matches, events)):
                raise _nothing(kind, pattern, (event.name for event in events))


def _each(
    what: str, patterns: Iterable[str], words: Iterable[str], fits: Callable[[str, str], bool], names: Iterable[str]
) -> None:
    known = list(words)
    for pattern in patterns:
        if not any(fits(word, pattern) for word in known):
            raise _nothing(what, pattern, names)


def _nothing(what: str, pattern: str, names: Iterable[str]) -> NotRecorded:
    known = sorted({clean(name) for name in names if name})
    hint = closest(pattern, known) + ("" if known else HOW.get(what, ""))
    if len(known) > MOST_NAMED:
        near = hint.partition("there are: ")[0]
        hint = f"{near}there are {len(known)}, as {', '.join(known[:MOST_NAMED])} …"
    return NotRecorded(f"{what}={pattern!r}: nothing in the trace fits; {hint}")


def _package(file: str) -> str:
    """The name by which ``hide=`` finds a file: its package, or of the program's own files its name."""
    parts = module_parts(file)
    return parts[0] if is_installed(file) else parts[-1]
