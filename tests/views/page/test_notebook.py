"""A notebook that is really executed, exported to HTML and opened: what a reader of somebody else's notebook gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook

from tests.views.page.browser import PATIENCE_S, running

CELLS = [
    "import torch\nfrom torch import nn\nimport torchglass as tg",
    """\
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters())
with tg.record(name='in a notebook') as trace:
    for x in torch.ones(3, 5, 4):
        model(x).sum().backward()
        optimizer.step()""",
    "trace",
]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook after all of its cells ran, in a kernel of its own."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in CELLS])
    nbformat.write(notebook, folder / "before.ipynb")
    with pytest.MonkeyPatch.context() as patched:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
            patched.setenv(name, str(folder / name))
        read = nbformat.read(folder / "before.ipynb", as_version=4)
        client = NotebookClient(read, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
        done = client.execute()
    nbformat.write(done, folder / "after.ipynb")
    return nbformat.read(folder / "after.ipynb", as_version=4)


def test_the_last_cell_holds_the_page_and_text(executed: Any) -> None:
    (output,) = executed.cells[-1].outputs
    assert output.output_type == "execute_result"
    assert set(output.data) == {"text/plain", "text/html"}
    assert output.data["text/plain"].startswith("Trace of in a notebook: ")
    assert "\x1b" not in output.data["text/plain"], "a kernel asks for colours, and plain text has none"
    assert output.data["text/html"].startswith('<iframe sandbox="allow-scripts"')
    assert not any(cell.get("outputs") for cell in executed.cells[:-1]), "recording prints nothing"


def test_its_html_export_shows_the_page_and_asks_for_nothing(executed: Any, tmp_path: Path) -> None:
    # What nbconvert itself would load is not ours: the notebook's own scripts are left out.
    exporter = HTMLExporter(require_js_url="", mathjax_url="")
    (tmp_path / "notebook.html").write_text(exporter.from_notebook_node(executed)[0], encoding="utf-8")
    errors: list[str] = []
    requests: list[str] = []
    with running() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url) if request.frame != page.main_frame else None)
        page.goto((tmp_path / "notebook.html").as_uri())
        frame = page.frame_locator("iframe")
        frame.locator("html[data-ready]").wait_for(state="attached", timeout=PATIENCE_S * 1000)
        frame.locator(".sheet .box").first.click()
        frame.locator(".details h2").wait_for()
        words = frame.locator(".sheet").text_content()
        page.close()
    assert "for x in torch.ones(3, 5, 4):" in words
    assert "× 3" in words
    assert errors == []
    assert [url for url in requests if not url.startswith(("about:", "data:", "blob:"))] == []
