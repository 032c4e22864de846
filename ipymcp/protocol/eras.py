"""What differs between the eras of MCP.

Handshake era (2024-11-05 to 2025-11-25): `initialize` settles version and capabilities once for the connection, and
the server may send requests of its own. Stateless era (2026-07-28): every request carries version, client and
capabilities in `_meta`, and the server sends no requests.

Source: MCP 2025-11-25 lifecycle; 2026-07-28 basic (the `_meta` fields) and versioning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ipymcp.protocol import wire

__all__ = ["HANDSHAKE_VERSIONS", "STATELESS_VERSIONS", "Era", "Identity", "handshake", "stateless"]

HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Newest first; the first is what `initialize` offers."""
STATELESS_VERSIONS = ("2026-07-28",)

_EXTENSIONS: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
"""What the engine can do for whoever uses it, declared with every request."""
_META = "io.modelcontextprotocol/"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we say we are."""

    name: str
    version: str

    @property
    def info(self) -> dict[str, str]:
        """The `Implementation` object of the specification."""
        return {"name": self.name, "version": self.version}


@dataclass(frozen=True, slots=True)
class Era:
    """How requests are dressed once the version is known."""

    kind: Literal["handshake", "stateless"]
    version: str
    envelope: bytes
    """The members every request's `_meta` begins with, as JSON without braces; empty in the handshake era."""

    def params(self, body: bytes, *, progress_token: int | None = None, log_level: str | None = None) -> bytes:
        """The `params` member for a request, from its own members.

        Args:
            body: A JSON object, such as `b'{"name":"echo"}'`.
            progress_token: Ask for progress under this token.
            log_level: Stateless era: ask for log messages of this call.
        """
        members = [self.envelope] if self.envelope else []
        if log_level is not None and self.kind == "stateless":
            members.append(b'"%slogLevel":"%s"' % (_META.encode(), log_level.encode()))
        if progress_token is not None:
            members.append(b'"progressToken":%d' % progress_token)
        if not members:
            return body
        comma = b"" if body == b"{}" else b","
        return b'%s%s"_meta":{%s}}' % (body[:-1], comma, b",".join(members))


def handshake(version: str) -> Era:
    """The era of an `initialize`d connection."""
    return Era("handshake", version, b"")


def stateless(version: str, identity: Identity, capabilities: dict[str, Any]) -> Era:
    """The era in which every request says everything.

    Args:
        version: One of `STATELESS_VERSIONS`.
        identity: Who we are.
        capabilities: What we declare, as `ClientCapabilities`.
    """
    extensions = {**capabilities.get("extensions", {}), **_EXTENSIONS}
    members = {
        _META + "protocolVersion": version,
        _META + "clientInfo": identity.info,
        _META + "clientCapabilities": {**capabilities, "extensions": extensions},
    }
    return Era("stateless", version, wire.encode(members)[1:-1])
