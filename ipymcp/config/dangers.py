"""Warnings for the trust question about a definition: shells, code in arguments, privileged containers.

Arguments may contain commands (`env -S "sh -c …"`, `ssh -o ProxyCommand=…`), so each is also split into words.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import re
import socket
import unicodedata
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from ipymcp.config.definition import LOOSENING_HINTS
from ipymcp.config.programs import (
    decides_code,
    decides_traffic,
    evaluates,
    options,
    program,
    program_name,
    shell_line,
)
from ipymcp.config.redaction import SECRET_VALUE, masked, masked_args
from ipymcp.config.variables import in_folder, references
from ipymcp.masking import looks_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ipymcp.config.definition import ServerDefinition


_DOWNLOAD = re.compile(r"\b(curl|wget|iwr|irm|Invoke-WebRequest|Invoke-RestMethod)\b", re.I)
_INTO_SHELL = re.compile(
    r"\|\s*(sudo\s+)?((ba|z|da|k|a)?sh|python[\d.]*|node|perl|iex|Invoke-Expression)\b"
    r"|(\$\(|<\(|`|\(|\biex\b)\s*(curl|wget|iwr|irm|Invoke-)",
    re.I,
)
_COMPOSED = re.compile(r"[|;&`<>\n]|\$\(")
_SOURCES = re.compile(r"--(extra-)?index(-url)?|--(@[^:=]+:)?registry|--find-links|--default-index|--add-source", re.I)
_ADDRESS = re.compile(
    r"(--[\w-]+=)?([\w-]+ @ )?(git\+\S+|git@\S+|github:\S+|https?://\S+\.(tgz|tar\.gz|whl|zip|git|m?js|ts|py)([#?@]\S*)?)"
)
_SEPARATORS = re.compile(r"""[\s"'`=;|&()<>]+""")
_HOME = r"~[\w.-]*|\$HOME|\$\{(env:)?(HOME|USERPROFILE)\}|\$\{userHome\}|/home/[^/:,\s]+|/root|/Users/[^/:,\s]+"
_ALL_FILES = re.compile(rf"(/|/home|/Users|/etc|/var|/usr|{_HOME})/?")
_VOLUME = re.compile(
    r"(?:^|\s)(?:-[a-uw-zA-Z]*+v|--volume)(?:\s++|=)?+((?:\$\{[^}]{0,200}+\}|[^\s:$]|\$(?!\{))++):"
    r"|\b(?:src|source|volume-opt=device)=([^,\s\"]+)"
    r"|--env-file[= ](\S+)"
)
"""Host paths that are mounted into a container."""
_OUTSIDE = re.compile(rf"/|\.\.|{_HOME}|[A-Za-z]:\\")
_HOST_RIGHTS = re.compile(
    r"--privileged|--(pid|net|network|ipc|userns|uts|cgroupns)[= ]host|docker\.sock|podman\.sock|containerd\.sock"
    r"|--(cap-add|device|security-opt|volumes-from)\b"
)
_ENTRYPOINT = re.compile(r"(?:^|\s)--entrypoint[= ](\S*)")
_DOWNLOADS = "Downloads something that is not shown here"
_AND_MORE = ", and the line has several commands"
_LONG = 1_000
_MAX_CHECKED = 2_000
"""Maximum number of words that are checked per definition."""
_MAX_WORDS = 100
"""Words checked after a program."""


def command_dangers(definition: ServerDefinition, *, masks: bool | None = None) -> Iterator[str]:
    """Yield warnings about the command of a definition, one line each.

    Args:
        definition: The definition.
        masks: Whether likely secrets are masked when the definition is displayed, as for `redaction.described`.
    """
    if definition.command is None:
        return
    words = [definition.command, *definition.args]
    yield from _line_dangers(words[:_MAX_CHECKED], "")
    count = len(words)
    for argument in definition.args[:_MAX_CHECKED]:
        inner = _SEPARATORS.split(argument, _MAX_CHECKED)
        if len(inner) > 1:
            count += len(inner)
            if count > _MAX_CHECKED:
                break
            yield from _line_dangers(inner, argument)
    if count > _MAX_CHECKED:
        yield f"Has more than {_MAX_CHECKED:,} words, which were not all checked for dangers"
    if definition.source.scope == "project":
        yield from _project_dangers(definition)
    if any(_SOURCES.fullmatch(word.partition("=")[0]) for word in definition.args):
        yield "Its arguments choose where packages come from, so others can decide what runs"
    for word in definition.args:
        if _ADDRESS.fullmatch(word):
            yield f"A package comes from an address, whose owner decides what runs: {word}"
    if any(program(program_name(word)).kind == "container" for word in words):
        yield from _container_dangers(" ".join(definition.args), definition)
    else:
        yield from _assignment_dangers(definition.args)
    yield from _disguise_dangers(definition, definition.source.scope != "project" if masks is None else masks)


def _line_dangers(words: Sequence[str], text: str) -> Iterator[str]:
    """Yield warnings about a sequence of words; `text` is their argument if they are parts of one."""
    names = [program_name(word) for word in words]
    is_wrapped = program(names[0]).kind == "wrapper"
    lines: dict[str, None] = {}
    for place, (word, name) in enumerate(zip(words, names, strict=True)):
        if not name:
            continue
        known = program(name)
        following = words[place + 1 : place + 1 + _MAX_WORDS]
        if known.kind == "other user" and (place == 0 or name != "su"):
            yield f"{name} runs it as another user, with the rights of that user"
        if known.shell_option:
            line = shell_line(name, following)
            if line is not None:
                lines[text or " ".join(following[line:])] = None
            elif place == 0 and not text:
                yield f"{name} is a shell, which runs whatever its arguments name"
        if evaluates(name, following):
            yield "Its arguments hold code, which runs as you"
        if known.package_option:
            yield from _package_dangers(name, following)
        option = known.side_option
        if option and any(re.fullmatch(option, one[:_LONG], re.I | re.S) for one in following):
            yield f"{name} has options that run other programs, so its name does not tell what runs"
        if _DOWNLOAD.fullmatch(word.rpartition("/")[2]) and (place == 0 or is_wrapped) and not text:
            yield f"{name} downloads something that is not shown here"
    for line in lines:
        yield from _shell_dangers(line)


def _package_dangers(name: str, following: Sequence[str]) -> Iterator[str]:
    """Yield warnings about options that choose a package. A short option counts only before the command's words."""
    leading = {place for place, _ in options(following)}
    for place, word in enumerate(following, start=1):
        option, equals, value = word.partition("=")
        if re.fullmatch(program(name).package_option, option) and (option.startswith("--") or place in leading):
            value = value if equals else "".join(following[place : place + 1])
            yield f"{option} of {name} chooses a package whose code runs, too: {value}"


def _assignment_dangers(args: Sequence[str]) -> Iterator[str]:
    """Yield warnings about variables set in arguments: `env NAME=VALUE …`, `--env NAME=VALUE`, in shell code."""
    for argument in args:
        for word in re.split(r"[\s;&|()\"'`]+", argument):
            name, equals, _ = word.removeprefix("--env=").removeprefix("-e").partition("=")
            if equals and name.isidentifier() and (name.isupper() or name.lower().endswith("_proxy")):
                yield from _variable_dangers(name)


def _variable_dangers(name: str) -> Iterator[str]:
    if decides_code(name):
        yield f"The variable {name} decides what code runs"
    elif decides_traffic(name):
        yield f"The variable {name} decides where its traffic goes, and so who can read it"


def _shell_dangers(line: str) -> Iterator[str]:
    if _DOWNLOAD.search(line):
        yield "Downloads a program and runs it unseen" if _INTO_SHELL.search(line) else _DOWNLOADS
    for user in re.findall(r"\b(sudo|doas|pkexec)\b", line):
        yield f"{user} runs it as another user, with the rights of that user"
    yield f"A shell runs its line as if you had typed it{_AND_MORE if _COMPOSED.search(line) else ''}"


def _project_dangers(definition: ServerDefinition) -> Iterator[str]:
    command = definition.command or ""
    if any(command.startswith(one.text) and one.kind != "place" for one in references(definition)):
        yield f"A variable decides which program runs, so you do not see it here: {command}"
    if _is_of_project(command, definition):
        yield f"The program is a file of this project, whose authors decide what runs: {command}"
    names = [program_name(command)]
    if program(names[0]).kind == "wrapper" or program(names[0]).shell_option:
        words = (word for argument in definition.args for word in _SEPARATORS.split(argument))
        names += map(program_name, itertools.islice(words, _MAX_CHECKED))
    is_isolated = any(re.fullmatch("-[A-HJ-Za-z]*+I[A-Za-z]*", word) for word in definition.args)
    for name in names:
        match program(name).kind:
            case "node":
                files = "node_modules, .npmrc and package.json"
                yield f"{name} reads {files} in this folder first, so a file here decides what runs"
            case "python" if not is_isolated:
                yield "Python looks for modules in this folder first, so a file here can replace a library"
            case "project tool":
                yield f"{name} reads the settings of this project, so a file here decides what runs"
            case _:
                pass


def _container_dangers(arguments: str, definition: ServerDefinition) -> Iterator[str]:
    if _HOST_RIGHTS.search(arguments):
        yield "The container gets rights over this machine, so it does not confine the server"
    for found in _ENTRYPOINT.finditer(arguments):
        yield f"The container runs another program than its image's, whose name then tells nothing: {found[1]}"
    for found in _VOLUME.finditer(arguments):
        path = found[found.lastindex or 0]
        if _ALL_FILES.fullmatch(path):
            yield "The container sees all of your files"
        elif _OUTSIDE.match(path) and (re.match(rf"\.\.|{_HOME}", path) or not _is_of_project(path, definition)):
            yield f"The container sees files outside the project: {path}"


def _disguise_dangers(definition: ServerDefinition, is_masked: bool) -> Iterator[str]:
    """Yield warnings about arguments that could hide from the user what runs."""
    shown = masked_args(definition.args) if is_masked else definition.args
    for number, (argument, seen) in enumerate(zip(definition.args, shown, strict=True), start=1):
        if argument != seen:
            yield f"Argument {number} looks like a secret and is not shown: make sure that it is one"
        if len(argument) > _LONG:
            yield f"Argument {number} is long, so read all of it: {len(argument):,} characters"
    for name, value in definition.env.items() if is_masked else ():
        if masked(value, name) != value:
            yield f"Variable {name} looks like a secret and is not shown: make sure that it is one"
    for word in [definition.command or "", *definition.args]:
        if any(map(_is_mixed, re.findall(r"\w+", word))):
            yield f"Letters of several scripts look alike, so this may not be what it seems: {ascii(word)[1:-1]}"


def _is_mixed(word: str) -> bool:
    """Whether a word mixes Latin with Greek or Cyrillic letters."""
    if word.isascii():
        return False
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in word if letter.isalpha()}
    return "LATIN" in scripts and bool(scripts & {"CYRILLIC", "GREEK"})


def _is_of_project(command: str, definition: ServerDefinition) -> bool:
    """Whether a program is a file of the project, rather than an installed one."""
    if "node_modules" in command or re.match(r"\.{1,2}[/\\]|\$\{workspaceFolder|\$\{?PWD\b|\$\(pwd\)", command):
        return True
    folder = definition.source.folder
    if folder is None or not ("/" in command or "\\" in command):
        return False
    start = os.path.join(folder, in_folder(definition.cwd or "", folder))
    path = os.path.normpath(os.path.join(start, in_folder(command, folder)))
    roots = (os.path.join(root, "") for root in (folder, os.path.realpath(folder)))
    return any(one.startswith(root) for root in roots for one in (path, os.path.realpath(path)))


_TOOL_NAMES: Final = (
    *("read_file", "write_file", "delete", "run", "execute_command", "send-email", "getUser", "query", "search", "a"),
    *("list_all", "create_issue", "update", "fetch_url", "drop_table", "pushCommit", "zip", "notify", "x.y", "browser"),
)
"""Sample tool names: a pattern that matches half of them matches nearly everything."""
_LOCAL_NAMES = re.compile(r"localhost|.*\.(localhost|local|internal|lan|home\.arpa)|ip6-\w+", re.I)
_ENGINE_SOCKETS = re.compile(r"(docker|podman|containerd|crio?|buildkitd|libvirt|dbus|systemd|ssh-agent)", re.I)


def dangers(definition: ServerDefinition, *, masks: bool | None = None) -> list[str]:
    """Return all warnings about a definition, one line each.

    Args:
        definition: The definition.
        masks: Whether likely secrets are masked when the definition is displayed; None if its source decides.
    """
    found = [
        *_name_dangers(definition),
        *command_dangers(definition, masks=masks),
        *_environment_dangers(definition),
        *_address_dangers(definition),
        *_file_dangers(definition),
        *_rights_dangers(definition),
    ]
    return list(dict.fromkeys(found))


def _name_dangers(definition: ServerDefinition) -> Iterator[str]:
    if definition.source.shadows:
        yield f"Takes the place of your own {definition.name} ({definition.source.shadows}), so its calls would go here"


def _environment_dangers(definition: ServerDefinition) -> Iterator[str]:
    for name in definition.env:
        yield from _variable_dangers(name)
    if definition.inherit_env is True:
        yield "Gets every variable of this kernel, with the passwords and keys among them (inherit_env)"
    elif definition.inherit_env:
        for name in filter(looks_secret, definition.inherit_env):
            yield f"Gets this kernel's {name}, which looks like a secret (inherit_env)"
    if definition.env_file is not None:
        yield f"Its variables come from a file, and are not shown here: {definition.env_file}"


def _address_dangers(definition: ServerDefinition) -> Iterator[str]:
    if definition.url is None:
        return
    if definition.url.startswith("unix:"):
        engine = _ENGINE_SOCKETS.search(definition.url)
        owner = f"{engine[0]}, which may do anything on this machine" if engine else "this machine"
        yield f"Connects to a socket of {owner}"
        return
    try:
        parts = urlsplit(definition.url)
        host = parts.hostname or ""
        query = parse_qsl(f"{parts.query}&{parts.fragment}", keep_blank_values=True)
    except ValueError:
        return
    where = _place_of(host)
    if where:
        yield f"Connects to {where}, which may trust whatever comes from here: {host}"
    if parts.scheme == "http" and where != "a service of this machine":
        yield "Sends everything over http, so others on the way can read it"
    if "@" in parts.netloc:
        yield f"The address begins with a login, which may look like a server; the server is {host}"
    for name, value in query:
        if value and (looks_secret(name) or SECRET_VALUE.search(value)):
            yield f"The address contains a secret, {name}, which may end up in logs"
    if any(masked(part) != part for part in unquote(parts.path).split("/")):
        yield "The address contains what looks like a secret, which may end up in logs"
    if not host.isascii() or host.startswith("xn--") or ".xn--" in host:
        yield f"The server's name has letters of other scripts, so it may imitate another: {ascii(host)[1:-1]}"


def _file_dangers(definition: ServerDefinition) -> Iterator[str]:
    """Yield warnings about the contents of files outside the project that the server gets."""
    folder = definition.source.folder
    for one in references(definition):
        if one.kind == "file":
            path = os.path.join(os.path.dirname(definition.source.file or ""), os.path.expanduser(one.name))
            root = os.path.join(os.path.realpath(folder or os.sep), "")
            if folder is None or not os.path.realpath(path).startswith(root):
                yield f"Gets the content of {one.name}, a file outside the project, as {one.where}"


def _place_of(host: str) -> str:
    """Return a phrase for a host on this machine or its network, in any notation; empty for other hosts."""
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


def _rights_dangers(definition: ServerDefinition) -> Iterator[str]:
    """Yield warnings about tools that models may call without consent."""
    if _matches_nearly_all(definition.auto_approve, definition.name):
        yield f"Models may call all of its tools without asking you (autoApprove: {', '.join(definition.auto_approve)})"
    allowed = [pattern for pattern, decision in definition.tools.items() if decision == "allow"]
    if _matches_nearly_all(allowed, definition.name):
        yield f"Models may call all of its tools without asking you (tools: {', '.join(allowed)})"
    elif allowed:
        yield f"Models may call these tools without asking you (tools: {', '.join(allowed)})"
    claimed: dict[str, list[str]] = {}
    for pattern, hints in definition.hints.items():
        for hint, value in hints.items():
            if (hint, value) in LOOSENING_HINTS:
                claimed.setdefault(hint, []).append(pattern)
    closed = [one for one in claimed.get("readOnlyHint", ()) if one in claimed.get("openWorldHint", ())]
    if {"readOnlyHint", "openWorldHint"} <= claimed.keys():
        patterns = closed or [*claimed["readOnlyHint"], *claimed["openWorldHint"]]
        which = "all of its tools" if _matches_nearly_all(patterns, definition.name) else "these tools"
        yield f"Models may call {which} without asking you (hints: {', '.join(dict.fromkeys(patterns))})"
    for (hint, _), claim in LOOSENING_HINTS.items():
        if hint in claimed:
            yield f"Claims that the tools {claim}, whatever the server declares (hints: {', '.join(claimed[hint])})"


def _matches_nearly_all(patterns: Iterable[str], server: str) -> bool:
    """Whether globs over tool names or `server.tool` match nearly every possible tool."""
    patterns = list(patterns)
    meant = [
        name
        for name in _TOOL_NAMES
        if any(fnmatchcase(name, one) or fnmatchcase(f"{server}.{name}", one) for one in patterns)
    ]
    return len(meant) * 2 >= len(_TOOL_NAMES)
