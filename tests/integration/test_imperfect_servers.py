"""Servers, load balancers and proxies that do not keep to the specification, as they are met in the field."""

import asyncio
import base64
import contextlib
import gzip
import importlib
import json
import queue
import socket
import ssl
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpcore
import pytest

import ipymcp
from ipymcp.errors import ArgumentError, AuthError, ConfigError, McpError, RpcError, StartError
from ipymcp.protocol.oauth.clients import registered_method
from ipymcp.protocol.oauth.discovery import authorization_server
from ipymcp.protocol.oauth.http import MetadataClient
from ipymcp.protocol.transports import http, http_client, network, remote
from ipymcp.protocol.transports.http_client import SOCKSError
from ipymcp.results.content import read_part
from ipymcp.schema.tool_schema import ToolSchema
from tests.oauth_user import MemoryTokenStore, ScriptedUser, oauth, send
from tests.processes import wait_until
from tests.servers.oauth_server import Behaviour, OAuthServer, running
from tests.servers.site import Heard, Reply, result, serving
from tests.transports.recorder import opened, request

INFO = {"name": "s", "version": "1"}
ECHO = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def legacy(heard: Heard) -> Reply:
    """The answers of a small server of the handshake era."""
    match heard.method:
        case "initialize":
            return Reply(result(heard, protocolVersion="2025-11-25", capabilities={"tools": {}}, serverInfo=INFO))
        case "tools/list":
            return Reply(result(heard, tools=[ECHO]))
        case "tools/call":
            return Reply(
                result(heard, content=[{"type": "text", "text": heard.message["params"]["arguments"]["text"]}])
            )
        case method if method.startswith("notifications/"):
            return Reply(status=202)
        case _:
            return Reply(status=404)


@pytest.mark.parametrize("is_answered", [False, True], ids=["no response", "a response that stays open"])
def test_a_notification_that_is_never_done_delays_no_later_message(
    is_answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def answer(heard: Heard) -> Reply:
        if heard.method != "notifications/initialized":
            return legacy(heard)
        if not is_answered:
            over.wait(60)
        return Reply(events=[lambda: over.wait(60)])

    if not is_answered:
        monkeypatch.setattr(remote, "_PREDECESSOR_TIMEOUT", 0.2)
    with serving(answer) as site, ipymcp.connect({"s": {"url": site.url}}) as mcp:
        try:
            monkeypatch.setattr(remote, "_PREDECESSOR_TIMEOUT", 3600)
            assert [mcp.s.echo(str(number)).text for number in range(3)] == ["0", "1", "2"]
            waited = "notifications/initialized was not answered within 0.2 s; no longer waiting for it"
            assert [row["text"] for row in mcp.servers["s"].logs()].count(waited) == (0 if is_answered else 1)
        finally:
            over.set()


class Balancer:
    """Two nodes, each with sessions of its own, behind one address; a cookie leads back to a node."""

    def __init__(self, cookie: str) -> None:
        self.cookie = cookie
        self.sessions: dict[str, str] = {}
        self.turn = 0
        self.cookies: list[str | None] = []

    def answer(self, heard: Heard) -> Reply:
        sent = heard.headers.get("cookie")
        self.cookies.append(sent)
        node = sent.rpartition("node=")[2][:1] if sent and "node=" in sent else str(self.turn % 2)
        self.turn += 1
        if heard.method == "server/discover":
            return Reply(status=404)
        if heard.method == "initialize":
            self.sessions[f"session-{self.turn}"] = node
            reply = legacy(heard)
            headers = {"Mcp-Session-Id": f"session-{self.turn}", "Set-Cookie": self.cookie.format(node=node)}
            return Reply(reply.message, headers=headers)
        if self.sessions.get(heard.headers.get("mcp-session-id", "")) != node:
            return Reply(status=404)
        return legacy(heard)


@pytest.mark.parametrize(
    "cookie",
    [
        "node={node}; Path=/",
        "node={node}; Domain=example.org; Path=/elsewhere; Secure; HttpOnly; SameSite=None",
        "node={node}; Expires=Wed, 21 Oct 2037 07:28:00 GMT; Max-Age=604800",
    ],
)
def test_the_cookie_of_a_load_balancer_leads_back_to_the_node_of_the_session(cookie: str) -> None:
    balancer = Balancer(cookie)
    with serving(balancer.answer) as site, ipymcp.connect({"s": {"url": site.url}}) as mcp:
        assert [mcp.s.echo(str(number)).text for number in range(4)] == ["0", "1", "2", "3"]
    assert len(balancer.sessions) == 1
    assert set(balancer.cookies[2:]) == {f"node={balancer.sessions['session-2']}"}


def test_a_cookie_joins_those_of_the_definition_and_is_forgotten_with_the_session() -> None:
    balancer = Balancer("node={node}")
    with serving(balancer.answer) as site:
        definition = {"url": site.url, "headers": {"Cookie": "own=1"}}
        with ipymcp.connect({"s": definition}) as mcp:
            node = balancer.sessions["session-2"]
            balancer.sessions.clear()
            balancer.cookies.clear()
            assert mcp.s.echo("again").text == "again"
    assert balancer.cookies[:2] == [f"own=1; node={node}", "own=1"], "the call, and the handshake of a new session"


def test_a_cookie_is_masked_in_errors_and_logs_like_a_token() -> None:
    cookie = "c2Vzc2lvbi1vZi1hLXVzZXI0Mg"

    def answer(heard: Heard) -> Reply:
        if heard.method == "initialize":
            return Reply(legacy(heard).message, headers={"Set-Cookie": f"sid={cookie}; HttpOnly"})
        if heard.method == "tools/call":
            return Reply(status=500, body=f"no such session: {heard.headers['cookie']}".encode())
        return legacy(heard)

    with serving(answer) as site, ipymcp.connect({"s": {"url": site.url, "era": "legacy"}}) as mcp:
        with pytest.raises(McpError) as caught:
            mcp.s.echo("x")
        assert any("no such session: sid=" in line for line in caught.value._render_traceback_())
        assert cookie not in "".join(caught.value._render_traceback_())
        assert cookie not in str(mcp.servers["s"].logs())


def test_what_set_cookie_headers_mean() -> None:
    cookies = http_client.Cookies()
    cookies.store(
        ['a="1 2"', "a=1", "b=2; Max-Age=60", "c=3; expires=Wed, 21 Oct 2037 07:28:00 GMT", "no cookie", "=x"]
    )
    assert cookies.header == b"a=1; b=2; c=3"
    cookies.store(
        ["a=0; Max-Age=0; Expires=Wed, 21 Oct 2037 07:28:00 GMT", "c=; expires=Thu, 01 Jan 1970 00:00:00 GMT"]
    )
    assert cookies.header == b"b=2"
    cookies.store(["b=x\r\nInjected: yes", f"d={'x' * 5000}", *(f"n{number}=1" for number in range(100))])
    assert b"\r" not in cookies.header and cookies.header.count(b"=") == 50
    cookies.clear()
    assert cookies.header == b""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("socks4://127.0.0.1:9", "the proxy in {} is of a kind that ipymcp does not support: socks4://"),
        ("ftp://user:password@proxy:21", "the proxy in {} is of a kind that ipymcp does not support: ftp://"),
        ("http://[::1", "the proxy in {} is not an address (InvalidURL)"),
        ("http://", "the proxy in {} is not an address (ValueError)"),
        ("http://proxy:99999", "the proxy in {} is not an address (ValueError)"),
        ("://", "the proxy in {} is of a kind that ipymcp does not support: ://"),
    ],
)
@pytest.mark.parametrize("name", ["HTTP_PROXY", "all_proxy"])
def test_a_proxy_that_cannot_be_used_is_an_error_that_names_the_variable(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        ipymcp.connect({"far": {"url": "http://far.invalid/mcp"}}).__enter__()
    assert caught.value.message == message.format(name)
    assert "NO_PROXY" in (caught.value.hint or "")


def test_socks_means_socks5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:7891/")
    proxy = http_client._environment_proxy(http_client._parse("http://far.invalid/mcp"))
    assert str(proxy.url) == "socks5://127.0.0.1:7891/"


@pytest.mark.parametrize(
    ("exceptions", "host", "is_direct"),
    [
        ("127.0.0.0/8", "127.0.0.1:8000", True),
        ("10.0.0.0/8, 127.0.0.0/8", "127.1.2.3", True),
        ("10.0.0.0/8", "127.0.0.1", False),
        ("fd00::/8", "[fd00::1]:80", True),
        ("::1", "[::1]:80", True),
        ("example.org", "www.example.org:8080", True),
        (".example.org", "example.org", True),
        ("example.org:8080", "example.org:8080", True),
        ("example.org:8081", "example.org:8080", False),
        ("nonsense/99,*", "example.org", False),
        ("*", "example.org", True),
    ],
)
def test_no_proxy_has_names_networks_and_ports(
    exceptions: str, host: str, is_direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", exceptions)
    proxy = http_client._environment_proxy(http_client._parse(f"http://{host}/mcp"))
    assert (proxy is None) == is_direct


# -- errors without an id ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stream", [False, True], ids=["JSON", "event stream"])
def test_an_error_without_an_id_is_the_error_of_the_post_that_it_answers(is_stream: bool) -> None:
    message = {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "text is too short"}}

    def answer(heard: Heard) -> Reply:
        if heard.method != "tools/call":
            return legacy(heard)
        return Reply(events=[message]) if is_stream else Reply(message)

    with (
        serving(answer) as site,
        ipymcp.connect({"s": {"url": site.url}}) as mcp,
        pytest.raises(RpcError, match="text is too short"),
    ):
        mcp.s.echo("a")


NULL_IDS = """
import json, sys
def say(**members):
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)
tool = {"name": "echo", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
info = {"name": "s", "version": "1"}
opened = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
results = {"initialize": opened, "tools/list": {"tools": [tool]}}
held = []
for line in sys.stdin:
    message = json.loads(line)
    method = message["method"]
    if method in results:
        say(id=message["id"], result=results[method])
    elif method == "tools/call":
        number = message["params"]["arguments"]["n"]
        if number == 0:
            say(id=None, error={"code": -32603, "message": "no zero"})
        else:
            held.append(message["id"])
        if len(held) == 2:
            say(id=None, error={"code": -32603, "message": "one of you failed"})
            for each in held:
                say(id=each, result={"content": [{"type": "text", "text": "done"}]})
    else:
        say(id=None, error={"code": -32601, "message": "Method not found: " + method})
"""


def test_over_stdio_an_error_without_an_id_is_that_of_the_only_call() -> None:
    server = {"command": sys.executable, "args": ["-c", NULL_IDS], "era": "legacy"}
    with ipymcp.connect({"s": server}) as mcp:
        with pytest.raises(RpcError, match="no zero"):
            mcp.s.echo(0)
        calls = [mcp.s.echo.submit(number) for number in (1, 2)]
        assert [call.result().text for call in calls] == ["done", "done"], "of two calls, neither is meant"


# -- pages of lists ----------------------------------------------------------------------------------------------------


def test_an_empty_cursor_leads_to_another_page_in_the_stateless_era_alone() -> None:
    first, second = ({**ECHO, "name": name} for name in ("first", "second"))

    def answer(heard: Heard, version: str) -> Reply:
        complete = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if heard.method == "server/discover" and version == "2026-07-28":
            known = {"supportedVersions": [version], "capabilities": {"tools": {}}}
            return Reply(result(heard, **known, **complete))
        if heard.method == "tools/list":
            is_next = "cursor" in heard.message.get("params", {})
            page = {"tools": [second]} if is_next else {"tools": [first], "nextCursor": ""}
            return Reply(result(heard, **page, **(complete if version == "2026-07-28" else {})))
        return legacy(heard)

    for version, names in (("2026-07-28", ["first", "second"]), ("2025-11-25", ["first"])):
        with serving(partial(answer, version=version)) as site, ipymcp.connect({"s": {"url": site.url}}) as mcp:
            assert [tool.name for tool in mcp.tools] == names


# -- content -----------------------------------------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
IN_URLS = base64.urlsafe_b64encode(PNG).decode()


@pytest.mark.parametrize("data", [IN_URLS, IN_URLS.rstrip("="), f"data:image/png;base64,{IN_URLS}"])
def test_base64_is_read_in_each_of_its_forms(data: str) -> None:
    image = read_part({"type": "image", "data": data, "mimeType": "image/png"})
    assert (image.data, image.display_type) == (PNG, "image/png")
    assert base64.b64decode(image.base64 + "==") == PNG, "what models and pages are sent"
    embedded = read_part({"type": "resource", "resource": {"uri": "x:y", "blob": data}})
    assert embedded.data == PNG


def test_content_that_is_not_base64_is_one_of_our_errors() -> None:
    with pytest.raises(McpError) as caught:
        _ = read_part({"type": "image", "data": "!", "mimeType": "image/png"}).data
    assert caught.value.message == "the content is not base64: Only base64 data is allowed"
    assert caught.value.hint == "a fault of the server; .raw has it"


def test_strings_and_lists_stand_for_parts() -> None:
    def answer(heard: Heard) -> Reply:
        text = {"type": "text", "text": "two"}
        match heard.method:
            case "initialize":
                reply = legacy(heard)
                reply.message["result"]["capabilities"]["prompts"] = {}
                return reply
            case "tools/call":
                return Reply(
                    result(
                        heard,
                        content=["one", text] if heard.message["params"]["arguments"]["text"] == "list" else "one",
                    )
                )
            case "prompts/list":
                return Reply(result(heard, prompts=[{"name": "greet"}]))
            case "prompts/get":
                return Reply(result(heard, messages=[{"role": "user", "content": ["one", text]}]))
        return legacy(heard)

    with serving(answer) as site, ipymcp.connect({"s": {"url": site.url}}) as mcp:
        assert (mcp.s.echo("list").text, mcp.s.echo("string").text) == ("one\ntwo", "one")
        assert [str(message.content) for message in mcp.s.prompts.greet().messages] == ["one", "two"]


def test_nullable_of_openapi_allows_none() -> None:
    text = {"type": "string", "nullable": True}
    choice = {"type": "string", "enum": ["a"], "nullable": True}
    plain = {"type": "boolean"}
    properties = {"text": text, "choice": choice, "nullable": plain, "many": {"type": "array", "items": text}}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    tool = ToolSchema(json.dumps(schema).encode(), server="s", tool="t")
    arguments = {"text": None, "choice": None, "nullable": True, "many": [None, "a"]}
    assert tool.bind((), arguments) == arguments
    with pytest.raises(ArgumentError, match="nullable: expected boolean, got None"):
        tool.bind((), {**arguments, "nullable": None})


# -- what the network and the libraries raise -------------------------------------------------------------------------


def library_errors() -> list[Exception]:
    """One of each error that sockets, TLS, compression and the HTTP libraries raise."""
    made: list[Exception] = [
        *(OSError(99, "Cannot assign requested address"), ConnectionResetError(104, "reset"), BrokenPipeError()),
        *(PermissionError(13, "denied"), socket.gaierror(-2, "Name or service not known"), socket.herror(1, "host")),
        *(UnicodeError("label too long"), UnicodeEncodeError("idna", "x", 0, 1, "label empty"), OverflowError("port")),
        *(ValueError("embedded null byte"), TimeoutError(), EOFError("cut"), zlib.error("incomplete"), SOCKSError("5")),
    ]
    for module in (ssl, httpcore):
        kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Exception)]
        made += [kind("raised") for kind in kinds if kind is not OSError]
    return made


def stages() -> dict[str, Any]:
    """The functions at the boundary, by what they are called."""
    loop = asyncio.BaseEventLoop
    stream = network._Stream
    handled = httpcore.AsyncHTTPConnection
    body = httpcore.Response
    return {
        "connecting": (loop, "create_connection"),
        "TLS": (loop, "start_tls"),
        "writing": (stream, "write"),
        "reading": (stream, "read"),
        "sending": (handled, "handle_async_request"),
        "a body": (body, "aiter_stream"),
    }


@pytest.mark.parametrize("stage", stages())
def test_no_error_of_the_network_or_a_library_is_called_a_bug(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name = stages()[stage]
    errors = library_errors()
    given: list[Exception] = []

    async def fail(stream: Any, *_: Any, **__: Any) -> Any:
        if stage == "writing":
            stream.abort()  # as a connection that cannot be written is
        given.append(errors[len(given) % len(errors)])
        raise given[-1]

    async def fail_midway(response: Any) -> Any:
        yield b'{"jsonrpc"'
        await fail(response)

    async def check(url: str) -> None:
        transport = http.StreamableHttpTransport(url, headers={}, authorizer=None, limit=10_000)
        async with opened(transport, handshake=False) as recorder:
            for identifier, _ in enumerate(errors, 1):
                transport.send(request(identifier, method="tools/list"))
                with pytest.raises(McpError) as caught:
                    await recorder.answer(identifier)
                assert "bug in ipymcp" not in caught.value.message, given[-1]

    with serving(legacy) as site:
        monkeypatch.setattr(owner, name, fail_midway if stage == "a body" else fail)
        monkeypatch.setattr(remote, "_SECOND_ATTEMPT", 0)
        asyncio.run(check(site.url.replace("http:", "https:") if stage == "TLS" else site.url))
    assert {type(error) for error in given} == {type(error) for error in errors}


@pytest.mark.parametrize(
    "error", [OSError(2, "no file"), ssl.SSLError(1, "bad file"), ValueError("bad"), UnicodeError()]
)
@pytest.mark.parametrize(
    "function", ["httpx.create_ssl_context", "httpcore.AsyncConnectionPool", "urllib.request.getproxies"]
)
def test_a_connection_that_cannot_be_prepared_is_a_config_error(
    function: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    module, _, name = function.rpartition(".")
    monkeypatch.setattr(importlib.import_module(module), name, fail)
    with (
        pytest.raises(ConfigError, match="cannot be prepared"),
        ipymcp.connect({"s": {"url": "https://a.example/mcp"}}),
    ):
        pass


# -- sessions that are gone --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "is_recovered"),
    [
        (400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Server not initialized"}}, True),
        (400, b"Invalid session", True),
        (404, b"", True),
        (409, {"error": "unknown session"}, True),
        (410, b"", True),
        (200, {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}, True),
        (400, b"malformed", False),
        (500, b"Session 1 not found", False),
        (401, b"Session expired", False),
        (200, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "session terminated"}}, False),
    ],
)
def test_a_stale_session_is_opened_again_once_where_the_server_has_done_nothing(
    status: int, body: object, is_recovered: bool
) -> None:
    is_restarted = threading.Event()
    sessions: list[str] = []

    def answer(heard: Heard) -> Reply:
        if heard.method == "initialize":
            sessions.append(f"session-{len(sessions)}")
            return Reply(legacy(heard).message, headers={"Mcp-Session-Id": sessions[-1]})
        is_stale = is_restarted.is_set() and heard.headers.get("mcp-session-id") == "session-0"
        content = {"body": body} if isinstance(body, bytes) else {"message": body}
        return Reply(status=status, **content) if is_stale else legacy(heard)

    with serving(answer) as site, ipymcp.connect({"s": {"url": site.url, "era": "legacy"}}) as mcp:
        is_restarted.set()
        if is_recovered:
            assert mcp.s.echo("again").text == "again"
            assert len(sessions) == 2
            return
        with pytest.raises(McpError) as caught:
            mcp.s.echo("again")
        says_restart = caught.value.hint == "%mcp restart s opens a new session"
        assert says_restart is ("ession" in str(body))
        assert len(sessions) == 1


# -- one worker --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def single_worker(seconds: float) -> Iterator[str]:
    """A server that does one thing at a time, and notices within `seconds` that its event stream is closed."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard = Heard("POST", self.path, {}, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if heard.method == "tools/list":
                streaming.wait(20)  # the other worker of the test: the stream was asked for first
            reply = legacy(heard)
            body = json.dumps(reply.message).encode() if reply.message else b""
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            streaming.set()
            with contextlib.suppress(OSError):
                while not is_over.wait(seconds):
                    self.wfile.write(b": ping\n\n")

        def do_DELETE(self) -> None:
            self.send_error(405)

        def log_message(self, format: str, *arguments: Any) -> None: ...

    class Server(HTTPServer):
        def process_request(self, request: Any, client_address: Any) -> None:
            threading.Thread(target=self._process, args=(request, client_address)).start()

        def _process(self, request: Any, client_address: Any) -> None:
            with worker:
                self.finish_request(request, client_address)
                self.shutdown_request(request)

    streaming, is_over, worker = threading.Event(), threading.Event(), threading.Semaphore(1)
    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        is_over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_stream_of_notifications_that_blocks_the_only_worker_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_BLOCKED_AFTER", 0.3)
    with single_worker(0.05) as url, ipymcp.connect({"s": {"url": url, "era": "legacy"}}) as mcp:
        assert [mcp.s.echo(text).text for text in "ab"] == ["a", "b"]
        logged = " ".join(row["text"] for row in mcp.servers["s"].logs())
        assert "closed that stream, in case the server has only one worker" in logged


def test_a_slow_answer_of_a_server_with_several_workers_costs_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_BLOCKED_AFTER", 0.1)
    monkeypatch.setattr(http, "_FREED_WITHIN", 0.05)
    streams: list[int] = []

    def answer(heard: Heard) -> Reply:
        if heard.verb == "GET":
            is_listed.wait(60)
            streams.append(len(streams))
            return Reply(events=[b": open\n\n", lambda: over.wait(60)])
        if heard.method == "tools/call":
            over.wait(0.5)
        return legacy(heard)

    is_listed, over = threading.Event(), threading.Event()
    with serving(answer, gets=True) as site, ipymcp.connect({"s": {"url": site.url, "era": "legacy"}}) as mcp:
        try:
            is_listed.set()  # so that nothing was answered beside the stream before the first call
            wait_until(lambda: bool(streams))
            time.sleep(0.05)  # its head arrives
            assert mcp.s.echo("slow").text == "slow"
            wait_until(lambda: len(streams) == 2)
            assert [mcp.s.echo("slow").text for _ in range(2)] == ["slow"] * 2
            assert len(streams) == 2
        finally:
            over.set()


# -- HTTP+SSE behind a proxy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_found", [True, False])
def test_an_endpoint_without_the_prefix_that_a_proxy_cuts(is_found: bool) -> None:
    over = threading.Event()
    answers: queue.Queue[Any] = queue.Queue()

    def stream() -> Iterator[Any]:
        yield b"event: endpoint\ndata: /messages/?session_id=hidden\n\n"
        while (message := answers.get()) is not None:
            yield message

    def answer(heard: Heard) -> Reply:
        if heard.verb == "GET":
            return Reply(events=stream())  # type: ignore[arg-type]
        if not (is_found and heard.path == "/gw/messages/?session_id=hidden"):
            return Reply(status=404)
        reply = legacy(heard)
        if reply.message:
            answers.put(reply.message)
        return Reply(status=202)

    with serving(answer, gets=True) as site:
        definition = {"url": f"{site.origin}/gw/sse", "transport": "sse"}
        try:
            if is_found:
                with ipymcp.connect({"s": definition}) as mcp:
                    assert mcp.s.echo("there").text == "there"
                    assert "hidden" not in " ".join(row["text"] for row in mcp.servers["s"].logs())
                    answers.put(None)
                return
            with pytest.raises(McpError) as caught, ipymcp.connect({"s": definition}):
                pass
            assert f"messages go to {site.origin}/messages/, as the server said" in caught.value.message
            assert "404" in caught.value.message and "hidden" not in caught.value.message
            assert caught.value.hint == "a proxy may cut the prefix /gw"
            assert [heard.path.partition("?")[0] for heard in site.heard if heard.verb == "POST"] == [
                "/messages/",
                "/gw/messages/",
            ]
        finally:
            answers.put(None)
            over.set()


# -- bodies that are not what they are labelled as ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "encode", "problem"),
    [
        ({"Content-Encoding": "br"}, bytes, "the response is compressed with br, unasked"),
        ({"Content-Encoding": "zstd"}, bytes, "the response is compressed with zstd, unasked"),
        ({}, gzip.compress, "the response is compressed with gzip, and does not say so"),
        ({}, lambda body: b"\x28\xb5\x2f\xfd" + body, "the response is compressed with zstd, and does not say so"),
        ({}, lambda body: b"event: message\ndata: " + body + b"\n\n", "is an event stream labelled application/json"),
        ({"Content-Encoding": "identity"}, bytes, ""),
        ({"Content-Encoding": "gzip"}, gzip.compress, ""),
    ],
)
def test_a_body_that_is_not_what_it_is_labelled_as_is_named(
    headers: dict[str, str], encode: Callable[[bytes], bytes], problem: str
) -> None:
    def answer(heard: Heard) -> Reply:
        reply = legacy(heard)
        if heard.method != "tools/call":
            return reply
        body = encode(json.dumps(reply.message).encode())
        return Reply(body=body, headers={"Content-Type": "application/json", **headers})

    with serving(answer) as site, ipymcp.connect({"s": {"url": site.url, "era": "legacy"}}) as mcp:
        if not problem:
            assert mcp.s.echo("read").text == "read"
            return
        with pytest.raises(McpError) as caught:
            mcp.s.echo("x")
        assert problem in caught.value.message


def test_what_an_answer_has_beyond_its_length_is_not_read_as_the_next_one() -> None:
    def answer(heard: Heard) -> Reply:
        reply = legacy(heard)
        if heard.method != "tools/call" or heard.message["params"]["arguments"]["text"] != "cut":
            return reply
        body = json.dumps(reply.message).encode()
        return Reply(body=body, headers={"Content-Type": "application/json", "Content-Length": f"{len(body) - 4}"})

    with serving(answer) as site, ipymcp.connect({"s": {"url": site.url, "era": "legacy"}}) as mcp:
        for _ in range(3):
            with pytest.raises(McpError):
                mcp.s.echo("cut")
            assert mcp.s.echo("whole").text == "whole"


# -- stderr ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "last"),
    [
        (r"'\r 12%|####  | 24/200' * 5000 + '\rRuntimeError: CUDA out of memory'", "RuntimeError: CUDA out of memory"),
        (r"'one\r\ntwo\r\n'", "two"),
        (r"'\rprogress\r\n' * 3 + 'reason\n'", "reason"),
        (r"'x' * 100_000 + ' the reason'", "the reason"),
    ],
)
def test_a_start_error_has_the_end_of_what_the_program_wrote(output: str, last: str) -> None:
    code = f"import sys; sys.stderr.write({output}); sys.exit(1)"
    with pytest.raises(StartError) as caught:
        ipymcp.connect({"s": {"command": sys.executable, "args": ["-c", code], "restart": "no"}}).__enter__()
    assert caught.value.stderr[-1].endswith(last)
    assert "24/200" not in caught.value.stderr[-1]


# -- logins ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["temporarily_unavailable", "server_error", "slow_down", "invalid_request"])
def test_a_refresh_that_fails_for_now_keeps_the_login(error: str) -> None:
    user, store = ScriptedUser(), MemoryTokenStore()

    async def check(server: OAuthServer) -> None:
        authorizer = oauth(server.url, user=user, store=store)
        await send(authorizer, server.url)
        server.tokens.clear()
        server.behaviour.token_error = {"error": error, "error_description": "busy"}
        with pytest.raises(AuthError) as caught:
            await send(authorizer, server.url)
        assert caught.value.message == f"{server.origin[7:]} refused the token request ({error}: busy)"
        assert caught.value.hint == "the login is kept: the next call tries to renew it again"
        assert store._tokens
        server.behaviour.token_error = None
        assert (await send(authorizer, server.url)).status_code == 200

    with running(Behaviour(issues_refresh_tokens=True)) as server:
        asyncio.run(check(server))
    assert len(user.requests) == 1


def test_a_secret_without_a_method_is_sent_as_basic() -> None:
    assert registered_method(None, "none", has_secret=True) == "client_secret_basic"
    assert registered_method(None, "client_secret_post", has_secret=True) == "client_secret_post"
    assert registered_method("client_secret_post", "none", has_secret=True) == "client_secret_post"
    assert registered_method("client_secret_basic", "none", has_secret=False) == "none"


@pytest.mark.anyio
async def test_tokens_are_read_from_a_form() -> None:
    async def fetch(*_: object, **__: object) -> tuple[int, dict[str, str], bytes]:
        form = "access_token=a-token&token_type=bearer&expires_in=60"
        return 200, {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}, form.encode()

    web = MetadataClient(fetch, loopback=True)
    reply = await web.post_form("http://127.0.0.1/token", {}, {}, "the token endpoint")
    assert reply.document == {"access_token": "a-token", "token_type": "bearer", "expires_in": "60"}


@pytest.mark.anyio
@pytest.mark.parametrize("slashes", [("", "/"), ("/", "")])
async def test_a_slash_at_the_end_of_an_issuer_is_no_difference(slashes: tuple[str, str]) -> None:
    named, own = (f"https://login.example/tenant{slash}" for slash in slashes)

    async def fetch(*_: object, **__: object) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, json.dumps({"issuer": own, "token_endpoint": "https://login.example/token"}).encode()

    server = await authorization_server(MetadataClient(fetch, loopback=False), named, "https://server.example/mcp")
    assert server.issuer == own
