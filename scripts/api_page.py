"""Writes docs/api.md from the docstrings of what is public, so that the page cannot say anything else."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import torchglass
from torchglass.views import VIEWS
from torchglass.views.options import OPTIONS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
OPENING = """# Reference

<!-- Written by scripts/api_page.py from the docstrings: change those instead. -->

All that is public, as `import torchglass as tg` gives it. The [README](../README.md) shows it in use, the
[glossary](glossary.md) explains the words, and [messages](messages.md) what to do about what it says.
"""
GROUPS = {
    "Recording": ("record", "trace", "last_trace", "mark", "select"),
    "Looking": ("show", "render", "first_bad", "compare", "same"),
    "Keeping": ("save", "load", "export"),
    "A trace": ("Trace", "Event", "Value"),
    "Errors": (
        "TorchglassError", "UsageError", "UnknownView", "UnknownOption", "WrongType", "BadValue", "NotRecorded",
        "BundleError", "MissingExtra",
    ),
}  # fmt: skip


def page() -> str:
    """The whole page."""
    parts = [OPENING]
    missing = {*torchglass.__all__} - {"__version__", *(name for names in GROUPS.values() for name in names)}
    assert not missing, f"no group for {sorted(missing)}"
    for group, names in GROUPS.items():
        parts.append(f"## {group}\n")
        parts += [_entry(name, getattr(torchglass, name)) for name in names]
        if group == "Looking":
            parts.append(_views())
    return "\n".join(parts)


def _entry(name: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        return f"### `{name}{_signature(thing)}`\n{_words(thing)}\n"
    if issubclass(thing, Exception):
        bases = ", ".join(each.__name__ for each in thing.__bases__)
        return f"### `{name}({bases})`\n{_words(thing)}\n"
    if name == "record":
        return f"### `{name}{_signature(thing)}`\n{_words(thing)}\n"
    fields = _fields(thing)
    lines = [f"### `{name}`", _words(thing), "", *(["| field | meaning |", "|---|---|", *fields] if fields else [])]
    for own, member in vars(thing).items():
        if own.startswith("_") or fields:
            continue
        if isinstance(member, property):
            lines.append(f"- **`{own}`** {_first(member)}")
        elif inspect.isfunction(member) and member.__doc__:
            lines.append(f"- **`{own}{_signature(member)}`** {_first(member)}")
    return "\n".join(lines) + "\n"


def _fields(thing: Any) -> list[str]:
    """The fields of a named tuple, with the texts that stand below them in the source."""
    if not hasattr(thing, "_fields"):
        return []
    source = textwrap.dedent(inspect.getsource(thing))
    found: list[str] = []
    for name in thing._fields:
        match = re.search(
            rf'^    {name}: ([^\n]*?)(?: = [^\n]*)?\n(?:    """(.*?)""")?', source, re.MULTILINE | re.DOTALL
        )
        kind, words = (match[1], match[2] or "") if match else ("", "")
        found.append(f"| `{name}: {_bar(kind)}` | {_bar(' '.join(words.split()))} |")
    return found


def _bar(text: str) -> str:
    return text.replace("|", "&#124;").replace("``", "`")


def _signature(thing: Any) -> str:
    signature = inspect.signature(thing)
    shown = [_parameter(each) for each in signature.parameters.values() if each.name != "self"]
    kinds = [each.kind for each in signature.parameters.values() if each.name != "self"]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returns = (
        "" if signature.return_annotation in (None, "None", signature.empty) else f" -> {signature.return_annotation}"
    )
    return f"({', '.join(shown)}){returns}"


def _parameter(each: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(each.kind, "")
    default = "" if each.default is each.empty else f" = {each.default!r}"
    return f"{stars}{each.name}: {each.annotation}{default}"


def _words(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").replace("``", "`")


def _first(thing: Any) -> str:
    return " ".join(_words(thing).split("\n\n")[0].split())


def _views() -> str:
    lines = ["### Views and their options", "", "| view | what it shows | options |", "|---|---|---|"]
    for name in VIEWS:
        module = importlib.import_module(f"torchglass.views.{name}")
        options = ", ".join(f"`{each.name}`" for each in dataclasses.fields(OPTIONS[name])) or "none"
        lines.append(f"| `{name}` | {_bar(_first(module))} | {options} |")
    return "\n".join([*lines, "", "`torchglass show --help` says what each option does.\n"])


def main() -> int:
    """Write the page; with ``--check`` only say whether it is as it should be."""
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print("docs/api.md is not what the docstrings say: run `python scripts/api_page.py`")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
