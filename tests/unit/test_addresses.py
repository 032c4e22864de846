"""IP addresses that a server names are checked when they are resolved, not as text."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import httpcore
import pytest

from ipymcp.errors import AuthError, ConfigError
from ipymcp.protocol.oauth.http import MetadataClient, fetch
from ipymcp.protocol.transports.addresses import OutOfReach, Zone, zone_of
from ipymcp.protocol.transports.network import TLS_ENDED, Network

OF_THIS_MACHINE = ("127.1", "0", "0x7f000001", "2130706433", "0.0.0.0")
"""Notations of this machine's IPv4 address."""
ZONES = {
    Zone.PUBLIC: ("8.8.8.8", "2606:4700::1111", "134744072"),
    Zone.PRIVATE: ("10.1.2.3", "192.168.1", "100.64.0.1", "198.18.0.1", "fd00::1", "::ffff:10.0.0.1"),
    Zone.LOCAL: (
        *(*OF_THIS_MACHINE, "127.0.0.1", "0177.0.0.1", "0x7f.1", "localhost", "LOCALHOST.", "a.localhost"),
        *("[::]", "::1", "[::ffff:127.0.0.1]", "::ffff:7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::"),
        *("169.254.169.254", "fe80::1%eth0", "224.0.0.1"),
    ),
    None: ("notlocalhost", "example.com"),
}


@pytest.mark.parametrize(("host", "zone"), [(host, zone) for zone, hosts in ZONES.items() for host in hosts])
def test_the_zone_of_an_address(host: str, zone: Zone | None) -> None:
    assert zone_of(host) is zone


def test_the_addresses_of_this_machines_interfaces_are_on_this_machine() -> None:
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    assert {zone_of(str(address)) for address in own} == {Zone.LOCAL}


@contextlib.contextmanager
def listening() -> Iterator[tuple[int, list[object]]]:
    """A port on all of this machine's IPv4 addresses, and the connections to it: complete once the block is left."""
    visitors: list[object] = []
    with socket.create_server(("0.0.0.0", 0)) as server, socket.socket() as last:
        last.bind(("127.0.0.1", 0))
        port, end = server.getsockname()[1], last.getsockname()

        def accept() -> None:
            while True:
                connection, address = server.accept()
                connection.close()
                if address == end:
                    return
                visitors.append(address)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield port, visitors
        finally:
            last.connect(("127.0.0.1", port))  # accepted after all earlier visitors
            thread.join()


class ScriptedResolver(asyncio.SelectorEventLoop):
    """A loop whose resolver gives the next of some answers each time it is asked."""

    def __init__(self, answers: list[list[str]]) -> None:
        super().__init__()
        self.answers = answers

    async def getaddrinfo(self, host: Any, port: Any, **kwargs: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.answers.pop(0)]


def run_resolving(answers: list[list[str]], coroutine: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=lambda: ScriptedResolver(answers)) as runner:
        return runner.run(coroutine)


@pytest.mark.parametrize("host", [*OF_THIS_MACHINE, "::ffff:127.0.0.1", "localhost", socket.gethostname()])
def test_no_notation_of_this_machines_address_is_connected_to(host: str) -> None:
    with listening() as (port, visitors), pytest.raises(OutOfReach):
        asyncio.run(Network(Zone.PRIVATE).connect_tcp(host, port))
    assert visitors == []


@pytest.mark.parametrize(
    ("answers", "place"),
    [
        ([["127.0.0.1", "127.0.0.2"]], "(127.0.0.1) is on this machine"),
        ([["127.0.0.1", "10.255.255.1"], ["127.0.0.1"]], "(10.255.255.1) is in a private network"),
    ],
)
def test_a_name_is_resolved_once_and_not_connected_to_where_it_leads_out_of_reach(
    answers: list[list[str]], place: str
) -> None:
    unused = answers[1:]
    with listening() as (port, visitors), pytest.raises(OutOfReach) as caught:
        run_resolving(answers, Network(Zone.PUBLIC).connect_tcp("rebind.example", port, 5))
    assert (visitors, answers) == ([], unused)
    assert caught.value.message == f"rebind.example {place}, but the server is not"


def test_a_server_on_this_machine_may_name_any_address() -> None:
    async def visit(port: int) -> None:
        stream = await Network().connect_tcp("127.1", port)
        await stream.aclose()

    with listening() as (port, visitors):
        asyncio.run(visit(port))
    assert len(visitors) == 1


@pytest.mark.parametrize("host", [*OF_THIS_MACHINE, "[::]", "[::ffff:127.0.0.1]", "0177.0.0.1", socket.gethostname()])
def test_metadata_of_a_remote_server_does_not_reach_this_machine(host: str) -> None:
    web = MetadataClient(fetch, loopback=False)
    web.answered_from("10.0.0.1")
    with listening() as (port, visitors), pytest.raises(AuthError) as caught:
        asyncio.run(web.document(f"https://{host}:{port}/", "the server's metadata"))
    assert visitors == []
    assert caught.value.message.startswith("cannot log in: ")
    assert "\n" not in caught.value.message


def test_hosts_that_the_user_has_configured_may_have_any_address() -> None:
    host = socket.gethostname()
    with listening() as (port, visitors), pytest.raises(AuthError):
        web = MetadataClient(fetch, loopback=False, trusted=frozenset({f"{host}:{port}"}))
        asyncio.run(web.document(f"https://{host}:{port}/", "the server's metadata"))
    assert len(visitors) == 1  # and answered no TLS


def test_an_invalid_ip_address_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError) as caught:
        asyncio.run(fetch("GET", "https://0177.0.0.1/", {}, b"", reach=Zone.LOCAL))
    assert caught.value.message == (
        "'https://0177.0.0.1/' is not the address of an HTTP server (Invalid IPv4 address: '0177.0.0.1')"
    )


def test_a_closed_connection_fails_without_waiting_for_a_tls_handshake() -> None:
    async def encrypt(port: int) -> None:
        stream = await Network().connect_tcp("127.0.0.1", port)
        assert await stream.read(1) == b""
        await stream.start_tls(ssl.create_default_context(), "127.0.0.1")

    with listening() as (port, _), pytest.raises(httpcore.ConnectError, match=f"^{TLS_ENDED}$"):
        asyncio.run(encrypt(port))
