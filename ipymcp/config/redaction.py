"""Secrets in definitions, and descriptions of definitions with secrets masked.

A mask must not hide code: values that a shell would run are shown, whatever their name is. Values in other people's
files are not the user's secrets and are shown, except that of a token of theirs, which a saved notebook would spread,
only the beginning is; in the user's own files likely secrets are masked.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from ipymcp.config.programs import decides_code, evaluates, program_name, shell_line
from ipymcp.config.variables import references
from ipymcp.masking import looks_secret
from ipymcp.text import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.variables import Reference


SECRET_VALUE: Final = re.compile(
    r"(?<![\w@.-])(?<!://)"  # must not mask the name of a server
    r"(gh[pousr]_|github_pat_|glpat-|sk-|sk_live_|rk_live_|pk_live_|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|npm_|hf_|pypi-|dop_v1_"
    r"|eyJ[A-Za-z0-9_-]{8,}\.)[A-Za-z0-9_.~+/=-]{8,}|-----BEGIN [A-Z ]+-----[A-Za-z0-9+/=\s]+"
)
"""Tokens with a known prefix, and private keys."""
HEADER: Final = re.compile(r"([A-Za-z0-9-]+):(?!//)(\s*+)(.+)")
"""A header as an argument."""
# Compiled by `re` when they are first used: most kernels never show a definition. Their time is proportional to the
# length of any text: a run of characters is read only from its beginning, or not far, and not again by a quantifier.
_USERINFO = r"(?<=://)([^/@\s:]*):([^/@\s]+)(?=@)"
_PARAMETER = r"(?<=[?&])([^=&?\s]+)=([^&\s#]+)"
_PAIR = r"""(?<![\w?&$-])([\w-]{1,40}+)([ \t]?=[ \t]?)("[^"\n]{1,200}+"|'[^'\n]{1,200}+'|[^=;\s"'{/$][^;\s]*+)"""
"""A setting in a connection string, such as `Password=…`."""
_RANDOM = (  # neither a path, the digest of an image, nor the name of a variable
    r"(?<![\w/.@{-])(?<!sha256:)(?<!\{secret:)(?<!\{input:)(?<!\{env:)"
    r"(?=[\w+-]{0,127}\d)(?=[\w+-]{0,127}[A-Za-z])[A-Za-z0-9_+-]{32,}={0,2}(?![\w/.@-])"
)
_OPTION = r"-{0,2}[\w.-]+"  # or a variable, as in `docker run -e NAME=VALUE`
_VARIABLE = r"(\$?\{[^{}]*\})"
_SCHEME = r"(?is)((?:bearer|basic|token|digest)\s+)?(.*)"
_LITERAL = (  # `password = "…"`, `"password": "…"`, `os.environ["PASSWORD"] = "…"`, `connect(password="…")`
    r"""((?<![\w-])([\w-]++)["']?\]?[ \t]*+(?::[\w.\[\] \t|]++)?[=:][ \t]*+[rRbBfFuU]{0,2}("(?:"")?|'(?:'')?))"""
    r"""((?:\\.|(?!\3)[^\\\n])++(?=\3)|(?:(?!\3)[^\n])++)\3"""  # the second if a backslash before the end is no escape
)
_BEARER = r"(?i)\b((?:bearer|basic)\s+)([A-Za-z0-9._~+/=-]{8,})"
_TOKEN = (  # with digits, or long: neither a host, nor a path
    r"(?!(?:[a-z0-9-]+\.)+[a-z]{2,}$)(?:(?=[A-Za-z_.~+=-]*\d)(?=[\d_.~+=-]*[A-Za-z])[\w.~+=-]{8,}"
    r"|[\w.~+=-]{20,}|(?=[^\d]*\d)(?=[^A-Z]*[A-Z])(?=[^a-z]*[a-z])[A-Za-z0-9_+=-][\w.~+/=-]{31,})"
)
_EXPANSION = r"[$`%!]|\b(?:env|set|environ|getenv|printenv|export|declare|compgen)\b"
"""In code: what may use a variable's value as code."""
_DATABASE = r"(?i)dsn$|connection[_-]?string$"
_PLAIN_VALUE = r"(?is)true|false|null|none|yes|no|on|off|\d{1,6}|.*[\s|;&`<>$()].*"
"""Values that are never masked: plain words, and shell code."""


def _dots(secret: str, name: str = "") -> str:
    return f"•••• ({len(secret)} characters)"


def _beginning(secret: str, _: str = "") -> str:
    return f"{secret[: 4 if len(secret) < 24 else 8]}… ({len(secret)} characters)"


Hide: TypeAlias = "Callable[[str, str], str]"
"""Returns the replacement of a likely secret, given the secret and the name of its setting, which may be empty."""


def masked(text: str, name: str = "", hide: Hide = _dots) -> str:
    """Replace likely secrets in a string, except in variables.

    Args:
        text: The text as written.
        name: Name of the setting that has this value, if known.
        hide: Returns the replacement of a secret; by default a label with its length.
    """
    if name and _is_secret(name, text):
        parts = re.split(_VARIABLE, text)
        hidden = "".join(part if re.fullmatch(_VARIABLE, part) else _hidden(part, name, hide) for part in parts)
        if hidden != text:
            return hidden
    if (header := HEADER.fullmatch(text)) is not None and looks_secret(header[1]):
        return f"{header[1]}:{header[2]}{masked(header[3], header[1], hide)}"
    text = re.sub(_USERINFO, lambda match: f"{match[1]}:{masked(match[2], 'password', hide)}", text)
    text = re.sub(
        _PARAMETER,
        lambda match: f"{match[1]}={masked(match[2], match[1], hide)}" if looks_secret(match[1]) else match[0],
        text,
    )
    text = re.sub(_PAIR, lambda match: _masked_pair(match, hide), text)
    text = SECRET_VALUE.sub(lambda match: hide(match[0], name), text)
    return re.sub(_RANDOM, lambda match: hide(match[0], name), text)


def shortened_tokens(text: str, name: str = "") -> str:
    """Shorten what looks like a token to its beginning, except in variables; a mask of `masked` could hide more.

    Args:
        text: The text as written.
        name: Name of the setting that has this value, if known.
    """
    if name and looks_secret(name):
        return "".join(map(_shortened_token, re.split(rf"{_VARIABLE}|(; )", text)))
    for pattern in (_USERINFO, _PARAMETER):
        text = re.sub(pattern, _shortened_part, text)
    return re.sub(
        _RANDOM, lambda match: _beginning(match[0]), SECRET_VALUE.sub(lambda match: _beginning(match[0]), text)
    )


def _shortened_token(text: str | None) -> str:
    match = re.fullmatch(_SCHEME, text or "")
    assert match is not None  # it matches anything
    is_token = re.fullmatch(_TOKEN, match[2], re.A) is not None or SECRET_VALUE.fullmatch(match[2]) is not None
    return (match[1] or "") + (_beginning(match[2]) if is_token else match[2])


def _shortened_part(match: re.Match[str]) -> str:
    """Shorten the password of an address, or the value of a parameter with a secret name."""
    is_secret = match.re.pattern == _USERINFO or looks_secret(match[1])
    value = shortened_tokens(match[2], "password") if is_secret else match[2]
    return match[0][: match.start(2) - match.start()] + value


def _is_secret(name: str, value: str) -> bool:
    """Whether a value is likely a secret by its name, and not the address of a database without a password."""
    if not looks_secret(name):
        return False
    if re.match(r"(?i)(?:https?|wss?)://", value) or not ("://" in value or re.search(_DATABASE, name)):
        return True
    password = value.partition("://")[2].rpartition("@")[0].partition(":")[2]
    if password and not re.fullmatch(_VARIABLE, password):
        return True
    return any(map(looks_secret, re.findall(r"(?<!\w)(\w++)\s*+=", value)))


def _masked_pair(match: re.Match[str], hide: Hide) -> str:
    name, equals, value = match.groups()
    if not looks_secret(name) and name.lower() != "pwd":
        return match[0]
    quote = value[0] if value[0] in "'\"" else ""
    return f"{name}{equals}{quote}{masked(value.strip(quote) if quote else value, 'password', hide)}{quote}"


def masked_code(text: str) -> str:
    """Mask likely secrets in source code or a traceback: tokens, and string literals with secret names."""

    def hidden(match: re.Match[str]) -> str:
        return f"{match[1]}{masked(match[4], match[2])}{match[3]}" if looks_secret(match[2]) else match[0]

    text = re.sub(_BEARER, lambda match: f"{match[1]}{_dots(match[2])}", re.sub(_LITERAL, hidden, text))
    return masked(text)


def masked_args(args: Sequence[str], hide: Hide = _dots) -> list[str]:
    """Mask likely secrets in arguments, including the values of options with secret names."""
    return [
        prefix + masked(value, "" if not prefix and value.startswith("-") else name, hide)
        for prefix, name, value in _split_args(args)
    ]


def masked_definition(definition: ServerDefinition, hide: Hide = _dots) -> ServerDefinition:
    """Mask likely secrets in a definition."""
    auth = {
        key: masked(value, key, hide) if isinstance(value, str) else value for key, value in definition.auth.items()
    }
    return definition.replace(
        args=tuple(masked_args(definition.args, hide)),
        env=_masked_table(definition.env, hide),
        url=None if definition.url is None else masked(definition.url, hide=hide),
        headers=_masked_table(definition.headers, hide),
        auth=auth,
    )


def _masked_table(table: Mapping[str, str], hide: Hide) -> dict[str, str]:
    return {name: masked(text, name, hide) for name, text in table.items()}


def _split_args(args: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the parts of each argument: its beginning up to `=`, the option that names its value, and the value."""
    before = ""
    for argument in args:
        option, equals, value = argument.partition("=")
        is_own_option = re.fullmatch(_OPTION, option) is not None and value.strip("=") != ""
        if is_own_option and (argument.startswith("-") or not before.startswith("-") or not looks_secret(before)):
            yield f"{option}=", option, value
        else:
            yield "", before if before.startswith("-") else "", argument
        before = "" if equals else argument


def _hidden(text: str, name: str, hide: Hide) -> str:
    """Mask a literal with a secret name, except a scheme such as `Bearer`."""
    match = re.fullmatch(_SCHEME, text)
    assert match is not None  # it matches anything
    secret = match[2]
    is_plain = not secret.strip() or re.fullmatch(_PLAIN_VALUE, secret)
    return text if is_plain else (match[1] or "") + hide(secret, name)


_PUBLIC_AUTH_KEYS = frozenset(
    {"type", "client_id", "client_metadata_url", "redirect_uri", "scopes", "issuer", "token_endpoint_auth_method"}
    | {"signing_algorithm", "idp_issuer", "idp_token_endpoint", "idp_client_id", "idp_token_type"}
)


def sensitive(definition: ServerDefinition) -> Iterator[str]:
    """Yield the secrets of a definition whose variables are expanded."""
    yield from _header_secrets(definition.headers)
    yield from secret_variables(definition.env)
    yield from _argument_secrets(definition.args)
    yield from _url_secrets(definition.url or "")
    for key, value in definition.auth.items():
        if key not in _PUBLIC_AUTH_KEYS and isinstance(value, str):
            yield value


def secret_variables(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables with secret names, except file paths, and passwords in URLs."""
    for name, value in env.items():
        if _is_secret(name, value) and not (os.path.isabs(value) and os.path.exists(value)):
            yield from _value_secrets(value)
        else:
            yield from _text_secrets(value)


def _header_secrets(headers: Mapping[str, str]) -> Iterator[str]:
    for name, value in headers.items():
        if not looks_secret(name) and not name.lower().endswith("authorization"):
            continue
        yield from _value_secrets(value)


def _value_secrets(value: str) -> Iterator[str]:
    """Yield a secret as it is, and without its scheme (`Bearer …`, `Basic …`)."""
    yield value
    scheme, has_scheme, credentials = value.partition(" ")
    if has_scheme:
        yield credentials.strip()
    if scheme.lower() == "basic":
        yield from _basic_secrets(credentials)


def _text_secrets(text: str) -> Iterator[str]:
    """Yield secrets in a value without a secret name: tokens with known prefixes, and passwords in URLs."""
    yield from (found[0] for found in SECRET_VALUE.finditer(text))
    if "://" in text:
        yield from _url_secrets(text)


def _basic_secrets(credentials: str) -> Iterator[str]:
    try:
        yield base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return


def _argument_secrets(args: Sequence[str]) -> Iterator[str]:
    """Yield secrets in arguments: `--api-key VALUE`, `--api-key=VALUE`, `--header "Authorization: Bearer VALUE"`."""
    for argument in args:
        name, has_value, value = argument.partition("=")
        yield from _text_secrets(
            value if "://" in value else argument
        )  # what has a `=` may be a header or a token, too
        header = HEADER.fullmatch(argument)
        if header is None and "://" not in name:
            header = HEADER.fullmatch(value)
        if header is not None:
            yield from _header_secrets({header[1]: header[3]})
        if has_value and _is_secret(name.lstrip("-"), value):
            yield from _value_secrets(value)
    for option, argument in itertools.pairwise(args):  # a secret may look like an option: -a1b2c3==
        if option.startswith("-") and "=" not in option and _is_secret(option.lstrip("-"), argument):
            yield from _value_secrets(argument)


def _url_secrets(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query)
    except ValueError:
        return
    if parts.password:
        yield parts.password
        yield unquote(parts.password)
    for name, value in query:
        if looks_secret(name):
            yield value


NOTHING: Final = "no file"
"""The files of an agreement that covers none."""
_UNBOUND: Final = "can change after you agree"
_PLAIN_WORD = r"[A-Za-z0-9_@%+=:,./~{}$-]+"
"""A word that needs no quotes, and that cannot be taken for the end of what it is a part of."""
_MAX_BRIEF = 60
"""Characters of a command, a folder or an address in the sentence about a definition."""
_MAX_PATH = 20
"""Characters of an absolute path in that sentence; of a longer one only the last part is named."""
_MAX_RECEIVED = 3
"""Variables, and secrets, that are named in that sentence."""
_MAX_NAMED = 12
_MAX_WORDS = 100
"""Words checked after a program."""
_MAX_COMPARED = 10_000_000
"""Maximum product of the command's length and the number of variables; with more, all variables are shown whole."""


class Description(Struct, frozen=True):
    """A definition as a question shows it: together, its parts say all that decides what runs and with which rights."""

    summary: str
    """The command, its folder and what it receives, as the rest of a sentence that begins with the server's name."""
    lines: tuple[str, ...]
    """The parts that the summary abbreviates or leaves out: a name and a text in columns, or only a text."""


def described(definition: ServerDefinition, *, masks: bool | None = None) -> Description:
    """Describe everything that decides what runs and with which rights.

    Args:
        definition: The definition.
        masks: Whether to mask likely secrets; None masks them in the user's own files only.
    """
    is_masked = definition.source.scope == "user" if masks is None else masks
    description = _Describer(definition, is_masked)
    lines = tuple(f"{name:<12}{text}" if name else text for name, text in description.parts())
    return Description(description.summary(), lines)


def bound_to(definition: ServerDefinition) -> str:
    """Return the files that an agreement is bound to, as a phrase; empty for a remote server."""
    if definition.command is None:
        return ""
    if definition.source.scope != "project":
        return NOTHING
    from ipymcp.config.binding import binding  # not at each start

    bound = binding(definition)
    root = os.path.realpath(definition.source.folder or "")
    names = [
        os.path.relpath(path, root) + (" (only its size, times and both ends)" if path in bound.large else "")
        for path in sorted(bound.files, key=lambda path: path not in bound.large)
    ]
    if not names:
        return NOTHING
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    rest = "" if bound.is_whole else f"; what else it runs {_UNBOUND}"
    return f"{', '.join(names[:_MAX_NAMED])}{more}{rest}"


def wanted_secrets(definition: ServerDefinition) -> tuple[str, ...]:
    """Return the names of the stored secrets that a definition uses, without duplicates."""
    return tuple(dict.fromkeys(one.name for one in references(definition) if one.kind == "secret"))


class _Describer:
    """Description of one definition."""

    def __init__(self, definition: ServerDefinition, is_masked: bool) -> None:
        self._definition = definition
        self._is_masked = is_masked

    def summary(self) -> str:
        """Return `will run …`, `will connect to …` and what the server receives, as the rest of a sentence."""
        deeds: list[str] = []
        if self._definition.command is not None:
            path = self._folder
            place = self._usual_folder if path is None else f"`{_brief([path])}`".replace("`…`", "another folder")
            deeds.append(f"will run `{_brief(self._words)}` in {place}")
        if self._definition.url is not None:
            deeds.append(f"will connect to {_brief_url(self._text(self._definition.url))}")
        if received := _received_phrase(self._received, self._definition.inherit_env):
            deeds.append(f"will get {received}")
        return f"{joined(deeds)}."

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield the label and text of each line."""
        definition = self._definition
        if definition.command is not None:
            import shlex

            if _brief(self._words) != " ".join(self._words):
                yield "Command", shlex.join(self._words)
            if self._folder is not None and self._folder != _brief([self._folder]):
                yield "Folder", self._folder
        if definition.url is not None:
            yield "URL", f"{self._text(definition.url)} ({definition.transport})"
        yield from (("Header", f"{name}: {self._value(value, name)}") for name, value in definition.headers.items())
        for name, value in definition.env.items():
            yield "Variable", f"{name}={value if self._may_be_code(name) else self._value(value, name)}"
        if definition.env_file is not None:
            yield "Variables", f"those in {definition.env_file}"
        if definition.inherit_env:
            names = definition.inherit_env
            yield "Inherits", "every variable of this kernel" if names is True else ", ".join(names)
        if definition.auth:
            yield "Login", self._json(definition.auth)
        if definition.auto_approve:
            yield "Unasked", f"{', '.join(definition.auto_approve)} (autoApprove: models may call these)"
        for label, key in _OTHERS.items():
            if value := getattr(definition, key):
                yield label, self._json(value)
        for one in self._received:
            if (one.kind, one.where) != ("variable", f"env.{one.name}"):  # else the line of that variable says it
                yield "Receives", f"{_VALUES[one.kind]} {one.name or one.text} as {one.where}"
        bound = bound_to(definition)
        if bound:
            yield ("", f"The program {_UNBOUND}") if bound == NOTHING else ("Asks again", f"if this changes: {bound}")

    def _text(self, text: str, name: str = "") -> str:
        return masked(text, name) if self._is_masked else text

    def _value(self, text: str, name: str) -> str:
        return masked(text, name) if self._is_masked else shortened_tokens(text, name)

    def _may_be_code(self, name: str) -> bool:
        """Whether a stranger's variable may be a part of what runs, so that it has to be shown whole."""
        if self._is_masked or self._definition.command is None:
            return False
        if self._expands_variables or decides_code(name) or name in self._expanded:
            return True
        line, table = self._line, self._definition.env
        return len(line) * len(table) > _MAX_COMPARED or table[name] in line

    @cached_property
    def _words(self) -> list[str]:
        """The command line."""
        args = masked_args(self._definition.args) if self._is_masked else self._definition.args
        return [self._definition.command or "", *args]

    @property
    def _folder(self) -> str | None:
        """The folder in which the command runs, as written; None for the usual one."""
        definition, source = self._definition, self._definition.source
        if definition.cwd is not None or source.scope == "user" or source.folder is None:
            return definition.cwd
        return None if os.path.dirname(source.file or "") == source.folder else source.folder

    @property
    def _usual_folder(self) -> str:
        """The folder in which a command runs whose definition names none."""
        scope = self._definition.source.scope
        if scope in ("cell", "script"):
            return "the notebook's folder"
        return "a folder of its own" if scope == "user" else "this folder"

    @cached_property
    def _received(self) -> list[Reference]:
        return [one for one in references(self._definition) if one.kind != "place"]

    @cached_property
    def _line(self) -> str:
        return "\0".join((self._definition.command or "", *self._definition.args))

    @cached_property
    def _expanded(self) -> frozenset[str]:
        """The names that the command or a variable may refer to: `$NAME`, `%NAME%`, `environ["NAME"]`."""
        texts = (self._line, *self._definition.env.values())
        return frozenset(name for text in texts for name in re.findall(r"(?<=[$%!:.{(\[\"'])\w+", text))

    @cached_property
    def _expands_variables(self) -> bool:
        """Whether code in the arguments may use variables that it does not name."""
        words = [self._definition.command or "", *self._definition.args]
        programs = (
            (program_name(word), words[place : place + _MAX_WORDS]) for place, word in enumerate(words, start=1)
        )
        runs_code = any(shell_line(*each) is not None or evaluates(*each) for each in programs)
        return runs_code and re.search(_EXPANSION, self._line) is not None

    def _json(self, value: object) -> str:
        return json.dumps(self._within(value, ""), ensure_ascii=False, default=str)

    def _within(self, value: Any, name: str) -> Any:
        if isinstance(value, str):
            return self._value(value, name)
        if isinstance(value, Mapping):
            table = cast("Mapping[str, Any]", value)
            return {key: self._within(table[key], key) for key in table}
        if isinstance(value, list | tuple):
            return [self._within(item, name) for item in cast("Sequence[Any]", value)]
        return value


_OTHERS: Final = {
    "Tools": "tools",
    "Hints": "hints",
    "Read-only": "read_only",
    "Inputs": "inputs",
    "Not used": "extra",
}
"""Other parts of a definition by their labels."""
_VALUES: Final = {
    "variable": "your variable",
    "secret": "your secret",
    "input": "your input",
    "file": "the content of",
    "unknown": "(unknown variable)",
}
"""Phrases for the values that a server gets by references, by their kind."""


def _brief(words: Sequence[str]) -> str:
    """Abbreviate a command line or an address for a sentence; it is whole if nothing is long or needs quotes.

    No part of it can be taken for the sentence: it has neither backquotes nor anything else but plain words.
    """
    brief: list[str] = []
    for word in words:
        if os.path.isabs(word) and len(word) > _MAX_PATH:
            word = f"…/{os.path.basename(word)}"
        length = len(" ".join([*brief, word]))
        if length > _MAX_BRIEF or not re.fullmatch(_PLAIN_WORD, word.removeprefix("…")):
            return " ".join([*brief, "…"])
        brief.append(word)
    return " ".join(brief)


def _brief_url(url: str) -> str:
    brief = _brief([url])
    if brief == url:
        return f"`{url}`"
    try:
        host = _brief([urlsplit(url).hostname or "…"])
    except ValueError:
        host = "…"
    return "another address" if "…" in host else f"`{urlsplit(url).scheme}://{host}/…`"


def _received_phrase(received: Sequence[Reference], inherited: bool | tuple[str, ...]) -> str:
    """Name the variables and secrets that a server gets, or the first of them; empty for none."""
    parts = ["every variable of this kernel"] if inherited is True else []
    names: dict[str, dict[str, None]] = {}
    for name in inherited if isinstance(inherited, tuple) else ():
        names.setdefault("your variable", {})[name] = None
    for one in received:
        names.setdefault(_VALUES[one.kind], {})[one.name or one.text] = None
    for what, listed in names.items():
        shown = [_brief([name]) for name in itertools.islice(listed, _MAX_RECEIVED)]
        more = len(listed) - len(shown)
        plural = "s" if len(listed) > 1 and what.startswith("your ") else ""
        parts.append(f"{what}{plural} {joined([*shown, f'{more:,} more'] if more else shown)}")
    return joined(parts)
