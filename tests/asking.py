"""Kernels that several tests share, kernels that ask models which answer by a script, and what these show."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.environments import ROOT
from tests.kernels import Kernel, Outcome, started
from tests.scripted import DEMO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.conftest import StartKernel

CALL = 'demo__echo({"text": "x"})'
LOAD_DEMO = f"%mcp load demo -- {sys.executable} -I -S {DEMO}"
MAIL = f"%mcp load mail -- {sys.executable} {ROOT / 'tests' / 'servers' / 'mail.py'}\n%mcp policy allow mail.*"
SEND = 'mail__send({"to": "eve"})'
NOT_SENT = (
    "Not done: needs your consent because the model has read untrusted content from {}, and no one answered;"
    " mcp.policy.allow('mail.send', doubted=True), or --allow mail.send in %mcp ask, allows it beforehand."
    " Do not try it again; go on without it, or ask the user."
)
"""The result of SEND for a model that has read untrusted content."""

_RESET = """
def reset():
    import os, sys, tempfile
    import ipymcp
    from ipymcp.masking import masks
    from ipymcp.security.untrusted import models_code

    shell = get_ipython()
    if "environment_at_start" not in vars(shell):
        shell.environment_at_start = dict(os.environ)
    else:
        shell.run_line_magic("unload_ext", "ipymcp")
    ipymcp.host().close()
    ipymcp._notebook = None  # the next host shares no policy, history, chats or usage with this one
    masks.__init__()
    models_code.__init__()
    os.environ.clear()
    os.environ.update(shell.environment_at_start)
    os.environ["IPYMCP_STATE_DIR"] = tempfile.mkdtemp(dir=os.environ["HOME"])
    os.chdir(tempfile.mkdtemp(dir=os.environ["HOME"]))
    for name in ("last_exc", "last_traceback", "last_type", "last_value"):
        sys.__dict__.pop(name, None)
    shell.config.pop("IPyMCP", None)
    shell.reset(new_session=False)
    shell.run_line_magic("load_ext", "ipymcp")

reset()
"""
"""Gives a kernel a new host with new settings, and empty folders."""

_STATE = """
def print_state():
    import json, os
    import ipymcp
    from ipymcp.masking import masks

    shell, mcp = get_ipython(), ipymcp.host()
    [settings] = [each for each in shell.configurables if type(each).__name__ == "IPyMCP"]
    print(json.dumps({
        "environment": {name: text for name, text in os.environ.items() if name != "IPYMCP_STATE_DIR"},
        "files": os.listdir(),
        "host": [list(mcp), str(mcp.policy), str(mcp.usage), list(mcp.chats), len(mcp.history()), len(mcp.calls)],
        "names": [name for name in shell.user_ns if name not in shell.user_ns_hidden and name[0] != "_"],
        "secrets": masks.count,
        "settings": settings.trait_values(config=True),
    }))

print_state()
del print_state
"""
"""Prints what tests change, as JSON."""


class SharedKernel:
    """A kernel for the tests of a module, which is reset before each of them.

    Args:
        name: Its environment.
        folder: Its folder.
        env: Further environment variables.
        setup: The lines to run after each reset.
    """

    def __init__(self, name: str, folder: Path, env: Mapping[str, str], setup: str) -> None:
        self._name, self._folder, self._env, self._setup = name, folder, env, setup
        self._kernels = contextlib.ExitStack()
        self._kernel: Kernel | None = None
        self._state: Any = None

    def close(self) -> None:
        """End the kernel."""
        self._kernels.close()

    def reset(self) -> Kernel:
        """Reset the kernel; start it first, or again where an earlier reset failed.

        Raises:
            AssertionError: The state is not that of the new kernel.
        """
        kernel, self._kernel = self._kernel, None  # set again if it could be reset
        if kernel is None:
            self._state = None
            kernel = self._kernels.enter_context(started(self._name, self._folder, self._env))
        outcome = kernel.run(f"{_RESET}{self._setup}{_STATE}")
        assert outcome.status == "ok", outcome
        state = json.loads(outcome.stdout.splitlines()[-1])
        self._state = self._state or state
        assert state == self._state
        self._kernel = kernel
        return kernel


@pytest.fixture(scope="module")
def _kernel_with_models(tmp_path_factory: pytest.TempPathFactory, models: str) -> Iterator[SharedKernel]:
    setup = f"{LOAD_DEMO}\nurl = '{models}/v1'\n"
    with contextlib.closing(
        SharedKernel("models", tmp_path_factory.mktemp("asking"), _environment(models), setup)
    ) as kernel:
        yield kernel


@pytest.fixture
def asking(_kernel_with_models: SharedKernel) -> Kernel:
    """A kernel that the module's tests share, with pydantic-ai, the demo server, and access to the scripted models."""
    return _kernel_with_models.reset()


@pytest.fixture(scope="module")
def _kernel_of_the_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedKernel]:
    with contextlib.closing(SharedKernel("kernel-7", tmp_path_factory.mktemp("shared"), {}, "")) as kernel:
        yield kernel


@pytest.fixture
def shared_kernel(_kernel_of_the_module: SharedKernel) -> Kernel:
    """A kernel that the module's tests share, with the extension and without servers."""
    return _kernel_of_the_module.reset()


def asking_kernel(start_kernel: StartKernel, models: str) -> Kernel:
    """A fresh kernel as `asking` gives it, for tests of its start or end."""
    kernel = start_kernel("models", env=_environment(models))
    assert kernel.run(f"%load_ext ipymcp\n{LOAD_DEMO}\nurl = '{models}/v1'").status == "ok"
    return kernel


def _environment(models: str) -> dict[str, str]:
    keys = dict.fromkeys(("ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY"), "k")
    urls = {"ANTHROPIC_BASE_URL": models, "GOOGLE_GEMINI_BASE_URL": models, "OPENAI_BASE_URL": f"{models}/v1"}
    return keys | urls


def ask(kernel: Kernel, text: str, model: str = "echo", options: str = "", **how: Any) -> Outcome:
    return kernel.run(ask_line(kernel, text, model, options), **how)


def ask_line(kernel: Kernel, text: str, model: str = "echo", options: str = "") -> str:
    """The line that asks a scripted model."""
    url = kernel.environment["OPENAI_BASE_URL"]
    return " ".join(filter(None, [f"%mcp ask -m {model} --base-url {url}", options, text]))


def shown(outcome: Outcome) -> list[str]:
    return [display["text/plain"] for display in outcome.displays if display]  # a card that was removed is empty


def failure(outcome: Outcome) -> list[str]:
    assert outcome.error is not None, outcome
    return outcome.error.traceback.splitlines()


def asked(models: str) -> list[dict[str, Any]]:
    """The requests that the models received."""
    return httpx.get(models).json()


def texts(models: str, role: str = "user") -> list[Any]:
    """The contents of the messages of a role in the last request."""
    return [message["content"] for message in asked(models)[-1]["messages"] if message["role"] == role]


def declared(models: str, request: int = -1) -> list[str]:
    """The names of the tools in a request."""
    return [tool.get("function", tool)["name"] for tool in asked(models)[request].get("tools") or ()]


def call(name: str, identity: str = "c1", **arguments: Any) -> dict[str, Any]:
    """A call as OpenAI's models request it."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def contents(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages]


def without_ids(text: str) -> str:
    """A prompt, or instructions, without the ids of its elements."""
    return re.sub(r'(?<=") id="[0-9a-f]{16}"(?=>)|(?<=</)(\w+) [0-9a-f]{16}(?=>)', r"\1", text)
