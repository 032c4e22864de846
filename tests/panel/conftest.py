"""Notebooks with servers, beside no kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.environments import server_command
from tests.panel.notebooks import Notebook, Open, command, notebooks


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens a notebook with these servers."""
    with notebooks() as start:
        yield start


@pytest.fixture
def demo(opened: Open) -> Notebook:
    return opened(demo=command(*server_command("demo")))


@pytest.fixture
def own(opened: Open) -> Notebook:
    return opened(own=command(*server_command("misbehaving")))
