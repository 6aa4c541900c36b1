"""What every program prints in every view, as files to compare: a change of the code that should change no output.

    python scripts/snapshot.py keep BUNDLES      record tests/programs, examples and a few transformers, once
    python scripts/snapshot.py show BUNDLES OUT  write what each of them prints, then: diff -r BEFORE AFTER

The same bundles are shown before and after, so that also times can be compared.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

FAMILIES = ("gpt2", "llama", "bert", "t5", "mixtral")
RECORDED: dict[str, dict[str, Any]] = {
    "plain": {},
    "ops": {"ops": True},
    "variables": {"ops": True, "variables": True},
}
SELECTIONS: dict[str, dict[str, Any]] = {
    "modules": {"kind": "module"},
    "softmax": {"function": ("softmax", "matmul"), "op": ("mm", "bmm", "add*")},
    "layers": {"module": "*0*"},
}


def choices(view: str) -> Iterator[dict[str, Any]]:
    """Options to show a view with: each alone, and a few together."""
    singles: dict[str, list[dict[str, Any]]] = {
        "tree": [
            {"depth": 0}, {"depth": 2}, {"fold": False}, {"inner": True}, {"functions": False}, {"times": True},
            {"fold": False, "inner": True, "times": True}, {"depth": 1, "times": True},
        ],
        "table": [{"depth": 1}, {"fold": False}, {"times": False}],
        "calls": [{"shapes": True}, {"order": "end"}, {"fold": False}, {"shapes": True, "order": "end"}],
        "code": [
            {"depth": 1}, {"fold": False}, {"inner": True}, {"times": True}, {"frames": "all"},
            {"hide": ("transformers", "tests")},
        ],
        "listing": [{"whole": True}, {"by": "module"}, {"times": True}, {"style": "comments"}],
        "variables": [
            {"order": "time"}, {"fold": False}, {"times": True}, {"order": "time", "fold": False}, {"names": "x*"},
        ],
    }  # fmt: skip
    yield {}
    yield from singles[view]
    yield from ({"only": name} for name in SELECTIONS)
    yield from ({"width": width} for width in (60, 140))
    yield {"color": True}


# ---------------------------------------------------------------- recording


def programs_to_keep() -> Iterator[tuple[str, Callable[[], object]]]:
    """A name and what is to be run under it."""
    from tests import programs, programs_plain

    for package in (programs, programs_plain):
        for name in package.names():
            yield f"{package.__name__.rpartition('.')[2]}.{name}", package.load(name).main
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield f"examples.{path.stem}", lambda path=path: runpy.run_path(str(path), run_name="__main__")
    from tests import zoo

    for name in FAMILIES:
        model, inputs = zoo.FAMILIES[name]()
        yield f"zoo.{name}", lambda model=model, inputs=inputs: [model(**inputs) for _ in range(2)]


def keep(folder: Path) -> None:
    """Record each program in each way, in a bundle of its own."""
    import torchglass

    folder.mkdir(parents=True)
    for (name, act), (how, options) in itertools.product(programs_to_keep(), RECORDED.items()):
        silent, any_end = contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(BaseException)
        with silent, any_end, torchglass.record(to=folder / f"{name}.{how}", **options):
            act()
        print(name, how)


# ---------------------------------------------------------------- showing


def show(bundles: Path, out: Path) -> None:
    """What each bundle prints in each view, a file a view and its options."""
    import torchglass

    for bundle in sorted(bundles.iterdir()):
        trace = torchglass.load(bundle)
        folder = out / bundle.name
        folder.mkdir(parents=True)
        (folder / "summary.txt").write_text(f"{trace}\n", encoding="utf-8")
        for view in ("tree", "table", "calls", "code", "listing", "variables"):
            for options in choices(view):
                name = "-".join([view, *(f"{key}={_word(value)}" for key, value in options.items())])
                (folder / f"{name}.txt").write_text(_text(trace, view, dict(options)), encoding="utf-8")


def _word(value: object) -> str:
    return "+".join(value) if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _text(trace: Any, view: str, options: dict[str, Any]) -> str:
    import torchglass

    if "only" in options:
        options["only"] = torchglass.select(**SELECTIONS[options["only"]])
    try:
        given: dict[str, Any] = {"width": 100, **options}
        return torchglass.render(trace, view, **given) + "\n"
    except torchglass.TorchglassError as error:
        return f"{type(error).__name__}: {error}\n"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", bundles]:
            keep(Path(bundles))
        case ["show", bundles, out]:
            show(Path(bundles), Path(out))
        case _:
            sys.exit(__doc__)
