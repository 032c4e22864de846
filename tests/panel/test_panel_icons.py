"""Icons: what of a server's is shown as an image, and where the kernel fetches it."""

import asyncio
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ipymcp.panel.icons import IconCache
from tests.panel.notebooks import OpenNotebook, named

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0"/></svg>'


def data(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"


class Site(BaseHTTPRequestHandler):
    """Serves icons, and records the headers of what was asked."""

    asked: list[tuple[str, dict[str, str]]]

    def do_GET(self) -> None:
        self.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        body = {"/large": PNG * 5_000, "/page": b"<html>"}.get(self.path, PNG)
        self.send_response(302 if self.path == "/elsewhere" else 200)
        if self.path == "/elsewhere":
            self.send_header("Location", "/icon")
        self.send_header("Set-Cookie", "who=you")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    Site.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def read(server_url: str | None, *sources: Any) -> list[str | None]:
    async def run() -> list[str | None]:
        cache = IconCache()
        return [await cache.first(server_url, [{"src": source}]) for source in sources]

    return asyncio.run(run())


def test_an_icon_in_the_message_is_shown_by_what_it_is_and_not_by_what_it_says() -> None:
    script = b'<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>'
    shown = read(
        None,
        data(PNG, "text/html"),
        data(SVG, "image/svg+xml"),
        f"data:image/svg+xml,{SVG.decode()}",
        data(script, "image/svg+xml"),
        data(b"<html>", "image/png"),
        data(PNG * 5_000),
        "data:image/png;base64,?",
        7,
        "javascript:alert(1)",
        "file:///etc/passwd",
    )
    svg = data(SVG, "image/svg+xml")
    assert shown == [data(PNG), svg, svg, *[None] * 7]


def test_an_icon_is_fetched_from_the_servers_own_origin_without_credentials_and_nowhere_else(site: str) -> None:
    [icon, again, large, page, redirected] = read(
        f"{site}/mcp?key=secret", *(f"{site}/{name}" for name in ("icon", "icon", "large", "page", "elsewhere"))
    )
    assert (icon, again) == (data(PNG), data(PNG))
    assert (large, page, redirected) == (None, None, None)
    assert [path for path, _ in Site.asked] == ["/icon", "/large", "/page", "/elsewhere"]
    assert not any({"cookie", "authorization", "referer"} & headers.keys() for _, headers in Site.asked)
    Site.asked.clear()
    assert read(None, f"{site}/icon") == [None]
    assert read("https://127.0.0.1/mcp", f"{site}/icon") == [None]
    assert Site.asked == []


def test_the_smallest_fitting_icon_is_taken() -> None:
    listed = [
        {"src": data(SVG, "image/svg+xml"), "sizes": ["512x512"]},
        {"src": data(PNG), "sizes": ["48x48"]},
        {"src": "https://far.example/x.png"},
    ]
    assert asyncio.run(_first(listed)) == data(PNG)


async def _first(listed: Any) -> str | None:
    return await IconCache().first(None, listed)


def test_a_tool_says_that_it_has_an_icon_and_large_ones_are_not_kept(open_notebook: OpenNotebook) -> None:
    tools = [
        {"name": "plain"},
        {"name": "drawn", "icons": [{"src": data(PNG)}]},
        {"name": "huge", "icons": [{"src": data(PNG * 1_000)}]},
    ]
    notebook = open_notebook(a=named(*tools))
    view = notebook.view()
    view.until_server("a", "ready")
    assert [row.get("has_icon", False) for row in view.ask("tools")] == [False, True, False]
    assert view.ask("icon", server="a", of="tools", name="drawn") == data(PNG)
    assert view.ask("icon", server="a", of="tools", name="huge") is None
    assert view.ask("icon", server="a", of="server") is None
