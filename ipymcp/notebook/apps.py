"""Apps in cells: the live app if the front end can show it, else a line about how to show it.

The output contains only the app's number in this kernel. The front end requests the app's page from the kernel, so that
a notebook file contains no HTML of a server, and any page of the same kernel shows the app again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ipymcp.api.apps import apps_of
from ipymcp.errors import McpError
from ipymcp.import_guard import is_installed
from ipymcp.notebook.display import has_page
from ipymcp.results.tables import display_bundle
from ipymcp.storage.kernel_socket import VERSION
from ipymcp.text import escaped, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.api.apps import DisplayMode, OpenApp
    from ipymcp.panel.panel import Panel
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.host import Host


_TYPE: Final = "application/vnd.ipymcp.app+json"


class CellApps:
    """Displays of apps in one shell.

    Args:
        ip: The IPython shell.
        run_id: The identifier of this kernel run; the saved output of another run is not live.
        panel: Returns the notebook's panel.
        host: The host of the apps.
    """

    def __init__(self, ip: Any, run_id: str, panel: Callable[[], Panel], host: Host) -> None:
        self._ip = ip
        self._run_id = run_id
        self._panel = panel
        self._apps = apps_of(host)

    def result(self, result: ToolResult) -> dict[str, Any]:
        """The MIME bundle of a result. The app of a result is displayed first, and the data folded below it."""
        bundle = display_bundle(result)
        if result.app is None or not self.can_show():
            return bundle
        result.app.show()
        plain = bundle["text/plain"]
        html = bundle.get("text/html") or f"<pre>{escaped(plain)}</pre>"
        return {"text/html": f"<details><summary><small>Data</small></summary>{html}</details>", "text/plain": plain}

    def show(self, app: OpenApp, height: int | None, display_mode: DisplayMode) -> None:
        """Display an app in the current cell.

        Raises:
            McpError: Apps are disabled, or no page is connected.
        """
        if self._apps.mode() == "off":
            raise McpError("apps are off", hint='%config IPyMCP.apps = "show"')
        if not self._has_page():
            raise McpError(
                f"the app of {app.server}.{app.tool} cannot be shown here", hint="open the notebook in a browser"
            )
        self._apps.keep(app)
        own = {"version": VERSION, "kernel": self._run_id, "app": app.number, "height": height, "mode": display_mode}
        name = one_line(visible(f"{app.server}.{app.tool}"))
        line = f"{name} has an app, which is shown while the kernel runs: run the cell again to get it back."
        live, metadata = self._widget(app, height, display_mode)
        self._ip.display_pub.publish({**live, _TYPE: own, "text/plain": line}, metadata)

    def can_show(self) -> bool:
        """Whether apps can be displayed in the current cell."""
        return self._apps.mode() != "off" and self._has_page()

    def _has_page(self) -> bool:
        kernel = getattr(self._ip, "kernel", None)
        return kernel is not None and has_page(kernel)

    def _widget(
        self, app: OpenApp, height: int | None, display_mode: DisplayMode
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The display for pages without JupyterLab's extension."""
        if not is_installed("anywidget"):
            return {}, {}
        from ipymcp.panel.widget import PanelWidget

        widget: Any = PanelWidget(self._panel(), app={"app": app.number, "height": height, "mode": display_mode})
        return display_bundle(widget)
