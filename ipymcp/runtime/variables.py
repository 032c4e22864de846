"""Values of a definition's variables at a start, including inputs that the user is asked for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ipymcp.errors import ConfigError, SecretError
from ipymcp.interaction.questions import CANCELLED, ElicitationAnswer, FormQuestion
from ipymcp.masking import masks
from ipymcp.protocol.transports.addresses import checked_headers, parse_address
from ipymcp.storage.secrets import is_password
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.interaction.questions import UserInterface
    from ipymcp.runtime.context import RuntimeContext
    from ipymcp.runtime.interfaces import ServerFacts

    Pause = Callable[[], AbstractAsyncContextManager[None]]


async def expanded_now(session: ServerFacts, pause: Pause, services: RuntimeContext) -> ServerDefinition:
    """The session's definition with the values that its variables have now. The user is asked for inputs, once.

    Raises:
        ConfigError: One has no value, or the address or a header cannot be used.
    """
    from ipymcp.config.redaction import secret_variables
    from ipymcp.config.variables import (
        Lookup,
        expand,
        references,  # not at %load_ext
    )

    definition = session.definition
    found = references(definition)
    inputs = list(dict.fromkeys(one.name for one in found if one.kind == "input" and one.name in definition.inputs))
    if inputs:
        await _ask(session, inputs, pause, services)
    found_out = {name: services.store.inputs.given(definition, name) for name in inputs}
    given = {name: value for name, value in found_out.items() if value is not None}
    lookup = Lookup(services.folder, lambda name: services.store.secrets.get(name), given)
    if definition.env_file is None and all(one.kind != "secret" for one in found):
        expanded = expand(definition, lookup)
    else:  # a file, a keyring: it may take its time
        expanded = await asyncio.to_thread(expand, definition, lookup)
    _check(expanded)
    masks.add(*secret_variables({one.name: os.environ.get(one.name, "") for one in found if one.kind == "variable"}))
    return expanded


async def _ask(session: ServerFacts, inputs: list[str], pause: Pause, services: RuntimeContext) -> None:
    """Have the user give what has not been given yet; where nobody can be asked, what has a default is that."""
    definition, known = session.definition, services.store.inputs

    def missing() -> list[str]:
        return [name for name in inputs if known.given(definition, name) is None]

    def fill(interaction: UserInterface) -> ElicitationAnswer:
        names = missing()  # another server of the document may just have asked
        if not names:
            return ElicitationAnswer("accept")
        fields = {name: _field(definition.inputs[name]) for name in names}
        message = f"{definition.source} wants {'a value' if len(names) == 1 else 'values'} for it"
        schema = {"type": "object", "properties": fields, "required": names}
        answer = interaction.fill(FormQuestion(session.name, None, message, schema))
        for name, value in (answer.content or {}).items():
            known.give(definition, name, str(value))
        return answer

    passwords = [name for name in inputs if is_password(definition, name)]
    await _recall(session, [name for name in passwords if name in missing()], services)
    if not missing():
        pass
    elif services.desk.can_ask("secret"):
        async with pause():
            await services.desk.ask("secret", fill, CANCELLED)
    else:
        for name in missing():
            default = _field(definition.inputs[name]).get("default")
            if default is not None:
                known.give(definition, name, default)
    await _keep(session, [name for name in passwords if name not in missing()], services)


async def _recall(session: ServerFacts, names: Iterable[str], services: RuntimeContext) -> None:
    """Take the passwords that are kept for this definition."""
    for name in names:
        try:
            if await asyncio.to_thread(services.store.inputs.recall, session.definition, name, session.digest):
                kept = f"input:{name}"
                session.log.add("host", "info", f"{kept} is kept; %mcp secret delete {quoted(kept)} forgets it")
        except SecretError as error:
            session.log.add("host", "warning", f"what was kept as input:{name} cannot be read: {error.message}")


async def _keep(session: ServerFacts, names: Iterable[str], services: RuntimeContext) -> None:
    """Keep passwords for the next kernel."""
    for name in names:
        try:
            await asyncio.to_thread(services.store.inputs.keep, session.definition, name, session.digest)
        except SecretError as error:
            session.log.add("host", "warning", f"input:{name} is not kept: {error.message}")


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


def _check(definition: ServerDefinition) -> None:
    """Raise for an address or a header that cannot be used, without showing it: it may hold a secret."""
    where = definition.source.where
    try:
        if definition.url is not None:
            parse_address(definition.url)
    except ConfigError as error:
        message = f"{where('url')}: with its variables replaced it is not the address of an HTTP server"
        raise ConfigError(message, hint=error.hint) from None
    try:
        checked_headers(definition.headers)
    except ConfigError as error:
        message = f"{where('headers')}: with its variables replaced one of them is no header"
        raise ConfigError(message, hint=error.hint) from None
