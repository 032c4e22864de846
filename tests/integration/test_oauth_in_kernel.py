"""A server behind a login, loaded in a real kernel by a user with a browser."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import kernels
from tests.kernels import Cell, Kernel
from tests.servers.oauth_server import Behaviour, OAuthServer, running


def robot(server: OAuthServer) -> dict[str, Any]:
    """A definition that needs no user."""
    server.behaviour.clients["robot"] = "robots-secret"
    auth = {"type": "client_credentials", "client_id": "robot", "client_secret": "robots-secret"}
    return {"url": server.url, "auth": auth}


@pytest.fixture(scope="module")
def shared(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with kernels.started(kernel_name, tmp_path_factory.mktemp("kernel"), cold=True) as kernel:
        kernel.run("%load_ext ipymcp\n%config IPyMCP.quiet = True")
        yield kernel


@pytest.fixture
def kernel(shared: Kernel) -> Iterator[Kernel]:
    """The shared kernel, without a server before and after the test."""
    yield shared
    shared.run("%mcp unload docs")


def load(kernel: Kernel, folder: Path, definition: dict[str, Any], *, can_ask: bool = True) -> Cell:
    """Load a server as `docs`."""
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"docs": definition}}))
    return kernel.start(f"%mcp load {file}", answers=[] if can_ask else None)


def page(cell: Cell) -> str:
    """The address that the user is shown once the kernel waits for an answer."""
    shown = cell.wait_for(lambda so_far: bool(so_far.prompts))
    return re.findall(r"http://\S+/authorize\S+", shown.stdout)[-1]


def log_in(url: str) -> str:
    """Log in there; the address that the browser is sent to."""
    return httpx.get(url).headers["location"]


def test_a_user_logs_in_and_calls_and_no_secret_is_shown(kernel: Kernel, tmp_path: Path) -> None:
    with running(Behaviour(needs_scope="read", needs_scope_to_call="write", issues_refresh_tokens=True)) as server:
        cell = load(kernel, tmp_path, {"url": server.url})
        assert httpx.get(log_in(page(cell))).status_code == 200
        kernel.answer("")
        loaded = cell.wait()
        assert loaded.error is None
        host = server.origin[7:]
        assert f"  Log in at {host}, for the server at {host}; the answer goes to {host}.\n" in loaded.stdout
        assert "It may then: read" in loaded.stdout

        cell = kernel.start("mcp.docs.whoami().text", answers=[])
        httpx.get(log_in(page(cell)))
        kernel.answer("")
        called = cell.wait()
        assert called.text == "'you are logged in'"
        assert "It may then: read, write" in called.stdout

        shown = kernel.run("%mcp logs docs").text or ""
        everything = shown + repr(loaded.messages) + repr(called.messages) + kernel.log()
        for secret in [*server.tokens, *server.refresh_tokens]:
            assert secret not in everything


def test_the_address_is_pasted_where_the_browser_is_elsewhere(kernel: Kernel, tmp_path: Path) -> None:
    with running() as server:
        cell = load(kernel, tmp_path, {"url": server.url})
        address = log_in(page(cell))
        kernel.answer(address.partition("?")[0])
        cell.wait_for(lambda outcome: len(outcome.prompts) == 2)
        outcome = cell.wait_for_output("paste the whole address that the browser ended at")
        assert (
            f"the answer belongs to another login at {server.origin[7:]}: "
            "paste the whole address that the browser ended at · !cancel" in outcome.stdout
        )
        kernel.answer(address)
        assert cell.wait().error is None
        assert kernel.run("mcp.docs.whoami().text").text == "'you are logged in'"


def test_where_no_one_can_be_asked_a_login_fails_at_once(kernel: Kernel, tmp_path: Path) -> None:
    with running() as server:
        load(kernel, tmp_path, {"url": server.url}, can_ask=False).wait()
        reason = kernel.run("print(mcp.servers['docs'].error)").stdout
        assert reason.startswith(f"needs a login at {server.origin[7:]}, and no one can be asked")
        assert f"Needs a login at {server.origin[7:]}" in (kernel.run("%mcp").text or "")


def test_client_credentials_in_a_definition_need_no_user(kernel: Kernel, tmp_path: Path) -> None:
    with running() as server:
        assert load(kernel, tmp_path, robot(server), can_ask=False).wait().error is None
        assert kernel.run("mcp.docs.whoami().text").text == "'you are logged in'"
        assert server.capabilities["extensions"]["io.modelcontextprotocol/oauth-client-credentials"] == {}
