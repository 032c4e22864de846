"""The loop of the tests that are coroutine functions, and the file of the calls that tests of maps make."""

from pathlib import Path

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "record"
    path.touch()
    return path
