"""Notebooks with servers, without a kernel; a kernel with the demo server."""

from collections.abc import Iterator

import pytest

from ipymcp import Mcp
from tests.kernels import Kernel
from tests.panel.kernels import restore, shared_kernel
from tests.panel.notebooks import DEMO, OWN, Notebook, OpenNotebook, notebook_of, notebooks, shared_host


@pytest.fixture
def open_notebook() -> Iterator[OpenNotebook]:
    """Opens a notebook with these servers on a host of its own."""
    with notebooks() as start:
        yield start


@pytest.fixture(scope="module")
def demo_host() -> Iterator[Mcp]:
    with shared_host("demo", DEMO) as mcp:
        yield mcp


@pytest.fixture(scope="module")
def own_host() -> Iterator[Mcp]:
    with shared_host("own", OWN) as mcp:
        yield mcp


@pytest.fixture
def demo(demo_host: Mcp) -> Iterator[Notebook]:
    """A notebook with the demo server, which the tests of a module share."""
    with notebook_of(demo_host) as notebook:
        yield notebook


@pytest.fixture
def own(own_host: Mcp) -> Iterator[Notebook]:
    """A notebook with the raw server of `misbehaving.py`, which the tests of a module share."""
    with notebook_of(own_host) as notebook:
        yield notebook


@pytest.fixture(scope="module")
def shared(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with shared_kernel(kernel_name, tmp_path_factory.mktemp("kernel")) as kernel:
        yield kernel


@pytest.fixture
def loaded(shared: Kernel) -> Iterator[Kernel]:
    """A kernel with the demo server, which the tests of a module share."""
    yield shared
    restore(shared)
