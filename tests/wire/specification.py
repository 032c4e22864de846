"""The form of messages by revision: the official wire types, made from the published schemas."""

import json
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

HANDSHAKE: tuple[str, ...] = tuple(HANDSHAKE_PROTOCOL_VERSIONS)
STATELESS: str = MODERN_PROTOCOL_VERSIONS[-1]

_WITH_TASKS = "2025-11-25"
"""The only revision of the handshake that has tasks. The package has their types, but leaves them out of its tables."""
_TYPES = methods.v2025
_TASK_REQUESTS = {
    ("tasks/get", _WITH_TASKS): _TYPES.GetTaskRequest,
    ("tasks/result", _WITH_TASKS): _TYPES.GetTaskPayloadRequest,
    ("tasks/list", _WITH_TASKS): _TYPES.ListTasksRequest,
    ("tasks/cancel", _WITH_TASKS): _TYPES.CancelTaskRequest,
}
_TASK_RESULTS = {
    ("tasks/get", _WITH_TASKS): _TYPES.GetTaskResult,
    ("tasks/result", _WITH_TASKS): _TYPES.GetTaskPayloadResult,
    ("tasks/list", _WITH_TASKS): _TYPES.ListTasksResult,
    ("tasks/cancel", _WITH_TASKS): _TYPES.CancelTaskResult,
}
_TASK_NOTIFICATIONS = {("notifications/tasks/status", _WITH_TASKS): _TYPES.TaskStatusNotification}

_MODELS: dict[str, Mapping[tuple[str, str], Any]] = {
    "client request": {**methods.CLIENT_REQUESTS, **_TASK_REQUESTS},
    "client notification": {**methods.CLIENT_NOTIFICATIONS, **_TASK_NOTIFICATIONS},
    "client result": {**methods.CLIENT_RESULTS, **_TASK_RESULTS},
    "server request": {**methods.SERVER_REQUESTS, **_TASK_REQUESTS},
    "server notification": {**methods.SERVER_NOTIFICATIONS, **_TASK_NOTIFICATIONS},
    "server result": {**methods.SERVER_RESULTS, **_TASK_RESULTS},
}


class Specification:
    """Validates single messages."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[str, str, str, str], str | None] = {}

    def fault(self, kind: str, revision: str, method: str, message: dict[str, Any]) -> str | None:
        """The fault of `message`, or None.

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
        if kind == "server result" and revision == _WITH_TASKS and "task" in message["result"]:
            model = _TYPES.CreateTaskResult  # any request that allows it may be answered with a task
        if model is None:
            return f"{method} is no {kind} of {revision}"
        complaints = list(_model_complaints(model, kind, message))
        return f"{method} does not fit {revision}: {'; '.join(complaints)}" if complaints else None


_TASKS = ("tasks/get", "tasks/update", "tasks/cancel")
_STATUSES = ("working", "input_required", "completed", "failed", "cancelled")


def _is_task(kind: str, message: dict[str, Any]) -> bool:
    """Whether a call is answered with a task, of the extension."""
    result = message.get("result")
    return kind == "server result" and isinstance(result, dict) and result.get("resultType") == "task"


def _task_fault(kind: str, method: str, message: dict[str, Any]) -> str | None:
    """The fault of a message of the extension io.modelcontextprotocol/tasks."""
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
    text = json.dumps(value, ensure_ascii=False).encode(errors="replace")  # lone surrogates are for another rule
    try:
        TypeAdapter(model).validate_json(text, strict=True, by_alias=True, by_name=False)
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
