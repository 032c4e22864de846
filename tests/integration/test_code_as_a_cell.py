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


CONCURRENT = """
import asyncio, threading
thread = threading.Thread(target=mcp.demo.echo, args=["thread"])
thread.start(); thread.join()
pool.submit(mcp.demo.echo, "pool").result()
async def wait(): return await mcp.demo.echo.aio("task")
await asyncio.gather(asyncio.create_task(wait()), asyncio.to_thread(mcp.demo.echo, "to_thread"))
mcp.demo.echo.submit("submitted").result()
mapped = len(mcp.demo.echo.map(["mapped"]))
streamed = [number for number, _ in mcp.demo.echo.map.stream(["streamed"])]
timer = threading.Timer(0.2, mcp.demo.echo, ["timer"])
timer.start()
import _thread, contextvars, weakref
contextvars.Context().run(mcp.demo.echo, "context")
contextvars.Context().run(mcp.demo.echo.map, ["context map"])
contextvars.Context().run(pool.submit, mcp.demo.echo, "context pool").result()
other = threading.Thread(target=mcp.demo.echo, args=["context thread"])
contextvars.Context().run(other.start); other.join()
await asyncio.create_task(mcp.demo.echo.aio("context task"), context=contextvars.Context())
raw = threading.Event()
_thread.start_new_thread(lambda: (mcp.demo.echo("raw thread"), raw.set()), ()); raw.wait()
class Finalized: pass
finalized = Finalized()
weakref.finalize(finalized, mcp.demo.echo, "finalizer")
def after(result): mcp.demo.echo("event"), get_ipython().events.unregister("post_run_cell", after)
get_ipython().events.register("post_run_cell", after)
def before(info): mcp.demo.echo("next event"), get_ipython().events.unregister("pre_run_cell", before)
get_ipython().events.register("pre_run_cell", before)
progressed = threading.Event()
def report(progress): mcp.demo.echo("progress"), progressed.set()
contextvars.Context().run(mcp.demo.slow.options(on_progress=report).submit, seconds=0.3).result(); progressed.wait()
kernel_loop.call_soon_threadsafe(mcp.demo.echo, "callback", context=contextvars.Context())
get_ipython().run_cell("mcp.demo.echo('cell in code')")
"""
ROWS = """
from concurrent.futures import ThreadPoolExecutor
import json
pool = ThreadPoolExecutor(1)
pool.submit(int).result()  # starts its thread
def rows():
    calls = [(one, json.loads(one.arguments).get("text")) for one in mcp.history(limit=50).entries]
    return {text: [one.caller, one.model, one.answer, one.cell] for one, text in calls if text}
import asyncio
kernel_loop = asyncio.get_running_loop()
is_asked = asyncio.Event()
async def wait_and_call(): await is_asked.wait(); await mcp.demo.echo.aio("mine, from before")
earlier = asyncio.ensure_future(wait_and_call())
"""
OWN = """
%mcp call demo.echo text="mine, by a magic"
mcp.demo.echo("mine, now"); is_asked.set(); await earlier
await asyncio.gather(mcp.demo.echo.aio("mine, a task"), asyncio.to_thread(mcp.demo.echo, "mine, to_thread"))
get_ipython().run_cell("mcp.demo.echo('mine, in a cell')"); mcp.demo.echo("mine, after it")
mcp.demo.echo.submit("mine, submitted").result()
len(mcp.demo.echo.map(["mine, mapped"]))
"""


def test_threads_tasks_and_streams_of_a_models_code_act_for_the_model(start_kernel: StartKernel, models: str) -> None:
    kernel = asking_kernel(start_kernel, models)
    kernel.run("%config IPyMCP.history = 'values'\n%mcp policy allow demo.*" + ROWS)
    call = f"run_python({json.dumps({'code': CONCURRENT})})"

    outcome = ask(kernel, call, "tools", "--code --allow notebook.run_python")

    assert "Error" not in shown(outcome)[-2], shown(outcome)
    kernel.run("timer.join(); del finalized; thread.join(); pool.submit(mcp.demo.echo, 'my thread').result()")
    assert kernel.run(OWN).status == "ok"
    rows = kernel.value("rows()")
    own = {text: rows.pop(text)[:3] for text in [*rows] if text.startswith("mine, ")}
    assert len(own) == 9 and all(row == ["user", "", ""] for row in own.values()), own
    contexts = {"context", "context map", "context pool", "context thread", "context task", "callback"}
    tasks = {"task", "to_thread", "submitted", "mapped", "streamed", "cell in code", "progress"}
    threads = {"thread", "pool", "timer", "raw thread", "event", "next event", "finalizer", "my thread"}
    assert rows.keys() == threads | contexts | tasks
    callers = {tuple(row) for row in rows.values()}
    assert len(callers) == 1, rows
    (who, model, answer, cell) = callers.pop()
    assert (who, model, answer.partition(" ")[0], cell) == ("model", "tools", "answer", cell)
    assert isinstance(cell, int)
