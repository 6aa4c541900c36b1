"""Builds the page's script from web/: the parts one behind the other, each in a scope of its own. Needs only Python.

python scripts/build_page.py           writes src/torchglass/web/
python scripts/build_page.py --check   says whether what is there is what web/ gives
python scripts/build_page.py --types   checks the types of web/, where TypeScript is installed (make web-types)
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES, BUILT = ROOT / "web", ROOT / "src" / "torchglass" / "web"
DRAWING = ("letters.js", "columns.js", "layout.js", "data.js", "graph.js", "picture.js")
PAGE = (
    "dom.js",
    "code.js",
    "steps.js",
    "minimap.js",
    "reach.js",
    "flow.js",
    "verdict.js",
    "tensor.js",
    "overlays.js",
    "diff.js",
    "details.js",
    "timeline.js",
    "search.js",
    "trail.js",
    "marks.js",
    "state.js",
    "share.js",
    "help.js",
    "panes.js",
    "scrubber.js",
    "app.js",
)
STYLES = ("page.css", "answers.css")
HEAD = "// Built from web/ by `make page`. Do not edit.\n"
_IMPORT = re.compile(r"^import (\{.*?\}) from \"\./(\w+)\.js\";$", re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const|let|class) (\w+))", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*[\s\S]*?\*/[ \t]*)\n|/\*\* @\w(?:(?!\*/).)*\*/ ?", re.MULTILINE)
"""Whole lines, and the types of expressions."""
_SPACE = re.compile(r"^[ \t]+|\n(?=\s*\n)", re.MULTILINE)
"""What stands before a line, and empty lines: no text of the script goes over several lines."""


def main() -> int:
    """Build, or compare."""
    if "--types" in sys.argv:
        return check_types()
    made = built()
    if "--check" in sys.argv:
        stale = [name for name, text in made.items() if not _same(BUILT / name, text)]
        for name in stale:
            print(f"src/torchglass/web/{name} is not what web/ gives: run `make page`")
        print(f"page: {sum(map(len, made.values())) // 1000} kB") if not stale else None
        return 1 if stale else 0
    BUILT.mkdir(exist_ok=True)
    for name, text in made.items():
        (BUILT / name).write_text(text, encoding="utf-8")
    return 0


def check_types() -> int:
    """Let TypeScript check the annotations in comments; nothing else here needs node."""
    program = SOURCES / "node_modules" / ".bin" / "tsc"
    if not program.exists() or shutil.which("node") is None:
        print(
            "page: the types of its JavaScript are not checked, TypeScript is not installed (`make web-types` does it)"
        )
        return 0
    return subprocess.run([program, "--project", SOURCES], check=False).returncode


def built() -> dict[str, str]:
    """The texts of the built files: what draws, which pictures need alone, and what makes a page of it."""
    return {
        "drawing.js": HEAD + _joined(DRAWING),
        "page.js": HEAD + _joined(PAGE),
        "page.css": "".join((SOURCES / name).read_text(encoding="utf-8") for name in STYLES),
    }


def _joined(names: tuple[str, ...]) -> str:
    return "".join(_scoped(name.removesuffix(".js"), (SOURCES / name).read_text(encoding="utf-8")) for name in names)


def _scoped(name: str, text: str) -> str:
    """A part in a function of its own, which gives what the part exports."""
    exported = [found[1] for found in _EXPORT.findall(text)]
    text = _COMMENT.sub("", _EXPORT.sub(r"\1", _IMPORT.sub(r"const \1 = in_\2;", text)))
    text = _without_spaces(_SPACE.sub("", text).lstrip())
    return f"const in_{name} = (() => {{\n{text}return {{ {', '.join(exported)} }};\n}})();\n"


_LITERAL = re.compile(
    r"""(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<template>`(?:[^`\\]|\\.)*`)"""
    r"""|(?P<regex>(?<=[(,=:\[!&|?{};])[ ]?/(?![/*])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*)"""
)
"""What keeps its spaces: texts, templates, patterns."""
_UNREAD = re.compile(r"^.*(?:\$\{[^}\n]*`|[;,{)] +// ).*$", re.MULTILINE)
_BEFORE_BRACE = re.compile(r";?\n\}")
_BESIDE_SIGN = re.compile(r" ?([{}()\[\],;:=<>?!|&*]) ?|(?<![-+]) ([-+]) (?![-+])")


def _sign(found: re.Match[str]) -> str:
    return found[0].strip()


def _without_spaces(text: str) -> str:
    """Remove spaces beside signs; lines stay, and so does all that is in a text.

    What this cannot read is refused: a template in a template, and a comment behind code.
    """
    for unread in _UNREAD.finditer(text):
        raise SystemExit(f"web/: write this on lines of its own: {unread[0]}")
    found: list[str] = []
    last = 0
    for literal in _LITERAL.finditer(text):
        found += [_BESIDE_SIGN.sub(_sign, text[last : literal.start()]), literal[0]]
        last = literal.end()
    found.append(_BESIDE_SIGN.sub(_sign, text[last:]))
    return _BEFORE_BRACE.sub("}", "".join(found))


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
