"""Remote servers as sessions: how they are reached, lost and found again, and what a user reads when they cannot be."""

import contextlib
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ipymcp import AuthError, ConnectionLost, Mcp, McpError, ServerError
from ipymcp.interaction.questions import LoginQuestion, PageReply
from ipymcp.runtime.context import Timing
from ipymcp.runtime.host import Host
from tests.environments import ROOT, server_command
from tests.processes import wait_until
from tests.servers import site as sites
from tests.servers.oauth_server import running
from tests.serving import serving
from tests.unit.scripted_interface import ScriptedInterface

QUICK = Timing(retries=(0.05, 0.05), unreachable=0.1, check=5.0, refresh=0.01)
PATIENT = Timing(retries=(), unreachable=600.0)


@contextlib.contextmanager
def hosting(timing: Timing = QUICK) -> Iterator[Mcp]:
    mcp = Mcp(Host(timing=timing))
    try:
        yield mcp
    finally:
        mcp.close()


# -- reached, lost, found ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sdk", "option"), [("sdk1", "--http"), ("sdk2", "--http"), ("sdk1", "--sse")])
def test_a_server_behind_an_address_is_loaded_lost_and_reached_again(sdk: str, option: str, tmp_path: Path) -> None:
    def command(port: int) -> list[str]:
        return server_command(sdk, option, str(port))

    with serving(command, tmp_path) as remote, hosting() as mcp, hosting(PATIENT) as other:
        url = remote.origin + {"--http": "/mcp", "--sse": "/sse"}[option]
        other.load(url)  # an address alone is enough, and names the server
        assert list(other) == ["remote"]
        mcp.load({"remote": {"url": url, "health_interval": 0.1}})
        server = mcp.servers["remote"]
        assert (server.state, server.pid) == ("ready", None)
        assert server.protocol_version == ("2026-07-28" if sdk == "sdk2" else "2025-11-25")
        assert "hello" in mcp.remote.echo("hello").text

        # A host that checks it sees that it went away, and that it has come back.
        remote.kill()
        wait_until(lambda: server.state == "unreachable")
        assert server.away_since is not None
        assert "unreachable since " in repr(mcp.servers)
        with pytest.raises((ConnectionLost, ServerError)) as failure:
            mcp.remote.echo("anybody?")
        assert failure.value.server == "remote"
        # Without a check and a retry, a call finds out, and the next call reaches it again.
        with pytest.raises(ServerError):
            other.remote.echo("anybody?")
        wait_until(lambda: other.servers["remote"].state == "unreachable")
        remote.start()
        wait_until(lambda: server.state == "ready")
        assert server.away_since is None
        for host in (mcp, other):
            assert "hello" in host.remote.echo("hello").text
        wait_until(lambda: other.servers["remote"].state == "ready")

        # It can be stopped and started while it is away.
        remote.kill()
        wait_until(lambda: server.state == "unreachable")
        mcp.stop("remote")
        assert server.state == "stopped"
        with pytest.raises(ServerError, match="connection refused"):
            mcp.start("remote")
        remote.start()
        mcp.start("remote")
        assert server.state == "ready"


# -- what cannot be loaded --------------------------------------------------------------------------------------------

PAGES = {
    "/html": sites.Reply(
        body=b"<html><head><title>x</title></head><body><h1>Welcome</h1></body></html>",
        headers={"Content-Type": "text/html"},
    ),
    "/broken": sites.Reply(status=500, body=b"it broke"),
    "/forbidden": sites.Reply(status=403, body=b"not you"),
}


@pytest.fixture
def site() -> Iterator[sites.Site]:
    with sites.serving(
        lambda heard: PAGES.get(heard.path) or sites.Reply(status=404, body=b"Not Found"), gets=True
    ) as site:
        yield site


def lines(mcp: Mcp, url: str) -> list[str]:
    with pytest.raises(McpError) as failure:
        mcp.load({"docs": {"url": url}})
    return failure.value._two_lines()


def test_the_error_of_a_server_that_cannot_be_loaded_is_two_lines(site: sites.Site) -> None:
    at = "StartError: docs: could not be opened: "
    cases = {
        "http://127.0.0.1:9/mcp": [
            f"{at}cannot connect to http://127.0.0.1:9/mcp: connection refused",
            "  is the server running?",
        ],
        site.origin.replace("http", "https") + "/mcp": [
            f"{at}cannot connect to {site.origin.replace('http', 'https')}/mcp: TLS: wrong version number",
            "  is it http:// rather than https://?",
        ],
        f"{site.origin}/mcp": [
            f"{at}the server answered HTTP 404 Not Found: Not Found",
            "  check the URL's path; servers often answer at /mcp, older ones at /sse",
        ],
        f"{site.origin}/html": [
            "ProtocolError: docs: the server answered with text/html instead of MCP: Welcome",
            "  check the URL; a web page, a login or a proxy may have answered",
        ],
        f"{site.origin}/broken": [
            f"{at}the server answered HTTP 500 Internal Server Error: it broke",
            "  a fault of the server, or of a proxy before it",
        ],
        f"{site.origin}/forbidden": [
            f"{at}the server answered HTTP 403 Forbidden: not you",
            "  %mcp logs docs · %mcp restart docs",
        ],
        "ftp://host/mcp": [
            "ConfigError: docs.url: 'ftp://host/mcp' is not the address of an HTTP server",
            "  http://…, https://… or unix:///path/to.sock:/mcp",
        ],
    }
    for url, expected in cases.items():
        with hosting() as mcp:
            assert lines(mcp, url) == expected


def test_the_error_of_an_unknown_host_name_is_two_lines() -> None:
    with hosting() as mcp:
        first, second = lines(mcp, "http://nowhere.invalid/mcp")
    assert first.startswith("StartError: docs: could not be opened: cannot connect to http://nowhere.invalid/mcp: ")
    assert "unknown host name" in first
    assert second == "  check the URL and the network"


def test_a_start_that_cannot_succeed_later_is_not_tried_again(site: sites.Site) -> None:
    with hosting() as mcp:
        lines(mcp, f"{site.origin}/mcp")
        assert "starting it again" not in "\n".join(row["text"] for row in mcp.servers["docs"].logs())
        lines(mcp, f"{site.origin}/html")
        assert "starting it again" not in "\n".join(row["text"] for row in mcp.servers["docs"].logs())


def test_a_start_that_may_succeed_later_is_tried_again(site: sites.Site) -> None:
    with hosting() as mcp:
        lines(mcp, f"{site.origin}/broken")
        assert sum("starting it again" in str(row["text"]) for row in mcp.servers["docs"].logs()) == 2


def test_headers_and_a_bearer_token_are_sent_and_never_shown(site: sites.Site) -> None:
    with hosting() as mcp:
        document = {"url": f"{site.origin}/mcp", "headers": {"X-Team": "blue"}}
        with pytest.raises(ServerError):
            mcp.load({"docs": {**document, "auth": {"type": "bearer", "token": "s3cret-token"}}})
        headers = site.heard[0].headers
        assert (headers["x-team"], headers["authorization"]) == ("blue", "Bearer s3cret-token")
        shown = repr(mcp._host.sessions["docs"].definition) + repr(mcp.servers) + repr(mcp.servers["docs"].logs())
        assert "s3cret-token" not in shown


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        (
            {"type": "magic"},
            'docs.auth.type: expected one of bearer, oauth, client_credentials, enterprise, got "magic"',
        ),
        ({"type": "bearer"}, "docs.auth.token: is missing"),
        ({"type": "bearer", "tokn": "x"}, "docs.auth.tokn: is not supported by 'bearer'"),
        ({"client_secret": 5}, "docs.auth.client_secret: expected a string"),
        ("x", "docs.auth: expected an object"),
    ],
)
def test_a_wrong_auth_is_an_error_that_names_the_key(auth: object, message: str) -> None:
    with hosting() as mcp, pytest.raises(McpError) as failure:
        mcp.load({"docs": {"url": "http://127.0.0.1:9/mcp", "auth": auth}})  # type: ignore[dict-item]
    assert failure.value.message == message


def test_the_libraries_of_http_are_imported_only_for_remote_servers() -> None:
    code = """
import sys, ipymcp
with ipymcp.connect("demo") as mcp:
    mcp.demo.echo("hello")
    mcp.on_elicitation(lambda question: None)
    assert not {"httpx", "joserfc"} & set(sys.modules), sorted(sys.modules)
    try: mcp.load({"docs": {"url": "http://127.0.0.1:9/mcp", "restart": False}})
    except ipymcp.ServerError: pass
    assert "httpx" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


# -- logging in -------------------------------------------------------------------------------------------------------


def think(seconds: float) -> None:
    """Let more time pass than a timeout that must stand still meanwhile."""
    threading.Event().wait(seconds)


def browse(question: LoginQuestion) -> PageReply:
    urllib.request.urlopen(question.url, timeout=10).close()
    assert question.redirected is not None and question.redirected.wait(10)
    return PageReply("accept", {"address": ""})


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def paste(question: LoginQuestion) -> PageReply:
    try:
        urllib.request.build_opener(_NoRedirect).open(question.url, timeout=10)
    except urllib.error.HTTPError as answer:
        answer.close()
        return PageReply("accept", {"address": str(answer.headers["Location"])})
    raise AssertionError("no redirect")


@pytest.mark.parametrize("act", [browse, paste])
def test_the_user_logs_in_and_the_server_is_there(act: Callable[[LoginQuestion], PageReply]) -> None:
    user = ScriptedInterface(act)
    with running() as server, hosting() as mcp:
        mcp._host.questions.terminal = lambda: user
        mcp.load({"locked": {"url": server.url}})
        assert mcp.servers["locked"].state == "ready"
        [question] = user.asked
        assert isinstance(question, LoginQuestion)
        assert (question.server, question.domain) == ("locked", server.origin.removeprefix("http://"))
        mcp.restart("locked")
        assert len(user.asked) == 1


def test_while_the_user_logs_in_other_servers_start_and_no_time_runs_out() -> None:
    with running() as server, hosting() as mcp:
        states: list[str] = []

        def browse_late(question: LoginQuestion) -> PageReply:
            wait_until(lambda: mcp.servers["demo"].state == "ready")
            states.append(mcp.servers["locked"].state)
            think(3.5)
            return browse(question)

        mcp._host.questions.terminal = lambda: ScriptedInterface(browse_late)
        mcp._host._context.max_starting = 1
        mcp.load({"locked": {"url": server.url, "start_timeout": 3.0}}, "demo")
        assert states == ["needs_auth"]
        assert mcp.servers["locked"].state == "ready"


def test_a_login_that_is_refused_leaves_the_server_in_need_of_one_until_it_is_started_again() -> None:
    with running() as server, hosting() as mcp:
        mcp._host.questions.terminal = lambda: ScriptedInterface(PageReply())
        with pytest.raises(AuthError) as failure:
            mcp.load({"locked": {"url": server.url}})
        domain = server.origin.removeprefix("http://")
        assert failure.value._two_lines() == [
            f"AuthError: locked: the login at {domain} was not completed",
            "  %mcp start locked",
        ]
        assert mcp.servers["locked"].state == "needs_auth"
        mcp._host.questions.terminal = lambda: ScriptedInterface(browse)
        mcp.start("locked")
        assert mcp.servers["locked"].state == "ready"


def browse_slowly(question: LoginQuestion) -> PageReply:
    think(2.5)
    return browse(question)


def test_a_call_that_needs_a_new_login_has_its_user_log_in_and_goes_on() -> None:
    user = ScriptedInterface(browse)
    with running() as server, hosting() as mcp:
        mcp._host.questions.terminal = lambda: user
        mcp.load({"locked": {"url": server.url}})
        server.tokens.clear()
        user.reply = browse_slowly
        mcp.locked.whoami.options(timeout=2)()
        assert len(user.asked) == 2
        assert mcp.servers["locked"].state == "ready"


def test_after_a_login_has_expired_a_start_asks_again_without_a_time_limit() -> None:
    user = ScriptedInterface(browse)
    with running() as server, hosting(Timing(check=2.0)) as mcp:
        mcp._host.questions.terminal = lambda: user
        mcp.load({"locked": {"url": server.url}})
        user.reply = PageReply()
        server.tokens.clear()
        with pytest.raises(AuthError):
            mcp.locked.whoami()
        wait_until(lambda: mcp.servers["locked"].state == "needs_auth")

        user.reply = browse_slowly
        mcp.start("locked")
        assert mcp.servers["locked"].state == "ready"
        mcp.locked.whoami()


def test_where_no_one_can_be_asked_a_login_fails_at_once() -> None:
    with running() as server, hosting() as mcp:
        with pytest.raises(AuthError) as failure:
            mcp.load({"locked": {"url": server.url}})
        domain = server.origin.removeprefix("http://")
        assert failure.value._two_lines() == [
            f"AuthError: locked: needs a login at {domain}, and no one can be asked",
            "  %mcp start locked",
        ]
