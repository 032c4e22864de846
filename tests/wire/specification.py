"""What one message may look like, by revision: the official wire types, and the published JSON schemas where given."""

from __future__ import annotations

import json
import typing
from typing import TYPE_CHECKING, Any

from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["HANDSHAKE", "STATELESS", "Specification"]

HANDSHAKE: tuple[str, ...] = tuple(HANDSHAKE_PROTOCOL_VERSIONS)
STATELESS: str = MODERN_PROTOCOL_VERSIONS[-1]

_MODELS: dict[str, Mapping[tuple[str, str], Any]] = {
    "client request": methods.CLIENT_REQUESTS,
    "client notification": methods.CLIENT_NOTIFICATIONS,
    "client result": methods.CLIENT_RESULTS,
    "server request": methods.SERVER_REQUESTS,
    "server notification": methods.SERVER_NOTIFICATIONS,
    "server result": methods.SERVER_RESULTS,
}


class Specification:
    """Validates single messages. Without `schemas` only the official types speak."""

    def __init__(self, schemas: Path | None = None) -> None:
        self._schemas = {}
        if schemas is not None:
            self._schemas = {version: _Schema(schemas / f"{version}.json") for version in (*HANDSHAKE, STATELESS)}
        self._verdicts: dict[tuple[str, str, str, str], str | None] = {}

    def fault(self, kind: str, revision: str, method: str, message: dict[str, Any]) -> str | None:
        """What is wrong with `message`, or None.

        Args:
            kind: A key of the table above.
            revision: A protocol version of either era.
            method: The message's method, or for a result the method of its request.
            message: The whole JSON-RPC message. Its id and progress token are for other rules to judge.
        """
        message = _with_plain_ids(message)
        key = (kind, revision, method, json.dumps(message, sort_keys=True))
        if key not in self._verdicts:
            self._verdicts[key] = self._judge(*key[:3], message)
        return self._verdicts[key]

    def _judge(self, kind: str, revision: str, method: str, message: dict[str, Any]) -> str | None:
        if revision == STATELESS and (method in _TASKS or method == "notifications/tasks"):
            return _task_fault(kind, method, message)
        if _is_task(kind, message):
            return _task_fault(kind, "tasks/get", message)
        model = _MODELS[kind].get((method, revision))
        schema = self._schemas.get(revision)
        if kind == "server result" and revision == _WITH_TASKS and "task" in message["result"]:
            complaints = list(schema.task_complaints(message)) if schema is not None else []
            return f"the task does not fit {revision}: {'; '.join(complaints)}" if complaints else None
        known = model is not None or (schema is not None and schema.knows(kind, method))
        if not known:
            return f"{method} is no {kind} of {revision}"
        complaints = []
        if model is not None:
            complaints += _model_complaints(model, kind, message)
        if schema is not None:
            complaints += schema.complaints(kind, method, message)
        return f"{method} does not fit {revision}: {'; '.join(complaints)}" if complaints else None


_WITH_TASKS = "2025-11-25"
"""The revision whose requests may be answered with a task, which was no extension then."""
_TASKS = ("tasks/get", "tasks/update", "tasks/cancel")
_STATUSES = ("working", "input_required", "completed", "failed", "cancelled")


def _is_task(kind: str, message: dict[str, Any]) -> bool:
    """Whether a call is answered with a task, of the extension."""
    result = message.get("result")
    return kind == "server result" and isinstance(result, dict) and result.get("resultType") == "task"


def _task_fault(kind: str, method: str, message: dict[str, Any]) -> str | None:
    """What is wrong with a message of the extension io.modelcontextprotocol/tasks."""
    if kind == "client request":
        params = message.get("params", {})
        wanted = {"_meta", "taskId", *(["inputResponses"] if method == "tasks/update" else [])}
        return (
            None if set(params) == wanted and isinstance(params["taskId"], str) else f"{method} takes {sorted(wanted)}"
        )
    task = message.get("params") if kind == "server notification" else message.get("result", {})
    if method in ("tasks/update", "tasks/cancel"):
        return None if task.get("resultType") == "complete" else f"{method} is acknowledged by a complete result"
    missing = [name for name in ("taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs") if name not in task]
    with_status = {"input_required": "inputRequests", "completed": "result", "failed": "error"}.get(task.get("status"))
    if with_status is not None and with_status not in task:
        missing.append(with_status)
    if missing:
        return f"a task without {', '.join(missing)}"
    return None if task["status"] in _STATUSES else f"a task has no status {task['status']!r}"


def _with_plain_ids(message: dict[str, Any]) -> dict[str, Any]:
    """The message with one fixed id and token, so that equal calls are judged once."""
    message = {**message, "id": 0} if "id" in message else message
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if isinstance(meta, dict) and isinstance(meta.get("progressToken"), int | str):
        message = {**message, "params": {**params, "_meta": {**meta, "progressToken": 0}}}
    return message


def _model_complaints(model: Any, kind: str, message: dict[str, Any]) -> Iterator[str]:
    value = message["result"] if kind.endswith("result") else message
    try:
        TypeAdapter(model).validate_json(json.dumps(value), strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        yield f"types: {'.'.join(map(str, first['loc'])) or kind}: {first['msg']}"
    if kind == "client request" and isinstance(params := message.get("params"), dict):
        surplus = sorted(set(params) - _fields(model, params))
        if surplus:
            yield f"types: no parameter of this method: {', '.join(surplus)}"


def _fields(model: type[BaseModel], params: dict[str, Any]) -> set[str]:
    """The names of the parameters `model` knows; all of `params` where it takes any."""
    annotation = model.model_fields["params"].annotation
    shapes = [shape for shape in (typing.get_args(annotation) or (annotation,)) if shape is not type(None)]
    names: set[str] = set()
    for shape in shapes:
        if shape.model_config.get("extra") == "allow":
            return set(params)
        names |= {field.alias or name for name, field in shape.model_fields.items()}
    return names


class _Schema:
    """One revision's published JSON schema."""

    def __init__(self, path: Path) -> None:
        self._document = json.loads(path.read_text(encoding="utf-8"))
        self._key = "$defs" if "$defs" in self._document else "definitions"
        self._definitions: dict[str, Any] = self._document[self._key]
        if "ElicitResult" in self._definitions:
            _allow_fractions(self._definitions["ElicitResult"]["properties"]["content"])
        self._validators: dict[str, Any] = {}
        self._methods = {
            kind: {self._definitions[name]["properties"]["method"]["const"]: name for name in self._members(union)}
            for kind, union in {
                "client request": "ClientRequest",
                "client notification": "ClientNotification",
                "server request": "ServerRequest",
                "server notification": "ServerNotification",
            }.items()
        }

    def _members(self, union: str) -> list[str]:
        definition = self._definitions.get(union)
        if definition is None:
            return []
        if "anyOf" not in definition:
            return [union]
        return [member["$ref"].rpartition("/")[2] for member in definition["anyOf"]]

    def knows(self, kind: str, method: str) -> bool:
        return method in self._methods[_request_of(kind)]

    def complaints(self, kind: str, method: str, message: dict[str, Any]) -> Iterator[str]:
        name = self._methods[_request_of(kind)].get(method)
        if name is None:
            yield "schema: not among its methods"
            return
        if not kind.endswith("result"):
            envelope = "JSONRPCRequest" if kind.endswith("request") else "JSONRPCNotification"
            yield from self._errors(envelope, message)
            yield from self._errors(name, message)
            return
        stem = name.removesuffix("Request")
        if f"{stem}ResultResponse" in self._definitions:
            yield from self._errors(f"{stem}ResultResponse", message)
        else:
            result = f"{stem}Result" if f"{stem}Result" in self._definitions else "EmptyResult"
            yield from self._errors(result, message["result"])

    def task_complaints(self, message: dict[str, Any]) -> Iterator[str]:
        """What is wrong with a task in place of a result."""
        return self._errors("CreateTaskResult", message["result"])

    def _errors(self, name: str, value: Any) -> Iterator[str]:
        import jsonschema  # here, so that a run without schemas does not need it

        if name not in self._validators:
            schema = {
                "$schema": self._document["$schema"],
                "$ref": f"#/{self._key}/{name}",
                self._key: self._definitions,
            }
            if self._key == "definitions":  # draft 7 ignores what stands beside a $ref
                schema = {
                    "$schema": schema["$schema"],
                    "allOf": [{"$ref": schema["$ref"]}],
                    self._key: self._definitions,
                }
            self._validators[name] = jsonschema.validators.validator_for(schema)(schema)
        error = jsonschema.exceptions.best_match(self._validators[name].iter_errors(value))
        if error is not None:
            yield f"schema {name}: {error.json_path}: {error.message[:200]}"


def _allow_fractions(content: dict[str, Any]) -> None:
    """What a form is filled with: `number` in the specification, which the schemas made of it turned to `integer`."""
    values = content["additionalProperties"]
    for each in values.get("anyOf", [values]):
        if "integer" in each.get("type", ()):
            each["type"] = [*each["type"], "number"]


def _request_of(kind: str) -> str:
    return {"client result": "server request", "server result": "client request"}.get(kind, kind)
