"""Prompts of servers, called with arguments to get messages."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ipymcp.api.catalogs import AllOffers, ServerOffers, argument_list, load_all, load_catalog, load_quickly
from ipymcp.argument_checks import TEXT, check_name, checked
from ipymcp.errors import RpcError
from ipymcp.names import RESERVED_PROMPTS, selects
from ipymcp.protocol import types
from ipymcp.protocol.types import is_object
from ipymcp.results.content import Part, ReceivedResult, read_part
from ipymcp.results.tables import NotPicklable
from ipymcp.schema.tool_schema import Argument, callable_class, schema_of, to_strings
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from msgspec import Raw

    from ipymcp.runtime.catalog import Catalog, PromptEntry
    from ipymcp.runtime.host import Host
    from ipymcp.schema.tool_schema import ToolSchema


_COLUMNS = ("prompt", "arguments", "description")


class Message(Struct, frozen=True):
    """One message of a prompt."""

    role: str
    """`user` or `assistant`."""
    content: Part
    """`Text`, `Image`, `Audio`, `Link` or `Embedded`."""

    @property
    def text(self) -> str:
        """The content as text; a placeholder in brackets if it is not text."""
        return str(self.content)


class PromptResult(ReceivedResult):
    """The messages of a prompt, in order. `.raw["messages"]` suits chat models.

    Args:
        raw: The JSON of the `result` object of `prompts/get`.
        server: The server's name in this notebook.
        prompt: The prompt's exact name.
    """

    def __init__(self, raw: bytes | Raw, *, server: str, prompt: str) -> None:
        self._raw = raw
        self.server = server
        self.prompt = prompt

    @property
    def source(self) -> str:
        """The origin of the result: the server and the prompt."""
        return f"{self.server} {self.prompt}"

    @cached_property
    def messages(self) -> list[Message]:
        """The messages, each with `.role` and `.content`."""
        result = types.decode(self._raw, types.GetPromptResult)
        return [_message(types.loads(raw)) for raw in result.messages]

    @property
    def text(self) -> str:
        """All messages as text, with their roles if these differ."""
        if len({message.role for message in self.messages}) <= 1:
            return "\n\n".join(message.text for message in self.messages)
        return "\n\n".join(f"{message.role}: {message.text}" for message in self.messages)

    @property
    def description(self) -> str:
        """The server's description of the prompt."""
        return types.decode(self._raw, types.GetPromptResult).description or ""

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, at: int) -> Message:
        return self.messages[at]

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PromptResult):
            return NotImplemented
        return (self.server, self.prompt, self.messages) == (other.server, other.prompt, other.messages)

    @property
    def _arguments(self) -> dict[str, Any]:
        return {"server": self.server, "prompt": self.prompt}

    def __repr__(self) -> str:
        from ipymcp.results.rendering import shown_text

        messages = "\n".join(f"{message.role}: {message.text}" for message in self.messages)
        return shown_text(f"PromptResult {self.server}.{self.prompt}:\n{messages or 'no messages'}")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        from ipymcp.results.rendering import captioned

        html = captioned((message.role, message.content) for message in self.messages)
        return {"text/plain": repr(self), "text/html": html}


class Prompt(NotPicklable):
    """A prompt of a server, called like a function: `mcp.SERVER.prompts.NAME(argument="…")` returns its messages."""

    def __init__(self, host: Host, entry: PromptEntry, schema: ToolSchema) -> None:
        self._host = host
        self._entry = entry
        self._schema = schema

    def __call__(self, /, *args: Any, **kwargs: Any) -> PromptResult:
        """Get the messages for these arguments.

        Raises:
            ArgumentError: An argument is missing or unknown.
            RpcError: The server refused the request.
        """
        return self._host.loop.run(self._get(to_strings(self._schema, args, kwargs)))

    async def aio(self, /, *args: Any, **kwargs: Any) -> PromptResult:
        """Get the messages without blocking."""
        return await self._host.loop.arun(self._get(to_strings(self._schema, args, kwargs)))

    @property
    def server(self) -> str:
        """The server's name."""
        return self._entry.server

    @property
    def name(self) -> str:
        """The prompt's exact name."""
        return self._entry.name

    @property
    def description(self) -> str:
        """The server's description of the prompt."""
        return self._entry.definition.description or ""

    async def _get(self, arguments: Mapping[str, str]) -> PromptResult:
        session = self._host.find(self.server)
        await session.awake()
        try:
            raw = await session.resources.prompt(self.name, arguments)
        except RpcError as error:
            error.tool = error.tool or self.name
            error.hint = error.hint or f"%mcp prompts {quoted(self.server)}"
            raise
        result = PromptResult(bytes(raw), server=self.server, prompt=self.name)
        self._host.guard.received_outside_call(result.source, bytes(raw))
        return result

    def __repr__(self) -> str:
        from ipymcp.text import shortened, visible

        about = shortened(visible(_first_line(self._entry)), 100)
        signature = self._schema.signature.replace(return_annotation=self._schema.signature.empty)
        return f"{self.server}.prompts.{self._entry.alias}{signature}" + (f"\n    {about}" if about else "")


class Prompts(ServerOffers):
    """The prompts of one server, as functions: `mcp.SERVER.prompts.NAME(…)`, or `["NAME"]` by the prompt's own name."""

    _noun = "prompt"
    _kinds = ("prompts",)
    _columns = _COLUMNS

    def __getattr__(self, name: str) -> Prompt:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Prompt:
        """A prompt by its exact name or identifier.

        Raises:
            UnknownName: There is no such prompt; the hint has similar names.
        """
        check_name(name, "prompt")
        session = self._session
        entry = session.catalog.find_prompt(name) or self._find_again(name)
        if entry is None:
            raise self._unknown(name, [*session.catalog.prompt_aliases, *session.catalog.prompts])
        return prompt(self._host, entry)

    def __iter__(self) -> Iterator[Prompt]:
        return (prompt(self._host, entry) for entry in self._catalog().prompts.values())

    def __len__(self) -> int:
        return len(self._catalog().prompts)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find_again(name) is not None

    def __dir__(self) -> list[str]:
        return sorted([*load_quickly(self._host, self._session, "prompts").prompt_aliases, *RESERVED_PROMPTS])

    def _ipython_key_completions_(self) -> list[str]:
        return list(load_quickly(self._host, self._session, "prompts").prompts)

    def _find_again(self, name: str) -> PromptEntry | None:
        found = self._catalog().find_prompt(name)
        return found or load_catalog(self._host, self._session, "prompts", again=True).find_prompt(name)

    def _catalog(self) -> Catalog:
        return load_catalog(self._host, self._session, "prompts")

    def _rows(self, catalog: Catalog) -> list[tuple[str, ...]]:
        return [_row(entry, entry.alias) for entry in catalog.prompts.values()]


class AllPrompts(AllOffers):
    """The prompts of all ready servers, displayed as a table: `mcp.prompts`, `mcp.prompts("fs.*")`.

    Patterns are globs for the server, `server.prompt` and the prompt; the last match decides, `!` excludes.
    """

    _noun = "prompt"
    _kinds = ("prompts",)
    _columns = _COLUMNS

    @checked("prompts", patterns=TEXT)
    def __call__(self, *patterns: str) -> AllPrompts:
        """Select prompts by patterns."""
        return AllPrompts(self._host, patterns)

    def __iter__(self) -> Iterator[Prompt]:
        catalogs, _ = load_all(self._host, "prompts")
        return (prompt(self._host, entry) for _, catalog in catalogs for entry in self._selected(catalog))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _rows(self, server: str, catalog: Catalog) -> list[tuple[str, ...]]:
        return [_row(entry, f"{entry.server}.{entry.alias}") for entry in self._selected(catalog)]

    def _selected(self, catalog: Catalog) -> list[PromptEntry]:
        return [
            entry
            for entry in catalog.prompts.values()
            if selects(
                self._patterns,
                (entry.server, f"{entry.server}.{entry.name}", f"{entry.server}.{entry.alias}", entry.name),
            )
        ]


def prompt(host: Host, entry: PromptEntry) -> Prompt:
    """Make a prompt object with its own signature and docstring."""
    schema = prompt_schema(entry)
    kind = callable_class(
        Prompt,
        schema,
        alias=entry.alias,
        kind="Prompt",
        returns="PromptResult",
        title=entry.definition.title,
        description=entry.definition.description,
    )
    return kind(host, entry, schema)


def prompt_schema(entry: PromptEntry) -> ToolSchema:
    """The schema of a prompt's arguments."""
    declared = entry.definition.arguments or ()
    arguments = [Argument(each.name, bool(each.required), each.description or each.title or "") for each in declared]
    return schema_of(arguments, server=entry.server, owner=entry.name)


def _row(entry: PromptEntry, name: str) -> tuple[str, str, str]:
    return name, argument_list(prompt_schema(entry).parameters), _first_line(entry)


def _first_line(entry: PromptEntry) -> str:
    return (entry.definition.description or entry.definition.title or "").strip().split("\n", 1)[0]


def _message(value: Any) -> Message:
    """Read a message leniently: an invalid message is shown, not refused."""
    role = value.get("role") if is_object(value) else None
    return Message(
        role if isinstance(role, str) else "user", read_part(value.get("content") if is_object(value) else value)
    )
