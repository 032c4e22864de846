"""What is dangerous in a command: shells, code among its arguments, programs of the project, wide open containers.

A word may hide in another (`env -S "sh -c …"`, `ssh -o ProxyCommand=…`), so each argument is read as words, too.
"""

from __future__ import annotations

import os
import re
import unicodedata
from typing import TYPE_CHECKING

from ipymcp.config.secrecy import masked_args
from ipymcp.config.variables import in_folder, references

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ipymcp.config.definition import ServerDefinition

__all__ = ["command_dangers"]

_OTHER_USERS = frozenset({"sudo", "doas", "su", "pkexec", "runas"})
_WRAPPERS = frozenset(
    {"env", "nohup", "timeout", "nice", "setsid", "stdbuf", "xargs", "busybox", "toybox", "command", "exec", "start"}
)
_NODE = frozenset({"npx", "npm", "pnpm", "yarn", "bunx", "bun", "node", "deno"})
_PYTHON = re.compile(r"(python|pypy)[\d.]*w?")
_PROJECT_TOOLS = frozenset({"uv", "uvx", "poetry", "pipenv", "hatch", "pdm", "pixi", "make", "just", "cargo", "go"})
_SHELL_LINE = re.compile(r"-[a-z]*c[a-z]*|--(init-)?command(=.*)?", re.I)
_POWERSHELL_LINE = re.compile(r"[-/](c|command\w*|e|ec|en\w*)", re.I)
_LINES = {
    **dict.fromkeys(("sh", "bash", "zsh", "dash", "ash", "ksh", "fish", "csh", "tcsh"), _SHELL_LINE),
    **dict.fromkeys(("powershell", "pwsh"), _POWERSHELL_LINE),
    "cmd": re.compile(r"/[ckr].*", re.I),
}
"""The option of each shell before a line that it is to run."""
_EVALUATING = {
    "python": re.compile(r"-[A-Za-z]*c.*"),
    "node": re.compile(r"-[a-z]*[epr]|--(eval|print|require|import|loader|experimental-loader)(=.*)?"),
    "npx": re.compile(r"-c|--call(=.*)?"),
    "npm": re.compile(r"-c|--call(=.*)?"),
    "perl": re.compile(r"-[A-Za-z0-9]*[eEmM].*"),
    "ruby": re.compile(r"-[A-Za-z]*[er].*"),
    "php": re.compile(r"-[rBE].*"),
    "deno": re.compile(r"eval"),
    "bun": re.compile(r"-[epr]|--(eval|print|preload)(=.*)?"),
    "osascript": re.compile(r"-e"),
    "lua": re.compile(r"-[el].*"),
}
"""The options with which each interpreter is given code."""
_VALUED = frozenset(
    {"-o", "+o", "-O", "--init-file", "--rcfile", "-W", "-X", "-w", "-ep", "-ex", "-executionpolicy", "-windowstyle"}
)
"""Options before others, with a value of their own."""
_SUBCOMMANDS = ("exec", "x")
"""Words before options, of programs that run others."""
_DOWNLOAD = re.compile(r"\b(curl|wget|iwr|irm|Invoke-WebRequest|Invoke-RestMethod)\b", re.I)
_INTO_SHELL = re.compile(
    r"\|\s*(sudo\s+)?((ba|z|da|k|a)?sh|python[\d.]*|node|perl|iex|Invoke-Expression)\b"
    r"|(\$\(|<\(|`|\(|\biex\b)\s*(curl|wget|iwr|irm|Invoke-)",
    re.I,
)
_COMPOSED = re.compile(r"[|;&`<>\n]|\$\(")
_SOURCES = re.compile(r"--(extra-)?index(-url)?|--registry|--find-links|--default-index", re.I)
_ADDRESS = re.compile(
    r"(--[\w-]+=)?([\w-]+ @ )?(git\+\S+|git@\S+|github:\S+|https?://\S+\.(tgz|tar\.gz|whl|zip|git|m?js|ts|py)([#?@]\S*)?)"
)
_BETWEEN = re.compile(r"""[\s"'`=;|&()<>]+""")
_SEEN_WHOLE = (
    r"/|~|\$HOME|\$\{(env:)?(HOME|USERPROFILE)\}|\$\{userHome\}|/home(/[^/:,\s]+)?|/root|/Users(/[^/:,\s]+)?|/etc"
)
_VOLUME = re.compile(rf"(^|\s)(-v|--volume)[= ]?({_SEEN_WHOLE})/?:|\b(src|source)=({_SEEN_WHOLE})/?(,|\s|$)")
_HOST_RIGHTS = re.compile(
    r"--privileged|--(pid|net|network|ipc|userns)[= ]host|docker\.sock|--(cap-add|device|security-opt)\b"
)
_LONG = 1_000


def command_dangers(definition: ServerDefinition) -> Iterator[str]:
    """What a person should look at in a command before it runs, one line each."""
    if definition.command is None:
        return
    words = [definition.command, *definition.args]
    yield from _of_line(words, "")
    for argument in definition.args:
        inner = _BETWEEN.split(argument)
        if len(inner) > 1:
            yield from _of_line(inner, argument)
    if definition.source.scope == "project":
        yield from _of_project(definition)
    if any(_SOURCES.fullmatch(word.partition("=")[0]) for word in definition.args):
        yield "packages come from where its arguments say"
    for word in definition.args:
        if _ADDRESS.fullmatch(word):
            yield f"a package comes from an address: {word}"
    if _program(words[0]) in ("docker", "podman", "nerdctl"):
        yield from _of_container(" ".join(definition.args))
    yield from _of_looks(definition)


def _of_line(words: Sequence[str], text: str) -> Iterator[str]:
    """What stands in a row of words, which may be those of one argument."""
    programs = [_program(word) for word in words]
    for place, (word, program) in enumerate(zip(words, programs, strict=True)):
        behind = words[place + 1 :]
        if program in _OTHER_USERS and (place == 0 or program != "su"):
            yield f"{program}: runs as another user"
        if program in _LINES:
            line = next((at for at, option in _options(behind) if _LINES[program].fullmatch(option)), None)
            if line is not None:
                yield from _of_shell(text or " ".join(behind[line:]))
            elif place == 0 and not text:
                yield f"{program}: a shell runs what its arguments name"
        evaluating = _EVALUATING.get("python" if _PYTHON.fullmatch(program) else program)
        if evaluating is not None and any(evaluating.fullmatch(option) for _, option in _options(behind)):
            yield "runs code that stands in its arguments"
        if _DOWNLOAD.fullmatch(word.rpartition("/")[2]) and (place == 0 or programs[0] in _WRAPPERS) and not text:
            yield f"downloads something: {program}"


def _options(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The options at the beginning and the word behind them, each with the place behind it."""
    skipped = False
    for place, word in enumerate(words, start=1):
        if skipped:
            skipped = False
            continue
        yield place, word
        if not word.startswith(("-", "+", "/")) and word not in _SUBCOMMANDS:
            return
        skipped = word.lower() in _VALUED or word in _VALUED


def _of_shell(line: str) -> Iterator[str]:
    if _DOWNLOAD.search(line):
        yield "downloads a program and runs it unseen" if _INTO_SHELL.search(line) else "downloads something"
    for user in re.findall(r"\b(sudo|doas|pkexec)\b", line):
        yield f"{user}: runs as another user"
    yield "runs a line of shell" + (", made of several commands" if _COMPOSED.search(line) else "")


def _of_project(definition: ServerDefinition) -> Iterator[str]:
    command = definition.command or ""
    if any(command.startswith(one.text) and one.kind != "place" for one in references(definition)):
        yield f"a variable decides which program runs: {command}"
    if _is_of_project(command, definition):
        yield f"the program is a file of the project: {command}"
    programs = [_program(command)]
    if programs[0] in _WRAPPERS or programs[0] in _LINES:
        programs += [_program(word) for argument in definition.args for word in _BETWEEN.split(argument)]
    for program in programs:
        if program in _NODE:
            yield f"{program} in the project's folder: node_modules, .npmrc and package.json there decide what runs"
        elif _PYTHON.fullmatch(program) and not any(
            re.fullmatch("-[A-Za-z]*I[A-Za-z]*", word) for word in definition.args
        ):
            yield f"{program} in the project's folder: modules there are found before installed ones"
        elif program in _PROJECT_TOOLS:
            yield f"{program} in the project's folder: the project's settings decide what runs"


def _of_container(arguments: str) -> Iterator[str]:
    if _HOST_RIGHTS.search(arguments):
        yield "a container with rights over this machine"
    if _VOLUME.search(arguments):
        yield "a container that sees all of your files"


def _of_looks(definition: ServerDefinition) -> Iterator[str]:
    """What keeps a person from seeing what runs."""
    shown = masked_args(definition.args)
    for number, (argument, seen) in enumerate(zip(definition.args, shown, strict=True), start=1):
        if argument != seen:
            yield f"argument {number} looks like a secret and is not shown: make sure that it is one"
        if len(argument) > _LONG:
            yield f"argument {number} is long: {len(argument):,} characters"
    for word in [definition.command or "", *definition.args]:
        if any(map(_is_mixed, re.findall(r"\w+", word))):
            yield f"letters of several scripts look alike here: {ascii(word)[1:-1]}"


def _is_mixed(word: str) -> bool:
    """Whether a word has Latin letters beside Greek or Cyrillic ones."""
    if word.isascii():
        return False
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in word if letter.isalpha()}
    return "LATIN" in scripts and bool(scripts & {"CYRILLIC", "GREEK"})


def _program(word: str) -> str:
    """The name of the program that a word may be."""
    if word.startswith("-") or re.match(r"https?://", word):
        return ""
    name = re.split(r"[/\\]", word)[-1].lower()
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", name)


def _is_of_project(command: str, definition: ServerDefinition) -> bool:
    """Whether a program is a file of the project, rather than one that is installed."""
    if "node_modules" in command or re.match(r"\.{1,2}[/\\]|\$\{workspaceFolder", command):
        return True
    folder = definition.source.folder
    if folder is None or not ("/" in command or "\\" in command):
        return False
    start = os.path.join(folder, in_folder(definition.cwd or "", folder))
    path = os.path.normpath(os.path.join(start, in_folder(command, folder)))
    roots = (os.path.join(root, "") for root in (folder, os.path.realpath(folder)))
    return any(one.startswith(root) for root in roots for one in (path, os.path.realpath(path)))
