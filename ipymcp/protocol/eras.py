"""What differs between the eras of MCP.

Handshake era (2024-11-05 to 2025-11-25): `initialize` settles version and capabilities once for the connection, and
the server may send requests of its own. Stateless era (2026-07-28): every request carries version, client and
capabilities in `_meta`, and the server sends no requests.

Source: MCP 2025-11-25 lifecycle; 2026-07-28 basic (the `_meta` fields) and versioning.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ipymcp.protocol import types

HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Newest first; the first is what `initialize` offers."""
STATELESS_VERSIONS = ("2026-07-28",)
OTHER_ERA = 'write "era": "auto" in its definition, or load it with --era auto on a %mcp line'
"""The hint where the user chose an era that the server does not speak."""

_EXTENSIONS: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
"""What the engine can do for whoever uses it, declared with every request."""
_META = "io.modelcontextprotocol/"
_LOG_LEVEL = b"info"
"""Asked for with each call of the stateless era, declared or not: many a server logs without saying that it can."""
_TOKEN = b'"progressToken":'


class Identity(msgspec.Struct, frozen=True):
    """Who we say we are."""

    name: str
    version: str

    @property
    def info(self) -> dict[str, str]:
        """The `Implementation` object of the specification."""
        return {"name": self.name, "version": self.version}


class Era(msgspec.Struct, frozen=True):
    """How requests are dressed once the version is known."""

    kind: Literal["handshake", "stateless"]
    version: str
    envelope: bytes
    """The members every request's `_meta` begins with, as JSON without braces; empty in the handshake era."""

    call_meta: bytes
    """The members of a call's `_meta` up to its progress token, which follows."""

    def params(self, body: bytes) -> bytes:
        """The `params` member for a request, from its own members, a JSON object."""
        if not self.envelope:
            return body
        comma = b"" if body == b"{}" else b","
        return b'%s%s"_meta":{%s}}' % (body[:-1], comma, self.envelope)

    def call_params(self, name: bytes, arguments: bytes, token: int, extra: bytes = b"") -> bytes:
        """The `params` member of a tool call, which asks for progress under `token` and for log messages.

        Args:
            name: The tool's, as JSON.
            arguments: A JSON object.
            token: The progress token.
            extra: Further members, as JSON without braces.
        """
        comma = b"," if extra else b""
        return b'{"name":%s,"arguments":%s%s%s,"_meta":{%s%d}}' % (
            name, arguments, comma, extra, self.call_meta, token,
        )  # fmt: skip


def handshake(version: str) -> Era:
    """The era of an `initialize`d connection."""
    return Era("handshake", version, b"", _TOKEN)


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
    envelope = types.encode(members)[1:-1]
    return Era(
        "stateless", version, envelope, b'%s,"%slogLevel":"%s",%s' % (envelope, _META.encode(), _LOG_LEVEL, _TOKEN)
    )
