"""The ways to run a server of a registry: one for each of its packages and remote addresses.

Every command names one version of its package, and passes only a few options to its runner, none of which can select
another package. The texts of an entry are literal: an entry that contains a configuration variable, such as `${…}`, is
refused. The user's values are inserted unchanged, and may contain such variables.

Source: modelcontextprotocol/registry, docs/reference/server-json, also for `dnx PACKAGE@VERSION -- ARGUMENTS`.
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
from ipymcp.registry.client import Input, is_fixed
from ipymcp.text import cut, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ipymcp.registry.client import Entry, EntryTransport, Package


_MAX_INPUTS = 50
_MAX_CHOICES = 100
_MAX_TEMPLATE = 4_000
"""Characters of a text with variables."""
_MAX_VARIABLES = 100
"""Variables in such a text, repeated ones included."""
_SEPARATOR = ";"
"""Separates the values of an input that may be repeated."""
_VARIABLE = re.compile(r"\{([^{}]+)\}")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_IMAGE = re.compile(
    r"(?:[a-z0-9][a-z0-9.-]*(?::\d{1,5})?/)?[a-z0-9][a-z0-9._/-]*"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]*))?(?P<digest>@sha256:[a-f0-9]{64})?"
)
_PACKAGE_NAMES = {
    "npm": r"(?a)(@[A-Za-z0-9~][\w.~-]*/)?[A-Za-z0-9~][\w.~-]*",
    "pypi": r"(?a)[A-Za-z0-9][\w.-]*",
    "nuget": r"(?a)[A-Za-z0-9][\w.-]*",
}
_PYTHON = re.compile(r"(c?python|pypy|graalpy|pyodide|cp|pp|gp)[\d._-]*t?w?")
"""Names that uv takes for an interpreter instead of a package."""
_RUNNERS = {
    *(
        "corepack",
        "cross-env",
        "cross-env-shell",
        "ipython",
        "jiti",
        "nodejs",
        "nodemon",
        "pip",
        "pip3",
        "pnpm",
        "pnpx",
    ),
    *("pdm", "poetry", "run-script-os", "shx", "ts-node-dev", "xonsh", "yarn", "zx"),
}
"""Other packages that run what their arguments name."""
_MAX_SHOWN = 60
"""Characters of an entry's text in a message."""
_PACKAGE_REGISTRIES = {
    "npm": ("https://registry.npmjs.org",),
    "pypi": ("https://pypi.org", "https://pypi.org/simple"),
    "nuget": ("https://api.nuget.org", "https://api.nuget.org/v3/index.json"),
}
_ALLOWED_FLAGS: Mapping[str, Mapping[str, str]] = {
    "npx": {"-y": "", "--yes": "", "-q": "-q", "--quiet": "-q"},
    "uvx": {"-q": "-q", "--quiet": "-q"},
    "dnx": {"-y": "", "--yes": ""},
    "docker": {"-i": "", "--interactive": "", "--rm": "", "--init": "--init"},
}
"""Flags that an entry may pass to a runner, each with the flag that is added to the command (empty: none)."""
_PYTHON_VERSION = re.compile(r"3(\.\d{1,2}){1,2}")
_PLAIN_PATH = re.compile(r"(?a)[\w./-]*")
_VOLUME = re.compile(r"(?P<source>\{[^{}]+\}):(?P<target>[^:,]+)(:(ro|rw|z|Z)(,(ro|rw|z|Z))*)?")
_ANY_COMMAND = "%mcp load NAME -- COMMAND ARG… runs any command"
_UNSUPPORTED_KINDS = {
    "mcpb": (
        "an MCPB bundle is unpacked and run by a desktop application",
        "if the publisher also has a package, run that: %mcp load NAME -- COMMAND ARG…",
    ),
    "cargo": (
        "cargo has no command that runs one version of a package without installing it",
        "cargo install NAME --version VERSION, then %mcp config add NAME -- PROGRAM",
    ),
    "go": (
        "a Go module must be installed before it can be run",
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
        return _as_text(self.about.default)

    @property
    def choices(self) -> list[str]:
        """The allowed values; empty for any."""
        return [_as_text(choice) for choice in self.about.choices or ()]

    @property
    def schema(self) -> dict[str, Any]:
        """The value as a property of a JSON Schema."""
        about = self.about
        kind = {"number": "number", "boolean": "boolean"}.get(about.format, "string")
        hints = [about.description or "", f"for example {about.placeholder}" if about.placeholder else ""]
        hints += [f"several values are separated by {_SEPARATOR}"] if about.is_repeated else []
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
    build: Callable[[_Substitution], dict[str, Any]]
    problem: str = ""
    """The reason why ipymcp cannot run it; empty if it can."""
    hint: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether it can be run with the installed programs."""
        return not self.problem and not self.missing

    @property
    def missing(self) -> str:
        """The runner, if it is not installed; else empty."""
        if not self.runner:
            return ""
        # A start looks in the same places: on the PATH, and beside this kernel's Python.
        places = (os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable))
        return self.runner if shutil.which(self.runner, path=os.pathsep.join(places)) is None else ""

    @property
    def remedy(self) -> str:
        """The hint for the problem, or for installing the missing program."""
        return self.hint if self.problem else (program(self.runner).install if self.missing else "")

    def inputs(self) -> list[WantedInput]:
        """The values to ask the user for, in order."""
        return [WantedInput(key, about) for key, about in _wanted(self.build).items()]

    def definition(self, values: Mapping[str, str]) -> dict[str, Any]:
        """The definition of the server.

        Args:
            values: Values by the keys of the inputs, as a configuration file has them; defaults replace missing values.

        Raises:
            ValueError: A required value is missing, or a value is not allowed.
        """
        wanted = _wanted(self.build)
        for one in (WantedInput(key, about) for key, about in wanted.items()):
            default = "" if one.about.is_secret else one.default
            if one.about.is_required and not (values.get(one.key) or default).strip():
                raise ValueError(f"it needs {one.key}")
        made = self.build(_Substitution(values, wanted))
        if "url" in made:
            _require_http(made["url"] or "")
        return made

    def preview(self) -> str:
        """The command or the address, with the names of its inputs in braces."""
        made = self.build(_Substitution(None))
        return made["url"] if "url" in made else " ".join([made["command"], *made["args"]])


def ways(entry: Entry) -> list[Way]:
    """The ways to run a server, as its publisher lists them."""
    return [*map(_package, entry.packages), *map(_remote, entry.remotes)]


async def require_public(way: Way, definition: Mapping[str, Any]) -> None:
    """Check that the host name in a publisher's URL does not resolve to an address in the user's own network.

    Two cases are not checked: a host that is visibly local, about which the definition's warnings inform the user, and
    a host that is wholly or partly a value of the user's.

    Raises:
        ValueError: It resolves to such an address.
    """
    publisher_url = way.build(_Substitution({}, _wanted(way.build))).get("url") or ""
    host = urlsplit(definition.get("url") or "").hostname
    if not host or urlsplit(publisher_url).hostname != host or zone_of(host) is not None:
        return
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:  # reported when the server is started
        return
    local = next((str(info[4][0]) for info in found if zone_of(str(info[4][0]))), None)
    if local is not None:
        raise ValueError(f"{host} leads to {local}, which is in your own network")


def absolute_path(value: str, about: Input, folder: str) -> str:
    """Make the value of an input of the format `filepath` an absolute path; return other values unchanged."""
    if about.format != "filepath" or not value or value.startswith(("$", "{")):
        return value
    return os.path.normpath(os.path.join(folder, os.path.expanduser(value)))


class _Substitution:
    """Replaces the inputs of a package by their values, and records which inputs are used.

    Args:
        values: Values by key; None to insert the keys themselves.
        known: The inputs by key, each merged from all places that use it (see `_merged`).
    """

    def __init__(self, values: Mapping[str, str] | None, known: Mapping[str, Input] | None = None) -> None:
        self._values = values
        self._known = known or {}
        self.wanted: dict[str, Input] = {}

    def texts(self, one: Input, key: str) -> list[str]:
        """The values of an input: none if it is optional and missing, several if it may be repeated."""
        if one.value is not None:
            text = self._filled(one.value, one.variables or {}, is_secret=one.is_secret or looks_secret(one.name))
            return [] if text is None else [text]
        piece = self._value(one, key)
        if piece is None:
            return []
        parts = piece.text.split(_SEPARATOR) if one.is_repeated and self._values is not None else [piece.text]
        return [_joined([_Piece(part.strip(), piece.is_from_entry)]) for part in parts if part.strip()]

    def url(self, transport: EntryTransport) -> str | None:
        """The URL of a remote server with its variables replaced; None if the value of one is missing."""
        return self._filled(transport.url, transport.variables or {})

    def _filled(self, template: str, variables: Mapping[str, Input], *, is_secret: bool = False) -> str | None:
        """Replace the variables of a template; None if the value of one is missing."""
        parts = _VARIABLE.split(template, 2 * _MAX_VARIABLES)
        if len(template) > _MAX_TEMPLATE or len(parts) > 2 * _MAX_VARIABLES:
            raise ValueError(f"a text in it has over {_MAX_TEMPLATE:,} characters or {_MAX_VARIABLES} variables")
        pieces: list[_Piece] = []
        for index, part in enumerate(parts):
            if index % 2 == 0 or part not in variables:
                pieces.append(_Piece(f"{{{part}}}" if index % 2 else part, is_from_entry=True))
                continue
            inner = variables[part]
            if inner.value is not None:
                piece = _Piece(inner.value, is_from_entry=True)
            else:
                piece = self._value(structs.replace(inner, is_secret=True) if is_secret else inner, part)
            if piece is None:
                return None
            pieces.append(piece)
        return _joined(pieces)

    def _value(self, one: Input, key: str) -> _Piece | None:
        """The value of an input; None if there is none."""
        if len(one.choices or ()) > _MAX_CHOICES:
            raise ValueError(f"it offers more than {_MAX_CHOICES} choices for {key}")
        for text in map(_as_text, (one.default, *(one.choices or ()))):
            _require_literal(text)
        self.wanted[key] = _merged(self.wanted.get(key), one, key)
        if len(self.wanted) > _MAX_INPUTS:
            raise ValueError(f"it asks for more than {_MAX_INPUTS} values")
        if self._values is None:
            return _Piece(f"{{{key}}}", is_from_entry=True)
        known = self._known.get(key, one)
        default = "" if known.is_secret else _as_text(known.default)
        text = self._values.get(key) or default
        is_from_entry = text == default or text in map(_as_text, known.choices or ())
        return _Piece(text, is_from_entry) if text else None


def _wanted(build: Callable[[_Substitution], dict[str, Any]]) -> dict[str, Input]:
    """The inputs that a definition uses, by key."""
    substitution = _Substitution(None)
    build(substitution)
    return substitution.wanted


def _merged(known: Input | None, one: Input, key: str) -> Input:
    """Merge an input with its earlier uses: secret or required if any use is, with a default if all uses agree."""
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
    """A part of a value: text of the entry, or a value of the user's."""

    text: str
    is_from_entry: bool


def _joined(pieces: Sequence[_Piece]) -> str:
    """Join the parts of a value, and check that its only variables are those in the user's values.

    Raises:
        ValueError: The entry's text contains a variable, or forms or changes one when joined to the user's values.
    """
    for piece in pieces:
        if piece.is_from_entry:
            _require_literal(piece.text)
    text = "".join(piece.text for piece in pieces)
    given = [one for piece in pieces if not piece.is_from_entry for one in written_variables(piece.text)]
    if written_variables(text) != given:
        if all(piece.is_from_entry for piece in pieces):
            _require_literal(text)
        raise ValueError("its text would make a variable of what you have given")
    return text


def _require_literal(text: str) -> str:
    """Return a text of an entry after checking that it contains no configuration variable.

    Raises:
        ValueError: It contains one.
    """
    if has_variables(text):
        raise ValueError(f"its text has a variable of a configuration ({_shown(text)})")
    return text


def _require_http(url: str) -> None:
    """Check the URL of a remote server. It may begin with a variable of the user's.

    Raises:
        ValueError: It is not the URL of an HTTP server, or contains a login.
    """
    if any(map(url.startswith, written_variables(url)[:1])):
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        raise ValueError(f"its address is not an HTTP URL ({_shown(url)})")
    if "@" in parts.netloc:
        raise ValueError("its address contains a login")


def _shown(text: str) -> str:
    return repr(cut(one_line(text), _MAX_SHOWN))


def _as_text(value: object) -> str:
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
    problem, hint = _package_problem(package, runner)
    way = Way(
        kind,
        package.transport.type,
        runner,
        lambda substitution: _command(package, runner, substitution),
        problem,
        hint,
    )
    return _checked(way)


def _remote(transport: EntryTransport) -> Way:
    problem = ""
    kinds = {"streamable-http": "http", "sse": "sse"}
    if transport.type not in kinds:
        problem = f"its transport {transport.type!r} is unknown to ipymcp"

    def build(substitution: _Substitution) -> dict[str, Any]:
        made: dict[str, Any] = {"url": substitution.url(transport)}
        headers: dict[str, str] = {}
        for one in transport.headers or ():
            if _HEADER_NAME.fullmatch(one.name) is None:
                raise ValueError(f"{_shown(one.name)} is not the name of a header")
            for text in substitution.texts(one, one.name):
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
            made = way.build(_Substitution({}, _wanted(way.build)))
            if made.get("url") is not None:
                _require_http(made["url"])
        except ValueError as error:
            problem = str(error)
    return structs.replace(way, build=_empty_definition, problem=problem) if problem else way


def _empty_definition(substitution: _Substitution) -> dict[str, Any]:
    return {"command": "", "args": []}


def _runner(package: Package) -> str:
    if package.registry_type == "oci" and package.runtime_hint == "podman":
        return "podman"
    return {"npm": "npx", "pypi": "uvx", "oci": "docker", "nuget": "dnx"}.get(package.registry_type, "")


def _package_problem(package: Package, runner: str) -> tuple[str, str]:
    """The reason why a package cannot be run, and a hint; both empty if it can."""
    kind, hint = package.registry_type, package.runtime_hint
    if kind in _UNSUPPORTED_KINDS:
        return _UNSUPPORTED_KINDS[kind]
    if not runner:
        return f"packages of the kind {kind!r} are unknown to ipymcp", _ANY_COMMAND
    if package.transport.type != "stdio":
        return "it listens on a port of its own", "start it yourself, then %mcp load NAME http://localhost:PORT/mcp"
    if package.runtime_arguments and hint not in (None, "", runner):
        return f"its options are for {hint}, which ipymcp does not use", _ANY_COMMAND
    base = (package.registry_base_url or "").rstrip("/")
    if kind == "oci":
        return _image(package)[1], ""
    if base and base not in _PACKAGE_REGISTRIES[kind]:
        return (
            f"it comes from another registry of packages ({base})",
            "configure the runner to use that registry, then use %mcp load",
        )
    if re.fullmatch(_PACKAGE_NAMES[kind], package.identifier) is None:
        return f"{package.identifier!r} is not the name of a package", ""
    if _is_runner(package.identifier):
        return f"{package.identifier} is a program that runs what its arguments name, not a server's package", ""
    if not is_fixed(package.version or "", kind):
        return f"its version is not fixed ({package.version or 'none'})", ""
    return "", ""


def _is_runner(identifier: str) -> bool:
    """Whether a package's name is that of an interpreter, a shell or a runner of packages."""
    name = identifier.lower()
    known = program(name)
    return bool(
        known.is_launcher
        or known.is_interpreter
        or known.shell_option
        or known.code_option
        or _PYTHON.fullmatch(name)
        or name in _RUNNERS
    )


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


def _command(package: Package, runner: str, substitution: _Substitution) -> dict[str, Any]:
    options = _options(package, runner)
    before = _arguments(options.arguments, substitution)
    after = _arguments(package.package_arguments or (), substitution)
    env: dict[str, str] = {}
    for one in (*(package.environment_variables or ()), *options.variables):
        for text in substitution.texts(_variable(one), one.name):
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
    """Check an environment variable. If it could decide what code runs, the entry's default becomes an example.

    Raises:
        ValueError: Its name is invalid, or the entry sets a variable that decides what code runs.
    """
    if _ENVIRONMENT_NAME.fullmatch(one.name) is None:
        raise ValueError(f"{_shown(one.name)} is not the name of an environment variable")
    if not decides_code(one.name) and not decides_traffic(one.name):
        return one
    if one.value is not None:
        what = "what code runs" if decides_code(one.name) else "where its traffic goes"
        raise ValueError(f"it sets {one.name}, which decides {what}")
    return _without_default(one)


def _without_default(one: Input) -> Input:
    """Turn the default of an input into its placeholder, so that its value is only used if the user enters it."""
    return structs.replace(one, default=None, placeholder=one.placeholder or _as_text(one.default) or None)


class _Options(Struct):
    """The options that an entry passes to its runner: arguments, and environment variables of a container."""

    arguments: list[Input] = field(default_factory=list[Input])
    variables: list[Input] = field(default_factory=list[Input])


def _options(package: Package, runner: str) -> _Options:
    """The allowed options of a package: they change neither which package runs nor its access to this machine.

    Raises:
        ValueError: The package has an option that is not allowed.
    """
    kind = "docker" if package.registry_type == "oci" else runner
    flags = _ALLOWED_FLAGS.get(kind, {})
    names = {one.name for one in package.environment_variables or ()}
    allowed = _Options()
    for one in package.runtime_arguments or ():
        is_named = one.type == "named"
        value, word = one.value, one.name if is_named else one.value or ""
        if word in flags and (not is_named or value in (None, "", "true")):
            if flags[word]:
                allowed.arguments.append(Input(type="named", name=flags[word], value=""))
        elif is_named and kind == "uvx" and word in ("-p", "--python") and _PYTHON_VERSION.fullmatch(value or ""):
            allowed.arguments.append(Input(type="named", name="--python", value=value))
        elif is_named and kind == "docker" and word in ("-e", "--env") and value:
            name, equals, rest = value.partition("=")
            if equals:  # set in the environment, because other users can read a command line
                allowed.variables.append(structs.replace(one, name=name, value=rest))
            elif name not in names:
                raise ValueError(f"its container wants this machine's variable {_shown(name)}")
        elif is_named and kind == "docker" and word in ("-v", "--volume", "--mount"):
            allowed.arguments.append(_mount(one))
        else:
            raise ValueError(f"its option {_shown(word)} for {runner} could change what runs")
    return allowed


def _mount(one: Input) -> Input:
    """Check that a mount of a container uses a folder of this machine that the user chooses.

    Raises:
        ValueError: The entry chooses the folder.
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
        raise ValueError("its container uses a folder of this machine that you do not choose")
    variables[key] = _without_default(variables[key])
    entry_texts = [_VARIABLE.sub("", target)]
    for other in variables.values():
        entry_texts += map(_as_text, (other.value, other.default, *(other.choices or ())))
    if not all(map(_PLAIN_PATH.fullmatch, entry_texts)):
        raise ValueError(f"its container has a folder with an unusual name ({_shown(target)})")
    return structs.replace(one, variables=variables)


def _arguments(listed: Sequence[Input], substitution: _Substitution) -> list[str]:
    """The arguments of a command line; named arguments as `--name=value`."""
    args: list[str] = []
    for number, one in enumerate(listed, start=1):
        if one.type != "named":
            args += substitution.texts(one, one.value_hint or one.name or f"argument {number}")
            continue
        flag = _require_literal(one.name)
        if one.value == "":
            args.append(flag)
            continue
        for text in substitution.texts(one, one.name.lstrip("-") or f"argument {number}"):
            args += [f"{flag}={text}"] if flag.startswith("--") else [flag, text]
    return args
