"""IP addresses that a server may name are checked when they are resolved, not as text."""

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


@pytest.mark.parametrize(
    ("host", "zone"),
    [
        ("8.8.8.8", Zone.PUBLIC),
        ("2606:4700::1111", Zone.PUBLIC),
        ("134744072", Zone.PUBLIC),
        ("10.1.2.3", Zone.PRIVATE),
        ("192.168.1", Zone.PRIVATE),
        ("100.64.0.1", Zone.PRIVATE),
        ("198.18.0.1", Zone.PRIVATE),
        ("fd00::1", Zone.PRIVATE),
        ("::ffff:10.0.0.1", Zone.PRIVATE),
        ("127.0.0.1", Zone.LOCAL),
        ("127.1", Zone.LOCAL),
        ("0177.0.0.1", Zone.LOCAL),
        ("0x7f.1", Zone.LOCAL),
        ("0x7f000001", Zone.LOCAL),
        ("2130706433", Zone.LOCAL),
        ("0", Zone.LOCAL),
        ("0.0.0.0", Zone.LOCAL),
        ("[::]", Zone.LOCAL),
        ("::1", Zone.LOCAL),
        ("[::ffff:127.0.0.1]", Zone.LOCAL),
        ("::ffff:7f00:1", Zone.LOCAL),
        ("64:ff9b::7f00:1", Zone.LOCAL),
        ("2002:7f00:1::", Zone.LOCAL),
        ("169.254.169.254", Zone.LOCAL),
        ("fe80::1%eth0", Zone.LOCAL),
        ("224.0.0.1", Zone.LOCAL),
        ("localhost", Zone.LOCAL),
        ("LOCALHOST.", Zone.LOCAL),
        ("a.localhost", Zone.LOCAL),
        ("notlocalhost", None),
        ("example.com", None),
    ],
)
def test_how_close_an_address_is(host: str, zone: Zone | None) -> None:
    assert zone_of(host) is zone


def test_the_addresses_of_this_machines_interfaces_are_on_this_machine() -> None:
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    assert {zone_of(str(address)) for address in own} == {Zone.LOCAL}


@contextlib.contextmanager
def listening() -> Iterator[tuple[int, list[object]]]:
    """A port on all of this machine's IPv4 addresses, and who connected to it: complete once the block is left."""
    visitors: list[object] = []
    with socket.create_server(("0.0.0.0", 0)) as server, socket.socket() as last:
        last.bind(("127.0.0.1", 0))
        port, end = server.getsockname()[1], last.getsockname()

        def accept() -> None:
            while True:
                connection, who = server.accept()
                connection.close()
                if who == end:
                    return
                visitors.append(who)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield port, visitors
        finally:
            last.connect(("127.0.0.1", port))  # accepted after all earlier visitors
            thread.join()


class Resolving(asyncio.SelectorEventLoop):
    """A loop whose resolver gives the next of some answers each time it is asked."""

    def __init__(self, answers: list[list[str]]) -> None:
        super().__init__()
        self.answers = answers

    async def getaddrinfo(self, host: Any, port: Any, **kwargs: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.answers.pop(0)]


def resolved(answers: list[list[str]], coroutine: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=lambda: Resolving(answers)) as runner:
        return runner.run(coroutine)


@pytest.mark.parametrize("host", ["127.1", "0", "0x7f000001", "2130706433", "0.0.0.0", "::ffff:127.0.0.1", "localhost"])
def test_no_notation_of_this_machines_address_is_connected_to(host: str) -> None:
    with listening() as (port, visitors), pytest.raises(OutOfReach):
        asyncio.run(Network(Zone.PRIVATE).connect_tcp(host, port))
    assert visitors == []


def test_this_machines_own_name_is_not_connected_to() -> None:
    with listening() as (port, visitors), pytest.raises(OutOfReach):
        asyncio.run(Network(Zone.PRIVATE).connect_tcp(socket.gethostname(), port))
    assert visitors == []


def test_a_name_that_leads_to_this_machine_is_not_connected_to() -> None:
    with listening() as (port, visitors), pytest.raises(OutOfReach) as caught:
        resolved([["127.0.0.1", "127.0.0.2"]], Network(Zone.PUBLIC).connect_tcp("rebind.example", port, 5))
    assert visitors == []
    assert caught.value.message == "rebind.example (127.0.0.1) is on this machine, but the server is not"


def test_a_name_is_resolved_once_for_the_judgement_and_the_connection() -> None:
    with listening() as (port, visitors):
        answers = [["127.0.0.1", "10.255.255.1"], ["127.0.0.1"]]
        with pytest.raises(OutOfReach) as caught:
            resolved(answers, Network(Zone.PUBLIC).connect_tcp("rebind.example", port, 5))
        assert answers == [["127.0.0.1"]]
        assert visitors == []
    assert caught.value.message == "rebind.example (10.255.255.1) is in a private network, but the server is not"


def test_where_the_server_is_on_this_machine_too_everything_may_be_connected_to() -> None:
    with listening() as (port, visitors):
        stream: Any = asyncio.run(Network().connect_tcp("127.1", port))
        assert stream is not None
    assert len(visitors) == 1


@pytest.mark.parametrize(
    "host", ["127.1", "0", "[::]", "[::ffff:127.0.0.1]", "0x7f000001", "2130706433", "0.0.0.0", "0177.0.0.1", "<own>"]
)
def test_metadata_of_a_server_elsewhere_does_not_reach_this_machine(host: str) -> None:
    host = socket.gethostname() if host == "<own>" else host
    web = MetadataClient(fetch, loopback=False)
    web.answered_from("10.0.0.1")
    with listening() as (port, visitors), pytest.raises(AuthError) as caught:
        asyncio.run(web.document(f"https://{host}:{port}/", "the server's metadata"))
    assert visitors == []
    assert caught.value.message.startswith("cannot log in: ")
    assert "\n" not in caught.value.message


def test_hosts_that_the_user_has_configured_may_be_anywhere() -> None:
    host = socket.gethostname()
    with listening() as (port, visitors), pytest.raises(AuthError):
        web = MetadataClient(fetch, loopback=False, trusted=frozenset({f"{host}:{port}"}))
        asyncio.run(web.document(f"https://{host}:{port}/", "the server's metadata"))
    assert len(visitors) == 1  # and answered no TLS


def test_an_address_that_is_none_is_said() -> None:
    with pytest.raises(ConfigError) as caught:
        asyncio.run(fetch("GET", "https://0177.0.0.1/", {}, b"", reach=Zone.LOCAL))
    assert caught.value.message == (
        "'https://0177.0.0.1/' is not the address of an HTTP server (Invalid IPv4 address: '0177.0.0.1')"
    )


def test_a_peer_that_has_gone_is_said_without_waiting_for_a_tls_handshake() -> None:
    async def encrypt(port: int) -> None:
        stream = await Network().connect_tcp("127.0.0.1", port)
        assert await stream.read(1) == b""
        await stream.start_tls(ssl.create_default_context(), "127.0.0.1")

    with listening() as (port, _), pytest.raises(httpcore.ConnectError, match=f"^{TLS_ENDED}$"):
        asyncio.run(encrypt(port))
