"""The differences between the eras of MCP.

Handshake era (2024-11-05 to 2025-11-25): `initialize` negotiates version and capabilities for the connection, and the
server may send requests. Stateless era (2026-07-28): every request carries version, client and capabilities in `_meta`,
and the server sends no requests.

Source: MCP 2025-11-25 lifecycle; 2026-07-28 basic (the `_meta` fields) and versioning.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ipymcp.protocol import types

HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Newest first; `initialize` offers the first."""
STATELESS_VERSIONS = ("2026-07-28",)
OTHER_ERA = 'write "era": "auto" in its definition, or load it with --era auto on a %mcp line'
"""Hint for an era that the user chose and the server does not support."""

_EXTENSIONS: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
"""Extensions declared with every request."""
_META = "io.modelcontextprotocol/"
_LOG_LEVEL = b"info"
"""Log level for each call of the stateless era; many servers log without declaring the capability."""
_TOKEN = b'"progressToken":'


class Identity(msgspec.Struct, frozen=True):
    """Name and version of this client."""

    name: str
    version: str

    @property
    def info(self) -> dict[str, str]:
        """The `Implementation` object of the specification."""
        return {"name": self.name, "version": self.version}


class Era(msgspec.Struct, frozen=True):
    """Construction of request params for the negotiated era and version."""

    kind: Literal["handshake", "stateless"]
    version: str
    envelope: bytes
    """JSON members, without braces, of every request's `_meta`; empty in the handshake era."""

    call_meta: bytes
    """JSON members of a tool call's `_meta` up to the progress token."""

    def params(self, body: bytes) -> bytes:
        """Build the `params` of a request from the JSON object `body`."""
        if not self.envelope:
            return body
        comma = b"" if body == b"{}" else b","
        return b'%s%s"_meta":{%s}}' % (body[:-1], comma, self.envelope)

    def call_params(self, name: bytes, arguments: bytes, token: int, extra: bytes = b"") -> bytes:
        """Build the `params` of a tool call, which requests progress with `token` and log messages.

        Args:
            name: JSON string of the tool's name.
            arguments: JSON object of the arguments.
            token: The progress token.
            extra: Additional members, as JSON without braces.
        """
        comma = b"," if extra else b""
        return b'{"name":%s,"arguments":%s%s%s,"_meta":{%s%d}}' % (
            name, arguments, comma, extra, self.call_meta, token,
        )  # fmt: skip


def handshake(version: str) -> Era:
    """Create the era of a connection opened by `initialize`."""
    return Era("handshake", version, b"", _TOKEN)


def stateless(version: str, identity: Identity, capabilities: dict[str, Any]) -> Era:
    """Create the stateless era.

    Args:
        version: One of `STATELESS_VERSIONS`.
        identity: Name and version of this client.
        capabilities: The `ClientCapabilities`.
    """
    extensions = {**capabilities.get("extensions", {}), **_EXTENSIONS}
    members = {
        _META + "protocolVersion": version,
        _META + "clientInfo": identity.info,
        _META + "clientCapabilities": {**capabilities, "extensions": extensions},
    }
    envelope = types.encode(members)[1:-1]
    return Era(
        "stateless", version, envelope, b'%s,"%slogLevel":"%s",%s' % (envelope, _META.encode(), _LOG_LEVEL, _TOKEN)
    )
