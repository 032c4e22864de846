"""The rules for the server's frames. ipymcp must tolerate violations, so they count against the server."""

import json
from collections.abc import Iterator
from typing import Any

from jsonrpc import envelope_faults, is_id, kind_of, mapping, parse
from rounds import asked_for
from session import Request, Session
from specification import HANDSHAKE, STATELESS, Specification

Faults = Iterator[tuple[str, str]]

UNREADABLE = (-32700, -32600)
"""The errors that may name no id: the request could not be read."""


class Incoming:
    """Judges the server's frames in order; each fault is the name of a rule and a sentence."""

    def __init__(self, session: Session, specification: Specification) -> None:
        self._session = session
        self._specification = specification

    def judge(self, data: bytes, at: float) -> Faults:
        try:
            value = parse(data)
        except ValueError as error:
            yield "json", str(error)
            return
        if isinstance(value, list):
            if self._session.revision != "2025-03-26":
                yield "batch", f"{self._session.revision} has no batches"
            for item in value:  # the client reads them all the same
                yield from self._message(item, at)
        else:
            yield from self._message(value, at)

    def _message(self, message: Any, at: float) -> Faults:
        kind = kind_of(message)
        faults = list(envelope_faults(kind, message))
        if faults:
            yield from (("envelope", text) for text in faults)
            if kind == "request" and is_id(message["id"]):  # answered all the same
                self._session.served[message["id"]] = Request(message["id"], str(message["method"]), {})
        elif kind == "request":
            yield from self._request(message)
        elif kind == "notification":
            yield from self._notification(message)
        else:
            yield from self._response(kind, message, at)

    # Responses

    def _response(self, kind: str, message: dict[str, Any], at: float) -> Faults:
        identifier = message.get("id")
        request = self._session.asked.get(identifier) if is_id(identifier) else None
        if request is None or type(request.id) is not type(identifier):
            if not (kind == "error" and identifier is None and message["error"]["code"] in UNREADABLE):
                yield "response", f"answers {json.dumps(identifier)}, which was not asked"
            return
        if request.answered is not None:
            yield "response", f"answers {json.dumps(identifier)} twice"
            return
        request.answered = at
        if kind == "error":
            request.error = message["error"]
            return
        method, answer = request.method, message
        if "task" in request.params and "task" in message["result"]:  # 2025-11-25, tasks: CreateTaskResult
            method, answer = "tasks/get", {**message, "result": message["result"]["task"]}
        if fault := self._specification.fault("server result", self._revision(request), method, answer):
            yield "message", fault
        yield from self._settle(request, message["result"])

    def _revision(self, request: Request) -> str:
        """The revision a result obeys: that of its request, and for initialize the one it names itself."""
        return request.revision if request.id in self._session.sent else self._session.revision

    def _settle(self, request: Request, result: dict[str, Any]) -> Faults:
        session = self._session
        if result.get("resultType") == "input_required":
            request.input_required = result
            yield from (("rounds", text) for text in asked_for(request, result))
            return
        if request.method == "server/discover":
            session.discovered = True
            info = mapping(mapping(result.get("_meta")).get("io.modelcontextprotocol/serverInfo"))
        elif request.method == "initialize":
            info = mapping(result.get("serverInfo"))
            session.capabilities = mapping(result.get("capabilities"))
            version = result.get("protocolVersion")
            if version in HANDSHAKE:
                session.version = version
            else:
                session.refused = json.dumps(version)
                yield "version", f"chooses {session.refused}, which no revision is"
        else:
            return
        session.server = session.server or str(info.get("name", ""))

    # Requests and notifications

    def _request(self, message: dict[str, Any]) -> Faults:
        session, method = self._session, message["method"]
        request = Request(message["id"], method, mapping(message.get("params")), session.revision)
        if message["id"] in session.served:
            yield "id", f"id {json.dumps(message['id'])} was used before"
        session.served[message["id"]] = request
        if fault := self._specification.fault("server request", session.revision, method, message):
            yield "message", fault

    def _notification(self, message: dict[str, Any]) -> Faults:
        revision, method = self._session.revision, message["method"]
        if fault := self._specification.fault("server notification", revision, method, message):
            yield "message", fault
        elif method == "notifications/progress":
            yield from self._progress(message["params"])
        elif method == "notifications/cancelled":
            yield from self._cancelled(message["params"].get("requestId"))
        elif revision == STATELESS:
            yield from self._subscribed(method, mapping(message.get("params")))

    def _progress(self, params: dict[str, Any]) -> Faults:
        token = params["progressToken"]
        request = next((sent for sent in reversed(self._session.sent.values()) if sent.token == token), None)
        if request is None:
            yield "progress", f"progress for {json.dumps(token)}, which no request named"
        elif request.answered is not None:
            yield "progress", f"progress for {json.dumps(token)} after the answer"
        elif request.progress is not None and params["progress"] <= request.progress:
            yield "progress", f"progress {params['progress']} after {request.progress}"
        else:
            request.progress = params["progress"]

    def _cancelled(self, identifier: Any) -> Faults:
        stateless = self._session.revision == STATELESS
        requests = self._session.sent if stateless else self._session.served
        request = requests.get(identifier) if is_id(identifier) else None
        if request is None:
            yield "cancel", f"cancels {json.dumps(identifier)}, which was never asked"
        elif stateless and request.method != "subscriptions/listen":
            yield "cancel", f"cancels {request.method}: only subscriptions/listen may be"

    def _subscribed(self, method: str, params: dict[str, Any]) -> Faults:
        """Check that a subscription's messages name it, after the acknowledgement (2026-07-28, subscriptions)."""
        identifier = mapping(params.get("_meta")).get("io.modelcontextprotocol/subscriptionId")
        if identifier is None:
            if method != "notifications/message":
                yield "subscription", f"{method} names no subscription"
            return
        request = self._session.asked.get(identifier) if is_id(identifier) else None
        if request is None or request.method != "subscriptions/listen":
            yield "subscription", f"{method} for {json.dumps(identifier)}, which is not a subscription"
        elif method == "notifications/subscriptions/acknowledged":
            request.acknowledged = True
        elif not request.acknowledged:
            yield "subscription", f"{method} before the acknowledgement"
