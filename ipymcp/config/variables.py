"""Variables in definitions: parsing, and expansion when a server starts.

    ${VAR}  ${VAR:-default}  ${env:VAR}  {env:VAR}     a variable of this kernel, else of the definition's own env,
                                                       else the value that the user set in the panel
    ${secret:NAME}  ${input:ID}                        a stored secret; a value that the user is asked for
    ${workspaceFolder}  ${workspaceFolderBasename}     the project's folder, else the notebook's; its last part
    ${userHome}  ${pathSeparator}  ${/}
    {file:PATH}                                        the content of a file, without blanks around it; a relative
                                                       path begins at the definition's file

`$${` is a literal `${`. Values are not expanded again.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct, field

from ipymcp.errors import ConfigError
from ipymcp.files import read_file, read_problem
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ipymcp.config.definition import ServerDefinition


Kind = Literal["variable", "secret", "input", "place", "file", "unknown"]

_SECRET = r"[A-Za-z_][A-Za-z0-9_.-]*(?:@[!-z|~][ -z|~]*)?"
SECRET_NAME = re.compile(_SECRET)
"""Valid names of secrets: visible ASCII, so that they can be typed, read and completed."""
_OPENING = re.compile(r"\$\$\{|\$\{|\{env:|\{file:")
_FORM = re.compile(
    r"(?:env:)?(?P<variable>[A-Za-z_]\w*)(?::-(?P<default>.*))?"
    rf"|secret:(?P<secret>{_SECRET})|input:(?P<input>\w[\w .:/@-]*)",
    re.DOTALL,
)
_MAX_DEPTH = 20
_SHOWN = 40
_PLACES = frozenset({"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator", "/"})
_MAX_FILE_BYTES = 100_000
_EDITOR = "command:|config:|workspaceFolder(Basename)?:"
_EDITOR_HINT = "only VS Code knows its value: write the path or value itself"
_ESCAPE = "write $${ for a literal ${; the variables are ${NAME}, ${NAME:-default}, ${secret:NAME}, ${input:ID}"


class Reference(Struct, frozen=True):
    """A variable in a definition."""

    kind: Kind
    name: str
    where: str
    """The key of the containing value in `ServerDefinition`, such as `env.TOKEN` or `args[1]`."""
    default: str | None = None
    """The default for an unset variable, not expanded."""
    text: str = ""
    """The reference as written."""


def read_content(path: Path) -> str:
    """Return the content of a file that `{file:PATH}` names, without blanks around it."""
    return read_file(path, _MAX_FILE_BYTES).decode("utf-8-sig").strip()


class Lookup(Struct, frozen=True):
    """Sources of the values of variables.

    Args:
        folder: The notebook's folder, for definitions outside a project.
        secret: Returns a stored secret, or None.
        inputs: The user's input values, by id.
        variable: Returns the value that the user set for a variable that is not in the environment, or None.
        file: Returns the content of a file, without blanks around it.
        environ: The environment of this process.
    """

    folder: str
    secret: Callable[[str], str | None] = lambda _: None
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    variable: Callable[[str], str | None] = lambda _: None
    file: Callable[[Path], str] = read_content
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


def references(definition: ServerDefinition) -> list[Reference]:
    """Return the variables, secrets and inputs of a definition in order, including those in defaults."""
    found: list[Reference] = []

    def look(key: str, text: str) -> str:
        for part in _parts(text, key):
            if isinstance(part, Reference):
                found.append(part)
                if part.default:
                    look(key, part.default)
        return text

    mapped(definition, look)
    return found


def expand(definition: ServerDefinition, lookup: Lookup) -> ServerDefinition:
    """Expand all variables of a definition and read its `env_file` into `env`.

    In a definition typed in a cell only headers and login are expanded: its command is used as typed.

    Raises:
        ConfigError: A variable, secret or input has no value, is circular or unknown, or the `env_file` cannot be read.
            The message names document, key and variable, but no value.
    """
    expander = _Expander(definition, lookup)
    expanded = mapped(definition, expander.text)
    if expanded.env_file is not None:
        expanded = expanded.replace(env={**expander.env_file(), **expanded.env}, env_file=None)
    return expanded


def mapped(definition: ServerDefinition, change: Callable[[str, str], str]) -> ServerDefinition:
    """Return a copy with `change(key, text)` applied to each string that may contain variables."""
    changes: dict[str, Any] = {
        "headers": {name: change(f"headers.{name}", text) for name, text in definition.headers.items()},
        "auth": {name: _changed(f"auth.{name}", value, change) for name, value in definition.auth.items()},
    }
    if definition.source.scope != "cell":
        for key in ("command", "cwd", "url", "env_file"):
            text = getattr(definition, key)
            changes[key] = None if text is None else change(key, text)
        changes["args"] = tuple(change(f"args[{index}]", text) for index, text in enumerate(definition.args))
        changes["env"] = {name: change(f"env.{name}", text) for name, text in definition.env.items()}
    return definition.replace(**changes)


def has_variables(text: str) -> bool:
    """Whether a string may contain variables; it is not parsed."""
    return _OPENING.search(text) is not None


def written_variables(text: str) -> list[str]:
    """Return the variables of a string as written, in order, and `$${` for each literal `${`."""
    return [
        part.text if isinstance(part, Reference) else "$${"
        for part in _parts(text, "")
        if isinstance(part, Reference) or part == "${"
    ]


def in_folder(text: str, folder: str, files: str = "") -> str:
    """Expand only the variables for the project's folder and similar places.

    Args:
        text: The string.
        folder: The project's folder.
        files: The folder that `{file:PATH}` is relative to; empty to keep relative paths.
    """

    def spell(one: Reference) -> str:
        if one.kind == "place":
            return _place(one.name, folder)
        return f"{{file:{_file_path(one.name, files)}}}" if one.kind == "file" and files else one.text

    return respelled(text, spell, literal="$${")


def respelled(text: str, spell: Callable[[Reference], str], *, key: str = "", literal: str = "${") -> str:
    """Replace each variable in a string.

    Args:
        text: The string.
        spell: Returns the replacement.
        key: Key of the string in its definition.
        literal: Replacement for `$${`.
    """
    if "{" not in text:
        return text
    parts = _parts(text, key)
    return "".join(spell(part) if isinstance(part, Reference) else literal if part == "${" else part for part in parts)


def _changed(key: str, value: Any, change: Callable[[str, str], str]) -> Any:
    if isinstance(value, str):
        return change(key, value)
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        return [_changed(f"{key}[{index}]", item, change) for index, item in enumerate(items)]
    return value


class _Expander:
    """Expansion of the strings of one definition."""

    def __init__(self, definition: ServerDefinition, lookup: Lookup) -> None:
        self._definition = definition
        self._lookup = lookup
        self._folder = definition.source.project or lookup.folder
        self._open: list[str] = []
        """Keys of the definition's own variables that are being expanded."""

    def text(self, key: str, text: str) -> str:
        if "{" not in text:
            return text
        return "".join(part if isinstance(part, str) else self._value(key, part) for part in _parts(text, key))

    def env_file(self) -> dict[str, str]:
        from ipymcp.config.paths import read_env_file

        named = self.text("env_file", self._definition.env_file or "")
        start = self._definition.source.folder or self._lookup.folder
        return read_env_file(os.path.join(start, os.path.expanduser(named)), self._definition.source.where("env_file"))

    def _value(self, key: str, reference: Reference) -> str:
        name, missing = reference.name, None
        match reference.kind:
            case "variable":
                return self._variable(key, reference)
            case "place":
                return _place(name, self._folder)
            case "secret":
                value, hint = self._lookup.secret(name), f"%mcp secret set {quoted(name)} asks for it"
                missing = ("secret", name)
            case "input":
                given = name in self._definition.inputs
                value = self._lookup.inputs.get(name)
                hint = f"run the line where you can be asked for {name!r}" if given else 'describe it under "inputs"'
            case "file":
                return self._file(key, reference)
            case _:
                hint = _EDITOR_HINT if re.match(_EDITOR, name) else _ESCAPE
                raise self._error(key, reference, "is not a known variable", hint)
        if value is None:
            raise self._error(key, reference, "has no value", hint, missing)
        return value

    def _variable(self, key: str, reference: Reference) -> str:
        name = reference.name
        value = self._lookup.environ.get(name)
        own = f"env.{name}"
        if value is None and name in self._definition.env and key != own and self._definition.source.scope != "cell":
            if own in self._open:
                chain = " -> ".join(one.removeprefix("env.") for one in [*self._open, own])
                raise self._error(key, reference, f"is circular: {chain}", "give one of them a value of its own")
            self._open.append(own)
            value = self.text(own, self._definition.env[name])
            self._open.pop()
        if reference.default is not None and not value:
            return self.text(key, reference.default)
        value = self._lookup.variable(name) if value is None else value
        if value is None:
            hint = f"os.environ[{name!r}] = …, or write ${{{name}:-default}}"
            raise self._error(key, reference, "is not set in this kernel", hint, ("variable", name))
        return value

    def _file(self, key: str, reference: Reference) -> str:
        source = self._definition.source
        start = os.path.dirname(source.file) if source.file else self._lookup.folder
        path = Path(_file_path(reference.name, start))
        try:
            return self._lookup.file(path)
        except (OSError, UnicodeDecodeError) as error:
            problem = read_problem(error) if isinstance(error, OSError) else "is not UTF-8"
            raise self._error(key, reference, problem, f"looked for {path}") from None

    def _error(
        self,
        key: str,
        reference: Reference,
        message: str,
        hint: str,
        missing: tuple[Literal["variable", "secret"], str] | None = None,
    ) -> ConfigError:
        error = ConfigError(f"{self._definition.source.where(key)}: {reference.text} {message}", hint=hint)
        error.missing = missing
        return error


def _file_path(name: str, start: str) -> str:
    return os.path.normpath(os.path.join(start, os.path.expanduser(name)))


def _place(name: str, folder: str) -> str:
    match name:
        case "workspaceFolder":
            return folder
        case "workspaceFolderBasename":
            return os.path.basename(folder)
        case "userHome":
            return os.path.expanduser("~")
        case _:
            return os.sep


def _parts(text: str, key: str) -> list[str | Reference]:
    """Split a string into variables and the plain text between them, in which `$${` becomes `${`."""
    parts: list[str | Reference] = []
    position = 0
    while (opening := _OPENING.search(text, position)) is not None:
        parts.append(text[position : opening.start()])
        position = opening.end()
        if opening[0] == "$${":
            parts.append("${")
            continue
        end = _closing(text, position)
        if end is None:
            parts.append(Reference("unknown", "", key, None, text[opening.start() :][:_SHOWN]))
            return [part for part in parts if part]
        inner = text[position:end]
        written = text[opening.start() : end + 1]
        if opening[0] == "{file:":
            parts.append(Reference("file" if inner.strip() else "unknown", inner.strip(), key, None, written))
        else:
            parts.append(_reference(f"env:{inner}" if opening[0] == "{env:" else inner, key, written))
        position = end + 1
    parts.append(text[position:])
    return [part for part in parts if part]


def _closing(text: str, position: int) -> int | None:
    """Return the index of the closing brace; None if it is missing or nested too deeply."""
    depth = 1
    for index in range(position, len(text)):
        if text[index] == "{":
            depth += 1
            if depth > _MAX_DEPTH:
                return None
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return index
    return None


def _reference(inner: str, key: str, text: str) -> Reference:
    if inner in _PLACES:
        return Reference("place", inner, key, None, text)
    form = _FORM.fullmatch(inner)
    if form is None:
        return Reference("unknown", inner, key, None, text)
    kind = cast("Kind", next(kind for kind in ("variable", "secret", "input") if form[kind]))
    return Reference(kind, form[kind], key, form["default"], text)
