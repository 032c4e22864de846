"""How long a page takes to draw the panel: `python -m benchmarks.panel_page`.

In JupyterLab in Chromium (what `make browser` makes), a notebook with 20 servers of 50 tools each is opened beside an
open sidebar, and then the sidebar's tools, in a new page each time. Counted is all from the arrival of the kernel's
snapshot, or of the list of all tools, on the WebSocket to the end of the frame that shows it:

    script  until the content is in the document
    frame   until the browser begins its next frame, of which it draws 60 in a second: 8 ms on average, 17 ms at most
    render  style, layout and paint; the page's main thread is free after that
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from benchmarks.contenders import ROOT
from tests.browser import chromium
from tests.browser.notebooks import write_notebook
from tests.browser.places import LOAD, lab, opened, sidebar

SERVERS, TOOLS, ROUNDS = 20, 50, 9
LABEL = f"{SERVERS * TOOLS:,} tools"
TARGET_MS = 30
"""Maximum median of the whole, on a machine that does nothing else."""
NAMED = str(ROOT / "tests" / "servers" / "named.py")
CELL = f"""{LOAD}
one = {{"command": {sys.executable!r}, "args": [{NAMED!r}, "--many", "{TOOLS}"]}}
mcp.load({{f"server-{{number:02}}": one for number in range({SERVERS})}});
"""
PARTS = ("script", "frame", "render", "whole")
# Our listener is called before the panel's. The observer is called after the script that changed the document, and the
# message arrives after the frame whose callbacks sent it.
WATCH = f"""
window.drawn = {{}};
const shows = {{
  snapshot: () => document.querySelectorAll("#ipymcp-sidebar .mcp-card").length === {SERVERS},
  tools: () => [...document.querySelectorAll("[role=status]")].some((one) => one.textContent === "{LABEL}"),
}};
function watch(what) {{
  const arrived = performance.now();
  const observer = new MutationObserver(() => {{
    if (!shows[what]()) return;
    observer.disconnect();
    const inDocument = performance.now();
    requestAnimationFrame(() => {{
      const begun = performance.now();
      const {{ port1, port2 }} = new MessageChannel();
      port1.onmessage = () => {{
        const end = performance.now();
        const script = inDocument - arrived;
        drawn[what] = {{ script, frame: begun - inDocument, render: end - begun, whole: end - arrived }};
      }};
      port2.postMessage(null);
    }});
  }});
  observer.observe(document, {{ childList: true, characterData: true, subtree: true }});
}}
const Plain = window.WebSocket;
window.WebSocket = class extends Plain {{
  constructor(...given) {{
    super(...given);
    if (!this.url.includes("/ipymcp/kernels/")) return;
    this.addEventListener("message", ({{ data }}) => {{
      const {{ kind, value }} = JSON.parse(data);
      if (kind === "snapshot") watch(kind);
      else if (kind === "reply" && Array.isArray(value) && value.length === {SERVERS * TOOLS}) watch("tools");
    }});
  }}
}};
"""


def main() -> int:
    """Measure and print; give the exit status: 1 where it takes too long."""
    taken: dict[str, list[dict[str, float]]] = {"snapshot": [], "tools": []}
    with tempfile.TemporaryDirectory() as folder, lab(Path(folder)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.add_init_script(WATCH)
        for name in ("many", "empty"):
            write_notebook(server.folder / f"{name}.ipynb", [CELL])
        opened(page, server, "many.ipynb").run(0)
        for _ in range(ROUNDS):
            beside = opened(page, server, "empty.ipynb")
            panel = sidebar(page)
            expect(panel.button("Load ipymcp")).to_be_visible()
            beside.open_beside("many.ipynb")
            expect(panel.root.locator(".mcp-card")).to_have_count(SERVERS)
            page.wait_for_function("drawn.snapshot")
            tools = panel.show("Tools")
            expect(tools.get_by_role("status").first).to_have_text(LABEL)
            page.wait_for_function("drawn.tools")
            for what, values in taken.items():
                values.append(page.evaluate(f"drawn.{what}"))
        browser.close()
    print("median milliseconds after the data")
    whole: list[float] = []
    for what, values in taken.items():
        medians = {part: statistics.median(value[part] for value in values) for part in PARTS}
        whole.append(medians["whole"])
        name = f"{SERVERS} servers" if what == "snapshot" else LABEL
        print(f"{name}: " + ", ".join(f"{part} {medians[part]:.1f}" for part in PARTS))
    return int(max(whole) > TARGET_MS)


if __name__ == "__main__":
    sys.exit(main())
