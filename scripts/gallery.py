"""Draws the pictures of docs/gallery.md: small models, and the page itself where there is a browser.

python scripts/gallery.py              all pictures
python scripts/gallery.py unet mlp     some of them
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import torch
from gallery_models import MODELS

import torchglass as tg

ROOT = Path(__file__).resolve().parent.parent
GALLERY = ROOT / "docs" / "gallery"
WAYS = {
    "mlp": {},
    "resnet": {"depth": 2},
    "gpt2": {},
    "encoder-decoder": {},
    "unet": {"depth": 1},
    "experts": {"depth": 2},
}
"""For each model the options of its picture: what one would put on a slide."""
SCREENS = {
    "page": ("gpt2", "torchglass.select(torchglass.model.items.find((item) => item.title === 'wte').nodes[0])", False),
    "page-dark": (
        "experts",
        "torchglass.select(torchglass.model.items.find((item) => item.title === 'topk').nodes[0])",
        True,
    ),
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main(names: list[str]) -> int:
    """Draw what was asked for."""
    GALLERY.mkdir(exist_ok=True)
    for name in names or MODELS:
        tg.export(recorded(name), GALLERY / f"{name}.svg", **WAYS[name])
        print(f"docs/gallery/{name}.svg: {(GALLERY / f'{name}.svg').stat().st_size // 1000} kB")
    if not names:
        screens()
    return 0


def recorded(name: str, values: str | None = None) -> tg.Trace:
    """The trace of a model, the same every time but for its times."""
    torch.manual_seed(0)
    run = MODELS[name]()
    with tg.record(name=name, values=values) as trace:
        run()
    return trace


def screens() -> None:
    """The page as a browser shows it."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        print("no browser here: the screens of the page are as they were")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for screen, (name, action, is_dark) in SCREENS.items():
            tg.export(recorded(name, "all"), Path(folder) / "page.html")
            page = browser.new_page(
                viewport={"width": 1440, "height": 900}, color_scheme="dark" if is_dark else "light"
            )
            page.goto((Path(folder) / "page.html").as_uri())
            page.wait_for_selector("html[data-ready]")
            page.evaluate(action)
            page.wait_for_timeout(300)
            page.screenshot(path=GALLERY / f"{screen}.png")
            print(f"docs/gallery/{screen}.png")
        browser.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
