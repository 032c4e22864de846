"""docs/interoperability.md: what came of the run, as a page that is the same as long as nothing has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.interop.run import Row

__all__ = ["page"]

INTRODUCTION = """\
# Interoperability

ipymcp loaded each of these servers, in the transports that it offers, counted what it has, and called one tool. The page is
written by `make interop`, which runs them all, in environments of their own; nothing here is written by hand. It was run without
a network: a server that needs one says so in the answer. `make test` holds a smaller set in every run
([tests/integration/test_interoperability.py](../tests/integration/test_interoperability.py)), `make conformance` the official
suite.
"""

NOT_RUN = """\
## What is not shown

- Servers behind a login, a paid API or a service in the cloud: nothing of them runs without a network. Logging in is held by
  the official suite and by an OAuth server in the tests.
- `mcp-server-sqlite` and `mcp-server-duckdb` as they install today: both ask for any `mcp`, get the SDK 2.x, and fail on it before they
  speak. With `mcp<2` they run, and that is what was run.
- Drawing charts (`@antv/mcp-server-chart`) and searching the AWS documentation: the servers run, their services are on the network.
- The views of the MCP Apps examples: their tools and `ui://` resources are read, their HTML is not shown.
"""


def page(rows: Sequence[Row], features: Mapping[str, Mapping[str, str]]) -> str:
    """The page.

    Args:
        rows: What came of each server.
        features: What came of each feature of server-everything, by its name and the transport.
    """
    return "\n".join([INTRODUCTION, *_servers(rows), "", *_features(features), "", NOT_RUN])


def _servers(rows: Sequence[Row]) -> Iterable[str]:
    servers = len({row.candidate.package for row in rows})
    running = len({row.candidate.package for row in rows if not row.problem})
    yield f"{running} of {servers} servers, {sum(not row.problem for row in rows)} of {len(rows)} combinations with a transport.\n"
    yield "| server | version | transport | protocol | tools | resources | templates | prompts | a call | its answer | |"
    yield "|---|---|---|---|--:|--:|--:|--:|---|---|---|"
    for row in rows:
        candidate = row.candidate
        counts = (row.tools, row.resources, row.templates, row.prompts)
        cells = [candidate.package, candidate.version, candidate.transport, row.era, *map(str, counts)]
        answer = f"**{row.problem}**" if row.problem else row.outcome
        yield "| " + " | ".join([*cells, f"`{candidate.tool}`", _escaped(answer), candidate.note]) + " |"


def _features(features: Mapping[str, Mapping[str, str]]) -> Iterable[str]:
    transports = list(next(iter(features.values())))
    yield "## Everything that server-everything asks for\n"
    yield "The reference server of the protocol, over its three transports.\n"
    yield f"| | {' | '.join(transports)} |"
    yield "|---|" + "---|" * len(transports)
    for name, outcomes in features.items():
        yield f"| {name} | {' | '.join(_escaped(outcomes[transport]) for transport in transports)} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
