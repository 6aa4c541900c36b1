"""What the page costs: seconds to make it, bytes to keep it, and milliseconds in a browser where there is one.

python benchmarks/page.py            GPT-2 with a training step, and about 100,000 events of it
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import torchglass as tg
from torchglass.views.graph.flow import flow_of
from torchglass.views.page.html import page_data

IN_BROWSER = """async () => {
  const app = torchglass;
  const time = (what) => { const began = performance.now(); what(); return performance.now() - began; };
  const median = (times) => times.sort((a, b) => a - b)[Math.floor(times.length / 2)];
  const events = [...app.model.itemOf.keys()];
  const some = Array.from({length: 21}, (_, at) => events[Math.floor(at * events.length / 21)]);
  const select = median(some.map((event) => time(() => app.select(event))));
  const groups = app.model.items.filter((item) => item.children.length).slice(0, 9);
  const expand = median(groups.map((item) => time(() => app.toggle(item))));
  const queries = ['softmax', 'op:addmm', 'shape:2,*,128', 'module:h.*'];
  const search = median(queries.map((query) => time(() => app.searchFor(query))));
  const painted = performance.getEntriesByName('first-contentful-paint')[0]?.startTime;
  return {select, expand, search, painted};
}"""


def gpt2(steps: int, ops: bool) -> tg.Trace:
    """A 12-layer GPT-2 and so many training steps."""
    sizes: dict[str, Any] = {"n_layer": 12, "n_embd": 128, "n_head": 4, "vocab_size": 1000, "n_positions": 64}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 1000, (2, 32))
    with tg.record(name="gpt2", ops=ops) as trace:
        for _ in range(steps):
            logits = model(tokens).logits
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return trace


def timed(what: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came of it."""
    began = time.perf_counter()
    made = what()
    return time.perf_counter() - began, made


def measure(trace: tg.Trace, folder: Path) -> dict[str, Any]:
    """The figures of one trace."""
    events = len(trace)
    flow, _ = timed(lambda: flow_of(trace))
    data, _ = timed(lambda: page_data(trace))
    html, _ = timed(lambda: tg.export(trace, folder / "page.html"))
    dot, _ = timed(lambda: tg.export(trace, folder / "a.dot"))
    perfetto, _ = timed(lambda: tg.export(trace, folder / "a.perfetto.json"))
    size = (folder / "page.html").stat().st_size
    found = {
        "events": events, "edges s": flow, "data µs an event": data / events * 1e6, "page s": html,
        "file kB": size / 1000, "dot s": dot, "perfetto s": perfetto,
    }  # fmt: skip
    return found | in_browser(folder / "page.html")


def in_browser(file: Path) -> dict[str, Any]:
    """Milliseconds in a browser; nothing where there is none."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return {}
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1500, "height": 950})
        began = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        ready = (time.perf_counter() - began) * 1000
        found = page.evaluate(IN_BROWSER)
        browser.close()
    return {"ready ms": ready, **{f"{name} ms": value for name, value in found.items() if value is not None}}


def main() -> int:
    """Print the figures as JSON, a trace a line."""
    with tempfile.TemporaryDirectory() as folder:
        for steps, ops in ((1, False), (14, True)):
            figures = measure(gpt2(steps, ops), Path(folder))
            print(
                json.dumps({name: round(value, 2) for name, value in figures.items()}, ensure_ascii=False), flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
