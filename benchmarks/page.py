"""What the page costs: seconds to make it, bytes to keep it, and milliseconds in a browser where there is one.

python benchmarks/page.py            the figures that have aims: about 126,000 events with statistics
python benchmarks/page.py small ops  GPT-2 with a training step; about 91,000 events with ops
"""

from __future__ import annotations

import json
import shutil
import statistics
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

AIMS = {
    "file kB": (2000, "at most"), "painted ms": (500, "at most"), "ready ms": (2000, "at most"),
    "select ms": (50, "at most"), "search ms": (150, "at most"), "frames a second": (30, "at least"),
    "export CPU s": (4, "at most"),
    "ready CPU ms": (2000, "at most"), "select CPU ms": (50, "at most"), "search CPU ms": (150, "at most"),
    "frame CPU ms": (1000 / 30, "at most"),
}  # fmt: skip
"""Of 126,000 events with statistics. On a machine with other work the browser's CPU time says more than the rest."""
STEPS = 45
"""Training steps that make so many events."""
SIZES = {"small": (1, False), "ops": (14, True)}
"""Other sizes: training steps, and whether ops are recorded."""
IN_BROWSER = """async () => {
  const app = torchglass;
  const time = (what) => {
    const began = performance.now();
    what();
    void document.body.offsetHeight;
    return performance.now() - began;
  };
  const median = (times) => times.sort((a, b) => a - b)[Math.floor(times.length / 2)];
  const events = [...app.model.itemOf.keys()];
  const some = Array.from({length: 21}, (_, at) => events[Math.floor(at * events.length / 21)]);
  const select = median(some.map((event) => time(() => app.select(event))));
  const groups = app.model.items.filter((item) => item.children.length).slice(0, 9);
  const expand = median(groups.map((item) => time(() => app.toggle(item))));
  const queries = ['softmax', 'op:addmm', 'shape:2,*,128', 'module:h.*'];
  const search = Math.max(...queries.map((query) => time(() => app.searchFor(query))));
  app.searchFor('');
  const painted = performance.getEntriesByName('first-contentful-paint')[0]?.startTime;
  return {select, expand, search, painted};
}"""
"""The slowest of the searches, the median of the rest."""
ACTIONS = {
    "select": """() => {
      const events = [...torchglass.model.itemOf.keys()];
      const some = Array.from({length: 21}, (_, at) => events[Math.floor(at * events.length / 21)]);
      return some.map((event) => () => torchglass.select(event));
    }""",
    "search": """() => {
      const queries = ['softmax', 'op:addmm', 'shape:2,*,128', 'module:h.*'];
      return queries.map((query) => () => torchglass.searchFor(query));
    }""",
}
ONE_ACTION = "([actions, number]) => { actions[number](); void document.body.offsetHeight; }"
FRAMES = """async (milliseconds) => {
  const began = performance.now();
  let frames = 0;
  while (performance.now() - began < milliseconds) {
    await new Promise((resolve) => requestAnimationFrame(resolve));
    frames++;
  }
  return (1000 * frames) / (performance.now() - began);
}"""
DRAG_MS = 2000


def gpt2(steps: int, ops: bool, values: str | None = None) -> tg.Trace:
    """A 12-layer GPT-2 and so many training steps."""
    sizes: dict[str, Any] = {"n_layer": 12, "n_embd": 128, "n_head": 4, "vocab_size": 1000, "n_positions": 64}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 1000, (2, 32))
    with tg.record(name="gpt2", ops=ops, values=values) as trace:
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


def with_aims(trace: tg.Trace, folder: Path) -> dict[str, Any]:
    """The figures that have aims; nothing was worked out of the trace before it is exported."""
    began = time.process_time()
    tg.export(trace, folder / "page.html")
    cpu = time.process_time() - began
    size = (folder / "page.html").stat().st_size
    found = {"events": len(trace), "export CPU s": cpu, "file kB": size / 1000}
    return found | in_browser(folder / "page.html")


def show(figures: dict[str, Any]) -> None:
    """Print figures as JSON, in a line."""
    rounded = {name: round(value, 2) for name, value in figures.items()}
    print(json.dumps(rounded, ensure_ascii=False), flush=True)


def in_browser(file: Path) -> dict[str, Any]:
    """Milliseconds in a browser; nothing where there is none."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return {}
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1500, "height": 950})
        cpu_ms = processor_time(page)
        began = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        ready = (time.perf_counter() - began) * 1000
        found = {"ready CPU": cpu_ms(), **page.evaluate(IN_BROWSER)}
        for name, code in ACTIONS.items():
            actions = page.evaluate_handle(code)
            times = list[float]()
            for number in range(page.evaluate("(actions) => actions.length", actions)):
                before = cpu_ms()
                page.evaluate(
                    "([actions, number]) => { actions[number](); void document.body.offsetHeight; }", [actions, number]
                )
                times.append(cpu_ms() - before)
            found[f"{name} CPU"] = max(times) if name == "search" else statistics.median(times)
        page.evaluate("torchglass.searchFor('')")
        frames = dragged(page, cpu_ms)
        browser.close()
    return {"ready ms": ready, **frames, **{f"{name} ms": value for name, value in found.items() if value is not None}}


def processor_time(page: Any) -> Callable[[], float]:
    """Return a function that reads the milliseconds of CPU that the page's main thread has used.

    Unlike the time that a reader waits, it hardly depends on what else the machine does.
    """
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration") * 1000

    return read


def dragged(page: Any, cpu_ms: Callable[[], float]) -> dict[str, float]:
    """Return frames a second while the mouse is dragged over the iterations, and what one takes; nothing where there
    are none.
    """
    heat = page.locator(".scrubber .heat").first
    if not heat.is_visible():
        return {}
    box = heat.bounding_box()
    left = box["x"] + 160
    right = box["x"] + box["width"] - 5
    middle = box["y"] + box["height"] / 2
    page.mouse.move(left, middle)
    page.mouse.down()
    before = cpu_ms()
    page.evaluate(f"globalThis.counted = ({FRAMES})({DRAG_MS}); null")
    end = time.perf_counter() + DRAG_MS / 1000
    while (left_s := end - time.perf_counter()) > 0:
        page.mouse.move(left + (right - left) * (1 - left_s * 1000 / DRAG_MS), middle)
    page.mouse.up()
    frames = page.evaluate("globalThis.counted")
    return {"frames a second": frames, "frame CPU ms": (cpu_ms() - before) / (frames * DRAG_MS / 1000)}


def main() -> int:
    """Print the figures that have aims, or as JSON those of the sizes that are named."""
    chosen = sys.argv[1:]
    unknown = set(chosen) - {*SIZES}
    if unknown:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            steps, ops = SIZES[name]
            show(measure(gpt2(steps, ops), Path(folder)))
        if not chosen:
            show_aims(with_aims(gpt2(STEPS, ops=False, values="stats"), Path(folder)))
    return 0


def show_aims(figures: dict[str, Any]) -> None:
    """Print a figure a line, with its aim."""
    print(f"{figures['events']:,} events with statistics")
    for name, (aim, word) in AIMS.items():
        if name in figures:
            print(f"{name}: {figures[name]:.4g}, aim: {word} {aim}")


if __name__ == "__main__":
    sys.exit(main())
