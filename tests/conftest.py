"""Fixtures of all tests. Real servers, real kernels; what is missing is a failure, never a skip.

But for the local model, whose engine is not published for every machine: where it is left out, that is said.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from ipymcp.masking import masks
from ipymcp.security.untrusted import models_code
from tests import environments, kernels, processes
from tests.scripted import scripted_models

pytest_plugins = ["tests.wire.plugin", "tests.asking"]


class StartKernel(Protocol):
    """Starts a kernel that ends with the test: one of the test's own sort unless named."""

    def __call__(self, name: str | None = None, *, env: Mapping[str, str] | None = None) -> kernels.Kernel: ...


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs and some CI runners ignore it
    config.addinivalue_line("markers", "kernels(*names): run the test on each of these kernels (kernel-7 unless told)")
    config.addinivalue_line("markers", "cold: launches its kernels as front ends do, where others are forked")
    config.addinivalue_line("markers", "timed: promises a time, so `make test` runs it after the others, one by one")
    config.addinivalue_line("markers", "posix: needs permissions, links, sockets or paths that Windows does not have")
    config.addinivalue_line("markers", "nightly: needs environments that only `make nightly` makes")
    config.addinivalue_line("markers", "local_model: asks a real model that runs on this machine (some seconds each)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kernel_name" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("kernels")
        names = mark.args if mark else kernels.KERNELS[:1]
        nightly = {each.name for each in environments.ENVIRONMENTS.values() if each.tier == "nightly"}
        marked = [pytest.param(name, marks=[pytest.mark.nightly] * (name in nightly)) for name in names]
        metafunc.parametrize("kernel_name", marked, scope="module")


@pytest.fixture(scope="session")
def server_command() -> Callable[..., list[str]]:
    """`server_command(name, *arguments)`: the command that starts a test server over stdio."""
    return environments.server_command


@pytest.fixture
def start_kernel(request: pytest.FixtureRequest, kernel_name: str, tmp_path: Path) -> Iterator[StartKernel]:
    """Starts any number of kernels, each in a folder of its own."""
    cold = request.node.get_closest_marker("cold") is not None
    with contextlib.ExitStack() as stack:
        count = 0

        def start(name: str | None = None, *, env: Mapping[str, str] | None = None) -> kernels.Kernel:
            nonlocal count
            count += 1
            folder = tmp_path / f"kernel{count}"
            return stack.enter_context(kernels.started(name or kernel_name, folder, env, cold=cold))

        yield start


@pytest.fixture
def kernel(start_kernel: StartKernel) -> kernels.Kernel:
    """A fresh kernel; `@pytest.mark.kernels(...)` says which."""
    return start_kernel()


@pytest.fixture(scope="module")
def models() -> Iterator[str]:
    """The address of models that answer by a script, without `/v1`."""
    with scripted_models() as address:
        yield address


@pytest.fixture(scope="session", autouse=True)
def fork_servers() -> Iterator[None]:
    """The fork servers are started when they are needed, and end with the run."""
    yield
    kernels.ForkServer.stop_all()


@pytest.fixture(scope="module", autouse=True)
def state_of_the_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The state folder of hosts that the tests of a module share; the user's own state is never touched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYMCP_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        patch.setenv("IPYMCP_KEYRING", "off")
        patch.delenv("IPYMCP_TRUST", raising=False)
        yield


@pytest.fixture(autouse=True)
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of hosts in this process and its children, which has the user's own file as well."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("IPYMCP_STATE_DIR", str(folder))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(folder / "config"))
    return folder


@pytest.fixture(autouse=True)
def no_secrets_from_before() -> None:
    """Forget secrets that a test planted, so that other tests see no masks, and that a model's code has run."""
    masks.clear()
    models_code.actor = None


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Fails the test that leaves a child process of this process, or one of ipymcp's threads."""
    began = time.clock_gettime(time.CLOCK_BOOTTIME) - 0.1
    processes_before = set(processes.children())  # it may lack some, where another ends just now
    threads_before = set(threading.enumerate())
    yield
    children = [child for child in processes.children(began) if child.pid not in kernels.ForkServer.processes()]
    processes.wait_until_gone([child for child in children if child not in processes_before])
    loops = {thread.name for thread in threads_before if thread.is_alive()}  # of hosts that several tests share
    for thread in set(threading.enumerate()) - threads_before:
        if thread.name.startswith("ipymcp") and thread.name.rpartition("-worker_")[0] not in loops:
            thread.join(timeout=2)
            assert not thread.is_alive(), f"the thread {thread.name!r} outlives its test"
