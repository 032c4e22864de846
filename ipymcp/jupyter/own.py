"""Changes of the user's own config file. No other file is written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ipymcp.config.convert import as_own
from ipymcp.config.definition import Source
from ipymcp.config.discovery import candidates, discover
from ipymcp.config.edit import edit, editable
from ipymcp.config.entries import changed, ours, put, standing
from ipymcp.config.formats import definition_of
from ipymcp.config.places import user_file
from ipymcp.config.secrecy import masked_definition
from ipymcp.config.shapes import Written
from ipymcp.errors import ConfigError, UnknownName
from ipymcp.policy.trust import Trust

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.policy.questions import TrustAnswer, TrustQuestion
    from ipymcp.state.store import Store

__all__ = ["OwnFile", "listed", "trust_of"]

T = TypeVar("T")
_MASK = "•••• ("
"""How what is masked begins."""


def listed(folder: str) -> dict[str, Any]:
    """Every server that is configured for the notebooks of a folder, masked. Blocking."""
    found = discover(candidates(folder, environ={}))
    return {
        "file": user_file(),
        "servers": [_row(name, entry) for name, entry in found.servers.items()],
        "problems": [_problem(error) for error in found.problems],
    }


def trust_of(store: Store) -> Trust:
    """What may run, as all kernels of the user remember it; nobody is asked here."""
    return Trust(lambda: store.database, _nobody)


class OwnFile:
    """The file, and whether what was written into it may run.

    Args:
        store: Remembers that.
    """

    def __init__(self, store: Store) -> None:
        self._trust = trust_of(store)

    async def add(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a new server. What the user has typed may run.

        Raises:
            ConfigError: There is one of that name, it is wrong, or the file cannot be written.
        """
        await self._trust.agree_to_typed(await _edited(lambda document: _add(name, values, document)))

    async def change(self, name: str, values: Mapping[str, Any]) -> None:
        """Change some values of a server; None takes one out. It may run if it might before.

        Raises:
            UnknownName: The file does not define it.
            ConfigError: It would be wrong, or the file cannot be written.
        """
        before, after = await _edited(lambda document: _change(name, values, document))
        grant = await self._trust.grant(before) if before is not None else None
        await self._trust.carry_over(grant, after)

    async def remove(self, name: str) -> None:
        """Take a server out. Raises as `change`."""
        await _edited(lambda document: _remove(name, document))

    async def check(self, name: str, values: Mapping[str, Any], *, is_new: bool) -> None:
        """Raise what `add` or `change` would raise of these values; nothing is written."""
        _, document = await asyncio.to_thread(editable, Path(user_file()))
        (_add if is_new else _change)(name, values, document)


async def _edited(alter: Callable[[dict[str, Any]], T]) -> T:
    """Have the file changed, and give what that gives."""
    given: list[T] = []
    await asyncio.to_thread(edit, Path(user_file()), lambda document: given.append(alter(document)), private=True)
    return given[0]


def _add(name: str, values: Mapping[str, Any], document: dict[str, Any]) -> ServerDefinition:
    _refuse_masks(values)
    if name in document["mcpServers"]:
        raise ConfigError(f"{name} is there already", hint="change it, or choose another name")
    source = _source()
    written = Written(name, f"mcpServers.{name}", changed({}, values))
    return put(definition_of(written, "mcpServers", source, {}), document, source)


def _change(
    name: str, values: Mapping[str, Any], document: dict[str, Any]
) -> tuple[ServerDefinition | None, ServerDefinition]:
    """The definition before, None where it could not be used, and after."""
    _refuse_masks(values)
    source, entry = _source(), _entry(name, document)
    try:
        before = standing(name, document, source)
    except ConfigError:
        before = None
    document["mcpServers"][name] = changed(ours(entry, values, source), values)
    return before, standing(name, document, source)


def _remove(name: str, document: dict[str, Any]) -> None:
    _entry(name, document)
    del document["mcpServers"][name]


def _entry(name: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    entry = document["mcpServers"].get(name)
    if not isinstance(entry, Mapping):
        raise UnknownName(f"{user_file()} defines no server {name!r}", hint="no other file is written")
    return cast("Mapping[str, Any]", entry)


def _source() -> Source:
    file = Path(user_file())
    return Source(scope="user", file=str(file), folder=str(file.parent))


def _refuse_masks(value: object, key: str = "") -> None:
    """What a view was shown masked is no value."""
    if isinstance(value, str) and _MASK in value:
        raise ConfigError(f"{key}: is a mask, no value", hint="leave it out to keep what it is, or type it anew")
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, object]", value).items():
            _refuse_masks(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            _refuse_masks(inner, f"{key}[{index}]")


def _row(name: str, entry: ServerDefinition | ConfigError) -> dict[str, Any]:
    if isinstance(entry, ConfigError):
        return {"name": name, "error": _problem(entry)}
    source = entry.source
    return {
        "name": name,
        "definition": as_own(masked_definition(entry).replace(extra={})),
        "unused": [*entry.extra],
        "file": source.file,
        "scope": source.scope,
        "is_writable": source.file == user_file(),
    }


def _problem(error: ConfigError) -> dict[str, str]:
    return {"message": error.message, "hint": error.hint or ""}


async def _nobody(question: TrustQuestion) -> TrustAnswer | None:
    return None
