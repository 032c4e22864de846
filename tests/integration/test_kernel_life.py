"""ipymcp through the life of a notebook: loaded, reloaded, reset, run as a whole, used from threads and tasks."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nbclient
import nbformat
import papermill
import psutil
import pytest

from tests import kernels, processes
from tests.conftest import StartKernel
from tests.environments import ROOT, server_command
from tests.integration.notebooks import done
from tests.kernels import KERNELS, Kernel

pytestmark = pytest.mark.cold
every_kernel = pytest.mark.kernels(*KERNELS)
HEAVY = ("httpx", "ipywidgets", "jsonschema_rs", "cryptography", "sqlite3", "json5", "pandas", "nest_asyncio")
COMMAND = server_command("misbehaving")
M = f"m -- {shlex.join(COMMAND)}"


@pytest.fixture(scope="module")
def shared(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """One kernel for the tests that leave it as it was."""
    with kernels.started(kernel_name, tmp_path_factory.mktemp(kernel_name), cold=True) as kernel:
        done(kernel, f"%load_ext ipymcp\nimport asyncio, time\n%mcp load demo\n%mcp load {M}")
        yield kernel


# -- loading and unloading --------------------------------------------------------------------------------------------


@every_kernel
def test_loading_imports_nothing_heavy(kernel: Kernel) -> None:
    known = f"sorted(sys.modules.keys() & {set(HEAVY)!r})"
    done(kernel, "import sys")
    before = kernel.value(known)
    done(kernel, "%load_ext ipymcp")
    assert kernel.value(known) == before


PRESENT = """[
    'mcp' in get_ipython().magics_manager.magics['line'], 'mcp' in get_ipython().magics_manager.magics['cell'],
    len([part for part in get_ipython().configurables if type(part).__name__ == 'IPyMCP']),
    len([one for one in getattr(get_ipython().Completer, 'custom_matchers', []) if 'ipymcp' in one.__module__]),
    len([one for one in get_ipython().input_transformer_manager.token_transformers if 'ipymcp' in one.__module__]),
    len([one for one in get_ipython().events.callbacks['pre_run_cell'] if 'ipymcp' in repr(one)]),
    'mcp' in globals(),
]"""


@every_kernel
def test_loading_twice_changes_nothing_and_unloading_takes_all_back(kernel: Kernel, kernel_name: str) -> None:
    matchers = 0 if kernel_name == "kernel-colab" else 1  # IPython 7 has none that see the whole line
    whole = [True, True, 1, matchers, 1, 1, True]
    done(kernel, "%load_ext ipymcp")
    assert kernel.value(PRESENT) == whole
    done(kernel, f"%load_ext ipymcp\n%mcp load {M}")
    assert kernel.value(PRESENT) == whole
    server = psutil.Process(kernel.value("mcp.m.pid().data['pid']"))

    assert done(kernel, "%unload_ext ipymcp").stderr == ""
    processes.wait_until_gone([server], within=0.5)
    assert kernel.value(PRESENT) == [False, False, 0, 0, 0, 0, False]
    gone = kernel.run("%mcp").error
    assert gone is not None
    assert "not found" in gone.evalue

    done(kernel, "%load_ext ipymcp")
    assert kernel.value(PRESENT) == whole
    done(kernel, "%mcp start m")
    assert kernel.value("mcp.m.echo('again').text") == "again"


@every_kernel
def test_a_reload_keeps_servers_rules_and_settings_and_registers_nothing_twice(
    kernel: Kernel, kernel_name: str
) -> None:
    done(kernel, f"%reload_ext ipymcp\n%config IPyMCP.namespace = 'tools'\n%mcp load {M}\n%mcp disable m.echo")
    state = "[tools.m.pid().data['pid'], 'm.echo' in repr(tools.tools('m.*'))]"
    before = kernel.value(PRESENT), kernel.value(state)
    assert before[1][1] is False
    for cell in ("%load_ext ipymcp", "%reload_ext ipymcp", "%autoreload 2\n%reload_ext ipymcp", "%reset -f"):
        outcome = done(kernel, f"%load_ext autoreload\n{cell}\n%reload_ext ipymcp")
        assert outcome.stderr == ""
        same = kernel.value(PRESENT), kernel.value(state)
        assert same == before
    assert kernel.value("get_ipython().magics_manager.magics['line']['mcp'].__module__") == "ipymcp.notebook.extension"

    server = psutil.Process(kernel.value("tools.m.pid().data['pid']"))
    assert done(kernel, "%unload_ext ipymcp").stderr == ""
    processes.wait_until_gone([server], within=0.5)
    assert kernel.value(PRESENT) == [False, False, 0, 0, 0, 0, False]


def other_name(kind: str) -> str:
    return (
        f"ipymcp: the name mcp is {kind} of yours, and not the notebook's servers: after from ipymcp import mcp as"
        " servers, a tool is servers.SERVER.TOOL(…); %mcp works as always\n"
    )


@pytest.mark.parametrize("line", ["%mcp call demo.echo text=x", "%load_ext ipymcp", "%reload_ext ipymcp"])
@pytest.mark.parametrize(
    ("other", "kind"),
    [
        ("import sys, types\nsys.modules['mcp'] = types.ModuleType('mcp')\nimport mcp", "the module mcp"),
        ("class FastMCP: pass\nmcp = FastMCP()", "a FastMCP"),
    ],
)
def test_a_line_says_once_that_the_name_is_another_object_and_works_on(
    start_kernel: StartKernel, other: str, kind: str, line: str
) -> None:
    kernel = start_kernel()
    done(kernel, "%load_ext ipymcp\n%mcp load demo;")
    assert done(kernel, other).stderr == ""
    assert done(kernel, line).stderr == other_name(kind)
    assert done(kernel, line).stderr == ""
    assert done(kernel, "%mcp call demo.echo text=works").text == "ToolResult demo.echo: works"
    assert kernel.value("__import__('ipymcp').mcp.demo.echo('here').text") == "here"
    done(kernel, "from ipymcp import mcp\n%mcp ;")
    assert done(kernel, "mcp = 'again'\n%mcp ;").stderr == other_name("a str")


def test_a_name_of_the_users_own_is_never_overwritten(kernel: Kernel) -> None:
    done(kernel, "mcp = 'mine'")
    assert done(kernel, "%load_ext ipymcp").stderr == other_name("a str")
    assert kernel.value("mcp") == "mine"
    done(kernel, "%mcp load demo")
    done(kernel, "%config IPyMCP.namespace = 'tools'")
    assert kernel.value("[mcp, tools.demo.echo('hi').text]") == ["mine", "hi"]
    done(kernel, "%config IPyMCP.namespace = 'again'")
    assert kernel.value("['tools' in globals(), again.demo.echo('hi').text]") == [False, "hi"]
    done(kernel, "again = 'rebound'")
    done(kernel, "%unload_ext ipymcp")
    assert kernel.value("[mcp, again]") == ["mine", "rebound"]


def test_after_a_reset_the_name_is_back(kernel: Kernel) -> None:
    done(kernel, f"%load_ext ipymcp\n%mcp load {M}")
    done(kernel, "x = 1\n%reset -f")
    assert kernel.value("['x' in globals(), mcp.m.echo('after the reset').text]") == [False, "after the reset"]


def test_autoreload_leaves_it_alone(kernel: Kernel) -> None:
    (kernel.folder / "mine.py").write_text("import ipymcp\nword = 'old'\n")
    done(kernel, f"%load_ext autoreload\n%autoreload 2\n%load_ext ipymcp\n%mcp load {M}\nimport mine")
    (kernel.folder / "mine.py").write_text("import ipymcp\nword = 'quite new'\n")
    os.utime(kernel.folder / "mine.py", (2e9, 2e9))
    outcome = done(kernel, "print(mcp.m.echo(mine.word).text)")
    assert (outcome.stdout, outcome.stderr) == ("quite new\n", "")


# -- magics of IPython's own ------------------------------------------------------------------------------------------


@every_kernel
def test_the_magics_that_time_things_work(shared: Kernel) -> None:
    assert "per loop" in done(shared, '%timeit -n 2 -r 1 mcp.demo.echo("x")').stdout
    outcome = done(shared, '%%time\n%mcp call demo.echo text="timed"')
    assert "timed" in str(outcome.result)
    outcome = done(shared, '%%time\n%%mcp call demo.echo\n{"text": "nested"}')
    assert "Wall time" in outcome.stdout and outcome.text == "ToolResult demo.echo: nested"
    outcome = done(shared, '%%time\nr = mcp.demo.echo("x")')
    assert "Wall time" in outcome.stdout


@every_kernel
def test_settings_take_effect(shared: Kernel) -> None:
    wrong = "mcp.demo.no_such_tool"
    short = shared.run(wrong)
    done(shared, "%config IPyMCP.tracebacks = True")
    whole = shared.run(wrong)
    done(shared, "%config IPyMCP.tracebacks = False")
    assert short.error is not None and whole.error is not None
    assert short.error.ename == whole.error.ename == "UnknownName"
    assert len(short.error.traceback.splitlines()) <= 3
    assert "Traceback" in whole.error.traceback

    slow = "mcp.m.progress(interval=0.05, count=16)"
    assert len(done(shared, slow).displays) == 1
    done(shared, "%config IPyMCP.quiet = True")
    assert done(shared, slow).displays == []
    done(shared, "%config IPyMCP.quiet = False")


# -- threads and tasks ------------------------------------------------------------------------------------------------


@every_kernel
def test_a_call_in_another_thread_shows_nothing_and_tells_its_progress(shared: Kernel) -> None:
    outcome = done(
        shared,
        "from concurrent.futures import ThreadPoolExecutor\n"
        "steps = []\nslow = mcp.m.progress.options(on_progress=lambda p: steps.append(p.progress))\n"
        "with ThreadPoolExecutor() as pool:\n"
        "    result = pool.submit(lambda: slow(interval=0.05, count=16)).result()\n"
        "print(result.text, steps == list(range(1, 17)))",
    )
    assert (outcome.stdout, outcome.stderr, outcome.displays) == ("16 steps True\n", "", [])


@every_kernel
def test_progress_of_an_awaited_call_is_shown_in_its_own_cell(shared: Kernel) -> None:
    first = shared.start("await mcp.m.progress.aio(interval=0.05, count=20)")
    second = shared.start("print('second')")
    assert second.wait().displays == []
    outcome = first.wait()
    assert [display["text/plain"] for display in outcome.displays] == ["m.progress 20/20 step 20"]


@every_kernel
def test_what_a_submitted_call_prints_and_shows(shared: Kernel) -> None:
    outcome = done(
        shared,
        "call = mcp.m.progress.submit(interval=0.05, count=14)\nprint(call.done)\n"
        "result = call.result()\nprint(call.done, result.text, call.progress.message)",
    )
    assert (outcome.stdout, outcome.stderr) == ("False\nTrue 14 steps step 14\n", "")


def test_the_background_prints_nothing(shared: Kernel) -> None:
    """Noise, an unknown notification, a server that dies: the log has it, no cell does."""
    noisy = shlex.join(server_command("misbehaving", "noise=all", "banner", "stderr=200"))
    done(shared, f"%mcp load noisy -- {noisy}")
    assert shared.run("mcp.noisy.die()").error is not None
    outcome = done(shared, "time.sleep(0.5)")
    assert (outcome.stdout, outcome.stderr, outcome.displays) == ("", "", [])
    done(shared, "%mcp unload noisy")


# -- nested loops -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "warning"),
    [
        (
            "nest_asyncio",
            "ipymcp: nest_asyncio 1.6 is applied in this kernel, and with ipykernel 7 it drops queued cells;"
            " ipymcp does not need it (pip install 'nest-asyncio2>=1.7.3' if something else does)\n",
        ),
        ("nest_asyncio2", ""),
    ],
)
def test_calls_work_in_nested_loops_and_the_harmful_one_is_a_warning(kernel: Kernel, module: str, warning: str) -> None:
    done(kernel, f"import {module}; {module}.apply()")
    assert done(kernel, "%load_ext ipymcp").stderr == warning
    done(kernel, f"%mcp load {M}")
    assert kernel.value("[mcp.m.echo('sync').text, (await mcp.m.echo.aio('async')).text]") == ["sync", "async"]


# -- whole notebooks --------------------------------------------------------------------------------------------------

CELLS = [
    "%load_ext ipymcp",
    f"%mcp load {M}",
    "r = mcp.m.echo('sync')\nr.text",
    "(await mcp.m.echo.aio('async')).text",
    "mcp.m.refuse()",
    "%%mcp call m.echo\n{'text': r.text + ' again'}",
    "import asyncio\nawait asyncio.sleep(0)\nmcp.m.echo('last').text",
]


def notebook() -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    cells[4].metadata["tags"] = ["raises-exception"]
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec})


def results(notebook: nbformat.NotebookNode) -> list[str | None]:
    texts: list[str | None] = []
    for cell in notebook.cells:
        data = [output.data for output in cell.outputs if output.output_type == "execute_result"]
        texts.append(data[0]["text/plain"] if data else None)
    return texts


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PATH", str(Path(sys.prefix) / "share" / "jupyter"))


@pytest.mark.usefixtures("checkout")
def test_run_all_goes_through_with_an_error_that_is_expected(tmp_path: Path) -> None:
    node = notebook()
    nbclient.NotebookClient(node, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()

    assert results(node)[2:4] == ["'sync'", "'async'"]
    assert node.cells[4].outputs[0].ename == "RpcError"
    assert "sync again" in (results(node)[5] or "")
    assert results(node)[6] == "'last'"


@pytest.mark.usefixtures("checkout")
def test_papermill_runs_it_and_stops_at_an_error(tmp_path: Path) -> None:
    before, after = tmp_path / "before.ipynb", tmp_path / "after.ipynb"
    node = notebook()
    failing = node.cells.pop(4)
    nbformat.write(node, before)
    executed = papermill.execute_notebook(before, after, cwd=tmp_path, progress_bar=False)
    assert results(executed)[2:4] == ["'sync'", "'async'"]
    assert results(executed)[5] == "'last'"

    node.cells.insert(4, failing)
    nbformat.write(node, before)
    with pytest.raises(papermill.PapermillExecutionError, match=r"RpcError: m\.refuse: refused"):
        papermill.execute_notebook(before, after, cwd=tmp_path, progress_bar=False)


SAME = [
    ("%load_ext ipymcp", "import asyncio, json\nfrom ipymcp import mcp"),
    (f"%mcp load {M}", f"mcp.load({{'m': {{'command': {COMMAND[0]!r}, 'args': {COMMAND[1:]!r}}}}})"),
    ("%mcp load demo;", "mcp.load('demo')"),
    ("said = [mcp.m.echo('sync').text, (await mcp.m.echo.aio('async')).text]", None),
    ("r = %mcp call m.echo text='by a line'", "r = mcp.call('m', 'echo', {'text': 'by a line'})"),
    ("said += [r.text, mcp.demo.query('penguins', limit=2).df.species.tolist()]", None),
    ("try:\n    mcp.m.refuse()\nexcept Exception as error:\n    said.append(f'{type(error).__name__}: {error}')", None),
    ("import json\nprint(json.dumps(said))", None),
]
"""Cells, each with the code that does the same in a script; None where it is the same."""
VALUES = ["sync", "async", "by a line", ["Adelie", "Adelie"], "RpcError: m.refuse: refused"]


def script() -> str:
    """The cells as a script, where `await` needs a function."""
    lines = [(cell if code is None else code).splitlines() for cell, code in SAME]
    body = "\n".join(f"    {line}" for part in lines[3:] for line in part)
    return "\n".join([*(line for part in lines[:3] for line in part), "async def main():", body, "asyncio.run(main())"])


def in_nbclient(folder: Path) -> str:
    node = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell, _ in SAME])
    nbclient.NotebookClient(node, timeout=60, resources={"metadata": {"path": str(folder)}}).execute()
    return node.cells[-1].outputs[0].text


def in_papermill(folder: Path) -> str:
    node = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell, _ in SAME], metadata=notebook().metadata
    )
    nbformat.write(node, folder / "before.ipynb")
    done = papermill.execute_notebook(folder / "before.ipynb", folder / "after.ipynb", cwd=folder, progress_bar=False)
    return done.cells[-1].outputs[0].text


def in_a_console(folder: Path) -> str:
    with kernels.started("kernel-7", folder) as kernel:
        return [kernel.start(cell, console=True, answers=[]).wait() for cell, _ in SAME][-1].stdout


def in_a_terminal(folder: Path) -> str:
    (folder / "cells.ipy").write_text("\n".join(cell for cell, _ in SAME))
    return run(folder, "-m", "IPython", "--no-banner", "cells.ipy")


def in_a_script(folder: Path) -> str:
    (folder / "script.py").write_text(script())
    return run(folder, "script.py")


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("runner", [in_nbclient, in_papermill, in_a_console, in_a_terminal, in_a_script])
def test_the_same_cells_give_the_same_values_wherever_they_run(runner: Callable[[Path], str], tmp_path: Path) -> None:
    assert json.loads(runner(tmp_path).splitlines()[-1]) == VALUES


@pytest.mark.usefixtures("checkout")
def test_a_failure_is_told_where_nothing_is_displayed(tmp_path: Path) -> None:
    dead = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no licence')"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"dead": dead}}))
    why = "dead: could not start: exited with code 1. Last output: no licence"
    with kernels.started("kernel-7", tmp_path) as kernel:
        done(kernel, "%load_ext ipymcp")
        for line in ("%mcp load --trust;", "%config IPyMCP.quiet = True\n%mcp load"):
            told = kernel.start(line, console=True, answers=[]).wait()
            assert (told.stdout, told.stderr) == ("", f"ipymcp: {why}\n"), line
    (tmp_path / "warns.py").write_text("import ipymcp\nmcp = ipymcp.mcp\nmcp.load(trust=True)\nmcp.load('dead')\n")
    told = run(tmp_path, "warns.py", code=1)
    assert f"warns.py:3: UserWarning: {why}\n" in told
    assert told.endswith(f"ipymcp.errors.StartError: {why}\n%mcp logs dead · %mcp restart dead\n")
