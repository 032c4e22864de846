"""A real JupyterHub behind TLS, with two users, each with a password and a server of their own.

with started(folder) as hub:
    alice = hub.user("alice")
    kernel = alice.start_kernel()
    with alice.view(kernel) as view:
        view.hello()
"""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.environments import environment
from tests.jupyter_servers import RelayView, ServedKernel
from tests.kernels import private_environment
from tests.processes import descendants, wait_until_gone
from tests.serving import reserved_port
from tests.transports.certificates import self_signed

USERS = ("alice", "bob")
_PASSWORD = "a password of the tests"
_ADMIN = "a-token-of-the-tests-that-starts-servers"


class Hub:
    """The hub, its proxy, and both users' servers."""

    def __init__(self, folder: Path, port: int, hub_port: int, proxy_port: int) -> None:
        self.folder = folder
        self.origin = f"https://127.0.0.1:{port}"
        _, self.certificate = self_signed(folder)
        file = folder / "jupyterhub_config.json"
        file.write_text(json.dumps(_settings(folder, self.origin, hub_port, proxy_port)))
        python = environment("hub").python
        self._log = folder / "hub.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(python), "-m", "jupyterhub", "--config", str(file)],
                env=private_environment(python, folder, {}),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._api = self.client(headers={"Authorization": f"token {_ADMIN}"})
        self._users: list[HubUser] = []

    def start_servers(self) -> None:
        """Wait for the hub, then for both users' servers."""
        self._until(lambda: self._api.get("/hub/api/").status_code == 200)
        for name in USERS:
            self._api.post(f"/hub/api/users/{name}/server").raise_for_status()
        for name in USERS:
            self._until(lambda name=name: bool(self._server(name).get("ready")))

    def client(self, **settings: Any) -> httpx.Client:
        """An HTTP client of the proxy; it trusts the proxy's certificate."""
        trust = ssl.create_default_context(cafile=str(self.certificate))
        return httpx.Client(base_url=self.origin, verify=trust, timeout=30, **settings)

    def user(self, name: str) -> HubUser:
        """A user who has logged in to the hub, in a browser of their own."""
        user = HubUser(self, name)
        self._users.append(user)
        return user

    def token(self, name: str) -> str:
        """An API token of a user's."""
        return self._api.post(f"/hub/api/users/{name}/tokens", json={}).raise_for_status().json()["token"]

    def log(self) -> str:
        """The logs of the hub, its proxy and the users' servers."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        for user in self._users:
            user.close()
        self._api.close()
        below = descendants(self.process.pid)
        self.process.terminate()
        self.process.wait(timeout=30)
        wait_until_gone(below, within=15)

    def _server(self, name: str) -> dict[str, Any]:
        return self._api.get(f"/hub/api/users/{name}").raise_for_status().json()["servers"].get("", {})

    def _until(self, condition: Any) -> None:
        deadline = time.monotonic() + 90
        while not self._holds(condition):
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    @staticmethod
    def _holds(condition: Any) -> bool:
        try:
            return condition()
        except httpx.TransportError:
            return False


class HubUser:
    """A user's browser, and their own server."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.name = name
        self.path = f"/user/{name}/"
        self.url = f"{hub.origin}{self.path}"
        self.origin = hub.origin
        self._certificate = hub.certificate
        self.folder = hub.folder / "homes" / name
        self.runtime = self.folder / ".local" / "share" / "jupyter" / "runtime"
        self.browser = hub.client(follow_redirects=True)
        self.kernels: list[ServedKernel] = []
        self.browser.get("/hub/login").raise_for_status()
        form = {"username": name, "password": _PASSWORD, "_xsrf": self.xsrf("/hub/")}
        self.browser.post("/hub/login", data=form, headers={"Origin": hub.origin}).raise_for_status()
        self.browser.get(self.path).raise_for_status()

    def xsrf(self, path: str) -> str:
        """The XSRF token of a page at this path."""
        return self.browser.cookies.get("_xsrf", default="", path=path) or ""

    def ask(self, method: str, url: str, body: Any = None, *, xsrf: bool = True) -> httpx.Response:
        """Send a request as a page of the user's own server; follow no redirect."""
        headers = {"Origin": self.origin, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
        if xsrf:
            headers["X-XSRFToken"] = self.xsrf(self.path)
        return self.browser.request(method, url, json=body, headers=headers, follow_redirects=False)

    def start_kernel(self) -> ServedKernel:
        model = self.ask("POST", f"{self.path}api/kernels", {}).raise_for_status().json()
        kernel = ServedKernel(model["id"], self.runtime / f"kernel-{model['id']}.json")
        self.kernels.append(kernel)
        return kernel

    def view(self, kernel: ServedKernel, *, of: HubUser | None = None, origin: str | None = None) -> RelayView:
        """Open a view's WebSocket as a page would, to one's own server or another's."""
        url = f"{(of or self).url}ipymcp/kernels/{kernel.id}/panel"
        cookies = self.browser.build_request("GET", url).headers["Cookie"]
        headers = {"Cookie": cookies, "Origin": origin or self.origin}
        return RelayView(url.replace("http", "ws", 1), headers, self._certificate)

    def close(self) -> None:
        for kernel in self.kernels:
            kernel.client.stop_channels()
        self.browser.close()


def _settings(folder: Path, origin: str, hub_port: int, proxy_port: int) -> Mapping[str, Any]:
    """Every state in the folder; no users of the system."""
    hub, modules = environment("hub").python, environment("hub-proxy").folder / "node_modules"
    proxy = modules / "configurable-http-proxy" / "bin" / "configurable-http-proxy"
    for name in USERS:
        (folder / "homes" / name).mkdir(parents=True)
    return {
        "JupyterHub": {
            "bind_url": origin,
            "ssl_cert": f"{folder}/certificate.pem",
            "ssl_key": f"{folder}/key.pem",
            "hub_bind_url": f"http://127.0.0.1:{hub_port}",
            "db_url": f"sqlite:///{folder}/hub.sqlite",
            "cookie_secret_file": f"{folder}/cookie_secret",
            "authenticator_class": "dummy",
            "spawner_class": "simple",
            "services": [{"name": "tests", "api_token": _ADMIN}],
            "load_roles": [
                {"name": "tests", "services": ["tests"], "scopes": ["admin:users", "admin:servers", "tokens"]},
            ],
        },
        "Authenticator": {"allowed_users": list(USERS)},
        "DummyAuthenticator": {"password": _PASSWORD},
        "ConfigurableHTTPProxy": {
            "command": ["node", str(proxy)],
            "api_url": f"http://127.0.0.1:{proxy_port}",
            "pid_file": f"{folder}/proxy.pid",
        },
        "Spawner": {
            "cmd": [str(hub), str(hub.parent / "jupyterhub-singleuser")],
            "args": ["--allow-root"],
            "environment": {"IPYMCP_KEYRING": "off", "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        },
        "SimpleLocalProcessSpawner": {"home_dir_template": f"{folder}/homes/{{username}}"},
    }


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Hub]:
    """Run a hub; at the end it is gone, with all it started."""
    with reserved_port() as port, reserved_port() as hub_port, reserved_port() as proxy_port:
        hub = Hub(folder, port, hub_port, proxy_port)
        try:
            hub.start_servers()
            yield hub
        finally:
            hub.stop()
