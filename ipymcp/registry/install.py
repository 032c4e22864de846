"""The ways to run a server of a registry: one for each of its packages and remote addresses.

Every command names one version of its package, and passes on few options to its runner, none of which can choose
another package. What an entry says is literal: an entry with a variable of the user's configuration, such as `${…}`, is
refused. Values of the user are put in as they are, and may be such variables.

Source: modelcontextprotocol/registry, docs/reference/server-json; `dnx PACKAGE@VERSION -- ARGUMENTS` is from there.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct, field, structs

from ipymcp.config.programs import decides_code, decides_traffic, program
from ipymcp.config.variables import has_variables, written_variables
from ipymcp.masking import looks_secret
from ipymcp.protocol.transports.addresses import zone_of
from ipymcp.registry.entries import Input, is_fixed
from ipymcp.text import cut, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ipymcp.registry.entries import Entry, EntryTransport, Package


_MAX_INPUTS = 50
_SEPARATOR = ";"
"""Separates the values of an input that may be repeated."""
_VARIABLE = re.compile(r"\{([^{}]+)\}")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_IMAGE = re.compile(
    r"(?:[a-z0-9][a-z0-9.-]*(?::\d{1,5})?/)?[a-z0-9][a-z0-9._/-]*"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]*))?(?P<digest>@sha256:[a-f0-9]{64})?"
)
_PARTS = {
    "npm": r"(?a)(@[A-Za-z0-9~][\w.~-]*/)?[A-Za-z0-9~][\w.~-]*",
    "pypi": r"(?a)[A-Za-z0-9][\w.-]*",
    "nuget": r"(?a)[A-Za-z0-9][\w.-]*",
}
_MAX_SHOWN = 60
_REGISTRIES = {
    "npm": ("https://registry.npmjs.org",),
    "pypi": ("https://pypi.org", "https://pypi.org/simple"),
    "nuget": ("https://api.nuget.org", "https://api.nuget.org/v3/index.json"),
}
_PASSED_ON: Mapping[str, Mapping[str, str]] = {
    "npx": {"-y": "", "--yes": "", "-q": "-q", "--quiet": "-q"},
    "uvx": {"-q": "-q", "--quiet": "-q"},
    "dnx": {"-y": "", "--yes": ""},
    "docker": {"-i": "", "--interactive": "", "--rm": "", "--init": "--init"},
}
"""The options without value that an entry may give to a runner, each with the one that is added to the command."""
_PYTHON_VERSION = re.compile(r"3(\.\d{1,2}){1,2}")
_PLAIN_PATH = re.compile(r"(?a)[\w./-]*")
_VOLUME = re.compile(r"(?P<source>\{[^{}]+\}):(?P<target>[^:,]+)(:(ro|rw|z|Z)(,(ro|rw|z|Z))*)?")
_ANY_COMMAND = "%mcp load NAME -- COMMAND ARG… runs any command"
_REFUSED = {
    "mcpb": (
        "an MCPB bundle is unpacked and run by a desktop application",
        "if the publisher also has a package, run that: %mcp load NAME -- COMMAND ARG…",
    ),
    "cargo": (
        "cargo has no command that runs one version of a package without installing it",
        "cargo install NAME --version VERSION, then %mcp config add NAME -- PROGRAM",
    ),
    "go": (
        "a Go module is run after it was installed",
        "go install MODULE@VERSION, then %mcp config add NAME -- PROGRAM",
    ),
}


class WantedInput(Struct, frozen=True):
    """A value to ask the user for."""

    key: str
    about: Input

    @property
    def default(self) -> str:
        """The default as text; empty if there is none."""
        return _plain(self.about.default)

    @property
    def choices(self) -> list[str]:
        """The allowed values; empty for any."""
        return [_plain(one) for one in self.about.choices or ()]

    @property
    def schema(self) -> dict[str, Any]:
        """The value as a property of a JSON Schema."""
        about = self.about
        kind = {"number": "number", "boolean": "boolean"}.get(about.format, "string")
        hints = [about.description or "", f"for example {about.placeholder}" if about.placeholder else ""]
        hints += [f"several: with {_SEPARATOR} between them"] if about.is_repeated else []
        schema: dict[str, Any] = {"type": kind, "title": self.key, "description": ". ".join(filter(None, hints))}
        if about.is_required and (kind == "string" or about.is_secret):
            schema["minLength"] = 1
        if self.choices and kind == "string":
            schema["enum"] = self.choices
        if about.is_secret:
            return {**schema, "type": "string", "format": "password"}
        if self.default:
            schema["default"] = _typed(self.default, kind)
        return schema


class Way(Struct, frozen=True):
    """One way to run a server."""

    label: str
    """The kind of package, or `remote`."""
    transport: str
    runner: str
    """The program that runs the package; empty for a remote server."""
    build: Callable[[_Filling], dict[str, Any]]
    problem: str = ""
    """The reason that ipymcp cannot run it; empty if it can."""
    hint: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether it can be run here, with the programs that are installed."""
        return not self.problem and not self.missing

    @property
    def missing(self) -> str:
        """The program that is not installed; empty if there is none."""
        if not self.runner:
            return ""
        # As in a start: on the PATH, or beside this kernel's own Python.
        places = (os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable))
        return self.runner if shutil.which(self.runner, path=os.pathsep.join(places)) is None else ""

    @property
    def remedy(self) -> str:
        """Advice about the problem, or the missing program."""
        return self.hint or (program(self.runner).install if self.missing else "")

    def inputs(self) -> list[WantedInput]:
        """The values to ask the user for, in order."""
        return [WantedInput(key, about) for key, about in _wanted(self.build).items()]

    def definition(self, values: Mapping[str, str]) -> dict[str, Any]:
        """The definition of the server.

        Args:
            values: Texts by the inputs' keys, as a configuration file has them. Defaults are used for missing ones.

        Raises:
            ValueError: A required value is missing, or does not fit.
        """
        wanted = _wanted(self.build)
        for one in (WantedInput(key, about) for key, about in wanted.items()):
            default = "" if one.about.is_secret else one.default
            if one.about.is_required and not (values.get(one.key) or default).strip():
                raise ValueError(f"it needs {one.key}")
        made = self.build(_Filling(values, wanted))
        if "url" in made:
            _require_http(made["url"] or "")
        return made

    def preview(self) -> str:
        """The command or the address, with the names of its inputs in braces."""
        made = self.build(_Filling(None))
        return made["url"] if "url" in made else " ".join([made["command"], *made["args"]])


def ways(entry: Entry) -> list[Way]:
    """The ways to run a server, as its publisher lists them."""
    return [*map(_package, entry.packages), *map(_remote, entry.remotes)]


async def require_public(way: Way, definition: Mapping[str, Any]) -> None:
    """Check that a remote server's name, chosen by its publisher, does not lead into the user's own network.

    Addresses that are visibly local are left to the warnings about the definition, and a name that the user has given,
    in whole or in part, to the user.

    Raises:
        ValueError: It does.
    """
    theirs = way.build(_Filling({}, _wanted(way.build))).get("url") or ""
    host = urlsplit(definition.get("url") or "").hostname
    if not host or urlsplit(theirs).hostname != host or zone_of(host) is not None:
        return
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:  # its start shows the reason
        return
    inner = next((str(info[4][0]) for info in found if zone_of(str(info[4][0]))), None)
    if inner is not None:
        raise ValueError(f"{host} leads to {inner}, which is in your own network")


def placed(value: str, about: Input, folder: str) -> str:
    """Make the path in a value of the format `filepath` absolute; other values stay."""
    if about.format != "filepath" or not value or value.startswith(("$", "{")):
        return value
    return os.path.normpath(os.path.join(folder, os.path.expanduser(value)))


class _Filling:
    """Fills in the inputs of a package, and notes which there are.

    Args:
        values: Texts by key; None to fill in the keys themselves.
        known: The inputs, as the places that use them describe them together.
    """

    def __init__(self, values: Mapping[str, str] | None, known: Mapping[str, Input] | None = None) -> None:
        self._values = values
        self._known = known or {}
        self.wanted: dict[str, Input] = {}

    def texts(self, one: Input, key: str) -> list[str]:
        """The values of an input: none if it is optional and not given, several if it is repeated."""
        if one.value is not None:
            text = self._filled(one.value, one.variables or {}, is_secret=one.is_secret or looks_secret(one.name))
            return [] if text is None else [text]
        asked = self._asked(one, key)
        if asked is None:
            return []
        parts = asked.text.split(_SEPARATOR) if one.is_repeated and self._values is not None else [asked.text]
        return [_joined([_Piece(part.strip(), asked.is_theirs)]) for part in parts if part.strip()]

    def url(self, transport: EntryTransport) -> str | None:
        """The address of a remote server, with its variables filled in; None if one is not given."""
        return self._filled(transport.url, transport.variables or {})

    def _filled(self, template: str, variables: Mapping[str, Input], *, is_secret: bool = False) -> str | None:
        """Replace variables; None if a variable is not given, although it is used."""
        pieces: list[_Piece] = []
        for index, part in enumerate(_VARIABLE.split(template)):
            if index % 2 == 0 or part not in variables:
                pieces.append(_Piece(f"{{{part}}}" if index % 2 else part, is_theirs=True))
                continue
            inner = variables[part]
            if inner.value is not None:
                piece = _Piece(inner.value, is_theirs=True)
            else:
                piece = self._asked(structs.replace(inner, is_secret=True) if is_secret else inner, part)
            if piece is None:
                return None
            pieces.append(piece)
        return _joined(pieces)

    def _asked(self, one: Input, key: str) -> _Piece | None:
        """The value of an input; None if there is none."""
        for text in map(_plain, (one.default, *(one.choices or ()))):
            _require_literal(text)
        self.wanted[key] = _merged(self.wanted.get(key), one, key)
        if len(self.wanted) > _MAX_INPUTS:
            raise ValueError(f"it asks for more than {_MAX_INPUTS} values")
        if self._values is None:
            return _Piece(f"{{{key}}}", is_theirs=True)
        known = self._known.get(key, one)
        default = "" if known.is_secret else _plain(known.default)
        text = self._values.get(key) or default
        is_theirs = text == default or text in map(_plain, known.choices or ())
        return _Piece(text, is_theirs) if text else None


def _wanted(build: Callable[[_Filling], dict[str, Any]]) -> dict[str, Input]:
    """The inputs that are filled in, by key."""
    filling = _Filling(None)
    build(filling)
    return filling.wanted


def _merged(known: Input | None, one: Input, key: str) -> Input:
    """Describe an input by all places that use it: secret or required if one says so, with a default if all agree."""
    is_plain = one.format in ("boolean", "filepath") or bool(one.choices)
    is_secret = one.is_secret or (looks_secret(key) and not is_plain)
    if known is None:
        return structs.replace(one, is_secret=is_secret)
    return structs.replace(
        known,
        is_secret=known.is_secret or is_secret,
        is_required=known.is_required or one.is_required,
        default=known.default if known.default == one.default else None,
    )


class _Piece(Struct, frozen=True):
    """A part of a value: the entry's own text, or what the user has given."""

    text: str
    is_theirs: bool


def _joined(pieces: Sequence[_Piece]) -> str:
    """Join the parts of a value, so that its variables are those that the user has given.

    Raises:
        ValueError: The entry's text has a variable, or makes one, or changes one of the user's.
    """
    for piece in pieces:
        if piece.is_theirs:
            _require_literal(piece.text)
    text = "".join(piece.text for piece in pieces)
    given = [one for piece in pieces if not piece.is_theirs for one in written_variables(piece.text)]
    if written_variables(text) != given:
        if all(piece.is_theirs for piece in pieces):
            _require_literal(text)
        raise ValueError("its text would make a variable of what you have given")
    return text


def _require_literal(text: str) -> str:
    """Check that a text of an entry contains no variable of a configuration.

    Raises:
        ValueError: It does.
    """
    if has_variables(text):
        raise ValueError(f"its text has a variable of a configuration ({_shown(text)})")
    return text


def _require_http(url: str) -> None:
    """Check the address of a remote server. A variable of the user's may stand for its beginning.

    Raises:
        ValueError: It is not an address of an HTTP server, or contains a login.
    """
    if any(map(url.startswith, written_variables(url)[:1])):
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        raise ValueError(f"its address is not one of an HTTP server ({_shown(url)})")
    if "@" in parts.netloc:
        raise ValueError("its address contains a login")


def _shown(text: str) -> str:
    return repr(cut(one_line(text), _MAX_SHOWN))


def _plain(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _typed(text: str, kind: str) -> Any:
    if kind == "boolean":
        return text.lower() == "true"
    if kind == "number":
        try:
            return float(text) if "." in text else int(text)
        except ValueError:
            return text
    return text


# -- packages ---------------------------------------------------------------------------------------------------------


def _package(package: Package) -> Way:
    kind = package.registry_type
    runner = _runner(package)
    problem, hint = _trouble(package, runner)
    way = Way(kind, package.transport.type, runner, lambda filling: _command(package, runner, filling), problem, hint)
    return _checked(way)


def _remote(transport: EntryTransport) -> Way:
    problem = ""
    kinds = {"streamable-http": "http", "sse": "sse"}
    if transport.type not in kinds:
        problem = f"its transport {transport.type!r} is unknown to ipymcp"

    def build(filling: _Filling) -> dict[str, Any]:
        made: dict[str, Any] = {"url": filling.url(transport)}
        headers: dict[str, str] = {}
        for one in transport.headers or ():
            if _HEADER_NAME.fullmatch(one.name) is None:
                raise ValueError(f"{_shown(one.name)} is not the name of a header")
            for text in filling.texts(one, one.name):
                headers[one.name] = text
        if headers:
            made["headers"] = headers
        if kinds.get(transport.type) == "sse":
            made["transport"] = "sse"
        return made

    return _checked(Way("remote", transport.type, "", build, problem))


def _checked(way: Way) -> Way:
    """Add the problem of an entry whose texts cannot be written into a definition."""
    problem = way.problem
    if not problem:
        try:
            made = way.build(_Filling({}, _wanted(way.build)))
            if made.get("url") is not None:
                _require_http(made["url"])
        except ValueError as error:
            problem = str(error)
    return structs.replace(way, build=_nothing, problem=problem) if problem else way


def _nothing(filling: _Filling) -> dict[str, Any]:
    return {"command": "", "args": []}


def _runner(package: Package) -> str:
    if package.registry_type == "oci" and package.runtime_hint == "podman":
        return "podman"
    return {"npm": "npx", "pypi": "uvx", "oci": "docker", "nuget": "dnx"}.get(package.registry_type, "")


def _trouble(package: Package, runner: str) -> tuple[str, str]:
    """The reason that a package cannot be run, and advice; empty if it can."""
    kind, hint = package.registry_type, package.runtime_hint
    if kind in _REFUSED:
        return _REFUSED[kind]
    if not runner:
        return f"packages of the kind {kind!r} are unknown to ipymcp", _ANY_COMMAND
    if package.transport.type != "stdio":
        return "it listens on a port of its own", "start it yourself, then %mcp load NAME http://localhost:PORT/mcp"
    if package.runtime_arguments and hint not in (None, "", runner):
        return (
            f"its options are for {hint}, which ipymcp does not use",
            _ANY_COMMAND,
        )
    base = (package.registry_base_url or "").rstrip("/")
    if kind == "oci":
        return _image(package)[1], ""
    if base and base not in _REGISTRIES[kind]:
        return f"it comes from another registry of packages ({base})", "set that up for the runner, then %mcp load"
    if re.fullmatch(_PARTS[kind], package.identifier) is None:
        return f"{package.identifier!r} is not the name of a package", ""
    if not is_fixed(package.version or "", kind):
        return f"its version is not fixed ({package.version or 'none'})", ""
    return "", ""


def _image(package: Package) -> tuple[str, str]:
    """The reference of an image with its tag or digest, and why it cannot be used."""
    image, base = package.identifier, urlsplit(package.registry_base_url or "").netloc
    if base and not image.startswith(f"{base}/"):
        image = f"{base}/{image}"
    found = _IMAGE.fullmatch(image)
    if found is not None and not found["tag"] and not found["digest"] and package.version:
        image = f"{image}:{package.version}"
        found = _IMAGE.fullmatch(image)
    if found is None:
        return image, f"{package.identifier!r} is not the name of an image"
    if not found["digest"] and not is_fixed(found["tag"] or "", "oci"):
        return image, "its image has no fixed version"
    return image, ""


def _command(package: Package, runner: str, filling: _Filling) -> dict[str, Any]:
    options = _options(package, runner)
    before = _arguments(options.arguments, filling)
    after = _arguments(package.package_arguments or (), filling)
    env: dict[str, str] = {}
    for one in (*(package.environment_variables or ()), *options.variables):
        for text in filling.texts(_variable(one), one.name):
            env[one.name] = text
    pinned = f"{package.identifier}@{package.version}"
    match package.registry_type:
        case "npm":
            args = ["-y", *before, pinned, *after]
        case "nuget":
            args = [pinned, "--yes", *before, *(["--", *after] if after else [])]
        case "oci":
            passed = [word for name in env for word in ("-e", name)]
            args = ["run", "-i", "--rm", *passed, *before, _image(package)[0], *after]
        case _:
            args = [*before, pinned, *after]
    return {"command": runner, "args": args, **({"env": env} if env else {})}


def _variable(one: Input) -> Input:
    """Check a variable of the process. One that could decide what runs has the value that the user gives, or none.

    Raises:
        ValueError: It has no valid name, or the entry itself decides what runs.
    """
    if _ENVIRONMENT_NAME.fullmatch(one.name) is None:
        raise ValueError(f"{_shown(one.name)} is not the name of a variable")
    if not decides_code(one.name) and not decides_traffic(one.name):
        return one
    if one.value is not None:
        what = "what code runs" if decides_code(one.name) else "where its traffic goes"
        raise ValueError(f"it sets {one.name}, which decides {what}")
    return _without_default(one)


def _without_default(one: Input) -> Input:
    """Turn the default of an input into an example, so that only the user gives its value."""
    return structs.replace(one, default=None, placeholder=one.placeholder or _plain(one.default) or None)


class _Options(Struct):
    """The options of an entry that its runner gets: as arguments, and as variables of a container."""

    arguments: list[Input] = field(default_factory=list[Input])
    variables: list[Input] = field(default_factory=list[Input])


def _options(package: Package, runner: str) -> _Options:
    """Take over the options that cannot change which package runs, or give it rights that the user does not give.

    Raises:
        ValueError: There are others.
    """
    kind = "docker" if package.registry_type == "oci" else runner
    flags = _PASSED_ON.get(kind, {})
    names = {one.name for one in package.environment_variables or ()}
    taken = _Options()
    for one in package.runtime_arguments or ():
        is_named = one.type == "named"
        value, word = one.value, one.name if is_named else one.value or ""
        if word in flags and (not is_named or value in (None, "", "true")):
            if flags[word]:
                taken.arguments.append(Input(type="named", name=flags[word], value=""))
        elif is_named and kind == "uvx" and word in ("-p", "--python") and _PYTHON_VERSION.fullmatch(value or ""):
            taken.arguments.append(Input(type="named", name="--python", value=value))
        elif is_named and kind == "docker" and word in ("-e", "--env") and value:
            name, equals, rest = value.partition("=")
            if equals:  # in the environment, where other users of this machine do not see it
                taken.variables.append(structs.replace(one, name=name, value=rest))
            elif name not in names:
                raise ValueError(f"its container wants this machine's variable {_shown(name)}")
        elif is_named and kind == "docker" and word in ("-v", "--volume", "--mount"):
            taken.arguments.append(_mount(one))
        else:
            raise ValueError(f"its option {_shown(word)} for {runner} could change what runs")
    return taken


def _mount(one: Input) -> Input:
    """Check a folder of a container: the user gives the folder of this machine.

    Raises:
        ValueError: The entry gives it.
    """
    if one.value is None:
        return _without_default(one)
    variables = dict(one.variables or {})
    if one.name == "--mount":
        parts = [part.partition("=") for part in one.value.split(",")]
        fields = {key: text for key, _, text in parts}
        is_clear = len(fields) == len(parts)
        source = fields.pop("src", None) or fields.pop("source", "")
        target = next((fields.pop(key) for key in ("dst", "target", "destination") if key in fields), "")
        is_bind = fields.pop("type", "") == "bind"
        is_plain = is_bind and is_clear and fields.keys() <= {"readonly", "ro"}
    else:
        found = _VOLUME.fullmatch(one.value)
        source, target, is_plain = (found["source"], found["target"], True) if found is not None else ("", "", False)
    key = source[1:-1] if _VARIABLE.fullmatch(source) is not None else ""
    if not is_plain or key not in variables or variables[key].value is not None:
        raise ValueError("its container sees a folder of this machine that you do not choose")
    variables[key] = _without_default(variables[key])
    theirs = [_VARIABLE.sub("", target)]
    for other in variables.values():
        theirs += map(_plain, (other.value, other.default, *(other.choices or ())))
    if not all(map(_PLAIN_PATH.fullmatch, theirs)):
        raise ValueError(f"its container has a folder with an unusual name ({_shown(target)})")
    return structs.replace(one, variables=variables)


def _arguments(listed: Sequence[Input], filling: _Filling) -> list[str]:
    """Arguments of a command line, `--name=value` for those with a name."""
    args: list[str] = []
    for number, one in enumerate(listed, start=1):
        if one.type != "named":
            args += filling.texts(one, one.value_hint or one.name or f"argument {number}")
            continue
        flag = _require_literal(one.name)
        if one.value == "":
            args.append(flag)
            continue
        for text in filling.texts(one, one.name.lstrip("-") or f"argument {number}"):
            args += [f"{flag}={text}"] if flag.startswith("--") else [flag, text]
    return args
