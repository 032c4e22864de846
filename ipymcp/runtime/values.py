"""What stands for the variables of a definition at a start, with what the user is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ipymcp.errors import ConfigError
from ipymcp.masking import masks
from ipymcp.protocol.transports.addresses import checked_headers, parse_address
from ipymcp.runtime.interaction import CANCELLED, FormQuestion

if TYPE_CHECKING:
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.runtime.server import ServerSession
    from ipymcp.runtime.services import Services
    from ipymcp.runtime.starting import Start

__all__ = ["expanded_now"]


async def expanded_now(session: ServerSession, start: Start, services: Services) -> ServerDefinition:
    """The session's definition with the values that its variables have now. The user is asked for inputs, once.

    Raises:
        ConfigError: One has no value, or the address or a header cannot be used.
    """
    from ipymcp.config.variables import Lookup, expand, references  # not at %load_ext

    definition = session.definition
    found = references(definition)
    inputs = list(dict.fromkeys(one.name for one in found if one.kind == "input" and one.name in definition.inputs))
    await _ask(session, inputs, start, services)
    kept = {name: services.inputs.get(_kept_as(definition, name)) for name in inputs}
    given = {name: value for name, value in kept.items() if value is not None}
    lookup = Lookup(services.folder, lambda name: services.store.secrets.get(name), given)
    if definition.env_file is None and all(one.kind != "secret" for one in found):
        expanded = expand(definition, lookup)
    else:  # a file, a keyring: it may take its time
        expanded = await asyncio.to_thread(expand, definition, lookup)
    _check(expanded)
    return expanded


async def _ask(session: ServerSession, inputs: list[str], start: Start, services: Services) -> None:
    """Have the user give what has not been given yet; where nobody can be asked, what has a default is that."""
    definition = session.definition
    missing = [name for name in inputs if _kept_as(definition, name) not in services.inputs]
    if not missing:
        return
    properties = {name: _field(definition.inputs[name]) for name in missing}
    if services.desk.can_ask():
        schema = {"type": "object", "properties": properties, "required": missing}
        message = f"{definition.source} wants {'a value' if len(missing) == 1 else 'values'} for it"
        question = FormQuestion(session.name, None, message, schema)
        async with start.paused():
            answer = await services.desk.ask(lambda interaction: interaction.fill(question), CANCELLED)
        content = answer.content or {}
    else:
        content = {name: field["default"] for name, field in properties.items() if "default" in field}
    for name, value in content.items():
        services.inputs[_kept_as(definition, name)] = str(value)
        if definition.inputs[name].get("password") is True:
            masks.add(str(value))


def _field(described: Mapping[str, Any]) -> dict[str, Any]:
    """An input as VS Code describes it, as a field of a form."""
    field: dict[str, Any] = {"type": "string"}
    for theirs, own in (("description", "description"), ("default", "default")):
        if isinstance(described.get(theirs), str):
            field[own] = described[theirs]
    options = described.get("options")
    if isinstance(options, list):
        items = cast("list[object]", options)
        values = [
            cast("Mapping[str, object]", item).get("value") if isinstance(item, Mapping) else item for item in items
        ]
        field["enum"] = [value for value in values if isinstance(value, str)]
    if described.get("password") is True:
        field["format"] = "password"
        field.pop("default", None)
    return field


def _kept_as(definition: ServerDefinition, name: str) -> tuple[str, str]:
    return str(definition.source), name


def _check(definition: ServerDefinition) -> None:
    """Raise for an address or a header that cannot be used, without showing it: it may hold a secret."""
    where = definition.source.where
    try:
        if definition.url is not None:
            parse_address(definition.url)
    except ConfigError as error:
        message = f"{where('url')}: with its variables replaced it is no address of an HTTP server"
        raise ConfigError(message, hint=error.hint) from None
    try:
        checked_headers(definition.headers)
    except ConfigError as error:
        message = f"{where('headers')}: with its variables replaced one of them is no header"
        raise ConfigError(message, hint=error.hint) from None
