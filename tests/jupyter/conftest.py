"""A Jupyter server with two kernels that have ipymcp, for tests that leave all three as they were."""

from collections.abc import Iterator

import pytest

from tests.jupyter_servers import JupyterServer, ServedKernel, started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    with started(tmp_path_factory.mktemp("jupyter")) as server:
        yield server


@pytest.fixture(scope="module")
def kernel(server: JupyterServer) -> ServedKernel:
    """A kernel with the demo server."""
    kernel = server.start_kernel()
    kernel.load()
    kernel.run("%mcp load demo")
    return kernel


@pytest.fixture(scope="module")
def other(server: JupyterServer) -> ServedKernel:
    """A kernel without servers."""
    kernel = server.start_kernel()
    kernel.load()
    return kernel
