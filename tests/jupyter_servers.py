"""Real Jupyter servers with ipymcp's extension, and views that reach kernels through them.

with started(folder) as server:
    kernel = server.start_kernel()
    kernel.run("%load_ext ipymcp")
    with server.view(kernel) as view:
        view.hello()
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import Empty
from typing import Any

import httpx
import psutil
from jupyter_client.blocking.client import BlockingKernelClient
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from tests.environments import ROOT
from tests.kernels import private_environment
from tests.panels import Message, View
from tests.processes import descendants, wait_until_gone
from tests.wire import tapped

TOKEN = "a-token-of-the-tests"
_BASE = "/some/where/"
_URL = re.compile(r"http://127\.0\.0\.1:(\d+)" + _BASE)


class JupyterServer:
    """A server in its own process, behind a base URL, with settings of its own.

    Args:
        folder: Where it works, and keeps what is its own.
        config: Its settings, by section.
        env: Further environment variables.
        lab: The interpreter of an environment that has JupyterLab, and ipymcp installed; None for a bare server, and
            the checkout.
    """

    def __init__(
        self, folder: Path, config: Mapping[str, Any], env: Mapping[str, str], lab: Path | None = None
    ) -> None:
        self.folder = folder
        own = {"IPYMCP_KEYRING": "off"}
        settings: dict[str, dict[str, Any]] = {
            "ServerApp": {"base_url": _BASE, "root_dir": str(folder)},
            "IdentityProvider": {"token": TOKEN},
        }
        if lab is None:
            checkout = {"PYTHONPATH": f"{ROOT}:{folder}"}
            self.environment = tapped(private_environment(Path(sys.executable), folder, {**own, **checkout, **env}))
            settings["ServerApp"]["jpserver_extensions"] = {"ipymcp": True}
        else:
            self.environment = private_environment(lab, folder, {**own, **env})
        if "JUPYTER_RUNTIME_DIR" not in env:
            # Two kernels that start at the same time could pick the same TCP ports. Paths of sockets must be short.
            settings["KernelManager"] = {"transport": "ipc"}
            self.environment["JUPYTER_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="jupyter-")
        for section, values in config.items():
            settings.setdefault(section, {}).update(values)
        file = Path(self.environment["JUPYTER_CONFIG_DIR"], "jupyter_server_config.json")
        file.write_text(json.dumps(settings))
        self._log = folder / "server.log"
        run = [sys.executable, "-m", "jupyter_server"] if lab is None else [str(lab), "-m", "jupyterlab"]
        command = [*run, "--no-browser", "--ServerApp.port=0", "--allow-root"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, env=self.environment, cwd=folder, stdout=log, stderr=log)
        self.url = self._await_url()
        self.http = httpx.Client(base_url=self.url, headers={"Authorization": f"token {TOKEN}"}, timeout=30)
        self.kernels: list[ServedKernel] = []

    @property
    def origin(self) -> str:
        return self.url.removesuffix(_BASE)

    @property
    def runtime(self) -> Path:
        return Path(self.environment["JUPYTER_RUNTIME_DIR"])

    def session_ids(self) -> list[str]:
        """The sessions of open notebooks. Each ends with its kernel."""
        return [session["id"] for session in self.http.get("api/sessions").json()]

    def end_session(self, session_id: str) -> None:
        """End a session, and wait for the end of its kernel."""
        self.http.delete(f"api/sessions/{session_id}")

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def anonymous(self, **headers: str) -> httpx.Client:
        """A browser that is not logged in."""
        return httpx.Client(base_url=self.url, headers=headers, timeout=30)

    @contextlib.contextmanager
    def browser(self, **headers: str) -> Iterator[httpx.Client]:
        """A browser that has logged in, and has cookies."""
        with self.anonymous(**headers) as client:
            client.get("login").raise_for_status()  # its page sets the XSRF cookie
            client.get("api/status", params={"token": TOKEN}).raise_for_status()
            yield client

    def start_kernel(self) -> ServedKernel:
        model = self.http.post("api/kernels", json={}).raise_for_status().json()
        kernel = ServedKernel(model["id"], self.runtime / f"kernel-{model['id']}.json")
        self.kernels.append(kernel)
        return kernel

    def view(self, kernel: ServedKernel | str, **headers: str) -> RelayView:
        """Open a view's WebSocket; raises tornado's HTTPClientError where that is refused."""
        name = kernel if isinstance(kernel, str) else kernel.id
        url = f"{self.url.replace('http', 'ws', 1)}ipymcp/kernels/{name}/panel"
        return RelayView(url, headers or {"Authorization": f"token {TOKEN}"})

    def stop(self) -> None:
        for kernel in self.kernels:
            kernel.client.stop_channels()
        self.http.close()
        below = descendants(self.process.pid)
        self.process.terminate()
        self.process.wait(timeout=30)
        wait_until_gone(below, within=15)
        shutil.rmtree(self.runtime)

    def _await_url(self) -> str:
        deadline = time.monotonic() + 60
        while (url := _URL.search(self.log())) is None:
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.05)
        return url[0]


class ServedKernel:
    """A kernel that a server has started."""

    def __init__(self, kernel_id: str, connection_file: Path) -> None:
        self.id = kernel_id
        self.announcement = connection_file.with_name(f"ipymcp-{connection_file.name}")
        """Says where it serves views."""
        self.client = BlockingKernelClient(connection_file=str(connection_file))
        self.client.load_connection_file()
        self.client.start_channels(hb=False)  # a slow heartbeat is not a dead kernel
        self._wait_until_it_answers()

    def run(self, code: str) -> str:
        """Run a cell, and give what it printed; an error of the cell fails here."""
        printed: list[str] = []

        def take(message: dict[str, Any]) -> None:
            content = message["content"]
            printed.append(content.get("text", "") if message["msg_type"] == "stream" else "")

        reply = self.client.execute_interactive(code, timeout=60, output_hook=take, allow_stdin=False)
        assert reply["content"]["status"] == "ok", reply["content"]
        return "".join(printed)

    def load(self) -> None:
        """Load ipymcp, and wait until views can come."""
        self.run("%load_ext ipymcp\n%config IPyMCP.quiet = True")
        deadline = time.monotonic() + 30
        while not self.announcement.exists():
            assert time.monotonic() < deadline, f"no {self.announcement}: {self.run('%mcp')}"
            time.sleep(0.02)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            self.client.kernel_info()
            with contextlib.suppress(Empty):
                self.client.get_iopub_msg(timeout=1)
                return
            assert time.monotonic() < deadline, "the kernel does not answer"

    def start(self, code: str) -> None:
        """Begin a cell."""
        self.client.execute(code)

    def pid(self) -> int:
        return int(self.run("import os; print(os.getpid())"))


class RelayView(View):
    """A view over the server's WebSocket."""

    def __init__(self, url: str, headers: Mapping[str, str], certificate: Path | None = None) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self.closed: tuple[int | None, str | None] | None = None
        """The code and reason, once the server has closed it."""
        try:
            trust = str(certificate) if certificate else None
            request = HTTPRequest(url, headers=dict(headers), ca_certs=trust, connect_timeout=20, request_timeout=20)
            self._socket = self._run(lambda: websocket_connect(request, max_message_size=100_000_000))
            self._protocol = self._socket.protocol
        except BaseException:
            self._loop.close()
            raise

    def __enter__(self) -> RelayView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, message: object) -> None:
        self.send_text(json.dumps(message))

    def send_text(self, text: str | bytes) -> None:
        self._run(lambda: self._socket.write_message(text, binary=isinstance(text, bytes)))

    def listen(self, condition: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            message = self._run(lambda: asyncio.wait_for(self._read(), max(deadline - time.monotonic(), 0.001)))
            if message is None:
                self.closed = self._socket.close_code, self._socket.close_reason
                raise ConnectionError(f"the server has closed it: {self.closed}, {self.received[-3:]}")
            self.received.append(json.loads(message))

    def until_closed(self, timeout: float = 30) -> Message | None:
        """Read what comes until the server closes it; gives the relay's own last message."""
        with contextlib.suppress(ConnectionError):
            self.listen(lambda: False, timeout)
        messages = self.of_kind("relay")
        return messages[-1] if messages else None

    def close(self) -> None:
        if not self._loop.is_closed():
            self._run(self._end)
            self._loop.close()

    async def _end(self) -> None:
        self._socket.close()
        self._protocol._abort()  # no one reads what may still come
        await asyncio.sleep(0.02)

    async def _read(self) -> Any:
        return await self._socket.read_message()

    def _run(self, what: Callable[[], Any]) -> Any:
        async def wait() -> Any:
            return await what()

        return self._loop.run_until_complete(wait())


@contextlib.contextmanager
def started(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    lab: Path | None = None,
) -> Iterator[JupyterServer]:
    """Run a server; at the end it is gone, with its kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    server = JupyterServer(folder, config or {}, env or {}, lab)
    try:
        yield server
    finally:
        server.stop()


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    return psutil.Process(pid).memory_info().rss
