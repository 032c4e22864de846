"""How long a page takes to draw the panel: `python -m benchmarks.panel_page`.

In JupyterLab in Chromium (what `make browser` makes), a sidebar on 20 servers with 50 tools each is opened anew several
times. Measured in the page: from when the kernel's snapshot, and the list of all tools, has arrived on the WebSocket to
when the browser has drawn what it made of it.
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
"""Maximum median for each of the two, on a machine that does nothing else."""
NAMED = str(ROOT / "tests" / "servers" / "named.py")
CELL = f"""{LOAD}
one = {{"command": {sys.executable!r}, "args": [{NAMED!r}, "--many", "{TOOLS}"]}}
mcp.load({{f"server-{{number:02}}": one for number in range({SERVERS})}});
"""
# Our listener is called before the panel's. The frame in which the page has the content is drawn when the timer fires.
WATCH = f"""
window.drawn = {{}};
const shows = {{
  snapshot: () => document.querySelectorAll(".mcp-card").length === {SERVERS},
  tools: () => [...document.querySelectorAll("[role=status]")].some((one) => one.textContent === "{LABEL}"),
}};
const Plain = window.WebSocket;
window.WebSocket = class extends Plain {{
  constructor(...given) {{
    super(...given);
    if (!this.url.includes("/ipymcp/kernels/")) return;
    this.addEventListener("message", ({{ data }}) => {{
      const {{ kind, value }} = JSON.parse(data);
      const what = kind === "snapshot" ? kind : kind === "reply" && Array.isArray(value) ? "tools" : null;
      const arrived = performance.now();
      const tell = () => (window.drawn[what] = performance.now() - arrived);
      const watch = () => (shows[what]() ? setTimeout(tell) : requestAnimationFrame(watch));
      if (what) requestAnimationFrame(watch);
    }});
  }}
}};
"""


def main() -> int:
    """Measure and print; give the exit status: 1 where it takes too long."""
    taken: dict[str, list[float]] = {"snapshot": [], "tools": []}
    with tempfile.TemporaryDirectory() as folder, lab(Path(folder)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.add_init_script(WATCH)
        write_notebook(server.folder / "many.ipynb", [CELL])
        opened(page, server, "many.ipynb").run(0)
        for _ in range(ROUNDS):
            opened(page, server, "many.ipynb")
            panel = sidebar(page)
            expect(panel.root.locator(".mcp-card")).to_have_count(SERVERS)
            tools = panel.show("Tools")
            expect(tools.get_by_role("status").first).to_have_text(LABEL)
            page.wait_for_function("drawn.snapshot && drawn.tools")
            for what, values in taken.items():
                values.append(page.evaluate(f"drawn.{what}"))
        browser.close()
    medians = {what: statistics.median(values) for what, values in taken.items()}
    print(f"{SERVERS} servers: drawn {medians['snapshot']:.0f} ms after their data")
    print(f"{LABEL}: drawn {medians['tools']:.0f} ms after theirs")
    return int(max(medians.values()) > TARGET_MS)


if __name__ == "__main__":
    sys.exit(main())
