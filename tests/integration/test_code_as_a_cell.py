"""A model's code in a real kernel: it runs as a cell does, and the model receives what a cell would show."""

import json
from typing import Any

import pytest

from tests.asking import ask, asked, asking_kernel, shown
from tests.conftest import StartKernel
from tests.kernels import Kernel, Outcome

INSERTABLE = "application/vnd.ipymcp.code+json"


@pytest.fixture
def kernel(asking: Kernel) -> Kernel:
    return asking


def ran(kernel: Kernel, code: str, options: str = "--allow notebook.run_python") -> Outcome:
    return ask(kernel, f"run_python({json.dumps({'code': code})})", "tools", f"--code {options}")


def answer(outcome: Outcome) -> str:
    begin = "They answered: "
    return next(text for text in shown(outcome) if text.startswith(begin)).removeprefix(begin)


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("import asyncio\nawait asyncio.sleep(0)\nx = 2\nx + 1", "3"),
        ("%env ABC=x\n%env ABC", "env: ABC=x\n'x'"),
        ("!echo from a shell", "from a shell"),
        ("%%capture out\nprint('x')", ""),
        ("%mcp policy allow demo.*", "PolicyError in line 1: a model's code may not change the policy"),
        ("get_ipython().run_line_magic('mcp', 'policy allow demo.*')", "PolicyError"),
        ("%config IPyMCP.doubts = False", "a model's code may not set IPyMCP.doubts"),
        ("await mcp.policy.allow('demo.*')", "PolicyError"),
        ("import asyncio\nawait asyncio.sleep(0)\nmcp.policy.allow('demo.*')", "PolicyError in line 3"),
        ("import warnings\nwarnings.warn('careful')", "<model's code>:2: UserWarning: careful"),
        ("import sys\nprint('a')\nprint('b', file=sys.stderr)\n'c'", "a\nb\n'c'"),
        ("from IPython.display import Markdown\ndisplay(Markdown('**hey**'))", "**hey**"),
    ],
)
def test_await_and_magics_work_but_change_no_rule(kernel: Kernel, code: str, result: str) -> None:
    assert result in answer(ran(kernel, code))
    assert "allow demo.*" not in kernel.run("print(mcp.policy)").stdout


def test_figures_and_images_are_sent_to_a_model_that_sees(kernel: Kernel, models: str) -> None:
    kernel.run("%matplotlib inline\nimport matplotlib.pyplot as plt")
    code = "plt.plot([1, 2])\nimport PIL.Image\ndisplay(PIL.Image.new('RGB', (3, 4)))\nPIL.Image.new('L', (5, 6))"
    before = len(asked(models))
    outcome = ran(kernel, code)

    request = json.dumps(asked(models)[-1])
    assert request.count("data:image/png;base64,") == 3, "the display, the last value and the new figure"
    assert "Image, image of 5 x 6" in request and "Figure, image of " in request
    assert [each for each in outcome.displays if "image/png" in each], "the user sees them too"
    assert len(asked(models)) == before + 2


@pytest.mark.cold
def test_the_code_is_in_the_history_and_offered_as_a_cell(start_kernel: StartKernel, models: str) -> None:
    kernel = asking_kernel(start_kernel, models)
    outcome = ran(kernel, "%env ABC=x\ny = 5")

    offers = [each[INSERTABLE] for each in outcome.displays if INSERTABLE in each]
    assert offers == [{"code": "%env ABC=x\ny = 5"}]
    after = kernel.run("In[-2], In[-1], len(In)")
    number = after.execution_count
    assert number is not None and outcome.execution_count == number - 2, "the cell keeps its own number"
    history: Any = eval(after.text or "")
    assert history[1] == "In[-2], In[-1], len(In)" and history[2] == number + 1
    assert history[0].startswith("get_ipython().run_line_magic('env', 'ABC=x')")
    assert "%env ABC=x\ny = 5" in kernel.run(f"%history {number - 1}").stdout
    assert kernel.run("y").text == "5"
