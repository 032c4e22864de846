"""Lines about settings of other hosts that decide access, and that have no effect in ipymcp.

Unknown keys are recognised by the words of their names, also those of hosts that ipymcp does not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from ipymcp.config.hosts import HOSTS
from ipymcp.config.variables import references
from ipymcp.text import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ipymcp.config.definition import ServerDefinition


_EFFECTS: Final = (
    ("its headers are not sent", frozenset({"header", "headers", "cookie", "cookies"})),
    (
        "it is not confined",
        frozenset({"sandbox", "sandboxed", "sandboxing", "isolated", "isolation", "confined", "container", "network"})
        | frozenset({"seccomp", "firejail", "landlock", "privileges", "capabilities", "filesystem", "readonly"}),
    ),
    (
        "its rules for tools do not apply",
        frozenset({"tool", "tools", "toolset", "toolsets", "approve", "approval", "approvals", "allow", "allowed"})
        | frozenset({"allowlist", "deny", "denied", "denylist", "block", "blocked", "permission", "permissions"})
        | frozenset({"trust", "trusted", "confirm", "confirmation", "exclude", "excluded", "whitelist", "blacklist"}),
    ),
    (
        "it does not log in that way",
        frozenset({"auth", "authentication", "authorization", "oauth", "oauth2", "oidc", "login", "client", "scope"})
        | frozenset({"scopes", "audience", "credentials", "credential", "account", "identity", "issuer", "sso"}),
    ),
    (
        "its token is not sent",
        frozenset({"token", "tokens", "bearer", "secret", "secrets", "password", "apikey", "key", "keys"}),
    ),
    (
        "its certificates and proxies are not used",
        frozenset({"tls", "ssl", "cert", "certs", "certificate", "certificates", "ca", "proxy", "verify", "insecure"}),
    ),
    (
        "it does not run in that folder",
        frozenset({"cwd", "dir", "directory", "directories", "folder", "folders", "workdir", "workspace", "root"})
        | frozenset({"roots", "chroot"}),
    ),
)
"""Consequences of ignoring a setting, each with the words of names of such settings; the first that fits counts."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_NO_LOGIN = "a login that the server requires is not prevented"
_NO_VARIABLES = "a server with an address gets no variables"
_HARMLESS = frozenset({"registry"})
"""Keys with a meaning of their own."""
_MAX_KEYS = 5
_MAX_LENGTH = 60
_MAX_DEPTH = 5
_MAX_LINES = 50


def lines(definitions: Iterable[ServerDefinition]) -> list[str]:
    """Return a line for each kind of setting of a definition that decides access and is not used, and about units."""
    found: dict[str, None] = {}
    for definition in definitions:
        source = definition.source
        for effect, keys in _unused(definition).items():
            verb = "is" if len(keys) == 1 and not keys[0].endswith("s") else "are"
            listed = ", ".join(keys[:_MAX_KEYS]) + (", …" if len(keys) > _MAX_KEYS else "")
            found[f"{definition.name}: {listed} {verb} not used: {effect} ({source})"] = None
        found |= {f"{source}: {key} is not used: {effect}": None for key, effect in source.document_keys.items()}
        if "taken for" in source.remarks.get("timeout", ""):
            seconds = f"{definition.timeout:g} s"
            hint = 'with "max_timeout" it is in seconds'
            found[f"{definition.name}: the timeout is {seconds} ({source.remarks['timeout']}); {hint}"] = None
    listed = list(found)
    more = len(listed) - _MAX_LINES
    return listed if more <= 0 else [*listed[:_MAX_LINES], f"{more:,} more lines about settings that are not used"]


def _unused(definition: ServerDefinition) -> dict[str, list[str]]:
    """Return the names of unused settings of a definition by their effect."""
    found: dict[str, list[str]] = {}
    for key, value in definition.extra.items():
        host, dot, rest = key.partition(".")
        name = rest if dot and host in HOSTS else key
        for effect, path in _effects(name, value) if key not in _HARMLESS else ():
            found.setdefault(effect, []).append(cut(path, _MAX_LENGTH))
    if definition.url is not None and definition.env:
        used = {one.name for one in references(definition) if not one.where.startswith("env.")}
        name = definition.source.names.get("env", "env")
        unused = [f"{name}.{cut(key, _MAX_LENGTH)}" for key in definition.env if key not in used]
        found |= {_NO_VARIABLES: unused} if unused else {}
    if definition.command is not None and definition.headers:
        found.setdefault(_EFFECTS[0][0], []).append(definition.source.names.get("headers", "headers"))
    return found


def _effects(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the effect and the path of a setting, or of the settings in an object."""
    effect = _effect(name)
    if value is False and effect is not None and "log in" in effect:
        yield _NO_LOGIN, name
    elif _is_empty(value):
        return
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            if effect is not None and not _is_empty(inner):
                yield effect, f"{name}.{key}"
            is_open = effect is None and depth < _MAX_DEPTH
            for found, path in _effects(str(key), inner, depth + 1) if is_open else ():
                yield found, f"{name}.{path}"
    elif effect is not None:
        yield effect, name


def _is_empty(value: object) -> bool:
    return value is None or value is False or value in ("", [], {})


def _effect(name: str) -> str | None:
    words = [word.lower() for word in _WORD.findall(name)]
    every = {*words, "".join(words)}  # `readOnly` and `work_dir` are one word elsewhere
    return next((effect for effect, known in _EFFECTS if every & known), None)
