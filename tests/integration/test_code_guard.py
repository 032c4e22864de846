"""What a model's code starts in a real kernel acts for the model: threads, pools, tasks, maps and streams."""

import json

from tests.asking import ask, asking_kernel, shown
from tests.conftest import StartKernel

CODE = """
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
"""
ROWS = """
from concurrent.futures import ThreadPoolExecutor
import json
pool = ThreadPoolExecutor(1)
pool.submit(int).result()  # starts its thread
def rows():
    calls = [(one, json.loads(one.arguments).get("text")) for one in mcp.history(limit=50).entries]
    return {text: [one.caller, one.model, one.answer, one.cell] for one, text in calls if text}
"""


def test_threads_tasks_and_streams_of_a_models_code_act_for_the_model(start_kernel: StartKernel, models: str) -> None:
    kernel = asking_kernel(start_kernel, models)
    kernel.run("%config IPyMCP.history = 'values'\n%mcp policy allow demo.*" + ROWS)
    call = f"run_python({json.dumps({'code': CODE})})"

    outcome = ask(kernel, call, "tools", "--code --allow notebook.run_python")

    assert "Error" not in shown(outcome)[-2], shown(outcome)
    kernel.run("timer.join(); del finalized; thread.join(); pool.submit(mcp.demo.echo, 'mine').result()")
    rows = kernel.value("rows()")
    assert rows.pop("mine")[:3] == ["user", "", ""]
    contexts = {"context", "context map", "context pool", "context thread", "context task"}
    tasks = {"task", "to_thread", "submitted", "mapped", "streamed"}
    assert rows.keys() == {"thread", "pool", "timer", "raw thread", "event", "finalizer"} | contexts | tasks
    kernel.run("pool.submit(mcp.demo.echo, 'mine, too').result(); mcp.demo.echo('mine, now')")
    now = kernel.value("rows()")
    assert now["mine, too"][0] == now["mine, now"][0] == "user"
    callers = {tuple(row) for row in rows.values()}
    assert len(callers) == 1, rows
    (who, model, answer, cell) = callers.pop()
    assert (who, model, answer.partition(" ")[0], cell) == ("model", "tools", "answer", cell)
    assert isinstance(cell, int)
