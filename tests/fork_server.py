"""Forks kernels from a process that has imported everything once; run by the interpreter of a kernel's environment.

    python tests/fork_server.py

Each line on stdin is a request (`argv`, `env`, `cwd`, `log`), each line on stdout the answer: the kernel's process id.
A kernel has its own process, session, environment variables, working folder and output, as one that was launched has.
The server has one thread and no sockets. It ends at the end of stdin, and reaps the kernels that have ended.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import threading
import time
from typing import NoReturn

# What kernels import at their start and in their first cells, where the environment has it.
PRELOADED = (
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "anyio._backends._asyncio",
    "genai_prices.data",
    "ipykernel.debugger",
    "ipykernel.ipkernel",
    "ipykernel.kernelapp",
    "ipykernel.zmqshell",
    "jedi",
    "jsonschema_rs",
    "matplotlib_inline.backend_inline",
    "pandas.io.formats.html",
    "pydantic_ai.models.anthropic",
    "pydantic_ai.models.google",
    "pydantic_ai.models.openai",
    "pydantic_ai.models.test",
    "pygments.formatters.terminal256",
    "sqlite3",
    "stack_data",
    "tornado.platform.asyncio",
)


def preload() -> None:
    """Import what kernels import."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    import ipymcp

    for module in pkgutil.walk_packages(ipymcp.__path__, "ipymcp."):
        if not module.name.startswith(("ipymcp.jupyter", "ipymcp.demo")):
            with contextlib.suppress(ImportError):  # an optional library
                importlib.import_module(module.name)


def serve() -> None:
    """Fork a kernel for each request."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps them
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            run_kernel(**json.loads(line))
            end()
        print(pid, flush=True)


def end() -> NoReturn:
    """End as the interpreter does, but leave the memory to the system: to free all that was imported takes 0.4 s."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def run_kernel(argv: list[str], env: dict[str, str], cwd: str, log: str) -> None:
    """Make this forked process a kernel."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.environ.clear()
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))  # a kernel ends with its parent
    time.tzset()
    os.chdir(cwd)
    _replace_streams(log)
    sys.argv = argv
    sys.path[:0] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]

    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()


def _replace_streams(log: str) -> None:
    """Read nothing, and write to a file."""
    null, output = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(output)


if __name__ == "__main__":
    del sys.path[0]  # this file's folder
    preload()
    serve()
