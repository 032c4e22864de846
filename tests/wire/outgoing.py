"""The rules for ipymcp's frames. None may be broken, for any behaviour of the server.

Source: MCP 2025-11-25 basic (messages, lifecycle, cancellation, progress) and 2026-07-28 basic (messages, `_meta`,
stdio, versioning, cancellation, mrtr); the earlier revisions where they differ.
"""

import json
from collections.abc import Iterator
from typing import Any

from jsonrpc import envelope_faults, is_id, kind_of, mapping, parse
from rounds import CAPABILITIES, retry_faults
from session import JUST_FINISHED, Request, Session, envelope_version
from specification import HANDSHAKE, STATELESS, Specification

Faults = Iterator[tuple[str, str]]

UNSUPPORTED_VERSION = -32022
SERVER_CAPABILITIES = ("tools", "prompts", "resources", "logging", "tasks")


class Outgoing:
    """Judges the client's frames in order; each fault is the name of a rule and a sentence."""

    def __init__(self, session: Session, specification: Specification) -> None:
        self._session = session
        self._specification = specification

    def judge(self, data: bytes, at: float) -> Faults:
        try:
            value = parse(data)
        except ValueError as error:
            yield "json", str(error)
            return
        if isinstance(value, list) and self._session.revision == "2025-03-26":
            for item in value:
                yield from self._message(item, at)
        elif isinstance(value, list):
            yield "batch", f"{self._session.revision} has no batches"
        else:
            yield from self._message(value, at)

    def _message(self, message: Any, at: float) -> Faults:
        kind = kind_of(message)
        faults = list(envelope_faults(kind, message))
        if faults:
            yield from (("envelope", text) for text in faults)
            return
        if kind == "request":
            yield from self._request(message)
        elif kind == "notification":
            yield from self._notification(message, at)
        else:
            yield from self._response(kind, message, at)

    # Requests

    def _request(self, message: dict[str, Any]) -> Faults:
        session = self._session
        method, params = message["method"], mapping(message.get("params"))
        if message["id"] in session.sent:
            yield "id", f"id {json.dumps(message['id'])} was used before"
            request = Request(message["id"], method, params)
        else:
            request = session.asked[message["id"]]
        version = envelope_version(message)
        yield from self._version(method, params, version)
        request.revision = self._revision(method, params, version)
        yield from self._lifecycle(request, version)
        yield from self._token(request)
        if fault := self._specification.fault("client request", request.revision, method, message):
            yield "message", fault
        if request.revision == STATELESS and method != "tasks/update":
            yield from (("rounds", text) for text in retry_faults(session, request, self._specification))
        session.sent.setdefault(request.id, request)
        if method == "initialize":
            session.initialize = request
        elif version is not None and method != "server/discover":
            session.stateless = True

    def _version(self, method: str, params: dict[str, Any], version: Any) -> Faults:
        if method == "initialize" and params.get("protocolVersion") not in HANDSHAKE:
            yield "version", f"initialize offers {json.dumps(params.get('protocolVersion'))}"
        elif version not in (None, STATELESS):
            yield "version", f"the envelope names {json.dumps(version)}"

    def _revision(self, method: str, params: dict[str, Any], version: Any) -> str:
        session = self._session
        if method == "initialize":
            offered = params.get("protocolVersion")
            return offered if offered in HANDSHAKE else HANDSHAKE[-1]
        if version is not None:
            return STATELESS
        if method == "ping" and session.initialize is not None:
            return session.version or session.initialize.revision
        return session.revision

    def _lifecycle(self, request: Request, version: Any) -> Faults:
        session, method = self._session, request.method
        if session.refused:
            yield "lifecycle", f"{method} after the server chose {session.refused}, which no revision is"
        elif method == "initialize":
            yield from self._initialize()
        elif version is not None:
            if session.initialized:
                yield "lifecycle", f"{method} with the stateless envelope after the handshake"
        elif session.initialize is not None and session.revision != STATELESS:
            if not session.initialized and method != "ping":
                yield "lifecycle", f"{method} before notifications/initialized"
            else:
                yield from self._capability(request)

    def _initialize(self) -> Faults:
        session = self._session
        earlier = session.initialize
        if earlier is not None and earlier.error is None:
            yield "lifecycle", "initialize sent twice"
        elif session.stateless:
            yield "lifecycle", "initialize after stateless requests"
        elif any(_knows_no_handshake(request.error) for request in session.sent.values()):
            yield "lifecycle", "initialize although the server knows stateless revisions only"

    def _capability(self, request: Request) -> Faults:
        capability = request.method.partition("/")[0]
        declared = self._session.capabilities
        if capability in SERVER_CAPABILITIES and declared is not None and capability not in declared:
            yield "capability", f"{request.method}, but the server declared no {capability}"

    def _token(self, request: Request) -> Faults:
        token = request.token
        if token is None:
            return
        if not is_id(token):
            yield "progress", f"a progress token is a string or an integer, not {json.dumps(token)}"
        for other in self._session.sent.values():
            if other.answered is None and not other.cancelled and other.token == token:
                yield "progress", f"the progress token {json.dumps(token)} is in use"

    # Notifications

    def _notification(self, message: dict[str, Any], at: float) -> Faults:
        session, method = self._session, message["method"]
        if method == "notifications/initialized":
            yield from self._initialized()
        if fault := self._specification.fault("client notification", session.revision, method, message):
            yield "message", fault
        elif method == "notifications/cancelled":
            yield from self._cancelled(message["params"]["requestId"], at)
        elif method == "notifications/progress":
            yield from self._progress(message["params"]["progressToken"])

    def _initialized(self) -> Faults:
        session = self._session
        if session.initialized:
            yield "lifecycle", "notifications/initialized sent twice"
        elif session.refused:
            yield "lifecycle", f"notifications/initialized, but the server chose {session.refused}"
        elif session.version is None:
            yield "lifecycle", "notifications/initialized before the answer to initialize"
        elif session.stateless:
            yield "lifecycle", "notifications/initialized after stateless requests"
        session.initialized = session.initialize is not None

    def _cancelled(self, identifier: Any, at: float) -> Faults:
        request = self._session.sent.get(identifier)
        if request is None or type(request.id) is not type(identifier):
            yield "cancel", f"cancels {json.dumps(identifier)}, which was never asked"
            return
        if request.method == "initialize":
            yield "cancel", "initialize is never cancelled"
        elif request.cancelled:
            yield "cancel", f"cancels {json.dumps(identifier)} twice"
        elif request.answered is not None and at - request.answered > JUST_FINISHED:
            yield "cancel", f"cancels {json.dumps(identifier)}, which was answered long before"
        request.cancelled = True

    def _progress(self, token: Any) -> Faults:
        if token not in [request.token for request in self._session.served.values() if request.answered is None]:
            yield "progress", f"reports progress for {json.dumps(token)}, which no open request named"

    # Responses

    def _response(self, kind: str, message: dict[str, Any], at: float) -> Faults:
        session = self._session
        if session.revision == STATELESS:
            yield "response", f"{STATELESS} has no responses of a client"
            return
        request = session.served.get(message.get("id")) if is_id(message.get("id")) else None
        if request is None:
            yield from self._unmatched(kind, message)
            return
        if request.answered is not None:
            yield "response", f"answers {json.dumps(request.id)} twice"
        request.answered = at
        if kind == "result":
            yield from self._result(request, message)

    def _unmatched(self, kind: str, message: dict[str, Any]) -> Faults:
        if kind == "error" and "id" not in message and self._session.revision == HANDSHAKE[-1]:
            return  # the first revision that allows it: the request's id could not be read
        yield "response", f"answers {json.dumps(message.get('id'))}, which the server did not ask"

    def _result(self, request: Request, message: dict[str, Any]) -> Faults:
        capability = CAPABILITIES.get(request.method)
        initialize = self._session.initialize
        if capability and capability not in mapping(initialize.params.get("capabilities") if initialize else None):
            yield "capability", f"a result for {request.method}, but {capability} was not declared"
        if fault := self._specification.fault("client result", self._session.revision, request.method, message):
            yield "message", fault


def _knows_no_handshake(error: dict[str, Any] | None) -> bool:
    """Whether a server said so by UnsupportedProtocolVersionError (2026-07-28, stdio, backward compatibility)."""
    if error is None or error.get("code") != UNSUPPORTED_VERSION:
        return False
    supported = mapping(error.get("data")).get("supported")
    return isinstance(supported, list) and not set(HANDSHAKE).intersection(map(str, supported))
