"""All that the page shows, as one object of columns: the analysis is done here, the browser only displays."""

from __future__ import annotations

from typing import Any

from torchglass.events.spelling import clean
from torchglass.views.digest import Recorded
from torchglass.views.graph import Options
from torchglass.views.graph.flow import flow_of
from torchglass.views.page.boxes import Boxes
from torchglass.views.page.columns import Texts
from torchglass.views.page.happened import TICK_NS, Happened
from torchglass.views.page.sources import sources_of
from torchglass.views.text.words import duration

FORMAT = 1


def page_data(trace: Recorded, options: Options | None = None) -> dict[str, Any]:
    """The data of the page."""
    flow, texts = flow_of(trace, options), Texts()
    files = sources_of(flow.outline, texts)
    numbers: dict[str, int] = {texts.all[file["path"]]: at for at, file in enumerate(files)}
    boxes, happened = Boxes(flow, texts), Happened(flow, texts, numbers)
    failed = trace.failure()
    data: dict[str, Any] = {
        "format": FORMAT,
        "tick": TICK_NS,
        "run": {
            "name": clean(trace.name),
            "events": len(trace),
            "took": duration(trace.duration_ns) if trace.duration_ns else "",
            "complete": trace.complete,
            "failed": -1 if failed is None else failed.id,
            "error": "" if failed is None else clean(failed.error or ""),
            "notes": [clean(note) for note in trace.notes],
        },
        "items": boxes.items(),
        "levels": boxes.levels(),
        "looks": happened.looks(),
        "events": happened.events(),
        "values": happened.values(),
        "files": files,
    }
    return {**data, "text": texts.all}
