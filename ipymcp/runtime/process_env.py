"""The folder, environment and full program path with which a server's process is started.

A server that is defined in a cell runs in the notebook's folder, a server of a configuration file in the folder of that
file or its project, and a server of the user's own configuration in a private folder: otherwise, programs in a folder
from a stranger could run in place of the user's servers.

A process gets a short list of the kernel's environment variables, and the variables of its definition. The list is
`PASSED_ON`; a definition extends it by `inherit_env`: true for all variables, or a list of names.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.config.paths import state_folder
from ipymcp.config.programs import program, program_name
from ipymcp.config.redaction import secret_variables
from ipymcp.errors import CommandNotFound, StartError
from ipymcp.files import make_private_folder
from ipymcp.masking import masks
from ipymcp.protocol.transports.process import Launch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipymcp.config.definition import ServerDefinition


_FOLDER_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,63}", re.ASCII)
_NO_FOLDER_NAME = re.compile(r"\W", re.ASCII)


def folder_of(definition: ServerDefinition, folder: str) -> str:
    """The folder that a server runs in.

    Args:
        definition: The expanded definition of a stdio server.
        folder: The notebook's folder.
    """
    return _private_folder(definition.name) if _is_private(definition) else program_folder(definition, folder)


def program_folder(definition: ServerDefinition, folder: str) -> str:
    """The base of a relative program path: the definition's `cwd`, else its file's folder, else the notebook's."""
    base = definition.source.folder or folder
    return os.path.normpath(os.path.join(base, os.path.expanduser(definition.cwd or "")))


def made_folder(definition: ServerDefinition, folder: str) -> str:
    """Like `folder_of`, but check that the folder exists; a private one is created.

    Raises:
        StartError: The folder does not exist, or cannot be created.
    """
    path = folder_of(definition, folder)
    if not _is_private(definition):
        if not os.path.isdir(path):
            raise StartError(f"its folder does not exist: {path}", hint="correct cwd in its definition")
        return path
    try:
        make_private_folder(Path(path))
        os.chmod(path, 0o700)  # fails if it belongs to another user
    except OSError as error:
        hint = "give it a cwd in its definition, or name another folder in IPYMCP_STATE_DIR"
        raise StartError(f"its private folder cannot be created: {path}: {error.strerror}", hint=hint) from None
    return path


def _is_private(definition: ServerDefinition) -> bool:
    return definition.source.scope == "user" and definition.cwd is None


def _private_folder(name: str) -> str:
    safe = name
    if not _FOLDER_NAME.fullmatch(name):
        safe = f"{_NO_FOLDER_NAME.sub('_', name)[:40]}-{zlib.crc32(name.encode()):08x}"
    return os.path.join(state_folder(), "servers", safe)


PASSED_ON = frozenset(
    {
        # user and shell
        *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "TERM", "PWD", "HOSTNAME"),
        # language and time
        *("LANG", "LANGUAGE", "TZ", "PYTHONIOENCODING", "PYTHONUTF8"),
        # temporary and user folders
        *("TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
        "XDG_RUNTIME_DIR",
        # proxies and certificates
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        # Python, conda, Node
        *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_EXE", "UV_CACHE_DIR", "PIP_CACHE_DIR"),
        *("NVM_DIR", "NVM_BIN", "NODE_PATH", "VOLTA_HOME", "FNM_DIR", "npm_config_cache", "DISPLAY", "WAYLAND_DISPLAY"),
        # Windows
        *("APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC"),
        *("PATHEXT", "USERNAME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH"),
    }
)
"""The kernel's variables that every server gets, in addition to those that begin with `LC_`."""

_OWN_PYTHON = frozenset({"python", "python3"})
"""Commands that in a notebook or a script mean the kernel's own interpreter, with the packages that `%pip` installs."""
_SOURCE_NAME = re.compile(
    r"(?:(?P<python>uv|pip|pipx|pipx_default)|npm|pnpm|bun|yarn|deno|jsr|npm_config|bun_config|yarn_npm)_(?:\w*_)?"
    r"(?:index(?:_url)?|registry(?:_server)?|mirror|links|url|proxy|config_file|userconfig|cafile|strict_ssl|trusted_host"
    r"|insecure_host|native_tls|cert)",
    re.IGNORECASE,
)
"""Names of variables that decide where a package runner finds packages, and which of these places it accepts."""
_ENV_NAME = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")


def launch(definition: ServerDefinition, folder: str) -> Launch:
    """The arguments, environment and folder with which to start a server's process.

    Args:
        definition: The expanded definition of a stdio server.
        folder: The folder of a server that is not defined in a file; a `cwd` in its definition is relative to it.

    Raises:
        CommandNotFound: The program does not exist.
        StartError: The folder does not exist.
    """
    assert definition.command is not None
    cwd = made_folder(definition, folder)
    env = _environment(definition)
    masks.add(*secret_variables(env))
    if definition.command in _OWN_PYTHON and definition.source.scope in ("cell", "script"):
        program = sys.executable
    else:
        program = _find(definition.command, definition.args, env["PATH"], program_folder(definition, folder))
    env["PWD"] = cwd
    return Launch([program, *definition.args], env, cwd)


def missing_sources(definition: ServerDefinition) -> list[str]:
    """The variables that tell a package runner where packages come from, and that are set here but not passed on."""
    programs = [program(program_name(word)) for word in (definition.command or "", *definition.args)]
    of_python = {one.kind != "node" for one in programs if one.may_download}
    if not of_python:
        return []
    passed = _environment(definition)
    matches = (match for name in os.environ if name not in passed and (match := _SOURCE_NAME.fullmatch(name)))
    return sorted(match[0] for match in matches if (match["python"] is not None) in of_python)


def missing_variable(definition: ServerDefinition, stderr: Iterable[str]) -> str | None:
    """An environment variable that the server's output names, and that is set here but was not passed on."""
    passed = _environment(definition)
    for line in stderr:
        for name in _ENV_NAME.findall(line):
            if name in os.environ and name not in passed:
                return name
    return None


def _environment(definition: ServerDefinition) -> dict[str, str]:
    inherit = definition.inherit_env
    if inherit is True:
        env = dict(os.environ)
    else:
        names = PASSED_ON.union(inherit or ())
        env = {key: value for key, value in os.environ.items() if key in names or key.startswith("LC_")}
    env.setdefault("PATH", os.defpath)
    env.setdefault("PYTHONUNBUFFERED", "1")  # else a server that prints without flushing is silent
    env.update(definition.env)
    env["PATH"] = _safe_path(env["PATH"])
    return env


def _safe_path(path: str) -> str:
    """A path without empty and relative entries, which could name a folder that others control."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if os.path.isabs(entry))


def _find(command: str, args: tuple[str, ...], path: str, cwd: str) -> str:
    if os.path.dirname(command):
        candidate = os.path.join(cwd, os.path.expanduser(command))
        found = shutil.which(candidate)
        where = candidate
    else:
        # The folder of the kernel's own programs comes last: the PATH of a kernel often lacks it.
        own = os.path.dirname(sys.executable)
        found = shutil.which(command, path=os.pathsep.join(filter(None, (path, own))))
        where = f"{command}, on the PATH"
    if found is None:
        raise _missing(command, args, where, path, cwd)
    return found


def _missing(command: str, args: tuple[str, ...], where: str, path: str, cwd: str) -> StartError:
    """The error for a command that is not a program."""
    if os.path.isdir(where):
        return StartError(f"its command is a folder, not a program: {where}", hint="name the program in it")
    if os.path.isfile(where):
        by_interpreter = '"command": "python" (or node, bash) and the file in "args" runs it by its interpreter'
        return StartError(f"its program is not executable: {where}", hint=f"chmod +x · {by_interpreter}")
    problem = f"there is no program {command!r} (looked for {where})"
    words = [*command.split(), *args]
    if os.name != "nt" and re.fullmatch(r"(?i)cmd(\.exe)? /c", " ".join(words[:2])):
        follows = " ".join(words[2:3]) or "what follows"
        return CommandNotFound(problem, hint=f"leave `cmd /c` out here, it is for Windows: the command is {follows}")
    first, _, rest = command.strip().partition(" ")
    if rest and (
        program(first).is_launcher or shutil.which(os.path.join(cwd, first) if "/" in first else first, path=path)
    ):
        split = f'"command": {json.dumps(first)}, "args": {json.dumps(_split(rest))}'
        return CommandNotFound(problem, hint=f"the arguments belong in args: {split}")
    hint = program(command.removesuffix(".exe")).install or "install it, or name its full path"
    return CommandNotFound(problem, hint=hint)


def _split(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:  # an unclosed quote
        return arguments.split()
