"""A kernel with the demo server; notebooks with servers, beside no kernel."""

from collections.abc import Iterator

import pytest

from tests.environments import server_command
from tests.integration.notebooks import done
from tests.kernels import Kernel
from tests.panel.notebooks import Notebook, Open, command, notebooks


@pytest.fixture
def loaded(kernel: Kernel) -> Kernel:
    done(kernel, "%load_ext ipymcp")
    done(kernel, "%mcp load demo;")
    return kernel


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
