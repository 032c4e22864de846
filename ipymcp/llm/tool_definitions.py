"""A selection of tools, declared to a provider."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ipymcp.llm.providers import PLAIN, PROFILES, SHAPES, Declaration
from ipymcp.llm.result_text import described, tokens
from ipymcp.llm.schemas import compiled
from ipymcp.masking import masks
from ipymcp.names import model_name
from ipymcp.protocol import types
from ipymcp.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipymcp.llm.functions import FunctionTool
    from ipymcp.llm.providers import Dialect, Profile
    from ipymcp.runtime.catalog import ToolEntry


class ProviderTools(list[dict[str, Any]]):
    """Declarations as a provider takes them: a list for its `tools`. `.lost` says what they do not say.

    Args:
        declarations: What is declared.
        dialect: For whom.
    """

    def __init__(self, declarations: Iterable[Declaration], dialect: Dialect) -> None:
        self._declarations = list(declarations)
        self._profile = PROFILES[dialect]
        shaped = [SHAPES[dialect](one) for one in self._declarations]
        super().__init__([{"functionDeclarations": shaped}] if dialect == "gemini" and shaped else shaped)

    @property
    def names(self) -> dict[str, str]:
        """What the model calls each: `{server__tool: server.tool}`."""
        return {one.name: f"{one.server}.{one.tool}" for one in self._declarations}

    @property
    def tokens(self) -> int:
        """About how many tokens they cost in each request: an estimate."""
        return sum(map(cost, self._declarations))

    @property
    def lost(self) -> Table:
        """What the tools' schemas say and the model is not told: one row for each."""
        rows = [
            (f"{one.server}.{one.tool}", path or "(whole)", what)
            for one in self._declarations
            for path, what in one.lost
        ]
        if len(self._declarations) > self._profile.functions:
            most = f"all of them: {self._profile.name} itself takes {self._profile.functions} tools in one request"
            rows.insert(0, (f"{len(self._declarations):,} tools", "", most))
        return Table(("tool", "at", "lost"), rows, note="" if rows else "nothing")


class Declarer:
    """Declares a host's tools, each once for a profile, until its definition or the secrets to mask change."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str, str], tuple[ToolEntry, int, Declaration]] = {}
        self._renamed: dict[tuple[str, str], dict[str, str]] = {}

    def declared(self, entry: ToolEntry, profile: Profile = PLAIN) -> Declaration:
        """A server's tool, declared; from any thread."""
        key = (entry.server, entry.name, profile.name)
        known = self._made.get(key)
        if known is None or known[0] is not entry or known[1] != masks.count:
            definition = entry.definition
            text = definition.description or definition.title or ""
            name = model_name(entry.server, entry.name)
            made = _declaration(name, entry.server, entry.name, text, types.loads(definition.inputSchema), profile)
            known = self._made[key] = (entry, masks.count, made)
            self._renamed.setdefault(key[:2], {}).update(made.renamed)
        return known[2]

    def renamed(self, entry: ToolEntry, profile: Profile) -> Mapping[str, str]:
        """Whatever a model may call the properties of a tool: `{new name: the tool's own}`."""
        self.declared(entry, profile)
        return self._renamed[entry.server, entry.name]


def costs(declarations: Iterable[Declaration]) -> Table:
    """What tools cost in each request, by server, the dearest first."""
    servers: dict[str, list[int]] = {}
    for one in declarations:
        servers.setdefault(one.server, []).append(cost(one))
    rows = sorted(((name, len(each), sum(each)) for name, each in servers.items()), key=lambda row: -row[2])
    count, total = sum(row[1] for row in rows), sum(row[2] for row in rows)
    note = f"{count:,} tools, about {total:,} tokens in each request: an estimate" if rows else "no tools"
    return Table(("server", "tools", "tokens"), rows, title="What a model is told", note=note)


def declared_function(function: FunctionTool, profile: Profile = PLAIN) -> Declaration:
    """A function of the notebook, declared."""
    return _declaration(
        function.name, function.server, function.name, function.description, function.input_schema, profile
    )


def _declaration(name: str, server: str, tool: str, text: str, schema: object, profile: Profile) -> Declaration:
    description, is_cut = described(server, text, profile.description)
    made = compiled(schema, profile)
    lost = [(one.path, one.what) for one in made.lost]
    if is_cut:
        lost.append(("", f"the end of its description, from {profile.description:,} characters on"))
    parameters = masks.json(made.parameters)
    return Declaration(name, server, tool, description, parameters, tuple(lost), made.renamed)


def cost(declaration: Declaration) -> int:
    """About how many tokens a tool costs in each request."""
    parameters = json.dumps(declaration.parameters, separators=(",", ":"), ensure_ascii=False)
    return tokens(len(declaration.name) + len(declaration.description) + len(parameters))
