"""What is dangerous in a definition: pointed out in the question whether it may run. Nothing is refused for it."""

from __future__ import annotations

import ipaddress
import re
import socket
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from ipymcp.config.command_dangers import command_dangers
from ipymcp.config.programs import DECIDING, TRAFFIC
from ipymcp.config.secrecy import SECRET_VALUE, masked
from ipymcp.masking import looks_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ipymcp.config.definition import ServerDefinition

__all__ = ["dangers"]

_TOOL_NAMES: Final = (
    *("read_file", "write_file", "delete", "run", "execute_command", "send-email", "getUser", "query", "search", "a"),
    *("list_all", "create_issue", "update", "fetch_url", "drop_table", "pushCommit", "zip", "notify", "x.y", "browser"),
)
"""Names such as tools have: a pattern that means half of them means nearly everything."""
_LOOSENING: Final = {
    ("readOnlyHint", True): "only read",
    ("destructiveHint", False): "destroy nothing",
    ("openWorldHint", False): "stay with their own data",
}
"""Hints that have fewer questions asked, with what they say of tools."""
_LOCAL_NAMES = re.compile(r"localhost|.*\.(localhost|local|internal|lan|home\.arpa)|ip6-\w+", re.I)
_ENGINE_SOCKETS = re.compile(r"(docker|podman|containerd|crio?|buildkitd|libvirt|dbus|systemd|ssh-agent)", re.I)


def dangers(definition: ServerDefinition) -> list[str]:
    """What a person should look at before the server runs, one line each."""
    found = [
        *_of_name(definition),
        *command_dangers(definition),
        *_of_environment(definition),
        *_of_address(definition),
        *_of_rights(definition),
    ]
    return list(dict.fromkeys(found))


def _of_name(definition: ServerDefinition) -> Iterator[str]:
    if definition.source.shadows:
        yield f"takes the place of your own {definition.name} ({definition.source.shadows}): its calls would go here"


def _of_environment(definition: ServerDefinition) -> Iterator[str]:
    for name in definition.env:
        if DECIDING.fullmatch(name):
            yield f"{name}: decides what code runs"
        elif TRAFFIC.fullmatch(name):
            yield f"{name}: decides where its traffic goes, and who can read it"
    if definition.inherit_env is True:
        yield "inherit_env: it gets every variable of this kernel"
    elif definition.inherit_env:
        for name in filter(looks_secret, definition.inherit_env):
            yield f"inherit_env: it gets this kernel's {name}, which looks like a secret"
    if definition.env_file is not None:
        yield f"its variables come from a file: {definition.env_file}"


def _of_address(definition: ServerDefinition) -> Iterator[str]:
    if definition.url is None:
        return
    if definition.url.startswith("unix:"):
        engine = _ENGINE_SOCKETS.search(definition.url)
        what = f"of {engine[0]}, which may do anything on this machine" if engine else "of this machine"
        yield f"connects to a socket {what}"
        return
    try:
        parts = urlsplit(definition.url)
        host = parts.hostname or ""
        query = parse_qsl(f"{parts.query}&{parts.fragment}", keep_blank_values=True)
    except ValueError:
        return
    where = _place_of(host)
    if where:
        yield f"connects to {where}: {host}"
    if parts.scheme == "http" and where != "a service of this machine":
        yield "http: what is sent can be read on the way"
    if "@" in parts.netloc:
        yield f"the address holds a login; the server is {host}"
    for name, value in query:
        if value and (looks_secret(name) or SECRET_VALUE.search(value)):
            yield f"the address holds a secret, {name}: it will stand in logs on the way"
    if any(masked(part) != part for part in unquote(parts.path).split("/")):
        yield "the address holds what looks like a secret: it will stand in logs on the way"
    if not host.isascii() or host.startswith("xn--") or ".xn--" in host:
        yield f"the server's name has letters of other scripts: {ascii(host)[1:-1]}"


def _place_of(host: str) -> str:
    """Whether a host is this machine or a neighbour, however it is written; empty where it is neither."""
    if _LOCAL_NAMES.fullmatch(host.rstrip(".")):
        return "a service of this machine" if host.startswith("localhost") else "a service of this machine's network"
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(host))  # 127.1, 2130706433, 0x7f000001, 0177.0.0.1
        except (OSError, ValueError):
            return ""
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified:
        return "a service of this machine"
    return "a service of this machine's network" if not address.is_global else ""


def _of_rights(definition: ServerDefinition) -> Iterator[str]:
    """What has models call tools unasked."""
    if _means_nearly_all(definition.auto_approve, definition.name):
        yield f"autoApprove {', '.join(definition.auto_approve)}: models may call all of its tools unasked"
    allowed = [pattern for pattern, decision in definition.tools.items() if decision == "allow"]
    if _means_nearly_all(allowed, definition.name):
        yield f"tools {', '.join(allowed)}: models may call all of its tools unasked"
    elif allowed:
        yield f"tools {', '.join(allowed)}: models may call these unasked"
    claimed: dict[str, list[str]] = {}
    for pattern, hints in definition.hints.items():
        for hint, value in hints.items():
            if (hint, value) in _LOOSENING:
                claimed.setdefault(hint, []).append(pattern)
    closed = [one for one in claimed.get("readOnlyHint", ()) if one in claimed.get("openWorldHint", ())]
    if {"readOnlyHint", "openWorldHint"} <= claimed.keys():
        patterns = closed or [*claimed["readOnlyHint"], *claimed["openWorldHint"]]
        which = "all of its tools" if _means_nearly_all(patterns, definition.name) else "these"
        yield f"hints {', '.join(dict.fromkeys(patterns))}: models may call {which} unasked"
    for (hint, _), what in _LOOSENING.items():
        if hint in claimed:
            yield f"hints {', '.join(claimed[hint])}: said to {what}, whatever the server says"


def _means_nearly_all(patterns: Iterable[str], server: str) -> bool:
    """Whether globs over tools' names, or over `server.tool`, mean more or less every tool there may be."""
    patterns = list(patterns)
    meant = [
        name
        for name in _TOOL_NAMES
        if any(fnmatchcase(name, one) or fnmatchcase(f"{server}.{name}", one) for one in patterns)
    ]
    return len(meant) * 2 >= len(_TOOL_NAMES)
