"""What is given for a definition: `key=value`, paths typed in the notebook's folder, documents that are pasted."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.edit import project_file
from ipymcp.config.entries import changed
from ipymcp.config.formats import definition_of, definitions
from ipymcp.config.shapes import Written, is_server, no_shape, shape_of
from ipymcp.errors import ConfigError, UnknownName
from ipymcp.runtime.names import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ipymcp.runtime.host import Host

__all__ = ["given", "placed", "settings"]

_TEXTS = frozenset({"command", "cwd", "url", "env_file", "era", "transport", "type", "restart"})
"""The keys whose values are texts, as they were typed."""
_TABLES_OF_TEXTS = frozenset({"env", "headers", "auth", "tools"})
_PASTED = "pasted"


def settings(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """`key=value` as a change of a definition: `env.TOKEN` reaches into a table, an empty value takes a key out."""
    change: dict[str, Any] = {}
    for path, text in pairs:
        key, dot, inner = path.partition(".")
        value = None if not text else text if (dot and key in _TABLES_OF_TEXTS) or key in _TEXTS else _decoded(text)
        if dot:
            change[key] = {**(change.get(key) or {}), inner: value}
        else:
            change[key] = value
    return change


def placed(text: str, host: Host, *, project: bool) -> str:
    """A path that was typed in the notebook's folder, as it stands in the file; what does not begin as one stays.

    The user's own servers run elsewhere, and a project's in the folder of its file.
    """
    if text not in (".", "..", "~") and not text.startswith(("./", "../", "~/", ".\\", "..\\")):
        return text
    path = os.path.normpath(os.path.join(host.folder, os.path.expanduser(text)))
    if not project or not os.path.samefile(host.folder, project_file(host.folder).parent):
        return path
    return text


def given(name: str | None, values: Mapping[str, Any], source: Source) -> list[ServerDefinition]:
    """What is to be added: a definition, or those of a document.

    Args:
        name: What to call it; of a document with several, which of them; None for all.
        values: A definition, or a document of any host.
        source: Where it is to stand.
    """
    if is_server(values) or shape_of(values, _PASTED) is None:
        if name is None and not is_server(values):
            raise no_shape(values, _PASTED)
        if name is None:
            raise ConfigError("the server needs a name", hint="%mcp config add NAME {…}, or a whole document")
        return [definition_of(Written(name, f"mcpServers.{name}", changed({}, values)), "mcpServers", source, {})]
    found = definitions(values, Source(scope=source.scope, file=_PASTED))
    if name is None or not found:
        return list(found.values())
    if name not in found and len(found) > 1:
        hint = nearest(name, found) or "without a name, all of it is added"
        raise UnknownName(f"there is no server {name!r} in what was pasted", hint=hint)
    return [found.get(name) or next(iter(found.values())).replace(name=name)]


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
