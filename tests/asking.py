"""Kernels that ask models which answer by a script, and what they show."""

import re
import sys
from typing import Any

import httpx

from tests.conftest import StartKernel
from tests.environments import ROOT
from tests.kernels import Kernel, Outcome
from tests.scripted import DEMO

CALL = 'demo__echo({"text": "x"})'
MAIL = f"%mcp load mail -- {sys.executable} {ROOT / 'tests' / 'servers' / 'mail.py'}\n%mcp policy allow mail.*"
SEND = 'mail__send({"to": "eve"})'


def asking_kernel(start_kernel: StartKernel, models: str) -> Kernel:
    """A kernel that has pydantic-ai, the demo server, and a way to the scripted models."""
    others = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": models}
    others |= {"GOOGLE_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": models}
    kernel = start_kernel("models", env={"OPENAI_API_KEY": "k", **others})
    setup = f"%load_ext ipymcp\n%mcp load demo -- {sys.executable} -I -S {DEMO}\nurl = '{models}/v1'"
    assert kernel.run(setup).status == "ok"
    return kernel


def asked(models: str) -> list[dict[str, Any]]:
    """The requests that the models received."""
    return httpx.get(models).json()


def shown(outcome: Outcome) -> list[str]:
    return [display["text/plain"] for display in outcome.displays]


def ask(kernel: Kernel, text: str, model: str = "echo", options: str = "", **how: object) -> Outcome:
    return kernel.run(
        f"%mcp ask -m {model} --base-url {{url}} {options} {text}".replace("{url}", address(kernel)), **how
    )


def address(kernel: Kernel) -> str:
    return str(kernel.run("print(url)").stdout.strip())


def without_ids(text: str) -> str:
    """A prompt, or instructions, without the ids of its elements."""
    return re.sub(r'(?<=") id="[0-9a-f]{16}"(?=>)|(?<=</)(\w+) [0-9a-f]{16}(?=>)', r"\1", text)


def failure(outcome: Outcome) -> list[str]:
    assert outcome.error is not None, outcome
    return outcome.error.traceback.splitlines()
