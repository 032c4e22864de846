"""Fixtures that several test modules need."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from ipymcp.storage.database import Database
from tests.demo_peer import EVERY_VERSION, HANDSHAKE_VERSIONS, Judge, Peer

settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "state.db")
    yield database
    database.close(10)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    judge = Judge()
    yield judge
    judge.close()


@pytest.fixture
def connect(judge: Judge) -> Iterator[Callable[..., Peer]]:
    """Start a demo server and connect to it."""
    peers: list[Peer] = []

    def start(version: str = HANDSHAKE_VERSIONS[-1], *command: str, ask_for: str = "") -> Peer:
        peers.append(peer := Peer(judge, version, *command, ask_for=ask_for))
        return peer

    yield start
    for peer in peers:
        peer.kill()


@pytest.fixture(scope="session")
def shared_peers(judge: Judge) -> Iterator[dict[str, Peer]]:
    peers = {version: Peer(judge, version) for version in EVERY_VERSION}
    yield peers
    for peer in peers.values():
        peer.kill()


@pytest.fixture
def peer(request: pytest.FixtureRequest, shared_peers: dict[str, Peer]) -> Peer:
    """A connection to a demo server of a version, shared by the tests that leave nothing behind in it."""
    return shared_peers[getattr(request, "param", HANDSHAKE_VERSIONS[-1])]
