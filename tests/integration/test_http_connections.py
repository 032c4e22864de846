"""The ways to an HTTP server: names, TLS, proxies, unix sockets, redirects; and what a fork must let go of."""

import asyncio
import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipymcp.errors import CallError, ConfigError, ConnectionLost, McpError
from ipymcp.protocol.transports import http_client
from tests.servers.raw_http import Reply, Request, serving_raw
from tests.serving import reserved_port
from tests.transports.certificates import self_signed
from tests.transports.http import http, talking
from tests.transports.recorder import opened, request

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def refusal(url: str) -> McpError:
    transport = http(url)
    async with opened(transport, handshake=False) as recorder:
        transport.send(request(1))
        with pytest.raises(McpError) as caught:
            await recorder.answer(1)
        error = caught.value
        assert recorder.unreachables == ([error.message] if isinstance(error, ConnectionLost) else [])
        return error


async def says(url: str) -> str:
    transport = http(url)
    async with opened(transport, handshake=False) as recorder:
        transport.send(request(1))
        return await recorder.answer(1)


# -- names and TLS ----------------------------------------------------------------------------------------------------


async def test_an_unknown_host_name_is_an_error() -> None:
    error = await refusal("http://nowhere.invalid/mcp")
    assert isinstance(error, ConnectionLost)
    assert error.message.startswith("cannot connect to http://nowhere.invalid/mcp: unknown host name (")
    assert error.hint == "check the URL and the network"


async def test_a_self_signed_certificate_is_refused_unless_it_is_in_ssl_cert_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, certificate = self_signed(tmp_path)
    async with serving_raw(tls=tls) as server:
        error = await refusal(server.url)
        assert error.message == (
            f"cannot connect to {server.url}: TLS: certificate verify failed: self-signed certificate"
        )
        assert error.hint == "if you trust this server, name its CA in SSL_CERT_FILE"
        assert server.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert await says(server.url) == "done"


async def test_a_certificate_that_has_expired_is_refused_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, certificate = self_signed(tmp_path, valid_for=datetime.timedelta(days=-1))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with serving_raw(tls=tls) as server:
        error = await refusal(server.url)
        assert error.message.endswith("TLS: certificate verify failed: certificate has expired")


@pytest.mark.parametrize(
    ("answers", "words"),
    [(True, ("wrong version number", "record layer failure")), (False, ("the server ended the handshake",))],
)
async def test_https_to_a_server_without_tls_is_an_error(answers: bool, words: tuple[str, ...]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if answers:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await reader.read()
        writer.transport.abort()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        error = await refusal(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp")
        assert error.message.rpartition("/mcp: TLS: ")[2] in words
        assert error.hint == "is it http:// rather than https://?"


async def test_a_server_that_does_not_answer_to_tls_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(http_client._EXTENSIONS, "timeout", {"connect": 0.2})
    async with serving_raw() as server:
        error = await refusal(server.url.replace("http:", "https:"))
        assert error.message.endswith("/mcp: no connection within 10 s")


# -- proxies ----------------------------------------------------------------------------------------------------------


async def test_http_proxy_is_used_except_for_the_hosts_in_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_raw() as proxy, serving_raw() as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.origin)
        assert await says("http://far.invalid/mcp") == "done"
        assert proxy.asked("tools/call")[0].target == "http://far.invalid/mcp"

        monkeypatch.setenv("NO_PROXY", "127.0.0.1,other.invalid")
        proxy.requests.clear()
        assert await says(server.url) == "done"
        assert proxy.requests == []


async def test_a_proxy_that_does_not_run_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with reserved_port() as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        error = await refusal("http://far.invalid/mcp")
    assert error.message == ("cannot connect to http://far.invalid/mcp through the proxy 127.0.0.1: connection refused")


# -- unix sockets and URLs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "path"), [("", "/mcp"), (":/other/path", "/other/path")])
async def test_a_unix_socket_is_an_address(tmp_path: Path, suffix: str, path: str) -> None:
    socket = str(tmp_path / "server.sock")
    async with serving_raw(socket=socket) as server:
        assert await says(f"unix://{socket}{suffix}") == "done"
        assert {asked.target for asked in server.requests} == {path}
        assert {asked.headers["host"] for asked in server.requests} == {"localhost"}


async def test_a_missing_unix_socket_is_an_error(tmp_path: Path) -> None:
    error = await refusal(f"unix://{tmp_path}/none.sock")
    assert error.message == f"cannot connect to unix://{tmp_path}/none.sock: no such socket"


@pytest.mark.parametrize(
    "url", ["ftp://host/mcp", "host/mcp", "http://", "http://host:port/", "http://a b/", "unix://x"]
)
def test_an_invalid_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        http(url)
    assert caught.value.message == f"{url!r} is not the address of an HTTP server"
    assert caught.value.hint == "http://…, https://… or unix:///path/to.sock:/mcp"


def test_a_header_that_cannot_be_sent_is_refused_without_its_value() -> None:
    with pytest.raises(ConfigError, match=r"^the value of the header X-Key contains a line break$"):
        http("http://host/mcp", **{"X-Key": "secret\r\nInjected: yes"})
    with pytest.raises(ConfigError, match=r"^'X Key' is not a valid header name$"):
        http("http://host/mcp", **{"X Key": "secret"})


async def test_a_name_and_a_password_in_the_url_become_a_header_and_are_not_shown() -> None:
    with reserved_port() as port:
        async with serving_raw(port=port) as server:
            assert await says(server.url.replace("//", "//ada:s%40cret@")) == "done"
            assert server.requests[0].headers["authorization"] == "Basic YWRhOnNAY3JldA=="
        error = await refusal(server.url.replace("//", "//ada:s%40cret@") + "?key=hidden")
    assert error.message == f"cannot connect to {server.url}: connection refused"


# -- redirects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent"])
async def test_a_redirect_within_the_origin_is_followed_by_the_same_post(status: str) -> None:
    async def redirect(asked: Request, reply: Reply) -> None:
        if asked.target == "/mcp":
            await reply.full(status, b"moved", Location="/mcp/")
        else:
            await reply.result(f"{asked.method} {asked.target}")

    async with serving_raw({"tools/call": redirect}) as server:
        assert await says(server.url) == "POST /mcp/"
        assert server.most_connections <= 2


async def test_a_redirect_to_another_origin_is_not_followed_and_both_are_named() -> None:
    async with serving_raw() as other, serving_raw() as server:
        server.handlers["POST"] = lambda _, reply: reply.full("307 Temporary Redirect", Location=other.url)
        error = await refusal(server.url)
        assert isinstance(error, CallError)
        assert error.message == (
            f"the server at {server.origin} redirects to another origin, {other.origin}: not followed"
        )
        assert error.hint == "if that is right, load the server by that address"
        assert other.requests == []


async def test_redirects_without_end_are_an_error() -> None:
    async with serving_raw() as server:
        server.handlers["POST"] = lambda _, reply: reply.full("302 Found", Location="/mcp")
        error = await refusal(server.url)
        assert error.message == f"{server.url} redirects too often"
        assert len(server.requests) < 10


# -- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_child_holds_no_connection_of_its_parent() -> None:
    closed = asyncio.Event()

    async def slow(_: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event()
        await reply.closed()
        closed.set()

    async with talking({"tools/call": slow}) as (server, transport, recorder):
        transport.send(request(1, Mcp_Method="tools/call"))
        transport.send(request(2, method="ping"))
        await server.wait_for("tools/call")
        await recorder.until(lambda: recorder.answers(2))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            transport.close_in_fork()
            os.close(writer)
            os.read(reader, 1)  # until the parent closes its end
            os._exit(0)
        os.close(reader)
        try:
            assert transport.abort(1)
            await asyncio.wait_for(closed.wait(), 10)  # the child lives, and the server sees the end all the same
            transport.send(request(3, method="ping"))
            await recorder.until(lambda: recorder.answers(3))
        finally:
            os.close(writer)
            os.waitpid(child, 0)


def test_httpx_is_imported_when_a_server_is_opened_and_not_before() -> None:
    program = """
import asyncio, sys
import ipymcp.protocol.transports.http as http
from tests.transports.recorder import Recorder
transport = http.StreamableHttpTransport("http://127.0.0.1:9/mcp", headers={}, authorizer=None, limit=1)
assert not {"httpx", "httpcore", "anyio"} & set(sys.modules)
asyncio.run(transport.open(Recorder()))
assert "httpx" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
