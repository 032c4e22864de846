"""Config documents as `ServerDefinition`s: every value checked, wrong ones named by document and key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ipymcp.config.auth import auth
from ipymcp.config.definition import ServerDefinition
from ipymcp.config.dialects import normal
from ipymcp.config.shapes import SHAPE, Written, bare_shape, no_shape, shape_of
from ipymcp.config.values import Entry
from ipymcp.config.variables import has_variables, references
from ipymcp.errors import ConfigError
from ipymcp.protocol.transports.addresses import checked_headers, parse_address

if TYPE_CHECKING:
    from ipymcp.config.definition import Era, ReadOnly, Source, Transport

__all__ = ["SHAPE", "definition_of", "definitions", "entries"]

_TRANSPORTS: dict[str, Transport] = {"stdio": "stdio", "http": "http", "sse": "sse"}
_PROGRAM = 'put the program in "command" and each of its arguments in "args"'
_TABLE = 'write an object of texts, such as {"NAME": "value"}'
_RULES = 'write rules by tool, such as {"*": "ask", "read_*": "allow"}'
_HINTS = 'write hints by tool, such as {"read_*": {"readOnlyHint": true}}'
_HINT_NAMES = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def definitions(document: object, source: Source, *, bare: bool = False) -> dict[str, ServerDefinition]:
    """Every server of a document, by name, in its order.

    Args:
        document: Decoded.
        source: Where it stands; errors begin with it.
        bare: It may also be an object from name to definition in which nothing looks like servers.

    Raises:
        ConfigError: It has no known shape, or a value is of the wrong kind. The message names document and key.
    """
    read = entries(document, source, bare=bare)
    if read is None:
        raise no_shape(cast("Mapping[str, Any]", document), str(source))
    found: dict[str, ServerDefinition] = {}
    for _, entry in read:
        if isinstance(entry, ConfigError):
            raise entry
        found[entry.name] = entry
    return found


def entries(
    document: object, source: Source, *, bare: bool = False
) -> list[tuple[str, ServerDefinition | ConfigError]] | None:
    """Every server of a document with its name, or what is wrong with it; None where nothing in it looks like servers.

    What has no name that could be used has the empty one. The arguments are those of `definitions`.

    Raises:
        ConfigError: The document as a whole cannot be used.
    """
    shape = shape_of(document, str(source))
    if shape is None and not bare:
        return None
    shape = shape or bare_shape(document, str(source))
    read: list[tuple[str, ServerDefinition | ConfigError]] = []
    for written in shape.written:
        if isinstance(written, ConfigError):
            read.append(("", written))
            continue
        try:
            read.append((written.name, definition_of(written, shape.host, source, shape.inputs)))
        except ConfigError as error:
            read.append((written.name, error))
    return read


def definition_of(
    written: Written, host: str, source: Source, inputs: Mapping[str, Mapping[str, Any]]
) -> ServerDefinition:
    """One server.

    Args:
        written: As its document has it.
        host: Whose shape the document has.
        source: Where the document stands.
        inputs: What the document says of `${input:ID}`.

    Raises:
        ConfigError: As `definitions`.
    """
    place = _at(source, host=host, key=written.key)
    values, names = normal(written.values, host, place)
    place = _at(place, names=names)
    definition = _server(written.name, Entry(values, place), place)
    if inputs:
        asked = {one.name for one in references(definition) if one.kind == "input"}
        used = {name: inputs[name] for name in inputs if name in asked}
        definition = definition.replace(inputs=used) if used else definition
    return definition


def _at(source: Source, **changes: Any) -> Source:
    return msgspec.structs.replace(source, **changes)


def _server(name: str, entry: Entry, source: Source) -> ServerDefinition:
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
        env_file=entry.text("env_file", hint="write a file's path"),
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
        auto_approve=entry.texts("auto_approve", hint='name the tools, such as ["read_file"]'),
        tools=_rules(entry),
        read_only=_read_only(entry),
        hints=_hints(entry),
        concurrency=entry.size("concurrency", 1, of="calls"),
        health_interval=entry.seconds("health_interval", 60.0),
        log_lines=entry.size("log_lines", 1000, of="lines"),
        source=source,
        extra=entry.rest(),
    )


def _read_only(entry: Entry) -> ReadOnly:
    return "hinted" if entry.get("read_only") == "hinted" else entry.flag("read_only", default=False)


def _rules(entry: Entry) -> dict[str, str]:
    rules = entry.table("tools", hint=_RULES)
    inner = entry.within("tools", rules)
    for pattern in rules:
        inner.choice(pattern, ("allow", "ask", "deny"))
    return rules


def _hints(entry: Entry) -> dict[str, dict[str, bool]]:
    given: object = entry.get("hints") or {}
    if not isinstance(given, Mapping):
        raise entry.expected("hints", "an object of objects", given, hint=_HINTS)
    hints: dict[str, dict[str, bool]] = {}
    for pattern, named in cast("Mapping[str, object]", given).items():
        if not isinstance(named, Mapping):
            raise entry.expected(f"hints.{pattern}", "an object", named, hint=_HINTS)
        inner = entry.within(f"hints.{pattern}", cast("Mapping[str, Any]", named))
        unknown = [name for name in inner if name not in _HINT_NAMES]
        if unknown:
            raise inner.error("is no hint", key=unknown[0], hint=f"the hints are {', '.join(_HINT_NAMES)}")
        hints[pattern] = {name: inner.flag(name, default=False) for name in inner}
    return hints


def _check_remote(entry: Entry, url: str | None, headers: Mapping[str, str]) -> None:
    """Raise for an address or a header that cannot be used. An address with variables is looked at when it has none."""
    whole = url if url is not None and not has_variables(url) else None
    for key, check in (("url", lambda: whole and parse_address(whole)), ("headers", lambda: checked_headers(headers))):
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
