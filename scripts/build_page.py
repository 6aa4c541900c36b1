"""Builds the page's script from web/: the parts one behind the other, each in a scope of its own. Needs only Python.

python scripts/build_page.py           writes src/torchglass/web/
python scripts/build_page.py --check   says whether what is there is what web/ gives
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES, BUILT = ROOT / "web", ROOT / "src" / "torchglass" / "web"
DRAWING = ("letters.js", "columns.js", "layout.js", "data.js", "graph.js", "picture.js")
PAGE = ("dom.js", "code.js", "steps.js", "flow.js", "details.js", "timeline.js", "search.js", "app.js")
HEAD = "// Built from web/ by `make page`. Do not edit.\n"
_IMPORT = re.compile(r"^import (\{.*?\}) from \"\./(\w+)\.js\";$", re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const|let|class) (\w+))", re.MULTILINE)
_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)


def main() -> int:
    """Build, or compare."""
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


def built() -> dict[str, str]:
    """The texts of the built files: what draws, which pictures need alone, and what makes a page of it."""
    return {
        "drawing.js": HEAD + _joined(DRAWING),
        "page.js": HEAD + _joined(PAGE),
        "page.css": (SOURCES / "page.css").read_text(encoding="utf-8"),
    }


def _joined(names: tuple[str, ...]) -> str:
    return "".join(_scoped(name.removesuffix(".js"), (SOURCES / name).read_text(encoding="utf-8")) for name in names)


def _scoped(name: str, text: str) -> str:
    """A part in a function of its own, which gives what the part exports."""
    exported = [found[1] for found in _EXPORT.findall(text)]
    text = _COMMENT.sub("", _EXPORT.sub(r"\1", _IMPORT.sub(r"const \1 = in_\2;", text)))
    return f"const in_{name} = (() => {{\n{text}return {{ {', '.join(exported)} }};\n}})();\n"


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
