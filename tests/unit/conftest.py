"""Fixtures that several test modules need."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.demo_peer import HANDSHAKE_VERSIONS, STATELESS, Judge, Peer

settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    judge = Judge()
    yield judge
    judge.close()


@pytest.fixture
def connect(judge: Judge):
    peers: list[Peer] = []

    def start(version: str = HANDSHAKE_VERSIONS[-1], *command: str, ask_for: str = "") -> Peer:
        peers.append(peer := Peer(judge, version, *command))
        if version != STATELESS:
            peer.handshake(ask_for or version)
        return peer

    yield start
    for peer in peers:
        peer.process.kill()
        peer.process.wait()
        for stream in (peer.process.stdin, peer.process.stdout, peer.process.stderr):
            stream.close()
