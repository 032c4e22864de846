"""What several test modules need."""

from __future__ import annotations

import pytest

from tests.demo_peer import HANDSHAKE_VERSIONS, STATELESS, Peer


@pytest.fixture
def connect():
    peers: list[Peer] = []

    def start(version: str = HANDSHAKE_VERSIONS[-1], *command: str, ask_for: str = "") -> Peer:
        peers.append(peer := Peer(version, *command))
        if version != STATELESS:
            peer.handshake(ask_for or version)
        return peer

    yield start
    for peer in peers:
        peer.process.kill()
        peer.process.wait()
        for stream in (peer.process.stdin, peer.process.stdout, peer.process.stderr):
            stream.close()
