"""What is dangerous in a definition: pointed out in the question whether it may run. Nothing is refused for it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipymcp.config.definition import ServerDefinition

__all__ = ["dangers"]

_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "cmd", "powershell", "pwsh"})
_SHELL_OPTIONS = re.compile(r"-[a-z]*c[a-z]*|/[cCkK]|-(Command|EncodedCommand|enc|e)", re.I)
_OTHER_USERS = frozenset({"sudo", "doas", "su", "pkexec", "runas"})
_EVALUATING = {
    "python": ("-c",), "node": ("-e", "--eval", "-p", "--print", "-r", "--require", "--import"), "perl": ("-e", "-E"),
    "ruby": ("-e",), "php": ("-r",), "deno": ("eval",), "bun": ("-e", "--eval"), "osascript": ("-e",),
}  # fmt: skip
_NODE = frozenset({"npx", "npm", "pnpm", "yarn", "bunx", "bun", "node", "deno"})
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_PROJECT_TOOLS = frozenset({"uv", "uvx", "poetry", "pipenv", "hatch", "pdm", "make", "just", "cargo", "go"})
_DOWNLOAD = re.compile(r"\b(curl|wget|iwr|irm|Invoke-WebRequest|Invoke-RestMethod)\b", re.I)
_INTO_SHELL = re.compile(r"\|\s*(sudo\s+)?((ba|z|da|k)?sh|python[\d.]*|node|perl|iex|Invoke-Expression)\b", re.I)
_COMPOSED = re.compile(r"[|;&`<>]|\$\(")
_DECIDING = re.compile(
    r"NODE_OPTIONS|NODE_PATH|PYTHON(PATH|HOME|STARTUP|USERBASE|INSPECT|WARNINGS|BREAKPOINT)"
    r"|LD_(PRELOAD|LIBRARY_PATH|AUDIT)|DYLD_\w+|BASH_ENV|ENV|ZDOTDIR|PROMPT_COMMAND|SHELLOPTS"
    r"|PERL5(OPT|LIB|DB)|PERLLIB|RUBY(OPT|LIB)|_?JAVA_(TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|PATH|PATHEXT|COMSPEC|HOME"
    r"|npm_config_\w+|(PIP|UV)_\w+|BUN_\w+|YARN_\w+|GIT_(SSH|SSH_COMMAND|CONFIG\w*|EXEC_PATH)|GEM_(HOME|PATH)"
    r"|ELECTRON_RUN_AS_NODE|DOTNET_STARTUP_HOOKS|CARGO_\w+|GOFLAGS",
    re.I,
)
_TRAFFIC = re.compile(
    r"(https?|all)_proxy|NODE_EXTRA_CA_CERTS|NODE_TLS_REJECT_UNAUTHORIZED|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE",
    re.I,
)
_SOURCES = re.compile(r"--(extra-)?index(-url)?|--registry|--find-links|--default-index", re.I)
_BARE = re.compile(r"https?://|^-")


def dangers(definition: ServerDefinition) -> list[str]:
    """What a person should look at before the server runs, one line each."""
    found = [*_of_command(definition), *_of_environment(definition), *_of_address(definition)]
    if any(pattern in ("*", "**") for pattern in definition.auto_approve):
        found.append("autoApprove *: models may call all of its tools unasked")
    return list(dict.fromkeys(found))


def _of_command(definition: ServerDefinition) -> Iterator[str]:
    if definition.command is None:
        return
    words = [definition.command, *definition.args]
    programs = [_program(word) for word in words]
    for place, program in enumerate(programs):
        if program in _OTHER_USERS and (place == 0 or programs[place - 1] in _SHELLS):
            yield f"{program}: runs as another user"
        if program in _SHELLS and place < len(words) - 1 and _SHELL_OPTIONS.fullmatch(words[place + 1]):
            yield from _of_shell(" ".join(words[place + 2 :]))
    yield from _of_interpreter(definition, programs[0])
    if any(_SOURCES.fullmatch(word.partition("=")[0]) for word in definition.args):
        yield "packages come from where its arguments say"
    if programs[0] in ("docker", "podman"):
        yield from _of_container(definition.args)


def _of_shell(line: str) -> Iterator[str]:
    if _DOWNLOAD.search(line) and _INTO_SHELL.search(line):
        yield "downloads a program and runs it unseen"
    if re.search(r"\b(sudo|doas|pkexec)\b", line):
        yield "sudo: runs as another user"
    yield "runs a line of shell" + (", made of several commands" if _COMPOSED.search(line) else "")


def _of_interpreter(definition: ServerDefinition, program: str) -> Iterator[str]:
    python = _PYTHON.fullmatch(program) is not None
    options = _EVALUATING.get("python" if python else program, ())
    if any(word.partition("=")[0] in options for word in definition.args):
        yield "runs code that stands in its arguments"
    command = definition.command or ""
    if definition.source.scope != "project":
        return
    if _is_of_project(command, definition.source.folder):
        yield f"the program is a file of the project: {command}"
    if program in _NODE:
        yield f"{program} in the project's folder: node_modules, .npmrc and package.json there decide what runs"
    elif python and "-I" not in definition.args:
        yield "python in the project's folder: modules there are found before installed ones"
    elif program in _PROJECT_TOOLS:
        yield f"{program} in the project's folder: the project's settings decide what runs"


def _of_container(arguments: tuple[str, ...]) -> Iterator[str]:
    text = " ".join(arguments)
    if re.search(r"--privileged|--(pid|net|network|ipc)[= ]host|docker\.sock", text):
        yield "a container with rights over this machine"
    if re.search(r"(-v|--volume)[= ](/|~|\$\{userHome\}|\$\{HOME\}):|--mount\S*[= ]\S*source=(/|~),", text):
        yield "a container that sees all of your files"


def _of_environment(definition: ServerDefinition) -> Iterator[str]:
    for name in definition.env:
        if _DECIDING.fullmatch(name):
            yield f"{name}: decides what code runs"
        elif _TRAFFIC.fullmatch(name):
            yield f"{name}: decides where its traffic goes, and who can read it"
    if definition.inherit_env is True:
        yield "inherit_env: it gets every variable of this kernel"
    if definition.env_file is not None:
        yield f"its variables come from a file: {definition.env_file}"


def _of_address(definition: ServerDefinition) -> Iterator[str]:
    if definition.url is None:
        return
    try:
        parts = urlsplit(definition.url)
        host = parts.hostname or ""
    except ValueError:
        return
    if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        yield "http: what is sent can be read on the way"
    if "@" in parts.netloc:
        yield f"the address holds a login; the server is {host}"
    if not host.isascii() or host.startswith("xn--") or ".xn--" in host:
        yield f"the server's name has letters of other scripts: {ascii(host)[1:-1]}"


def _program(word: str) -> str:
    """The name of the program that a word may be."""
    if _BARE.match(word):
        return ""
    name = re.split(r"[/\\]", word)[-1].lower()
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", name)


def _is_of_project(command: str, folder: str | None) -> bool:
    """Whether a program is a file of the project, rather than one that is installed."""
    if re.match(r"\.{1,2}[/\\]|\$\{workspaceFolder", command) or "node_modules" in command:
        return True
    if folder is None or not ("/" in command or "\\" in command):
        return False
    return os.path.normpath(os.path.join(folder, command)).startswith(os.path.join(folder, ""))
