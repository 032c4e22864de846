"""The shapes of config documents: what each host writes, read as `ServerDefinition`s.

Now one: `{"mcpServers": {NAME: {"command": …, "args": […], "env": {…}}, NAME: {"url": …, "headers": {…}}}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ipymcp.config.auth import auth
from ipymcp.config.definition import ServerDefinition
from ipymcp.config.values import Entry, found
from ipymcp.errors import ConfigError
from ipymcp.protocol.transports.addresses import checked_headers, parse_address

if TYPE_CHECKING:
    from ipymcp.config.definition import Era, Transport

__all__ = ["definitions", "servers"]

SHAPE = 'the shape is {"mcpServers": {"NAME": {"command": "…", "args": ["…"]}}}'
_TRANSPORTS: dict[str, Transport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
_PROGRAM = 'put the program in "command" and each of its arguments in "args"'
_TABLE = 'write an object of texts, such as {"NAME": "value"}'


def definitions(document: Mapping[str, Any], *, origin: str, base: str | None) -> dict[str, ServerDefinition]:
    """Every server of a document, by name, in its order.

    Args:
        document: The decoded document.
        origin: Its path, or `cell` or `script`; errors begin with it.
        base: The folder that relative paths in it start from.

    Raises:
        ConfigError: It has another shape, or a value is of the wrong kind. The message names document and key.
    """
    if not isinstance(document, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - it was a file's text
        raise ConfigError(f"{origin}: expected an object, got {found(document)}", hint=SHAPE)
    if "mcpServers" not in document:
        keys = ", ".join(f'"{key}"' for key in list(document)[:5]) or "an empty object"
        raise ConfigError(f'{origin}: expected the key "mcpServers", found {keys}', hint=SHAPE)
    table = document["mcpServers"]
    if not isinstance(table, Mapping):
        raise ConfigError(f"{origin}: mcpServers: expected an object, got {found(table)}", hint=SHAPE)
    return servers(cast("Mapping[str, Any]", table), origin=origin, base=base, path="mcpServers.")


def servers(table: Mapping[str, Any], *, origin: str, base: str | None, path: str = "") -> dict[str, ServerDefinition]:
    """The servers of an object from name to definition. `path` is what errors put before the name.

    Raises:
        ConfigError: As `definitions`.
    """
    found_servers: dict[str, ServerDefinition] = {}
    for name, values in table.items():
        if not isinstance(name, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            where = f"{origin}: {path.removesuffix('.')}".removesuffix(": ")
            raise ConfigError(f"{where}: expected a server's name, got {found(name)}", hint=SHAPE)
        if not isinstance(values, Mapping):
            raise ConfigError(f"{origin}: {path}{name}: expected an object, got {found(values)}", hint=SHAPE)
        entry = Entry(cast("Mapping[str, Any]", values), origin=origin, path=f"{path}{name}")
        found_servers[name] = _server(name, entry, origin=origin, base=base)
    return found_servers


def _server(name: str, entry: Entry, *, origin: str, base: str | None) -> ServerDefinition:
    entry.refuse_variables()
    if entry.flag("read_only", default=False):  # who writes it counts on it
        raise entry.error(
            "this version does not enforce it", key="read_only", hint="leave it out, or %mcp disable tools"
        )
    command = entry.text("command", hint=_PROGRAM)
    url = entry.text("url", hint="write the server's address, such as https://host/mcp")
    headers = entry.table("headers", hint=_TABLE)
    _check_remote(entry, url, headers)
    timeout = entry.seconds("timeout", 30.0)
    return ServerDefinition(
        name=name,
        command=command,
        args=entry.texts("args", hint=_PROGRAM),
        env=entry.table("env", hint=_TABLE),
        cwd=entry.text("cwd", hint="write a folder's path"),
        url=url,
        headers=headers,
        auth=auth(entry),
        transport=_transport(entry, command, url),
        era=cast("Era", entry.choice("era", ("auto", "legacy", "modern")) or "auto"),
        timeout=timeout,
        max_timeout=_max_timeout(entry, timeout),
        start_timeout=entry.seconds("start_timeout", 120.0),
        restart=_restart(entry),
        inherit_env=_inherit_env(entry),
        max_result_bytes=entry.size("max_result_bytes", 64_000_000),
        disabled=entry.flag("disabled", default=False),
        lazy=entry.flag("lazy", default=False),
        health_interval=entry.seconds("health_interval", 60.0),
        log_lines=entry.size("log_lines", 1000, of="lines"),
        origin=origin,
        base=base,
        extra=entry.rest(),
    )


def _check_remote(entry: Entry, url: str | None, headers: Mapping[str, str]) -> None:
    """Raise for an address or a header that cannot be used."""
    for key, check in (("url", lambda: url and parse_address(url)), ("headers", lambda: checked_headers(headers))):
        try:
            check()
        except ConfigError as error:
            raise entry.error(error.message, key=key, hint=error.hint or _TABLE) from None


def _transport(entry: Entry, command: str | None, url: str | None) -> Transport:
    if command is None and url is None:
        raise entry.error('expected "command" or "url", found neither', hint=SHAPE)
    if command is not None and url is not None:
        raise entry.error('expected "command" or "url", found both', hint='keep "command" for a local server')
    named: dict[str, Transport] = {
        key: _TRANSPORTS[word] for key in ("type", "transport") if (word := entry.choice(key, _TRANSPORTS))
    }
    if len(set(named.values())) > 1:
        raise entry.error('"type" and "transport" disagree', hint='keep "type"')
    transport = named.get("type") or named.get("transport") or ("http" if command is None else "stdio")
    if (transport == "stdio") != (command is not None):
        reached = "url" if command is None else "command"
        hint = f'leave "{next(iter(named))}" out: "{reached}" says it already'
        raise entry.error(f'a server with a "{reached}" does not speak {transport}', key=next(iter(named)), hint=hint)
    return transport


def _max_timeout(entry: Entry, timeout: float) -> float:
    """The longest a call may take; a longer `timeout` alone raises it."""
    limit = entry.seconds("max_timeout", max(600.0, timeout))
    if limit < timeout:
        hint = 'lower "timeout" or raise "max_timeout"'
        raise entry.error(f"{limit:g} s is less than the timeout of {timeout:g} s", key="max_timeout", hint=hint)
    return limit


def _restart(entry: Entry) -> bool:
    """True, false, or `"no"`."""
    return entry.get("restart") != "no" and entry.flag("restart", default=True)


def _inherit_env(entry: Entry) -> bool | tuple[str, ...]:
    value = entry.get("inherit_env")
    if value is None or isinstance(value, bool):
        return bool(value)
    return entry.texts("inherit_env", hint='write true, false, or the names, such as ["AWS_PROFILE"]')
