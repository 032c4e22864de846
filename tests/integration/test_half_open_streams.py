"""A stream that was lost on the way, as by a NAT or a VPN: neither end sees it close, and nothing arrives."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ipymcp import errors
from tests.bad_servers import QUICK, News, connected
from tests.environments import server_command
from tests.integration.leaks import nothing_leaks  # noqa: F401 - a fixture
from tests.serving import serving

IMPATIENT = msgspec.structs.replace(QUICK, check=1.0)


class Relay:
    """A TCP relay to a port. Its connections can be cut without closing them at either end."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._is_cut: list[threading.Event] = []
        self._sockets: list[socket.socket] = []
        self._is_closed = False
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._keep(near)
                far, cut = socket.create_connection(("127.0.0.1", self._behind)), threading.Event()
                self._keep(far)
                self._is_cut.append(cut)
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=(source, target, cut), daemon=True).start()

    def _keep(self, connection: socket.socket) -> None:
        """Close a connection with the relay; one that came while it was closed, at once."""
        with self._lock:
            self._sockets.append(connection)
            if self._is_closed:
                connection.close()

    def cut(self) -> None:
        for cut in self._is_cut:
            cut.set()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for each in (self._listener, *self._sockets):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()


def _pass_on(source: socket.socket, target: socket.socket, cut: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            if not cut.is_set():
                target.sendall(chunk)
        if not cut.is_set():
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[tuple[Relay, str]]:
    with (
        serving(lambda port: server_command("sdk1", "--sse", str(port)), tmp_path) as server,
        contextlib.closing(Relay(server.port)) as relay,
    ):
        yield relay, f"http://127.0.0.1:{relay.port}/sse"


def test_a_legacy_stream_that_was_lost_on_the_way_is_replaced(relay: tuple[Relay, str]) -> None:
    connections, url = relay
    with connected({"far": {"url": url}}, timing=IMPATIENT) as mcp, News(mcp) as news:
        mcp.far.echo("before")
        connections.cut()
        with pytest.raises(errors.CallTimeout):
            mcp.far.echo.options(timeout=0.5)("lost")
        news.until(lambda: news.says("its stream is silent, but it answers on a new connection"))
        assert "after" in mcp.far.echo("after").text
        assert mcp.servers["far"].state == "ready"
        assert mcp.servers["far"].error == ""
