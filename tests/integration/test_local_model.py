"""A real model, on this machine, chooses a tool of a real server in a real kernel, and answers with what it gave.

It is small enough to run in a test, and too small to be right: the tests assert that it chose the tool that the prompt
names, with valid arguments, and received the result; not what it wrote about that.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from tests.asking import LOAD_DEMO
from tests.conftest import StartKernel
from tests.environments import ENVIRONMENTS, ROOT, environment
from tests.kernels import Kernel

pytestmark = [pytest.mark.nightly, pytest.mark.local_model, pytest.mark.timeout(400)]

PATIENCE = 180
"""Maximum seconds for an answer on a busy machine; it usually takes ten."""


@pytest.fixture(scope="module")
def local_model() -> Iterator[str]:
    """The address of the model."""
    if reason := ENVIRONMENTS["local-model"].left_out:
        pytest.skip(f"local-model: {reason}")
    command = [str(environment("local-model").python), str(ROOT / "tests" / "servers" / "local_model.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, "the model did not start; its output is above"
        yield f"http://127.0.0.1:{port}"
        process.terminate()


@pytest.fixture
def kernel(start_kernel: StartKernel) -> Kernel:
    """A kernel that has pydantic-ai and the demo server."""
    kernel = start_kernel("models")
    assert kernel.run(f"%load_ext ipymcp\n{LOAD_DEMO}").status == "ok"
    return kernel


@pytest.mark.parametrize(
    ("tool", "prompt"),
    [
        ("echo", 'Call demo__echo with the text "hello".'),
        ("query", "Call demo__query with table penguins and limit 1."),
    ],
    ids=["echo", "query"],
)
def test_a_model_calls_the_named_tool_and_then_writes_text(
    kernel: Kernel, local_model: str, tool: str, prompt: str
) -> None:
    options = "--tools demo.echo,demo.query --out answer"
    outcome = kernel.run(f"%mcp ask -m smollm2 --base-url {local_model}/v1 {options} {prompt}", timeout=PATIENCE)

    assert outcome.status == "ok", outcome
    begins, card, words, cost = (display["text/plain"] for display in outcome.displays)
    assert begins.startswith("smollm2 · 2 tools of demo, about ")
    assert card.startswith(f"demo.{tool}")
    assert words.strip()
    assert re.fullmatch(r"2 requests, [1-9][\d,]* tokens in, [1-9]\d* out( · cut off: .*)?", cost)
    (call,) = kernel.value("[[one.tool, one.arguments, one.text] for one in answer.calls]")
    assert call[0] == tool
    assert call[1].keys() >= {"echo": {"text"}, "query": {"table"}}[tool]
    first, second = httpx.get(local_model).json()[-2:]
    assert prompt in [one["content"] for one in first["messages"]]
    assert second["messages"][-1]["role"] == "tool"
    assert second["messages"][-1]["content"] == call[2] != ""
    if tool == "echo":
        assert call[2] == call[1]["text"]
    assert kernel.value("answer.text") == words


def test_a_typed_answer_follows_a_call(kernel: Kernel, local_model: str) -> None:
    kernel.run("from dataclasses import dataclass\n@dataclass\nclass Word:\n    text: str\n    letters: int")
    how = f"model='smollm2', base_url='{local_model}/v1', tools=mcp.tools('demo.echo'), returns=Word"

    outcome = kernel.run(f"answer = mcp.ask('Call demo__echo with the text hello.', {how})", timeout=PATIENCE)

    assert outcome.status == "ok", outcome
    assert kernel.value("[one.tool for one in answer.calls]") == ["echo"]
    assert kernel.value("[type(answer.data).__name__, type(answer.data.text).__name__]") == ["Word", "str"]
    assert isinstance(kernel.value("answer.data.letters"), int)
