"""What `load` was asked for: definitions, from names, config files and mappings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ipymcp.config.definition import ServerDefinition
from ipymcp.config.files import from_mapping, read
from ipymcp.errors import UnknownName
from ipymcp.protocol.transports.addresses import parse_address
from ipymcp.runtime.names import identifier, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipymcp.runtime.host import Host

__all__ = ["demo_definition", "gather", "url_definition"]

_NO_NAMES = frozenset({"www", "api", "mcp", "app", "server"})
"""Parts of a host's name that say nothing of whose it is."""


def demo_definition() -> ServerDefinition:
    """The server that ships with ipymcp; see `ipymcp.demo`."""
    script = Path(__file__).parent.parent / "demo" / "__main__.py"
    return ServerDefinition(name="demo", command=sys.executable, args=("-I", "-S", str(script)))


def url_definition(url: str, name: str | None = None) -> ServerDefinition:
    """A remote server by its address; unless named, it is called after its host: `example` for `mcp.example.com`.

    Raises:
        ConfigError: The address is none.
    """
    parse_address(url)
    if name is None:
        host = urlsplit(url).hostname or ""
        labels = host.split(".")
        known = [label for label in (labels[:-1] or labels) if label not in _NO_NAMES]
        name = identifier(known[-1]) if known and not host.replace(".", "").isdigit() else "remote"
    return from_mapping({name: {"url": url}}, origin="cell")[name]


def gather(
    what: Iterable[str | os.PathLike[str] | Mapping[str, Any]], host: Host
) -> tuple[list[ServerDefinition], list[str]]:
    """The definitions that `load` was asked for, and the names among them that must not fail.

    Raises:
        ConfigError: A file or definition is wrong.
        UnknownName: A name that is nowhere defined.
    """
    definitions: dict[str, ServerDefinition] = {}
    named: list[str] = []
    path: Path | None = None
    available: dict[str, ServerDefinition] = {}
    pending: dict[str, ServerDefinition] = {}
    for item in what:
        if not isinstance(item, (str, os.PathLike)):
            found = from_mapping(item)
            definitions.update(found)
            named.extend(found)
        elif isinstance(item, str) and "://" in item:
            remote = url_definition(item)
            definitions[remote.name] = remote
            named.append(remote.name)
        elif isinstance(item, os.PathLike) or _looks_like_path(item):
            definitions.update(pending)
            path = Path(host.folder, os.path.expanduser(item))
            available = pending = read(path)
        else:
            pending = {}
            definitions[item] = _named(item, available, path, host)
            named.append(item)
    definitions.update(pending)
    return list(definitions.values()), named


def _named(name: str, available: Mapping[str, ServerDefinition], path: Path | None, host: Host) -> ServerDefinition:
    if name in available:
        return available[name]
    if path is None and name in host.sessions:
        return host.sessions[name].definition
    if path is None and name == "demo":
        return demo_definition()
    if path is not None:
        hint = nearest(name, available) or f"it defines: {', '.join(available) or 'none'}"
        raise UnknownName(f"{path} defines no server {name!r}", hint=hint)
    hint = nearest(name, [*host.sessions, "demo"]) or f"say what it runs: %mcp load {name} -- COMMAND ARG…"
    raise UnknownName(f"no server {name!r} is known here", hint=hint)


def _looks_like_path(text: str) -> bool:
    return text.endswith((".json", ".json5", ".jsonc")) or "/" in text or os.sep in text
