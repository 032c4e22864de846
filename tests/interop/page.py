"""docs/interoperability.md: what came of the run, as a page that is the same as long as nothing has changed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.environments import ROOT
from tests.interop.candidates import Candidate

PAGE = ROOT / "docs" / "interoperability.md"

INTRODUCTION = """\
# Interoperability

ipymcp loaded each of these servers, over the transports that it offers, counted what it has, and called one tool. This
page is written by `make interop`, which runs each server in its own environment; all figures are measured.
`make test` runs those whose environments it has every time
([tests/interop/test_interop.py](../tests/interop/test_interop.py)), and `make conformance` the official suite.
"""

NOT_SHOWN = """\
## What is not shown

- Servers behind a login, a paid API or a cloud: they need a network. Logging in is tested by the official suite and
  with an OAuth server in the tests.
- Drawing charts (`@antv/mcp-server-chart`) and searching the documentation of AWS: the servers run, but call services
  on the network.
- `mcp-server-sqlite`, `mcp-server-duckdb` and `mcp-text-editor` with their default dependencies: they accept any `mcp`,
  get the SDK 2.x, and fail at start. They were run with `mcp<2`.
- The tools of `mcp-json-yaml-toml` that work on files: they need `yq`, which the server downloads.
- The views of the MCP Apps: their tools are called and their `ui://` resources listed, their HTML is not shown.
"""


@dataclass(frozen=True)
class Row:
    """The outcome of one server over one transport."""

    candidate: Candidate
    era: str
    tools: int
    resources: int
    templates: int
    prompts: int
    outcome: str
    """The stable part of the call's result."""


def page(rows: Sequence[Row], features: Mapping[str, Sequence[str]]) -> str:
    """Write the page.

    Args:
        rows: The outcomes, all as they should be.
        features: The names of the features of server-everything that worked, by transport.
    """
    return "\n".join([INTRODUCTION, *_servers(rows), "", *_features(features), "", NOT_SHOWN])


def _servers(rows: Sequence[Row]) -> Iterable[str]:
    yield f"{len({row.candidate.package for row in rows})} servers; with each transport, {len(rows)}. All work.\n"
    heads = ("server", "version", "transport", "protocol", "tools", "resources", "templates", "prompts")
    yield f"| {' | '.join(heads)} | a call | its answer holds | |"
    yield "|---|---|---|---|--:|--:|--:|--:|---|---|---|"
    for row in rows:
        candidate = row.candidate
        counts = (row.tools, row.resources, row.templates, row.prompts)
        cells = [candidate.package, candidate.version, candidate.transport, row.era, *map(str, counts)]
        cells += [f"`{candidate.call.tool}`", _escaped(row.outcome), candidate.note]
        yield f"| {' | '.join(cells)} |"


def _features(features: Mapping[str, Sequence[str]]) -> Iterable[str]:
    yield "## All that server-everything has and asks for\n"
    yield "The reference server of the protocol, over its three transports.\n"
    yield f"| | {' | '.join(features)} |"
    yield "|---|" + "---|" * len(features)
    for name in next(iter(features.values())):
        yield f"| {name} | {' | '.join('yes' if name in worked else 'no' for worked in features.values())} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
