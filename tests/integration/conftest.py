"""The loop of the tests that are coroutine functions, and the hosts of the tests of maps."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ipymcp import Mcp
from tests.bad_servers import connected
from tests.processes import wait_until
from tests.row_server import hurry, server


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def shared_rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mcp, Path]]:
    """A host of the module with the server `rows`, and the record of that server's calls."""
    record = tmp_path_factory.mktemp("rows") / "record"
    record.touch()
    with connected(server(record)) as mcp:
        yield mcp, record


@pytest.fixture
def record(shared_rows: tuple[Mcp, Path]) -> Path:
    """The record of the calls of `mcp`, empty."""
    return shared_rows[1]


@pytest.fixture
def mcp(shared_rows: tuple[Mcp, Path]) -> Iterator[Mcp]:
    """The host of the module, as it was before the first test: no rules, no calls, no one to ask."""
    mcp, record = shared_rows
    Path(f"{record}.hurry").unlink(missing_ok=True)
    record.write_text("")
    terminal = mcp._host.questions.terminal
    yield mcp
    hurry(record)
    mcp.policy.reset()
    mcp._host.questions.terminal = terminal
    wait_until(lambda: not mcp._host.calls.running)
    assert mcp.servers["rows"].state == "ready"


@pytest.fixture
def own_record(tmp_path: Path) -> Path:
    """The record of a server of the test's own."""
    path = tmp_path / "record"
    path.touch()
    return path


@pytest.fixture
def own_mcp(own_record: Path) -> Iterator[Mcp]:
    """A fresh host with a server `rows` of its own."""
    with connected(server(own_record)) as mcp:
        yield mcp
        hurry(own_record)
