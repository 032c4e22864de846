"""Remote servers as sessions: how they are reached, lost and found again, and what a user reads when they cannot be."""

import contextlib
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ipymcp import AuthError, ConnectionLost, Mcp, McpError, ServerError
from ipymcp.interaction.questions import LoginQuestion, PageReply
from ipymcp.runtime.context import Timing
from ipymcp.runtime.host import Host
from tests.environments import ROOT, server_command
from tests.servers.oauth_server import running
from tests.unit.scripted_interface import ScriptedInterface

QUICK = Timing(retries=(0.05, 0.05), unreachable=0.1, check=5.0, refresh=0.01)


def until(condition: Callable[[], bool], within: float = 20) -> None:
    """Wait for what another thread brings about."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


@contextlib.contextmanager
def hosting(timing: Timing = QUICK) -> Iterator[Mcp]:
    mcp = Mcp(Host(timing=timing))
    try:
        yield mcp
    finally:
        mcp.close()


class Remote:
    """One of the official SDK's servers on loopback, which can be killed and come back where it was."""

    def __init__(self, name: str, option: str) -> None:
        self._name = name
        self._option = option
        self.url = ""
        self.start("0")

    def start(self, port: str | None = None) -> None:
        command = server_command(self._name, self._option, port or self.url.split(":")[2].split("/")[0])
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        self.url = self._process.stderr.readline().strip()
        self._rest = threading.Thread(target=self._process.stderr.read)
        self._rest.start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._rest.join()
        assert self._process.stderr is not None
        self._process.stderr.close()


@pytest.fixture(params=["sdk1 --http", "sdk2 --http", "sdk1 --sse"])
def remote(request: pytest.FixtureRequest) -> Iterator[Remote]:
    server = Remote(*request.param.split())
    try:
        yield server
    finally:
        server.kill()


def definition(remote: Remote, **more: Any) -> dict[str, Any]:
    return {"remote": {"url": remote.url, **more}}


# -- reached, lost, found ---------------------------------------------------------------------------------------------


def test_a_server_behind_an_address_is_loaded_whatever_it_speaks(remote: Remote) -> None:
    with hosting() as mcp:
        mcp.load(definition(remote))
        server = mcp.servers["remote"]
        assert (server.state, server.pid) == ("ready", None)
        assert server.protocol_version == ("2026-07-28" if "sdk2" in str(remote._name) else "2025-11-25")
        assert mcp.remote.echo("hello").data == {"echoed": "hello"} or "hello" in mcp.remote.echo("hello").text


def test_an_address_alone_is_enough_and_names_the_server(remote: Remote) -> None:
    with hosting() as mcp:
        mcp.load(remote.url)
        assert list(mcp) == ["remote"]


def test_a_server_that_went_away_is_said_to_be_unreachable_and_comes_back_by_itself(remote: Remote) -> None:
    with hosting() as mcp:
        mcp.load(definition(remote, health_interval=0.1))
        remote.kill()
        until(lambda: mcp.servers["remote"].state == "unreachable")
        assert mcp.servers["remote"].away_since is not None
        assert "unreachable since " in repr(mcp.servers)
        with pytest.raises((ConnectionLost, ServerError)) as failure:
            mcp.remote.echo("anybody?")
        assert failure.value.server == "remote"
        remote.start()
        until(lambda: mcp.servers["remote"].state == "ready")
        assert mcp.servers["remote"].away_since is None
        assert "hello" in mcp.remote.echo("hello").text


def test_a_call_to_an_unreachable_server_is_tried_and_heals_it(remote: Remote) -> None:
    with hosting(Timing(retries=(), unreachable=600.0)) as mcp:
        mcp.load(definition(remote))
        remote.kill()
        with pytest.raises(ServerError):
            mcp.remote.echo("anybody?")
        until(lambda: mcp.servers["remote"].state == "unreachable")
        remote.start()
        assert "hello" in mcp.remote.echo("hello").text
        until(lambda: mcp.servers["remote"].state == "ready")


def test_it_can_be_stopped_and_started_while_it_is_away() -> None:
    remote = Remote("sdk1", "--http")
    with hosting() as mcp:
        mcp.load(definition(remote, health_interval=0.1))
        remote.kill()
        until(lambda: mcp.servers["remote"].state == "unreachable")
        mcp.stop("remote")
        assert mcp.servers["remote"].state == "stopped"
        with pytest.raises(ServerError, match="connection refused"):
            mcp.start("remote")
        remote.start()
        mcp.start("remote")
        assert mcp.servers["remote"].state == "ready"
        remote.kill()


# -- what cannot be loaded --------------------------------------------------------------------------------------------

PAGES: Mapping[str, tuple[int, str, bytes]] = {
    "/html": (200, "text/html", b"<html><head><title>x</title></head><body><h1>Welcome</h1></body></html>"),
    "/broken": (500, "text/plain", b"it broke"),
    "/forbidden": (403, "text/plain", b"not you"),
}


@dataclass
class Site:
    """Answers what it is told, and remembers what it was asked."""

    origin: str
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def asked(self, method: str) -> int:
        return sum(verb == method for verb, _, _ in self.seen)


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.seen.append((self.command, self.path, dict(self.headers)))
            status, kind, body = PAGES.get(self.path, (404, "text/plain", b"Not Found"))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        seen = Site(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield seen
        finally:
            server.shutdown()
            thread.join()


def lines(mcp: Mcp, url: str) -> list[str]:
    with pytest.raises(McpError) as failure:
        mcp.load({"docs": {"url": url}})
    return failure.value._two_lines()


def test_why_a_server_cannot_be_loaded_is_said_in_two_lines(site: Site) -> None:
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


def test_a_host_whose_name_nobody_knows_is_said_in_two_lines() -> None:
    with hosting() as mcp:
        first, second = lines(mcp, "http://nowhere.invalid/mcp")
    assert first.startswith("StartError: docs: could not be opened: cannot connect to http://nowhere.invalid/mcp: ")
    assert "unknown host name" in first
    assert second == "  check the URL and the network"


def test_a_start_that_cannot_help_to_be_tried_again_is_not(site: Site) -> None:
    with hosting() as mcp:
        lines(mcp, f"{site.origin}/mcp")
        assert "starting it again" not in "\n".join(row["text"] for row in mcp.servers["docs"].logs())
        lines(mcp, f"{site.origin}/html")
        assert "starting it again" not in "\n".join(row["text"] for row in mcp.servers["docs"].logs())


def test_a_start_that_may_succeed_later_is_tried_again(site: Site) -> None:
    with hosting() as mcp:
        lines(mcp, f"{site.origin}/broken")
        assert sum("starting it again" in str(row["text"]) for row in mcp.servers["docs"].logs()) == 2


def test_headers_and_a_bearer_token_are_sent_and_never_shown(site: Site) -> None:
    with hosting() as mcp:
        document = {"url": f"{site.origin}/mcp", "headers": {"X-Team": "blue"}}
        with pytest.raises(ServerError):
            mcp.load({"docs": {**document, "auth": {"type": "bearer", "token": "s3cret-token"}}})
        headers = {name.lower(): value for name, value in site.seen[0][2].items()}
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


def test_what_http_needs_is_imported_only_for_remote_servers() -> None:
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

        def think(question: LoginQuestion) -> PageReply:
            until(lambda: mcp.servers["demo"].state == "ready")
            states.append(mcp.servers["locked"].state)
            thinking = time.monotonic() + 1.2
            until(lambda: time.monotonic() > thinking)
            return browse(question)

        mcp._host.questions.terminal = lambda: ScriptedInterface(think)
        mcp._host._context.max_starting = 1
        mcp.load({"locked": {"url": server.url, "start_timeout": 1.0}}, "demo")
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
    thinking = time.monotonic() + 0.8
    until(lambda: time.monotonic() > thinking)
    return browse(question)


def test_a_call_that_needs_a_new_login_has_its_user_log_in_and_goes_on() -> None:
    user = ScriptedInterface(browse)
    with running() as server, hosting() as mcp:
        mcp._host.questions.terminal = lambda: user
        mcp.load({"locked": {"url": server.url}})
        server.tokens.clear()
        user.reply = browse_slowly
        mcp.locked.whoami.options(timeout=0.3)()
        assert len(user.asked) == 2
        assert mcp.servers["locked"].state == "ready"


def test_a_login_that_is_over_is_asked_for_by_a_start_and_has_all_the_time_it_needs() -> None:
    user = ScriptedInterface(browse)
    with running() as server, hosting(Timing(check=0.3)) as mcp:
        mcp._host.questions.terminal = lambda: user
        mcp.load({"locked": {"url": server.url}})
        user.reply = PageReply()
        server.tokens.clear()
        with pytest.raises(AuthError):
            mcp.locked.whoami()
        until(lambda: mcp.servers["locked"].state == "needs_auth")

        user.reply = browse_slowly
        mcp.start("locked")
        assert mcp.servers["locked"].state == "ready"
        mcp.locked.whoami()


def test_where_nobody_can_be_asked_a_login_fails_at_once() -> None:
    with running() as server, hosting() as mcp:
        with pytest.raises(AuthError) as failure:
            mcp.load({"locked": {"url": server.url}})
        domain = server.origin.removeprefix("http://")
        assert failure.value._two_lines() == [
            f"AuthError: locked: needs a login at {domain}, and no one can be asked",
            "  %mcp start locked",
        ]
