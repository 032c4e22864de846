"""Definitions of servers as people have them in hand, converted to config documents.

    uvx mcp-server-time                     a command; also `KEY=VALUE uvx …`, and with a name: `time -- uvx …`
    https://host/mcp                        an address
    "weather": {"command": "uvx", …}        JSON, JSON5 or TOML of any host, also without the outer braces
    claude mcp add time -- uvx …            a command of another host, also `code --add-mcp {…}`
    cursor://…/mcp/install?name=…           the link of an install button

Only the text is read: nothing is looked up or run, and no variable is expanded. Reading takes linear time.

Sources: the documentation of `claude mcp`, `gemini mcp` and `codex mcp`; code.visualstudio.com (MCP URL handler),
cursor.com/docs (MCP install links), lmstudio.ai/docs (deeplinks), block.github.io/goose (deeplinks), kiro.dev.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct, structs

from ipymcp.config.config_files import decode, decode_toml, without_comments
from ipymcp.config.definition import ServerDefinition
from ipymcp.config.parsing import is_name, is_server
from ipymcp.config.programs import program
from ipymcp.config.redaction import masked_definition
from ipymcp.errors import ConfigError
from ipymcp.names import identifier, nearest, server_name
from ipymcp.text import cut, quoted

ORIGIN = "pasted"
"""The name of pasted text in errors."""
MAX_TEXT_BYTES = 1_000_000
_MAX_COMMAND = 100_000
"""Maximum length of a command line, and of the configuration in a link."""
_MAX_SHOWN = 60
_MAX_LINKS = 3
"""Maximum depth of links in links."""


class PastedServers(Struct, frozen=True):
    """The servers that a text defines."""

    values: Mapping[str, Any]
    """One definition, or a document of any host."""
    name: str | None = None
    """The name of the one server; None if the text has no name for it, or is a document."""
    notes: tuple[str, ...] = ()
    """Lines about parts of the text that have no effect here."""
    origin: str = ""
    """The link that contains the definitions; empty for a text in which they can be read."""

    @property
    def document(self) -> Mapping[str, Any]:
        """A document with all of the servers; one without a name is named after its program or address."""
        if not (is_server(self.values) or "command" in self.values or "url" in self.values):
            return self.values
        return {"mcpServers": {self.name or default_name(self.values): self.values}}

    def named(self, name: str | None) -> PastedServers:
        """Return a copy with another name for its one server; without a name, return it unchanged."""
        return self if name is None else structs.replace(self, name=name)


def read_pasted(text: str, *, is_command: bool = False) -> PastedServers:
    """Read the servers that a text defines.

    Args:
        text: The text.
        is_command: Whether the text, unless it is something else, is a command even if its program is not known to
            run servers.

    Raises:
        ConfigError: The text defines no server, or may mean several things. The hint has the line to write.
    """
    if len(text) > MAX_TEXT_BYTES:
        raise ConfigError(f"{ORIGIN}: has more than {MAX_TEXT_BYTES:,} characters", hint="save it as a file")
    text = _FENCE.sub("", text.strip(_BLANK)).strip(_BLANK)
    if is_link(text):
        return _read_link(text)
    if not text.split()[1:] and _URL.match(text):
        return PastedServers({"url": text})
    if _is_document(text):
        return _read_document(text)
    lines = list(_command_lines(text))
    if not lines:
        raise ConfigError(f"{ORIGIN}: is empty", hint="a command, an address, or JSON of any host defines a server")
    read = [_read_line(line, is_command=is_command) for line in lines]
    return read[0] if len(read) == 1 else _merged(read)


def read_words(words: Sequence[str]) -> PastedServers:
    """Read a command that is split into words, such as `["uvx", "mcp-server-time"]`.

    Raises:
        ConfigError: It is not a command.
    """
    return _read_words(list(words), is_command=True)


def read_mapping(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Complete a mapping from Python: one definition gets a name, and commands and addresses become definitions.

    Raises:
        ConfigError: A command cannot be read.
    """
    if is_server(table):
        values = dict(table)
        name = values.pop("name", None) if is_name(table.get("name")) else None
        return {name or default_name(values): values}
    return {name: _definition_of(value) for name, value in table.items()}


def _definition_of(value: object) -> object:
    if isinstance(value, str) and (value.split()[1:] or _URL.match(value)):
        return read_pasted(value, is_command=True).values
    if isinstance(value, list):
        words = cast("list[object]", value)
        texts = [word for word in words if isinstance(word, str)]
        return read_words(texts).values if texts and len(texts) == len(words) else words
    return value


def default_name(values: Mapping[str, Any]) -> str:
    """Name a server after its program or address: `npx -y @scope/server-time` is `time`, `mcp.example.com` `example`.

    The definition may be invalid.
    """
    command, url, args = values.get("command"), values.get("url") or values.get("httpUrl"), values.get("args")
    if isinstance(url, str) and not command:
        return _name_of_url(url)
    arguments = cast("list[Any]", args) if isinstance(args, list) else []
    words = cast("list[Any]", command) if isinstance(command, list) else [command, *arguments]
    return _name_of_command([word for word in words if isinstance(word, str) and word])


_GENERIC_LABELS = frozenset({"www", "api", "mcp", "app", "server"})
"""Labels of a host name that do not identify its owner."""
_SUBCOMMANDS = frozenset({"run", "dlx", "tool", "exec", "x", "--"})
"""Words after a launcher that do not name what it runs."""
_VALUED = frozenset(
    {"-e", "--env", "-v", "--volume", "--mount", "--name", "--network", "--env-file", "-w", "--workdir", "--user"}
    | {"--from", "--with", "--python", "--directory", "--project", "-p", "--package", "--allow-read", "--platform"}
)
"""Options of launchers, each with a value that does not name what it runs."""


def _name_of_url(url: str) -> str:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return "remote"
    labels = host.split(".")
    known = [label for label in (labels[:-1] or labels) if label not in _GENERIC_LABELS]
    return identifier(known[-1]) if known and not host.replace(".", "").isdigit() else "remote"


def _name_of_command(argv: Sequence[str]) -> str:
    words = list(argv[:1])
    words += [
        word
        for before, word in itertools.pairwise(argv)
        if not word.startswith("-") and word not in _SUBCOMMANDS and before not in _VALUED
    ]
    name = re.split(r"[/\\]", words[0])[-1] if words else "server"
    if program(name).is_launcher and len(words) > 1:
        name = re.split(r"[/\\]", words[1])[-1]
    name = re.split(r"(?<=.)[@=<>~!\[]", name)[0]
    name = re.sub(r"\.(py|js|mjs|cjs|ts|exe|cmd)$", "", name)
    return server_name(name) if name else "server"


# -- documents ---------------------------------------------------------------------------------------------------------


_BLANK = " \t\r\n\ufeff\u00a0"
_FENCE = re.compile(r"\A(?:```|~~~)[^\n]*+\n|\n?(?:```|~~~)\Z")
_URL = re.compile(r"(?i)(https?|unix)://")
_FRAGMENT = re.compile(r"""(?:"[^"\n]*+"|'[^'\n]*+'|[\w$-]++)\s*+:\s*+[\[{]""")
_TOML = re.compile(r"(?m)^\[\[?mcp_servers\b")
_YAML = re.compile(r"(?:- )?[\w-]++:(?:[ \t]++[^\s{\[]|[ \t]*+(?:\n|\Z))")
_CURLY = str.maketrans({"\u00a0": " ", "\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'"})
_API_NAMES = {"server_url": "url", "server_label": "name", "allowed_tools": "includeTools"}
_API_TOKENS = ("authorization_token", "authorization")


def _is_document(text: str) -> bool:
    start = without_comments(text).lstrip() if text.startswith("/") else text
    straight = start.translate(_CURLY)
    return bool(
        _TOML.search(text) or start.startswith(("{", "[")) or _FRAGMENT.match(straight) or _YAML.match(straight)
    )


def _read_document(text: str) -> PastedServers:
    """Read JSON, JSON5 or TOML of any host.

    Raises:
        ConfigError: It is in another syntax, invalid, or not an object.
    """
    if _TOML.search(text) or re.match(r"\[\[?[\w.-]", text):
        return _from_document(decode_toml(text, ORIGIN))
    start = without_comments(text).lstrip()
    if not start.startswith(("{", "[")) and not _FRAGMENT.match(start.translate(_CURLY)):
        hint = "write its servers as JSON, or add each: %mcp config add NAME -- COMMAND ARG…"
        raise ConfigError(f"{ORIGIN}: looks like YAML, which ipymcp does not read", hint=hint)
    whole = text if start.startswith(("{", "[")) else f"{{{text}\n}}"
    try:
        return _from_document(decode(whole, ORIGIN)[0])
    except ConfigError:
        straight = whole.translate(_CURLY)
        if straight == whole:
            raise
    return _from_document(decode(straight, ORIGIN)[0])


def _from_document(document: Any) -> PastedServers:
    document = {"mcp_servers": cast("Any", document)} if isinstance(document, list) else document
    if not isinstance(document, Mapping):
        hint = 'such as {"mcpServers": {"NAME": {"command": "…"}}}'
        raise ConfigError(f"{ORIGIN}: expected an object", hint=hint)
    values = dict(cast("Mapping[str, Any]", document))
    listed = values.get("mcp_servers", values.get("tools"))
    if isinstance(listed, list) and any(map(_is_api_server, cast("list[Any]", listed))):
        return PastedServers(
            {"mcp_servers": [_of_api(one) for one in filter(_is_api_server, cast("list[Any]", listed))]}
        )
    if _is_api_server(values):
        values = _of_api(values)
    if is_server(values) and is_name(values.get("name")):
        return PastedServers({key: value for key, value in values.items() if key != "name"}, values["name"])
    return PastedServers(values)


def _is_api_server(value: object) -> bool:
    """Whether a value is a server in a request to Anthropic's or OpenAI's API."""
    table: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
    return "server_url" in table or (table.get("type") == "url" and "url" in table)


def _of_api(item: Mapping[str, Any]) -> dict[str, Any]:
    values = {_API_NAMES.get(key, key): value for key, value in item.items() if key not in ("type", *_API_TOKENS)}
    token = next((item[key] for key in _API_TOKENS if isinstance(item.get(key), str)), None)
    if token is not None:
        values["headers"] = {**(values.get("headers") or {}), "Authorization": f"Bearer {token}"}
    return values


def _merged(read: Sequence[PastedServers]) -> PastedServers:
    """Merge the servers of several lines into one document."""
    servers: dict[str, Any] = {}
    for one in read:
        table: Mapping[str, Any] = one.document.get("mcpServers", one.document)
        for name, values in table.items():
            if name in servers:
                raise ConfigError(f'{ORIGIN}: "{name}" is defined twice', hint="keep one of the two")
            servers[name] = values
    return PastedServers({"mcpServers": servers}, notes=tuple(note for one in read for note in one.notes))


# -- command lines -----------------------------------------------------------------------------------------------------


_CONTINUED = re.compile(r"[\\^`]\r?\n[ \t]*+")
_PART = re.compile(
    r"""(?P<blank>\s++)|(?P<plain>[^\s"'\\]++)|\\(?P<escaped>[\s"'\\$`&|;<>()#])|(?P<backslash>\\)"""
    r"""|"(?P<double>(?:[^"\\]|\\.)*+)"|'(?P<single>[^']*+)'""",
    re.DOTALL,
)
_ESCAPED = re.compile(r'\\(["\\$`\n])')
_SHELL_VARIABLE = re.compile(r"\$(?=[A-Za-z_])(\w++)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*+=")
_OPERATORS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"})
_PROMPTS = frozenset({"$", "%", ">", "!", "#"})
_OWN_WORDS = (("load",), ("add",), ("config", "add"))
_PACKAGE = re.compile(r"(@[\w.~-]++/)?[\w.~-]++(\[[\w,-]++\])?((@|==)[\w.^~*-]++)?")
_VERSION = re.compile(r"(?<=.)(@|==|\[)")
_SHELL_HINT = "as a server it is %mcp load NAME -- sh -c '…'"


def split_words(line: str) -> list[str]:
    r"""Split a line as shells do; `$NAME` outside single quotes becomes `${NAME}`.

    A backslash only escapes what is special to shells, so that `C:\tools\server.exe` stays a path.

    Raises:
        ConfigError: A quote is not closed, or the line has several commands.
    """
    words: list[str] = []
    parts: list[str] | None = None
    position = 0
    while position < len(line):
        match = _PART.match(line, position)
        if match is None:
            raise ConfigError(f"{ORIGIN}: a quote is not closed", hint="close it, or remove it")
        position = match.end()
        kind, text = match.lastgroup, match[match.lastgroup or 0]
        if kind == "blank":
            words += [] if parts is None else ["".join(parts)]
            parts = None
            continue
        if kind == "plain" and (text in _OPERATORS or text.endswith(";") or "$(" in text):
            raise ConfigError(f"{ORIGIN}: {cut(text, _MAX_SHOWN)} needs a shell", hint=_SHELL_HINT)
        if kind == "double":
            text = _ESCAPED.sub(r"\1", text)
        if kind in ("plain", "double"):
            text = _SHELL_VARIABLE.sub(r"${\1}", text)
        parts = parts if parts is not None else []
        parts.append(text)
    return words if parts is None else [*words, "".join(parts)]


def is_foreign_command(text: str) -> bool:
    """Whether a text begins as a command of another host that adds a server, or as the link of an install button."""
    words = text.split(None, 3)[:3]
    return is_link(text.strip()) or "--add-mcp" in words[1:2] or (len(words) > 2 and _is_add(words))


def _is_add(words: Sequence[str]) -> bool:
    return words[1] == "mcp" and words[2].startswith("add")


def _command_lines(text: str) -> Iterator[str]:
    for line in _CONTINUED.sub(" ", text).splitlines():
        if line.strip() and not line.lstrip().startswith(("# ", "//")):
            yield line.strip()


def _read_line(line: str, *, is_command: bool) -> PastedServers:
    if len(line) > _MAX_COMMAND:
        raise ConfigError(f"{ORIGIN}: a command has more than {_MAX_COMMAND:,} characters", hint="use a config file")
    words = split_words(line)
    if len(words) > 1 and words[0] in _PROMPTS:
        del words[0]
    words[0] = words[0].removeprefix("!") or words[0]
    if words[0].lstrip("%") == "mcp" and words[0] != "mcp":
        own = next((own for own in _OWN_WORDS if tuple(words[1 : 1 + len(own)]) == own), None)
        if own is None or len(words) < 2 + len(own):
            raise ConfigError(
                f"{ORIGIN}: {cut(line, _MAX_SHOWN)} defines no server", hint="run it as a line of its own"
            )
        words = words[1 + len(own) :]
    return _read_words(words, is_command=is_command)


def _read_words(words: list[str], *, is_command: bool) -> PastedServers:
    if not words:
        raise ConfigError(f"{ORIGIN}: there is no command", hint="such as uvx mcp-server-time")
    env: dict[str, str] = {}
    while len(words) > 1 and _ASSIGNMENT.match(words[0]):
        name, _, env[name] = words.pop(0).partition("=")
    if len(words) > 2 and _is_add(words):
        return _read_add(words)
    if any(word.partition("=")[0] == "--add-mcp" for word in words[1:]):
        return _read_add_mcp(words)
    if len(words) == 1 and words[0].split()[1:]:  # the whole line is in quotes
        return _read_words(split_words(words[0]), is_command=is_command)
    known = program(words[0])
    before = words.index("--") if "--" in words else 0
    has_options = words[1:2] and words[1].partition("=")[0] in _OPTIONS
    is_named = words[0] == "--" or (before and (before == 1 or has_options)) or any(map(_URL.match, words[:2]))
    if (is_named and not known.is_launcher) or words[0].startswith("--"):
        return _AddCommand(_OWN).read(words, env)
    is_program = known.is_launcher or known.is_interpreter or known.kind not in ("", "wrapper")
    is_program = is_program or bool(known.shell_option) or words[0] in ("env", "java")
    if not (is_program or is_command or (words[1:] and re.search(r"[/\\]", words[0]))):
        raise _unclear(words) if words[1:] else _word_error(words[0])
    return PastedServers({"command": words[0], "args": words[1:], **({"env": env} if env else {})})


def _word_error(word: str) -> ConfigError:
    hint = package_hint(word) or f"if it is a program: %mcp load {quoted(_name_of_command([word]))} -- {quoted(word)}"
    return ConfigError(f"{ORIGIN}: {cut(word, _MAX_SHOWN)} is neither a command nor an address", hint=hint)


def _unclear(words: Sequence[str]) -> ConfigError:
    """The error for a line whose first word may be a program or a name."""
    line = _quoted_words(words)
    if program(words[1]).is_launcher:
        rest = _quoted_words(words[1:])
        hint = f"the command of a server follows --: %mcp load {quoted(words[0])} -- {rest}"
    else:
        hint = f"if it is a command: %mcp load {quoted(_name_of_command(words))} -- {line}"
    return ConfigError(f"{ORIGIN}: it is not clear what {line} is", hint=hint)


def _quoted_words(words: Sequence[str]) -> str:
    """Join the words of a command as they are written after `--`, with likely secrets masked."""
    shown = masked_definition(ServerDefinition(name="", command=words[0], args=tuple(words[1:])))
    safe = [shown.command or "", *shown.args]
    return cut(" ".join(quoted(word) if re.search(r"[\s'\"]", word) else word for word in safe), _MAX_SHOWN)


def package_hint(word: str) -> str:
    """The line that runs a package of PyPI or npm as a server; empty if a word does not look like one."""
    match = _PACKAGE.fullmatch(word)
    bare = _VERSION.split(word)[0].lower() if match is not None else ""
    if match is None or not (match[1] or "mcp" in bare or "server" in bare):
        return ""
    name = quoted(_name_of_command([word.rpartition("/")[2]]))
    by_npm = f"%mcp load {name} -- npx -y {quoted(word.replace('==', '@'))}"
    if match[1]:
        return f"it looks like an npm package: {by_npm}"
    by_pypi = f"%mcp load {name} -- uvx {quoted(word)}"
    return f"if it is a PyPI package: {by_pypi}; if it is one of npm: {by_npm}"


# -- commands of other hosts -------------------------------------------------------------------------------------------


_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("-e", "--env"), "env"),
    **dict.fromkeys(("-H", "--header", "--headers"), "header"),
    **dict.fromkeys(("-t", "--transport", "--type"), "transport"),
    **dict.fromkeys(("-s", "--scope"), "scope"),
    **{option: option.lstrip("-") for option in ("--url", "--cwd", "--timeout", "--description", "--client-id")},
    **{option: option.lstrip("-") for option in ("--include-tools", "--exclude-tools", "--bearer-token-env-var")},
    **{option: option.lstrip("-") for option in ("--callback-port", "--oauth-client-id", "--oauth-resource")},
    "--trust": "trust",
    "--client-secret": "client-secret",
}
"""The options of `PROGRAM mcp add`, of all hosts."""
_UNUSED = {
    "trust": "models ask before they call its tools",
    "client-secret": "it belongs into auth.client_secret of the definition",
    "callback-port": "ipymcp chooses the port",
    "oauth-resource": "the address of the server is used",
    "scope": "%mcp config add keeps a server in your own file, with --project in the project's",
}
"""Options without effect, each with what happens instead."""
_MORE = {"env": _ASSIGNMENT, "header": re.compile(r"\A[\w-]++:\s")}
"""Further values of the options that take several."""
_FLAGS = ("trust", "client-secret")
_COMMON = frozenset({"-e", "--env", "-H", "--header", "-t", "--transport", "-s", "--scope"})
_INTERSPERSED = {
    "claude": _COMMON,
    **dict.fromkeys(("gemini", "qwen"), _COMMON | {"--timeout", "--trust", "--include-tools", "--exclude-tools"}),
}
"""The options that a host also takes after the program of a command that no `--` precedes."""
_OWN = "ipymcp"
_MAX_DIGITS = 12
_MAX_FIELDS = 1_000


def _read_add(words: Sequence[str]) -> PastedServers:
    """Read `PROGRAM mcp add …` or `PROGRAM mcp add-json …`."""
    host = program_name(words[0])
    if words[2] == "add":
        return _AddCommand(host).read(words[3:], {})
    if words[2] != "add-json":
        hint = "%mcp config import HOST reads the servers of another host"
        raise ConfigError(f"{ORIGIN}: {host} mcp {words[2]} defines no server", hint=hint)
    command = _AddCommand(host)
    names, _ = command.read_options(words[3:])
    if len(names) != 2:
        raise ConfigError(f"{ORIGIN}: expected {host} mcp add-json NAME JSON", hint="quote the JSON: '{…}'")
    read = _read_document(names[1])
    return PastedServers(read.values, names[0], (*command.notes, *read.notes))


def _read_add_mcp(words: Sequence[str]) -> PastedServers:
    """Read `code --add-mcp JSON`, also with several of them."""
    values = [word.partition("=")[2] for word in words if word.startswith("--add-mcp=")]
    values += [word for option, word in itertools.pairwise(words) if option == "--add-mcp"]
    if not values:
        raise ConfigError(f"{ORIGIN}: --add-mcp needs a definition", hint="""such as --add-mcp '{"name": "…", …}'""")
    read = [_read_document(value) for value in values]
    return read[0] if len(read) == 1 else _merged(read)


def program_name(word: str) -> str:
    """The name of a program without its folder and suffix."""
    return re.sub(r"(?i)\.(exe|cmd|bat|ps1)$", "", re.split(r"[/\\]", word)[-1])


class _AddCommand:
    """The arguments of a command that adds a server: `[OPTIONS] NAME URL`, or `[OPTIONS] NAME [--] COMMAND ARG…`.

    Args:
        host: The program, for messages.
    """

    def __init__(self, host: str) -> None:
        self.notes: list[str] = []
        self._host = host
        self._values: dict[str, Any] = {}
        self._env: dict[str, str] = {}
        self._headers: dict[str, str] = {}

    def read(self, words: Sequence[str], env: Mapping[str, str]) -> PastedServers:
        """Read the words after `add`."""
        names, command = self.read_options(words, takes_command=True)
        if names and _URL.match(names[-1]):
            self._values["url"] = names.pop()
        if len(names) > 1:
            raise self._error(
                f"{cut(names[1], _MAX_SHOWN)} is one too many", "the usage is NAME URL, or NAME -- COMMAND"
            )
        if command:
            self._values |= {"command": command[0], "args": command[1:]}
        if not is_server(self._values):
            hint = package_hint(names[0]) if names else ""
            raise self._error("there is no command and no address", hint or "write NAME -- COMMAND ARG…, or NAME URL")
        tables = {"env": {**env, **self._env}, "headers": self._headers}
        self._values |= {key: table for key, table in tables.items() if table}
        return PastedServers(self._values, names[0] if names else None, tuple(self.notes))

    def read_options(self, words: Sequence[str], *, takes_command: bool = False) -> tuple[list[str], list[str]]:
        """Read the options, and return the other words and the command.

        Raises:
            ConfigError: An option is unknown, or its value is missing or invalid.
        """
        names: list[str] = []
        command: list[str] = []
        index = 0
        while index < len(words):
            word = words[index]
            index += 1
            if word == "--" and takes_command:
                return names, list(words[index:])
            if word.startswith("-") and len(word) > 1:
                index = self._read_option(word, words, index)
                continue
            names.append(word)
            if takes_command and len(names) == 2 and word.split()[1:]:
                command = split_words(names.pop())  # the whole command in quotes
            elif takes_command and len(names) == 2 and not _URL.match(word):
                return names[:1], [word, *self._read_arguments(words, index)]
        return names, command

    def _read_arguments(self, words: Sequence[str], index: int) -> list[str]:
        """Read the arguments of a command without `--`, among which the host's own options may be."""
        arguments: list[str] = []
        while index < len(words) and words[index] != "--":
            word = words[index]
            index += 1
            if word.partition("=")[0] in _INTERSPERSED.get(self._host, ()):
                index = self._read_option(word, words, index)
            else:
                arguments.append(word)
        return [*arguments, *words[index + 1 :]]

    def _read_option(self, word: str, words: Sequence[str], index: int) -> int:
        """Read an option, whose value may be the next word, and return the index of the next word."""
        option, has_value, value = word.partition("=")
        kind = _OPTIONS.get(option)
        if kind is None:
            hint = "leave it out, or write %mcp load NAME -- COMMAND ARG…"
            raise self._error(f"the option {cut(option, _MAX_SHOWN)} is not known here", hint)
        if kind in _FLAGS:
            self._note(kind, option)
            return index
        values = [value] if has_value else list(words[index : index + 1])
        if not values or (not has_value and values[0].startswith("--")):
            raise self._error(f"{option} needs a value", f"write {option}=VALUE")
        index += not has_value
        more = _MORE.get(kind)
        while more is not None and index < len(words) and more.match(words[index]):
            values.append(words[index])
            index += 1
        for one in values:
            self._apply(kind, option, one)
        return index

    def _apply(self, kind: str, option: str, value: str) -> None:
        """Apply the value of an option."""
        match kind:
            case "env":
                name, has_value, text = value.partition("=")
                self._env[name] = text if has_value else f"${{{name}}}"
            case "header":
                name, colon, text = value.partition(":")
                if not colon:
                    raise self._error(f"{option} has no value", f"write {option} 'Name: value'")  # perhaps a token
                self._headers[name.strip()] = text.strip()
            case "transport":
                self._values["type"] = value
            case "timeout":
                if not value.isdecimal() or len(value) > _MAX_DIGITS:
                    raise self._error(f"{option} needs a number", f"write {option}=30000")
                seconds = int(value) if self._host == _OWN else int(value) / 1000
                self._values |= {"timeout": seconds, "max_timeout": max(600.0, seconds)}
            case "bearer-token-env-var":
                self._headers["Authorization"] = f"Bearer ${{{value}}}"
            case "client-id" | "oauth-client-id":
                self._values["auth"] = {"type": "oauth", "client_id": value}
            case "include-tools" | "exclude-tools":
                rules: dict[str, str] = self._values.setdefault("tools", {})
                is_list = kind == "include-tools"
                names = [name.strip() for name in value.split(",") if name.strip()]
                added = dict.fromkeys(names, "ask" if is_list else "deny")
                self._values["tools"] = {**({"*": "deny"} if is_list else {}), **rules, **added}
            case "url" | "cwd":
                self._values[kind] = value
            case _:
                self._note(kind, f"{option} {cut(value, _MAX_SHOWN)}")

    def _note(self, kind: str, shown: str) -> None:
        if kind in _UNUSED:
            self.notes.append(f"{shown} is not used: {_UNUSED[kind]}")

    def _error(self, message: str, hint: str) -> ConfigError:
        where = ORIGIN if self._host == _OWN else f"{self._host} mcp add"
        return ConfigError(f"{where}: {message}", hint=hint)


# -- links of install buttons ------------------------------------------------------------------------------------------


_SCHEME = re.compile(r"(?i)(?!https?:|unix:|file:|wss?:)[a-z][a-z0-9+.-]++:(//|mcp/)")
_INSTALL_PAGES = (
    ("vscode.dev", "/redirect"),
    ("insiders.vscode.dev", "/redirect"),
    ("cursor.com", "install-mcp"),
    ("www.cursor.com", "install-mcp"),
    ("lmstudio.ai", "/install-mcp"),
    ("kiro.dev", "/launch/mcp/add"),
    ("block.github.io", "/goose/extension"),
)
"""Hosts of pages that open a link of an install button, each with a part of the path."""


def is_link(text: str) -> bool:
    """Whether a text is the link of an install button of another host."""
    if _SCHEME.match(text):
        return True
    try:
        link = urlsplit(text)
        return any(link.hostname == host and part in link.path for host, part in _INSTALL_PAGES)
    except ValueError:
        return False


def _read_link(text: str, depth: int = 0) -> PastedServers:
    """Read the link of an install button: its query has JSON, also in base64, or a command and its arguments.

    Raises:
        ConfigError: The link has no definition that can be read.
    """
    encoded = text.partition("?")[2]
    try:
        query = parse_qs(encoded, max_num_fields=_MAX_FIELDS)
    except ValueError:
        query = {}
    inner = query.get("url", [""])[0]
    if len(text) > _MAX_COMMAND or depth > _MAX_LINKS:
        raise _link_error(text)
    if is_link(inner):
        return _read_link(inner, depth + 1)
    name = next(iter(query.get("name", ())), None)
    document = _decoded(query["config"][0] if "config" in query else encoded)
    if document is not None:
        own: Any = document.get(name) if name is not None and len(document) == 1 else None
        read = _from_document(cast("Any", own) if isinstance(own, Mapping) else document)
        read = read.named(name if read.name is None and is_name(name) else None)
        inputs = _decoded_list(query.get("inputs", [""])[0])
        values = {**read.document, "inputs": inputs} if inputs else read.values
        return structs.replace(read, values=values, origin=_shown_link(text))
    if "cmd" in query or "url" in query:
        return structs.replace(_of_goose(query), origin=_shown_link(text))
    raise _link_error(text)


def _of_goose(query: Mapping[str, Sequence[str]]) -> PastedServers:
    """Read the query of a link of Goose; variables and headers are asked for, as their values are descriptions."""
    values: dict[str, Any] = {"url": query["url"][0]} if "url" in query else {}
    if "cmd" in query:
        values |= {"command": query["cmd"][0], "args": list(query.get("arg", ()))}
    inputs: list[dict[str, Any]] = []
    for parameter, key in (("env", "env"), ("header", "headers")):
        for pair in query.get(parameter, ()):
            name, _, about = pair.partition("=")
            inputs.append({"id": name, "type": "promptString", "description": about or name, "password": True})
            values.setdefault(key, {})[name] = f"${{input:{name}}}"
    named = query.get("id", query.get("name", [""]))[0]
    name = identifier(named) if is_name(named) else default_name(values)
    return PastedServers({"mcpServers": {name: values}, "inputs": inputs} if inputs else values, name)


def _decoded(text: str) -> dict[str, Any] | None:
    """Decode an object that is JSON, also percent-encoded once or twice, or in base64."""
    plain = unquote(text)
    for candidate in (text, plain, unquote(plain), _of_base64(text), _of_base64(plain)):
        if candidate.lstrip().startswith("{"):
            try:
                value, _ = decode(candidate, ORIGIN)
            except ConfigError:
                continue
            if isinstance(value, dict):
                return cast("dict[str, Any]", value)
    return None


def _decoded_list(text: str) -> list[Any]:
    try:
        value: object = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return []
    return cast("list[Any]", value) if isinstance(value, list) else []


def _of_base64(text: str) -> str:
    digits = text.replace(" ", "+").replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return unquote(base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True).decode()).strip()
    except (binascii.Error, ValueError):
        return ""


def _shown_link(text: str) -> str:
    return f"the link {cut(text.partition('?')[0], _MAX_SHOWN)}"


def _link_error(text: str) -> ConfigError:
    meant = nearest(text.partition(":")[0], ("http", "https"), limit=1)
    hint = meant or "the page of the button usually has a command or JSON, too: paste that"
    return ConfigError(f"{ORIGIN}: {_shown_link(text)} has no definition that ipymcp can read", hint=hint)
