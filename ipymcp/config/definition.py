"""One configured server, as its file, cell or script defined it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Era", "ServerDefinition", "Transport"]

Era = Literal["auto", "legacy", "modern"]
Transport = Literal["stdio", "http", "sse"]


class ServerDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one server and how to treat it. Paths and texts stand as they were written.

    Its repr shows neither environment, headers, logins nor arguments: any of them may hold a secret.
    """

    name: str
    command: str | None = None
    """The program of a stdio server; exactly one of `command` and `url` is set."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    """The folder to run in, relative to `base`."""
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
    health_interval: float = 60.0
    """Seconds after which a remote server that nobody calls is asked whether it is there."""
    log_lines: int = 1000
    """How many of its log lines are kept."""
    origin: str = "cell"
    """Where it was defined: `cell`, `script`, or a file's path."""
    base: str | None = None
    """The folder of that file."""
    extra: Mapping[str, Any] = {}
    """The keys ipymcp does not know, kept as they were."""

    def digest(self) -> str:
        """SHA-256, in hex, over what decides what runs and with which rights; two servers with one digest are the same.

        It leaves out the name, limits and switches. Where limits matter too, compare definitions.
        """
        inherited = self.inherit_env if isinstance(self.inherit_env, bool) else sorted(self.inherit_env)
        decides = {
            "command": self.command,
            "args": self.args,
            "env": dict(self.env),
            "cwd": self.cwd,
            "base": self.base,
            "url": self.url,
            "headers": dict(self.headers),
            "auth": dict(self.auth),
            "transport": self.transport,
            "inherit_env": inherited,
            "extra": {key: self.extra[key] for key in ("autoApprove", "envFile") if key in self.extra},
        }
        import hashlib
        import json

        return hashlib.sha256(json.dumps(decides, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def replace(self, **changes: object) -> ServerDefinition:
        """The same definition with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        reached = ("url", self.url) if self.command is None else ("command", self.command)
        return [("name", self.name), reached, ("origin", self.origin)]

    def __repr__(self) -> str:
        return f"ServerDefinition({', '.join(f'{key}={value!r}' for key, value in self.__rich_repr__())})"
