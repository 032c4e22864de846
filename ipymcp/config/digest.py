"""Digests of server definitions: two servers with one digest run the same with the same rights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipymcp.config.binding import Disk
    from ipymcp.config.definition import ServerDefinition


def digest_of(definition: ServerDefinition, disk: Disk | None = None) -> str:
    """Return the SHA-256, in hex, over everything that decides what a server runs and with which rights.

    Limits and switches are left out; compare definitions where they matter. The digest of a project's definition also
    covers its name, whether that name shadows one of the user's servers, its rights, and the contents of its files.

    Args:
        definition: The server's definition.
        disk: The cache of file contents to share between several digests.
    """
    import hashlib

    decides: dict[str, Any] = {
        "command": definition.command,
        "args": definition.args,
        "env": dict(definition.env),
        "env_file": definition.env_file,
        "cwd": definition.cwd,
        "folder": definition.source.folder,
        "url": definition.url,
        "headers": dict(definition.headers),
        "auth": dict(definition.auth),
        "transport": definition.transport,
        "auto_approve": definition.auto_approve,
        "inherit_env": inherited if isinstance(inherited := definition.inherit_env, bool) else sorted(inherited),
        "inputs": {name: dict(described) for name, described in definition.inputs.items()},
    }
    if definition.source.scope == "project":
        from ipymcp.config.binding import Disk, binding  # its patterns are compiled for projects only

        disk = disk or Disk()
        hints = [[pattern, dict(hint)] for pattern, hint in definition.hints.items()]
        decides["rights"] = [list(definition.tools.items()), definition.read_only, hints]
        decides["files"] = {str(path): disk.content(path) for path in binding(definition, disk).files}
        decides["name"] = [definition.name, bool(definition.source.shadows)]
    return hashlib.sha256(json.dumps(decides, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def digests(definitions: Iterable[ServerDefinition]) -> list[str]:
    """Return the digest of each definition, reading each project file once."""
    listed = list(definitions)
    if all(one.source.scope != "project" for one in listed):
        return [digest_of(one) for one in listed]
    from ipymcp.config import binding

    disk = binding.Disk()
    return [digest_of(one, disk) for one in listed]
