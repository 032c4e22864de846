"""One configured server, as its file, cell or script defined it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


Era = Literal["auto", "legacy", "modern"]
ReadOnly = Literal["hinted"] | bool
Scope = Literal["cell", "script", "named", "project", "user"]
Transport = Literal["stdio", "http", "sse"]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a definition stands."""

    scope: Scope = "cell"
    """`cell`: typed after `%mcp load`; `script`: a mapping in Python; `named`: a file that the user named; `project`: a
    file that was found in or above the notebook's folder; `user`: the user's own file."""
    file: str | None = None
    folder: str | None = None
    """The folder of that file, or of the project that it belongs to (`.vscode/mcp.json` belongs to the one above)."""
    host: str = "ipymcp"
    """Whose shape the file has."""
    key: str = ""
    """The keys that lead to the definition in its file, joined by dots."""
    names: Mapping[str, str] = {}
    """What the file calls the keys that it names otherwise than a `ServerDefinition`."""
    shadows: str = ""
    """Where the user defines a server of this name, of which a project's takes the place."""

    def __str__(self) -> str:
        return self.file or self.scope

    def path(self, key: str = "") -> str:
        """The keys that lead to one of the definition's values in its file."""
        return ".".join(filter(None, (self.key, spelled(key, self.names))))

    def where(self, key: str = "") -> str:
        """One of the definition's values, as errors name it: document and key."""
        return f"{self}: {self.path(key)}"


class ServerDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one server and how to treat it. Paths and texts stand as they were written, variables too.

    Its repr shows neither environment, headers, logins, arguments nor the query of an address: any may hold a secret.
    """

    name: str
    command: str | None = None
    """The program of a stdio server; exactly one of `command` and `url` is set."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    env_file: str | None = None
    """A file of further variables, `NAME=VALUE` a line."""
    cwd: str | None = None
    """The folder to run in, relative to that of its source."""
    url: str | None = None
    """The address of a remote server: `http://…`, `https://…`, or `unix:///path/to.sock:/mcp`."""
    headers: Mapping[str, str] = {}
    """Sent with every request to it."""
    auth: Mapping[str, Any] = {}
    """How to log in to it, by `type`; empty: as the server asks for it."""
    transport: Transport = "stdio"
    era: Era = "auto"
    timeout: float = 30.0
    """Seconds a call may go without progress."""
    max_timeout: float = 600.0
    """Seconds a call may take, whatever its progress."""
    start_timeout: float = 120.0
    """Seconds until the server must be ready."""
    restart: bool = True
    """Start it again when it dies."""
    inherit_env: bool | tuple[str, ...] = False
    """Pass on the whole environment of the kernel, or the variables of these names."""
    max_result_bytes: int = 64_000_000
    disabled: bool = False
    lazy: bool = False
    """Start it at the first call."""
    auto_approve: tuple[str, ...] = ()
    """The tools that its author wants to run unasked."""
    tools: Mapping[str, str] = {}
    """What to do about its tools, by glob over their names: `allow`, `ask` or `deny`; the last that matches decides."""
    read_only: ReadOnly = False
    """Refuse tools that do not declare that they only read; `hinted`: those that declare that they write."""
    hints: Mapping[str, Mapping[str, bool]] = {}
    """Annotations of tools, by glob over their names, instead of the server's own."""
    concurrency: int = 1
    """How many calls of tools that may change something a model's answer may have running there at a time."""
    health_interval: float = 60.0
    """Seconds after which a remote server that nobody calls is asked whether it is there."""
    log_lines: int = 1000
    """How many of its log lines are kept."""
    inputs: Mapping[str, Mapping[str, Any]] = {}
    """What its `${input:ID}` stand for, by id, as VS Code describes them: `description`, `password`, `default`, …"""
    source: Source = Source()
    extra: Mapping[str, Any] = {}
    """The keys ipymcp does not know, kept as they were."""

    def shadowing(self, place: str) -> ServerDefinition:
        """The same, known to take the place of a server of this name that the user defines there."""
        return self.replace(source=msgspec.structs.replace(self.source, shadows=place))

    def replace(self, **changes: object) -> ServerDefinition:
        """The same definition with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        reached = ("url", _bare(self.url or "")) if self.command is None else ("command", self.command)
        return [("name", self.name), reached, ("source", str(self.source))]

    def __repr__(self) -> str:
        return f"ServerDefinition({', '.join(f'{key}={value!r}' for key, value in self.__rich_repr__())})"


def _bare(url: str) -> str:
    """An address without login, query and fragment."""
    address, mark, _ = url.replace("#", "?", 1).partition("?")
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" + ("?…" if mark else "")


def spelled(key: str, names: Mapping[str, str]) -> str:
    """A key of a definition, such as `env.TOKEN` or `args[0]`, as a file spells it that has other names.

    A file that has a program and its arguments in one list, `command`, has the first argument at 1.
    """
    for own, theirs in names.items():
        rest = key.removeprefix(own)
        if rest != key and (not rest or rest[0] in ".["):
            if own == "args" and theirs == names.get("command", "").removesuffix("[0]") and rest:
                index, bracket, behind = rest[1:].partition("]")
                return f"{theirs}[{int(index) + 1}{bracket}{behind}"
            return theirs + rest
    return key
