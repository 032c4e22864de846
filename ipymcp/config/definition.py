"""The definition of a server, and its source."""

from __future__ import annotations

import os
from collections.abc import Mapping  # noqa: TC003 - msgspec reads it where a definition is decoded
from typing import Any, Final, Literal

import msgspec

Era = Literal["auto", "legacy", "modern"]
ReadOnly = Literal["hinted"] | bool
Scope = Literal["cell", "script", "named", "project", "user"]
Transport = Literal["stdio", "http", "sse"]

LOOSENING_HINTS: Final = {
    ("readOnlyHint", True): "only read",
    ("destructiveHint", False): "destroy nothing",
    ("openWorldHint", False): "access only their own data",
}
"""Hints that reduce the number of questions, each with its claim about the tools."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Source of a definition: a file, a cell or a script."""

    scope: Scope = "cell"
    """`cell`: typed after `%mcp load`; `script`: a mapping in Python; `named`: a file that the user named; `project`: a
    file that was found in or above the notebook's folder; `user`: the user's own file."""
    file: str | None = None
    folder: str | None = None
    """The folder of that file, or of the project that it belongs to (`.vscode/mcp.json` belongs to the one above)."""
    key: str = ""
    """Path of the definition in its file, keys joined by dots."""
    names: Mapping[str, str] = {}
    """The file's names of keys that differ from those of `ServerDefinition`, by our name."""
    remarks: Mapping[str, str] = {}
    """Remarks on how values were read, such as `5000 milliseconds`, by our name."""
    document_keys: Mapping[str, str] = {}
    """Paths of settings of the whole file that are not used, each with what does not happen."""
    shadows: str = ""
    """The user's own file, if a project's definition takes precedence over a server of the same name there."""

    @property
    def project(self) -> str | None:
        """The project's folder, the value of `${workspaceFolder}`; None if the file belongs to no project."""
        return self.folder if self.scope == "project" or self.is_in_host_folder else None

    @property
    def is_in_host_folder(self) -> bool:
        """Whether the file lies in a host's folder of a project, such as `.vscode`."""
        return bool(self.file and self.folder) and self.folder != os.path.dirname(self.file or "")

    def __str__(self) -> str:
        return self.file or self.scope

    def path(self, key: str = "") -> str:
        """Return the path of a value in the definition's file, keys joined by dots."""
        return ".".join(filter(None, (self.key, spelled(key, self.names))))

    def where(self, key: str = "") -> str:
        """Return the file, if there is one, and the key of a value, as error messages name it."""
        return ": ".join(filter(None, (self.file, self.path(key))))


class ServerDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """Connection and settings of a server. Paths and strings are as written; variables are not expanded.

    The repr omits environment, headers, logins, arguments and the query of a URL: each of them may contain a secret.
    """

    name: str
    command: str | None = None
    """The program of a stdio server; exactly one of `command` and `url` is set."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    env_file: str | None = None
    """A file of further variables, one `NAME=VALUE` per line."""
    cwd: str | None = None
    """The working folder, relative to that of the source."""
    url: str | None = None
    """URL of a remote server: `http://…`, `https://…`, or `unix:///path/to.sock:/mcp`."""
    headers: Mapping[str, str] = {}
    """HTTP headers of every request."""
    auth: Mapping[str, Any] = {}
    """Login settings with a `type`; empty to log in as the server requires."""
    transport: Transport = "stdio"
    era: Era = "auto"
    timeout: float = 30.0
    """Seconds that a call may go without progress."""
    max_timeout: float = 600.0
    """Seconds that a call may take, regardless of progress."""
    start_timeout: float = 120.0
    """Seconds that the server may take to start."""
    restart: bool = True
    """Restart the server when it ends unexpectedly."""
    inherit_env: bool | tuple[str, ...] = False
    """Pass on the whole environment of the kernel, or the variables of these names."""
    max_result_bytes: int = 64_000_000
    disabled: bool = False
    lazy: bool = False
    """Start the server at the first call."""
    auto_approve: tuple[str, ...] = ()
    """Globs of the tools that models may call without consent."""
    tools: Mapping[str, str] = {}
    """Rules by glob over tool names: `allow`, `ask` or `deny`; the last match decides."""
    read_only: ReadOnly = False
    """Refuse tools that are not declared as read-only; with `hinted`, only tools that are declared as not read-only."""
    instructions: bool = True
    """Give models the server's own instructions, as data."""
    hints: Mapping[str, Mapping[str, bool]] = {}
    """Annotations that override the server's, by glob over tool names."""
    concurrency: int = 1
    """Maximum concurrent write calls to this server per model answer."""
    health_interval: float = 60.0
    """Seconds between health checks of an idle remote server."""
    log_lines: int = 1000
    """Maximum number of stored log lines."""
    inputs: Mapping[str, Mapping[str, Any]] = {}
    """Inputs for `${input:ID}`, by id, in VS Code's form: `description`, `password`, `default`, …"""
    source: Source = Source()
    extra: Mapping[str, Any] = {}
    """Unknown keys, preserved as written."""

    def hides_input(self, name: str) -> bool:
        """Return whether an input is hidden while the user types it."""
        return self.inputs[name].get("password") is True

    def shadowing(self, file: str) -> ServerDefinition:
        """Return a copy marked as shadowing the user's server of the same name in a file."""
        return self.replace(source=msgspec.structs.replace(self.source, shadows=file))

    def replace(self, **changes: object) -> ServerDefinition:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        target = ("url", _bare(self.url or "")) if self.command is None else ("command", self.command)
        return [("name", self.name), target, ("source", str(self.source))]

    def __repr__(self) -> str:
        return f"ServerDefinition({', '.join(f'{key}={value!r}' for key, value in self.__rich_repr__())})"


def _bare(url: str) -> str:
    """Return a URL without login, query and fragment."""
    address, mark, _ = url.replace("#", "?", 1).partition("?")
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" + ("?…" if mark else "")


def spelled(key: str, names: Mapping[str, str]) -> str:
    """Translate a key of a definition, such as `env.TOKEN` or `args[0]`, to the names that a file uses.

    In a file with a program and its arguments in one list, `command`, the first argument is at index 1.
    """
    for own, theirs in sorted(names.items(), key=lambda pair: -len(pair[0])):
        rest = key.removeprefix(own)
        if rest != key and (not rest or rest[0] in ".["):
            if own == "args" and theirs == names.get("command", "").removesuffix("[0]") and rest:
                index, bracket, rest_of_key = rest[1:].partition("]")
                return f"{theirs}[{int(index) + 1}{bracket}{rest_of_key}"
            return theirs + rest
    return key
