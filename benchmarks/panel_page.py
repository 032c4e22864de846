"""How long a page takes to draw the panel: `python -m benchmarks.panel_page`.

In JupyterLab in Chromium (what `make browser` makes), a notebook with 20 servers of 50 tools each is opened beside an
open sidebar, and then the sidebar's tools, in a new page each time. The kernel's first messages are held back until
JupyterLab has opened the notebook, and nothing polls the page meanwhile. Counted is all from the arrival of these
messages (hello and snapshot), or of the list of all tools, to the end of the frame that shows them:

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
QUIET_MS = 500
"""Time in which JupyterLab finishes what it draws of the notebook."""
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
const shows = {{
  snapshot: () => document.querySelectorAll("#ipymcp-sidebar .mcp-card").length === {SERVERS},
  tools: () => [...document.querySelectorAll("[role=status]")].some((one) => one.textContent === "{LABEL}"),
}};
const inNextTask = (run) => {{
  const {{ port1, port2 }} = new MessageChannel();
  port1.onmessage = run;
  port2.postMessage(null);
}};
const until = (test) => new Promise((resolve) => {{
  const observer = new MutationObserver(() => {{
    if (!test()) return;
    observer.disconnect();
    resolve();
  }});
  observer.observe(document, {{ childList: true, characterData: true, subtree: true }});
}});
async function drawn(what, arrived) {{
  await until(shows[what]);
  const inDocument = performance.now();
  await new Promise(requestAnimationFrame);
  const begun = performance.now();
  await new Promise(inNextTask);
  const end = performance.now();
  return {{ script: inDocument - arrived, frame: begun - inDocument, render: end - begun, whole: end - arrived }};
}}
const held = [];
let isHeld = true;
window.snapshot = () => {{
  isHeld = false;
  const result = drawn("snapshot", performance.now());
  for (const [socket, data] of held) inNextTask(() => socket.dispatchEvent(new MessageEvent("message", {{ data }})));
  return result;
}};
window.hasSnapshot = () => held.some(([, data]) => JSON.parse(data).kind === "snapshot");
let hasTools;
window.tools = (tab) => new Promise((resolve) => {{
  hasTools = () => resolve(drawn("tools", performance.now()));
  tab.click();
}});
const Plain = window.WebSocket;
window.WebSocket = class extends Plain {{
  constructor(...given) {{
    super(...given);
    if (!this.url.includes("/ipymcp/kernels/")) return;
    this.addEventListener("message", (event) => {{
      if (isHeld) {{
        event.stopImmediatePropagation();
        held.push([this, event.data]);
      }} else if (hasTools && JSON.parse(event.data).value?.length === {SERVERS * TOOLS}) hasTools();
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
            beside.open_beside("many.ipynb")
            page.wait_for_function("hasSnapshot()")
            page.wait_for_timeout(QUIET_MS)
            taken["snapshot"].append(page.evaluate("snapshot()"))
            expect(panel.root.locator(".mcp-card")).to_have_count(SERVERS)
            taken["tools"].append(panel.root.get_by_role("tab", name="Tools").evaluate("tab => tools(tab)"))
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
