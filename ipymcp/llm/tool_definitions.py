"""Tool definitions for models: declarations for each provider, and Python functions as tools.

The schema of a function comes from its signature.
"""

from __future__ import annotations

import inspect
import re
import typing
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from ipymcp.argument_checks import is_function, shown
from ipymcp.errors import ArgumentError
from ipymcp.llm.providers import PLAIN, PROVIDERS, Declaration
from ipymcp.llm.result_text import describe_tool, estimate_tokens
from ipymcp.llm.schemas import compile_schema
from ipymcp.masking import masks
from ipymcp.names import model_name, nearest
from ipymcp.protocol import types
from ipymcp.protocol.types import ToolDefinition
from ipymcp.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ipymcp.llm.providers import Dialect, Profile
    from ipymcp.llm.tool_search import ServerTexts, ToolIndex
    from ipymcp.runtime.call_options import CallOptions
    from ipymcp.runtime.catalog import ToolEntry

# -- declarations for providers ----------------------------------------------------------------------------------------


class ProviderTools(list[dict[str, Any]]):
    """A provider's list of `tools`. `.lost` lists the facts that the declarations lack.

    Args:
        declarations: The declarations.
        dialect: The provider's dialect.
    """

    def __init__(self, declarations: Iterable[Declaration], dialect: Dialect) -> None:
        self._declarations = list(declarations)
        self._profile = PROVIDERS[dialect].profile
        super().__init__(PROVIDERS[dialect].declare(self._declarations))

    @property
    def names(self) -> dict[str, str]:
        """The tools by their names for the model: `{server__tool: server.tool}`."""
        return {one.name: f"{one.server}.{one.tool}" for one in self._declarations}

    @property
    def tokens(self) -> int:
        """Estimated tokens of the declarations in each request."""
        return sum(map(declaration_tokens, self._declarations))

    @property
    def lost(self) -> Table:
        """A table of the facts in the tools' schemas that the declarations lack."""
        rows = [
            (f"{one.server}.{one.tool}", path or "(whole)", what)
            for one in self._declarations
            for path, what in one.lost
        ]
        if len(self._declarations) > self._profile.functions:
            limit = f"all of them: {self._profile.name} accepts {self._profile.functions} tools in one request"
            rows.insert(0, (f"{len(self._declarations):,} tools", "", limit))
        return Table(("tool", "at", "lost"), rows, note="" if rows else "nothing")


class DeclarationCache:
    """A cache of declarations by profile, valid until the tool's definition or the secrets to mask change."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str, str], tuple[ToolEntry, int, Declaration]] = {}
        self._renamed: dict[tuple[str, str], dict[str, str]] = {}
        self._indexed: tuple[list[Declaration], ServerTexts, ToolIndex] | None = None

    def declared(self, entry: ToolEntry, profile: Profile = PLAIN) -> Declaration:
        """The declaration of a server's tool; thread-safe."""
        key = (entry.server, entry.name, profile.name)
        known = self._made.get(key)
        if known is None or known[0] is not entry or known[1] != masks.count:
            definition = entry.definition
            text = definition.description or definition.title or ""
            name = model_name(entry.server, entry.name)
            made = _declaration(name, entry.server, entry.name, text, types.loads(definition.inputSchema), profile)
            made = replace(made, title=definition.title or "")
            known = self._made[key] = (entry, masks.count, made)
            if made.renamed:
                self._renamed.setdefault(key[:2], {}).update(made.renamed)
        return known[2]

    def renamed(self, entry: ToolEntry, profile: Profile) -> Mapping[str, str]:
        """Renamed properties of a tool, from all its declarations: `{new name: original name}`."""
        self.declared(entry, profile)
        return self._renamed.get((entry.server, entry.name), {})

    def index(self, declarations: list[Declaration], servers: ServerTexts) -> ToolIndex:
        """The index of declarations, which is kept until another list is indexed; thread-safe."""
        from ipymcp.llm.tool_search import ToolIndex

        known = self._indexed
        if known is None or known[:2] != (declarations, servers):
            known = self._indexed = ([*declarations], servers, ToolIndex(declarations, servers))
        return known[2]


def token_table(declarations: Iterable[Declaration]) -> Table:
    """A table of the tokens that declarations cost in each request, by server, highest first."""
    servers: dict[str, list[int]] = {}
    for one in declarations:
        servers.setdefault(one.server, []).append(declaration_tokens(one))
    rows = sorted(((name, len(each), sum(each)) for name, each in servers.items()), key=lambda row: -row[2])
    count, total = sum(row[1] for row in rows), sum(row[2] for row in rows)
    note = f"{count:,} tools, about {total:,} tokens in each request: an estimate" if rows else "no tools"
    return Table(("server", "tools", "tokens"), rows, title="Tool declarations", note=note)


def declare_function(function: FunctionTool, profile: Profile = PLAIN) -> Declaration:
    """The declaration of a function of the notebook."""
    return _declaration(
        function.name, function.server, function.name, function.description, function.input_schema, profile
    )


def _declaration(name: str, server: str, tool: str, text: str, schema: object, profile: Profile) -> Declaration:
    description, is_cut = describe_tool(server, text, profile.description)
    made = compile_schema(schema, profile)
    lost = [(one.path, one.what) for one in made.lost]
    if is_cut:
        lost.append(("", f"the end of its description, from {profile.description:,} characters on"))
    return Declaration(name, server, tool, description, types.encode(made.parameters), tuple(lost), made.renamed)


def declaration_tokens(declaration: Declaration) -> int:
    """Estimate the tokens of a declaration in each request."""
    parameters = declaration.encoded.decode()
    return estimate_tokens(len(declaration.name) + len(declaration.description) + len(parameters))


Discover: TypeAlias = Literal["auto", "always", "never"]
BUDGET: Final = 20_000
"""Tokens of declarations above which `auto` makes the model search for tools."""


# -- Python functions as tools -----------------------------------------------------------------------------------------


NOTEBOOK: Final = "notebook"
"""The server name of functions of the notebook."""
CODE: Final = "run_python"
"""The name of code mode's function."""
MAX_CODE: Final = 20_000
"""Maximum number of characters of code, or of a cell's source, which the user is shown in full."""

_INVALID_CHARACTER: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME: Final = 64
_SECTION: Final = re.compile(r"(?:Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$|-{3,}\s*$")
_ARGUMENT: Final = re.compile(r"^[ \t]+\*{0,2}(\w+)[ \t]*(?:\([^)\n]*\))?:[ \t]+(.+)", re.MULTILINE)
_BY_KEYWORD: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class FunctionTool:
    """A function of the notebook that a model may call.

    Args:
        function: The function. Its name, docstring and annotations are the tool's declaration.

    Raises:
        ArgumentError: The function has no name, or positional-only parameters.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        name = getattr(function, "__name__", type(function).__name__)
        if not is_function(function):
            raise ArgumentError(f"{shown(function)} is not a function", hint='patterns select: mcp.tools("fs.*")')
        if name == "<lambda>":
            raise ArgumentError("a function for a model needs a name", hint="def it, with a docstring")
        self.function = function
        self.server = NOTEBOOK
        self.name = self.alias = (_INVALID_CHARACTER.sub("_", name) or "_")[:_MAX_NAME]
        for parameter in self._parameters.values():
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise ArgumentError(
                    f"{name}() takes {parameter.name!r} by position only", hint="a model gives arguments by name"
                )

    async def consent(self, arguments: Mapping[str, Any], options: CallOptions) -> None:
        """Check whether a model may call the function. Functions of the user may always be called.

        Args:
            arguments: The converted arguments.
            options: The options of the call.

        Raises:
            McpError: The function may not be called.
        """

    def __repr__(self) -> str:
        return f"<function {self.name}{inspect.signature(self.function)}>"

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        try:
            return inspect.signature(self.function).parameters
        except ValueError as error:  # for a function written in C
            raise ArgumentError(
                f"the signature of {self.name}() is unknown", hint="def a function of your own that calls it"
            ) from error

    @cached_property
    def _types(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.function, include_extras=True)
        except (NameError, TypeError):  # an annotation that cannot be resolved
            return {}

    @property
    def signature(self) -> inspect.Signature:
        """The signature with evaluated annotations."""
        known = [each.replace(annotation=self._types.get(name, Any)) for name, each in self._parameters.items()]
        return inspect.Signature(known)

    @property
    def definition(self) -> ToolDefinition:
        """The definition, as a server would send it."""
        return ToolDefinition(name=self.name)

    @property
    def description(self) -> str:
        """The docstring up to its first section."""
        lines = (inspect.getdoc(self.function) or "").splitlines()
        end = next((number for number, line in enumerate(lines) if _SECTION.match(line)), len(lines))
        return "\n".join(lines[:end]).strip()

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """The parameters as JSON Schema; a type that JSON cannot express has no constraints."""
        documented = dict(_ARGUMENT.findall(inspect.getdoc(self.function) or ""))
        members: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        required: list[str] = []
        for name, parameter in self._parameters.items():
            if parameter.kind not in _BY_KEYWORD:
                continue
            schema = _schema(self._types.get(name, Any), definitions)
            note = documented.get(name) or _note(self._types.get(name))
            if note:
                schema["description"] = note.strip()
            if parameter.default is inspect.Parameter.empty:
                required.append(name)
            elif isinstance(parameter.default, (str, int, float, bool)):
                schema["default"] = parameter.default
            members[name] = schema
        result: dict[str, Any] = {"type": "object", "properties": members}
        if required:
            result["required"] = required
        if not self._takes_any:
            result["additionalProperties"] = False
        return {**result, "$defs": definitions} if definitions else result

    @property
    def _takes_any(self) -> bool:
        return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in self._parameters.values())

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert JSON arguments to the annotated types.

        Raises:
            ArgumentError: An argument is missing, unknown or of the wrong type.
        """
        bound: dict[str, Any] = {}
        for name, value in arguments.items():
            parameter = self._parameters.get(name)
            if parameter is None or parameter.kind not in _BY_KEYWORD:
                if not self._takes_any:
                    known = nearest(name, self._parameters) or f"it takes {', '.join(self._parameters) or 'none'}"
                    raise ArgumentError(f"takes no argument {name!r}", argument=name, tool=self.name, hint=known)
                bound[name] = value
                continue
            try:
                bound[name] = convert(value, self._types.get(name, Any))
            except msgspec.ValidationError as error:
                raise ArgumentError(f"{name}: {error}", argument=name, tool=self.name) from error
        missing = [
            name
            for name, parameter in self._parameters.items()
            if parameter.kind in _BY_KEYWORD and parameter.default is inspect.Parameter.empty and name not in bound
        ]
        if missing:
            raise ArgumentError(f"{missing[0]!r} is missing", argument=missing[0], tool=self.name)
        return bound


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    def custom(kind: Any) -> dict[str, Any]:
        if _is_model(kind):
            schema: dict[str, Any] = kind.model_json_schema()
            definitions.update(schema.pop("$defs", {}))
            return schema
        return {"type": "string"} if issubclass(kind, PurePath) else {}

    try:
        (schema,), found = msgspec.json.schema_components([kind], schema_hook=custom, ref_template="#/$defs/{name}")
    except (TypeError, RuntimeError, NameError):  # not expressible in JSON
        return {}
    definitions.update(found)
    return dict(schema)


def convert(value: Any, kind: Any) -> Any:
    """Convert JSON to a type, such as a dataclass, TypedDict or pydantic model; unchanged if msgspec lacks the type.

    Raises:
        msgspec.ValidationError: The value does not fit the type.
    """
    try:
        return msgspec.convert(value, kind, strict=False, dec_hook=_construct)
    except TypeError:  # a type that msgspec does not support
        return value


def _construct(kind: Any, value: Any) -> Any:
    """Construct an instance of a class that msgspec does not know: a pydantic model, a path, a DataFrame from rows."""
    return kind.model_validate(value) if _is_model(kind) else kind(value)


def _is_model(kind: Any) -> bool:
    return callable(getattr(kind, "model_json_schema", None)) and callable(getattr(kind, "model_validate", None))


def _note(kind: Any) -> str | None:
    """The text of an annotation: `Annotated[int, "How many."]`, or a field's description."""
    metadata = getattr(kind, "__metadata__", ())
    notes = (one if isinstance(one, str) else getattr(one, "description", None) for one in metadata)
    return next((one for one in notes if isinstance(one, str)), None)
