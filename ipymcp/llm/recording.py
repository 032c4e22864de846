"""Recorded answers of models, for Run All and CI without an API key.

A recording is a file beside the notebook, which can be committed. An answer is found by the facts that it depends on:
model, prompt with its variables, instructions, the conversation before, declared tools, and the results of its calls.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ipymcp.errors import McpError
from ipymcp.files import read_file, read_problem, trusted_owners, write_file
from ipymcp.llm.answer import ModelCall, ToolCallRequest, Usage
from ipymcp.masking import mask
from ipymcp.protocol.types import is_array, is_object
from ipymcp.schema.coercion import NotJson, to_json
from ipymcp.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.llm.answer import Answer
    from ipymcp.llm.tool_calls import ToolCallRunner


Replay: TypeAlias = Literal["off", "auto", "only", "new"]
"""`auto` replays recorded answers and records new ones, `only` never asks a model, `new` asks and records."""
FILE: Final = "mcp-answers.json"
_MAX_ANSWERS: Final = 500
_MAX_BYTES: Final = 50_000_000
_MAX_QUESTION: Final = 200
_MAX_NAMES: Final = 5
_REPEATABLE_MEMBERS: Final = ("parts", "kind", "part_kind", "content", "tool_name", "args", "data")
"""Members of a message that are the same when a conversation is repeated, unlike times and identifiers."""
_NUMBERS: Final = re.compile(r"(?<=Stored as result )\d+|(?<=handle=)\d+|(?<=mcp\.results\[)\d+")
"""Numbers of stored results, which depend on the calls of the kernel."""


class AnswerKey(Struct, frozen=True):
    """The facts that an answer depends on, besides the results of its calls: digests, and the model's name."""

    model: str
    prompt: str
    system: str
    conversation: str
    returns: str
    tools: dict[str, str]
    """Digests of the declarations by `server.tool`."""
    settings: str = ""
    """A digest of effort, temperature and the like; empty for the provider's defaults."""

    def changes(self, before: AnswerKey) -> list[str]:
        """The differences from an earlier key, in words."""
        named = {"system": "the instructions", "conversation": "the conversation before", "returns": "the wanted type"}
        named["settings"] = "the settings of the model"
        changes = [f"{text} changed" for name, text in named.items() if getattr(self, name) != getattr(before, name)]
        if self.model != before.model:
            changes.append(f"the model changed from {before.model} to {self.model}")
        new, old = self.tools, before.tools
        kinds = {
            "added": [name for name in new if name not in old],
            "removed": [name for name in old if name not in new],
            "changed": [name for name in new if name in old and new[name] != old[name]],
        }
        return changes + [f"{_listed(names)} {_was_or_were(names)} {kind}" for kind, names in kinds.items() if names]


class RecordedCall(Struct, frozen=True):
    """A call of a recorded answer, with its result for the model."""

    name: str
    """The name by which the model called the tool."""
    server: str
    tool: str
    arguments: Any
    text: str
    is_error: bool = False
    is_refused: bool = False

    def is_answered_by(self, text: str) -> bool:
        """Whether a new call has the same result."""
        return _NUMBERS.sub("", mask(text)) == _NUMBERS.sub("", self.text)

    def as_call(self, number: int, card: str) -> ModelCall:
        """The call as a part of an answer."""
        return ModelCall(
            self.server,
            self.tool,
            self.arguments,
            text=self.text,
            is_error=self.is_error,
            is_refused=self.is_refused,
            is_done=True,
            number=number,
            card=card,
            name_for_model=self.name,
        )


class RecordedAnswer(Struct, frozen=True, kw_only=True):
    """An answer with everything that is needed to show it again and to continue the conversation."""

    key: AnswerKey
    question: str
    """The beginning of the prompt, for readers of the file."""
    recorded: str
    """The date."""
    text: str
    data: Any
    reason: str
    usage: Usage
    events: list[str | RecordedCall]
    """Text and calls in their order."""
    messages: list[Any]
    """The conversation including this answer."""
    thinking: str = ""


class _File(Struct, frozen=True):
    answers: list[RecordedAnswer] = []
    version: Literal[1] = 1


class Recording:
    """The recorded answers of one file.

    Args:
        path: The file, created by the first recorded answer.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, key: AnswerKey) -> RecordedAnswer | str:
        """Return the answer of a key, or a text that describes what has changed.

        Raises:
            McpError: The file cannot be read.
        """
        answers = self._read()
        for answer in answers:
            if answer.key == key:
                return answer
        if not answers:
            return "nothing is recorded yet"
        same = [key.changes(answer.key) for answer in answers if answer.key.prompt == key.prompt]
        return " and ".join(min(same, key=len)) if same else "the prompt or a variable in it changed, or is new"

    def add(self, answer: RecordedAnswer) -> None:
        """Record an answer in place of one with the same key; secrets are masked.

        Raises:
            McpError: The file cannot be read or written.
        """
        new = msgspec.convert(mask.json(msgspec.to_builtins(answer)), RecordedAnswer)
        kept = [one for one in self._read() if one.key != new.key]
        content = msgspec.json.encode(_File([*kept, new][-_MAX_ANSWERS:]))
        try:
            write_file(self._path, msgspec.json.format(content, indent=1) + b"\n")
        except OSError as error:
            raise McpError(f"{self._path.name} cannot be written: {error.strerror}") from error

    def _read(self) -> list[RecordedAnswer]:
        try:
            data = read_file(self._path, _MAX_BYTES, owners=trusted_owners())
            return msgspec.json.decode(data, type=_File).answers
        except FileNotFoundError:
            return []
        except OSError as error:
            raise McpError(f"{self._path.name} {read_problem(error)}", hint="delete it and record again") from error
        except (ValueError, RecursionError) as error:
            hint = "restore it, or delete it and record again"
            raise McpError(f"{self._path.name} cannot be read: {error}", hint=hint) from error


class AnswerRecorder:
    """Finds the recorded answer to a question, or records the new one.

    Args:
        folder: The folder of the notebook.
        key: The facts that the answer depends on.
    """

    def __init__(self, folder: str, key: AnswerKey) -> None:
        self._recording = Recording(Path(folder, FILE))
        self._key = key
        self.repeated = 0
        """The number of recorded calls that were repeated."""
        self.changed = ""
        """The reason why no recorded answer can be replayed."""

    async def find(self, runner: ToolCallRunner, limit: int) -> RecordedAnswer | None:
        """Return the recorded answer, after repeating its calls that only read their server's own data.

        Args:
            runner: Runs the calls.
            limit: Maximum calls.

        Raises:
            McpError: The file cannot be read.
        """
        recorded = await asyncio.to_thread(self._recording.find, self._key)
        if isinstance(recorded, str):
            self.changed = recorded
            return None
        calls = [
            event for event in recorded.events if isinstance(event, RecordedCall) and runner.only_reads(event.name)
        ]
        if len(calls) > limit:  # the file may be from anyone
            self.changed = f"it would repeat {counted(len(calls), 'call')}, more than the limit of {limit:,}"
            return None
        for call in calls:
            outcome = await runner.run(ToolCallRequest("", call.name, call.arguments))
            self.repeated += 1
            if not call.is_answered_by(outcome.text):
                self.changed = f"the result of {call.server}.{call.tool} changed"
                return None
        return recorded

    def add(self, prompt: str, answer: Answer, events: Sequence[str | ModelCall]) -> str:
        """Record a complete answer.

        Args:
            prompt: The prompt.
            answer: The answer.
            events: Its text and calls in their order.

        Returns:
            A note that names the file, or the error.
        """
        merged: list[str | RecordedCall] = []
        for event in events:
            if not isinstance(event, str):
                call = (event.name_for_model, event.server, event.tool, event.arguments)
                merged.append(RecordedCall(*call, event.text, event.is_error, event.is_refused))
            elif merged and isinstance(last := merged[-1], str):
                merged[-1] = last + event
            else:
                merged.append(event)
        try:
            self._recording.add(
                RecordedAnswer(
                    key=self._key,
                    question=mask.head(prompt, _MAX_QUESTION),
                    recorded=time.strftime("%Y-%m-%d"),
                    text=answer.text,
                    data=None if answer.data is None else to_json(answer.data, ()),
                    reason=answer.reason,
                    usage=answer.usage,
                    events=merged,
                    messages=answer.messages,
                    thinking=answer.thinking,
                )
            )
        except (McpError, NotJson, TypeError) as error:
            return f"not recorded: {error}"
        return f"recorded in {FILE}"


def digest(value: object) -> str:
    """A short digest of text, bytes or JSON, in which secrets are masked."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return hashlib.sha256(_NUMBERS.sub("", mask(text)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def repeatable_part(messages: Any) -> Any:
    """The part of JSON messages that is the same when a conversation is repeated."""
    if is_array(messages):
        return [repeatable_part(one) for one in messages]
    if is_object(messages):
        return {
            name: value if name == "args" else repeatable_part(value)
            for name, value in messages.items()
            if name in _REPEATABLE_MEMBERS
        }
    return messages


def type_text(returns: Any) -> str:
    """A text that identifies a type or schema of typed answers."""
    return f"{returns!r} {getattr(returns, '__annotations__', '')!r}"


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + rest


def _was_or_were(names: Sequence[str]) -> str:
    return "was" if len(names) == 1 else "were"
