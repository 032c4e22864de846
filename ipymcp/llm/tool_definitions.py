"""Tool declarations for providers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec.structs import replace

from ipymcp.llm.providers import PLAIN, PROVIDERS, Declaration
from ipymcp.llm.result_text import describe_tool, estimate_tokens
from ipymcp.llm.schemas import compile_schema
from ipymcp.masking import masks
from ipymcp.names import model_name
from ipymcp.protocol import types
from ipymcp.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipymcp.llm.functions import FunctionTool
    from ipymcp.llm.providers import Dialect, Profile
    from ipymcp.llm.tool_search import ServerTexts, ToolIndex
    from ipymcp.runtime.catalog import ToolEntry


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
