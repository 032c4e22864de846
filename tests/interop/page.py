"""docs/interoperability.md: what came of the run, as a page that is the same as long as nothing has changed."""

from collections.abc import Iterable, Mapping, Sequence

from tests.interop.run import Row

INTRODUCTION = """\
# Interoperability

ipymcp loaded each of these servers, over the transports that it offers, counted what it has, and called one tool. This
page is written by `make interop`, which runs each server in its own environment; all figures are measured.
`make test` runs a smaller set every time
([tests/integration/test_interoperability.py](../tests/integration/test_interoperability.py)), and `make conformance`
the official suite.
"""

NOT_SHOWN = """\
## What is not shown

- Servers behind a login, a paid API or a cloud: they need a network. Logging in is tested by the official suite and
  with an OAuth server in the tests.
- Drawing charts (`@antv/mcp-server-chart`) and searching the documentation of AWS: the servers run, but call services
  on the network.
- `mcp-server-sqlite` and `mcp-server-duckdb` with their default dependencies: both accept any `mcp`, get the SDK 2.x,
  and fail at start. They were run with `mcp<2`.
- The views of the MCP Apps: their tools are called and their `ui://` resources listed, their HTML is not shown.
"""


def page(rows: Sequence[Row], features: Mapping[str, Mapping[str, str]]) -> str:
    """The page.

    Args:
        rows: What came of each server.
        features: What came of each feature of server-everything, by the transport and its name.
    """
    return "\n".join([INTRODUCTION, *_servers(rows), "", *_features(features), "", NOT_SHOWN])


def _servers(rows: Sequence[Row]) -> Iterable[str]:
    packages = {row.candidate.package for row in rows}
    good = [row for row in rows if row.was_run and not row.problem]
    running = {row.candidate.package for row in good}
    yield f"{len(running)} of {len(packages)} servers; with each transport, {len(good)} of {len(rows)}.\n"
    heads = ("server", "version", "transport", "protocol", "tools", "resources", "templates", "prompts")
    yield f"| {' | '.join(heads)} | a call | its answer holds | |"
    yield "|---|---|---|---|--:|--:|--:|--:|---|---|---|"
    for row in rows:
        candidate = row.candidate
        counts = (row.tools, row.resources, row.templates, row.prompts)
        cells = [candidate.package, candidate.version, candidate.transport, row.era, *map(str, counts)]
        answer = f"**{row.problem}**" if row.problem else row.outcome
        yield "| " + " | ".join([*cells, f"`{candidate.tool}`", _escaped(answer), candidate.note]) + " |"


def _features(features: Mapping[str, Mapping[str, str]]) -> Iterable[str]:
    yield "## All that server-everything has and asks for\n"
    yield "The reference server of the protocol, over its three transports.\n"
    yield f"| | {' | '.join(features)} |"
    yield "|---|" + "---|" * len(features)
    for name in next(iter(features.values())):
        yield f"| {name} | {' | '.join(_escaped(outcomes[name]) for outcomes in features.values())} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
