"""The rules for input rounds: a retry brings the requested input, and the server's state unchanged.

Source: MCP 2026-07-28 patterns/mrtr.
"""

import json
from collections.abc import Iterator
from typing import Any

from jsonrpc import mapping
from session import Request, Session
from specification import HANDSHAKE, Specification

_OF_A_RETRY = ("inputResponses", "requestState")
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CAPABILITIES = {"roots/list": "roots", "sampling/createMessage": "sampling", "elicitation/create": "elicitation"}


def asked_for(request: Request, result: dict[str, Any]) -> Iterator[str]:
    """Faults of a server that needs input for `request`."""
    if "inputRequests" not in result and "requestState" not in result:
        yield "needs input and does not say which"
    declared = mapping(request.meta.get(_CAPABILITIES))
    for key, wanted in mapping(result.get("inputRequests")).items():
        capability = CAPABILITIES.get(mapping(wanted).get("method", ""))
        if capability is not None and capability not in declared:
            yield f"{key} asks for {capability}, which was not declared"


def retry_faults(session: Session, request: Request, specification: Specification) -> Iterator[str]:
    """Faults of a request that brings input or state."""
    if not any(key in request.params for key in _OF_A_RETRY):
        return
    asked = next((sent for sent in reversed(session.sent.values()) if _is_retry(request, sent)), None)
    if asked is None or asked.input_required is None:
        yield "brings input or state, and no request like it needed any"
        return
    asked.retried = True
    required, params = asked.input_required, request.params
    wanted, brought = mapping(required.get("inputRequests")), mapping(params.get("inputResponses"))
    if set(wanted) != set(brought):
        yield f"{json.dumps(sorted(wanted))} was asked for, {json.dumps(sorted(brought))} brought"
    if params.get("requestState") != required.get("requestState"):
        yield "the server's state is not what it was"
    for key in set(wanted) & set(brought):
        answer = {"jsonrpc": "2.0", "id": 0, "result": brought[key]}
        if fault := specification.fault("client result", HANDSHAKE[-1], mapping(wanted[key]).get("method", ""), answer):
            yield f"{key}: {fault}"


def _is_retry(request: Request, earlier: Request) -> bool:
    return (
        earlier.input_required is not None
        and not earlier.retried
        and earlier.method == request.method
        and _question(earlier) == _question(request)
    )


def _question(request: Request) -> dict[str, Any]:
    return {key: value for key, value in request.params.items() if key not in (*_OF_A_RETRY, "_meta")}
