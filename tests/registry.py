"""A registry on the loopback that serves recorded entries by the published API, and a local index of packages.

No package is downloaded: `clock-mcp` and its like are wheels that `package_index` builds, and real `uvx` installs them
from there.
"""

import base64
import contextlib
import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.environments import ROOT

ENTRIES: list[dict[str, Any]] = json.loads((ROOT / "tests/fixtures/registry/entries.json").read_text())
_META = "io.modelcontextprotocol.registry/official"


class RegistryServer:
    """A registry (API v0.1) that tests can change and interrupt."""

    def __init__(self) -> None:
        self.entries = list(ENTRIES)
        self.requests: list[str] = []
        """The targets of all requests."""
        self.max_age: int | None = None
        self.etag = ""
        self.status = 200
        """The status of every response, if it is another."""
        self.body: bytes | None = None
        """The body of every response, if it is another."""
        self.page = 100
        """The most entries of a page."""
        self.address = ""

    def answer(self, target: str) -> tuple[int, Any]:
        """The status and the document for a request."""
        url = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        parts = [unquote(part) for part in url.path.split("/")[1:]]
        if parts[:2] != ["v0.1", "servers"]:
            return 404, {"error": "not found"}
        has_deleted = query.get("include_deleted") == "true"
        listed = [entry for entry in self.entries if has_deleted or entry["_meta"][_META]["status"] != "deleted"]
        if len(parts) == 2:
            return 200, self._page(listed, query)
        if len(parts) != 5 or parts[3] != "versions":
            return 404, {"error": "not found"}
        for entry in listed:
            is_latest = parts[4] == "latest" and entry["_meta"][_META]["isLatest"]
            if entry["server"]["name"] == parts[2] and (is_latest or entry["server"]["version"] == parts[4]):
                return 200, entry
        return 404, {"error": "Server not found"}

    def _page(self, listed: list[dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
        if "search" in query:
            listed = [entry for entry in listed if query["search"].lower() in entry["server"]["name"].lower()]
        if query.get("version") == "latest":
            listed = [entry for entry in listed if entry["_meta"][_META]["isLatest"]]
        begin = int(query.get("cursor", "0"))
        end = begin + min(self.page, int(query.get("limit", "30")))
        more = {"nextCursor": str(end)} if end < len(listed) else {}
        return {"servers": listed[begin:end], "metadata": {**more, "count": len(listed[begin:end])}}


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def do_GET(self) -> None:
        registry = self.server.registry
        registry.requests.append(self.path)
        status, document = registry.answer(self.path)
        body = json.dumps(document).encode()
        if registry.body is not None:
            status, body = 200, registry.body
        if registry.etag and self.headers.get("If-None-Match") == registry.etag:
            status, body = 304, b""
        self.send_response(registry.status if registry.status != 200 else status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if registry.max_age is not None:
            self.send_header("Cache-Control", f"max-age={registry.max_age}")
        if registry.etag:
            self.send_header("ETag", registry.etag)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    registry: RegistryServer


@contextlib.contextmanager
def registry_server(port: int = 0) -> Iterator[RegistryServer]:
    """Serve a registry on the loopback, on a reserved port if given."""
    with _Server(("127.0.0.1", port), _Handler) as server:
        server.registry = registry = RegistryServer()
        registry.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


def package_index(home: Path) -> None:
    """Build the packages of the entries, for `uvx` of the user with this home folder, which installs nothing else."""
    index = home / "packages"
    index.mkdir(parents=True)
    _wheel(index, "clock-mcp", "1.1.0")
    for name in ("clock-mcp", "clock-quiet", "clock-broken"):
        _wheel(index, name, "1.0.0")
    settings = home / ".config" / "uv" / "uv.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"no-index = true\noffline = true\nfind-links = [{json.dumps(str(index))}]\n")


def _wheel(folder: Path, name: str, version: str) -> None:
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}.py": (ROOT / "tests/servers/clock.py").read_text(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {module}:main\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            wheel.writestr(path, text)
