"""The state of a session that both sides share. `Outgoing` and `Incoming` check frames against it and update it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from jsonrpc import is_id, mapping
from specification import STATELESS
from transcript import Record

JUST_FINISHED = 2.0
"""Seconds within which a cancellation may cross the answer."""


@dataclass(frozen=True)
class Fault:
    """One broken rule. `rule` is a word to search for, `text` a sentence."""

    number: int
    direction: str
    rule: str
    text: str


@dataclass
class Request:
    """A request of either side, and its outcome."""

    id: Any
    method: str
    params: dict[str, Any]
    revision: str = STATELESS
    answered: float | None = None
    error: dict[str, Any] | None = None
    cancelled: bool = False
    progress: float | None = None
    """The last progress the server reported for it."""
    input_required: dict[str, Any] | None = None
    """The answer, where it was that input is needed first."""
    retried: bool = False
    """The input was brought."""
    acknowledged: bool = False
    """Of subscriptions/listen: the server said what it will send."""

    @property
    def meta(self) -> dict[str, Any]:
        return mapping(self.params.get("_meta"))

    @property
    def token(self) -> Any:
        return self.meta.get("progressToken")


@dataclass
class Session:
    """One connection."""

    asked: dict[Any, Request]
    """Every request of the client, by id, the later ones too: an answer may be recorded before its request."""
    sent: dict[Any, Request] = field(default_factory=dict)
    """Those of `asked` that were sent by now."""
    served: dict[Any, Request] = field(default_factory=dict)
    """The server's requests, the latest of each id."""
    initialize: Request | None = None
    version: str | None = None
    """The revision that the server's answer to `initialize` chose."""
    refused: str | None = None
    """The version that the server chose, if that is not a revision."""
    initialized: bool = False
    discovered: bool = False
    """A discover succeeded."""
    stateless: bool = False
    """The client sent another request than discover with the envelope."""
    server: str = ""
    capabilities: dict[str, Any] | None = None

    @property
    def revision(self) -> str:
        """The revision that both sides speak now, as far as is settled."""
        if self.initialized and self.version:
            return self.version
        if self.stateless or self.discovered or self.initialize is None:
            return STATELESS
        return self.version or self.initialize.revision


def envelope_version(message: dict[str, Any]) -> Any:
    """The protocol version in a request's `_meta`, None where there is none (2026-07-28, `_meta`)."""
    meta = mapping(mapping(message.get("params")).get("_meta"))
    return meta.get("io.modelcontextprotocol/protocolVersion")


def requests(records: Iterable[Record]) -> dict[Any, Request]:
    """Every request the client makes in `records`, by id; the first of each id."""
    found: dict[Any, Request] = {}
    for record in records:
        if record.direction != "out" or record.data is None:
            continue
        try:
            value = json.loads(record.data)
        except (ValueError, RecursionError):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict) and isinstance(item.get("method"), str) and is_id(item.get("id")):
                found.setdefault(item["id"], Request(item["id"], item["method"], mapping(item.get("params"))))
    return found
