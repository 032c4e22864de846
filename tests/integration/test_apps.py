"""Apps in real kernels without a browser: in Python, in the protocol of views, and for models."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import apps
from tests.asking import MAIL, SEND, ask, asked, asking_kernel, shown, texts, without_ids
from tests.conftest import StartKernel
from tests.environments import ROOT, server_command
from tests.kernels import Bundle, Kernel, Outcome
from tests.panels import PageView

APP = "application/vnd.ipymcp.app+json"
LINE = "apps.slider has an app, which is shown while the kernel runs: run the cell again to get it back."
TYPES = ["text/html;profile=mcp-app"]


@pytest.fixture
def page(tmp_path: Path) -> str:
    """The cell that loads a server with an app `slider`."""
    apps.write(tmp_path / "pages", "slider", apps.page(""))
    return apps.load(tmp_path / "pages")


@pytest.fixture
def notebook(shared_kernel: Kernel, page: str) -> Kernel:
    """A kernel with that server."""
    assert shared_kernel.run(page).status == "ok"
    return shared_kernel


def run(kernel: Kernel, cell: str) -> Outcome:
    """Run a cell in a notebook that is open in a page."""
    outcome = kernel.run(cell, answers=[])
    assert outcome.error is None, outcome.error
    return outcome


def app_of(bundles: list[Bundle]) -> dict[str, Any]:
    """The last app that is displayed."""
    return [one[APP] for one in bundles if APP in one][-1]


def view_of(kernel: Kernel) -> PageView:
    """A page that shows the notebook."""
    view = PageView(kernel)
    view.hello()
    return view


def opened(kernel: Kernel, cell: str = "r = mcp.apps.slider()\nr") -> tuple[PageView, int]:
    """A view of the app that a cell displays, and the app's number."""
    number = app_of(run(kernel, cell).displays)["app"]
    view = view_of(kernel)
    assert view.ask("app_open", app=number)["asks"] is None
    return view, number


def request(view: PageView, app: int, method: str, **params: Any) -> Any:
    """The result of a request of the page, or else its error."""
    reply = view.ask("app_request", app=app, page="1", method=method, params=params)
    return reply["error"] or reply["result"]


# -- in Python --------------------------------------------------------------------------------------------------------


def test_a_cell_shows_the_app_above_the_text_and_stores_no_html(notebook: Kernel) -> None:
    outcome = run(notebook, "r = mcp.apps.slider(text='t')\nr")
    (display,) = [one for one in outcome.displays if APP in one]
    assert display["text/plain"] == LINE
    assert set(display[APP]) == {"version", "kernel", "app", "height", "mode"}
    assert outcome.text is not None and "the text of slider: t" in outcome.text
    [folded] = [each["content"]["data"] for each in outcome.messages if each["msg_type"] == "execute_result"]
    assert folded["text/html"].startswith("<details><summary><small>Data</small></summary><div ")
    assert "doctype" not in json.dumps([message["content"] for message in outcome.messages])


def test_a_notebook_that_a_program_runs_has_the_text_alone(notebook: Kernel) -> None:
    outcome = notebook.run("r = mcp.apps.slider()\nr")
    assert not outcome.displays and outcome.text is not None and "the text of slider" in outcome.text
    error = notebook.run("r.app.show()").error
    assert error is not None
    assert error.evalue == "the app of apps.slider cannot be shown here"
    assert "open the notebook in a browser" in error.traceback


def test_a_terminal_shows_the_text_alone(page: str, tmp_path: Path, state_of_its_own: Path) -> None:
    lines = ["%load_ext ipymcp", page, "r = mcp.apps.slider()", "r", "print(r.app, r.data['ui'])"]
    command = [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=nocolor", "-c"]
    code = f"ip = get_ipython()\nfor line in {lines!r}: ip.run_cell(line)"
    done = subprocess.run([*command, code], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True)
    assert "the text of slider" in done.stdout and "None []" in done.stdout
    assert "doctype" not in done.stdout and "has an app" not in done.stdout


def test_an_app_has_these_attributes_and_is_shown_with_its_height_and_mode(notebook: Kernel) -> None:
    notebook.run("r = mcp.apps.slider()")
    names = notebook.run("print(*(name for name in dir(r.app) if name[0] != '_'))").stdout.split()
    assert names == ["closed", "context", "is_closed", "on_update", "server", "show", "tool", "uri"]
    assert notebook.run("print(r.app, mcp.apps.add(a=1, b=2).app)").stdout == (
        "<app of apps.slider, ui://apps/slider> None\n"
    )

    own = app_of(run(notebook, "r.app.show(height=300, display_mode='pip')").displays)
    assert (own["height"], own["mode"]) == (300, "pip")
    for call, expected in [
        ("show(display_mode='big')", "display_mode: expected 'inline' or 'fullscreen' or 'pip', got 'big'"),
        ("show(height='tall')", "height: expected"),
        ("on_update(7)", "function: expected a function, got 7"),
    ]:
        error = notebook.run(f"r.app.{call}").error
        assert error is not None and expected in error.traceback.splitlines()[0], error


def test_the_state_of_an_app_is_passed_to_functions_in_python(notebook: Kernel) -> None:
    view, number = opened(notebook)
    setup = "seen = []\nr.app.on_update(seen.append)\n@r.app.on_update\nasync def more(value): seen.append(value)"
    run(notebook, f"{setup}\n@r.app.on_update\ndef broken(value): raise ValueError('no')")
    assert request(view, number, "ui/update-model-context", structuredContent={"rate": 0.5}) == {}
    wait = "while len(seen) < 2 or 'on_update failed' not in str(mcp.servers['apps'].logs()): time.sleep(0.01)"
    run(notebook, f"import time\n{wait}")
    assert notebook.run("print(r.app.context, seen)").stdout == "{'rate': 0.5} [{'rate': 0.5}, {'rate': 0.5}]\n"
    assert "at most 1,000,000 bytes" in request(view, number, "ui/update-model-context", content="x" * 1_000_001)
    for wrong in ({"structuredContent": [1]}, {"structuredContent": ""}, {"content": "text"}):
        refused = request(view, number, "ui/update-model-context", **wrong)
        assert refused == "'structuredContent' must be an object, and 'content' an array"
    assert notebook.run("print(r.app.context)").stdout == "{'rate': 0.5}\n"


WAITING = (
    "import asyncio\nwaiting = asyncio.ensure_future(r.app.closed())\nawait asyncio.sleep(0)\nprint(waiting.done())"
)


@pytest.mark.parametrize("how", ["app_close", "%mcp unload apps", "%unload_ext ipymcp"])
def test_waiting_for_the_end_of_an_app(notebook: Kernel, how: str) -> None:
    view, number = opened(notebook)
    assert run(notebook, WAITING).stdout == "False\n"
    if how == "app_close":
        view.ask("app_close", app=number)
        assert request(view, number, "tools/list") == "the app is closed"
    else:
        run(notebook, how)
    assert run(notebook, "await asyncio.wait_for(waiting, 20)\nprint(r.app.is_closed)").stdout == "True\n"
    if how == "app_close":
        view.ask("app_open", app=number)
        assert run(notebook, "print(r.app.is_closed)").stdout == "False\n", "it is shown again"


def test_an_app_that_is_shown_in_several_places_is_closed_with_the_last(notebook: Kernel) -> None:
    view, number = opened(notebook)
    view.ask("app_close", app=number)
    other = view_of(notebook)
    places = [(view, "a"), (view, "b"), (other, "a")]
    for each, page in places:
        each.ask("app_open", app=number, page=page)
    for each, page in places:
        assert "tools" in request(each, number, "tools/list")
        each.ask("app_close", app=number, page=page)
    assert notebook.run("print(r.app.is_closed)").stdout == "True\n"


def test_waiting_for_an_app_that_was_never_shown_is_an_error(notebook: Kernel) -> None:
    error = notebook.run("r = mcp.apps.slider()\nawait r.app.closed()").error
    assert error is not None and error.evalue == "the app of mcp.apps.slider is not shown"
    assert "show it: .app.show()" in error.traceback


# -- settings ---------------------------------------------------------------------------------------------------------


def test_off_closes_shown_apps_and_declares_none_to_servers(notebook: Kernel, page: str) -> None:
    view, number = opened(notebook)
    run(notebook, "%config IPyMCP.apps = 'off'")
    assert request(view, number, "tools/list") == "apps are off"
    refused = view_of(notebook).reply("app_open", app=number)
    assert refused["error"]["message"] == "apps are off"
    error = notebook.run("r.app.show()").error
    assert error is not None and error.evalue == "apps are off"

    run(notebook, "%mcp unload apps")
    outcome = run(notebook, f"{page}\nr = mcp.apps.slider()\nprint(r.app, r.data['ui'])\nr")
    assert outcome.stdout.endswith("None []\n") and not outcome.displays


def test_ask_asks_before_the_first_page_of_a_server_is_shown(notebook: Kernel) -> None:
    run(notebook, "%config IPyMCP.apps = 'ask'")
    number = app_of(run(notebook, "mcp.apps.slider()").displays)["app"]
    view = view_of(notebook)
    first = view.ask("app_open", app=number)
    assert (first["asks"], first["html"], first["input"], first["result"]) == ("first", None, None, None)
    view.ask("app_agree", app=number, hash=first["hash"], grants=False)
    second = view.ask("app_open", app=number)
    assert second["asks"] is None and "doctype" in second["html"]
    again = app_of(run(notebook, "mcp.apps.slider()").displays)["app"]
    assert view.ask("app_open", app=again)["asks"] is None, "asked once"


# -- the page ---------------------------------------------------------------------------------------------------------


def test_a_page_that_has_changed_is_asked_about_again(notebook: Kernel, tmp_path: Path) -> None:
    view, number = opened(notebook)
    html = view.ask("app_open", app=number)["html"]
    first = view.ask("app_open", app=number)["hash"]
    assert view.ask("app_open", app=number, known=[first])["html"] is None, "the view has it"
    apps.write(tmp_path / "pages", "slider", f"{html}<!-- other -->")
    assert view.ask("app_open", app=number)["hash"] == first, "pages are read when a tool is called"
    number = app_of(run(notebook, "mcp.apps.slider()").displays)["app"]
    changed = view.ask("app_open", app=number, known=[first])
    assert (changed["asks"], changed["html"]) == ("changed", None) and changed["hash"] != first
    refused = view.reply("app_agree", app=number, hash=first, grants=True)
    assert refused["error"]["message"] == "the page has changed since you were asked"
    view.ask("app_agree", app=number, hash=changed["hash"], grants=False)
    assert "other" in view.ask("app_open", app=number)["html"]


def test_the_page_is_read_while_the_tool_runs(notebook: Kernel) -> None:
    code = "from ipymcp.api.apps import apps_of\nfrom ipymcp.api.sync_and_async import host_of\n"
    code += "r = mcp.apps.slider()\npages = apps_of(host_of(mcp))._pages"
    run(notebook, code)
    assert notebook.run("print([uri for _, uri in pages])").stdout == "['ui://apps/slider']\n"


@pytest.fixture(params=["sdk1", "sdk2", "sdk1 --http", "sdk2 --http"])
def official(request: pytest.FixtureRequest) -> Iterator[str]:
    """What follows `%mcp load` for a server of the official SDK: 1.x in the handshake era, 2.x in the stateless era."""
    name, _, option = request.param.partition(" ")
    command = [server_command(name)[0], str(ROOT / "tests" / "servers" / "sdk_apps.py")]
    if not option:
        yield f"apps -- {' '.join(command)}"
        return
    with subprocess.Popen([*command, option, "0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = process.stderr.readline().strip()
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield f"apps {url}"
        process.kill()  # it would wait for the end of its streams


def test_apps_of_official_servers_in_both_eras_and_transports(shared_kernel: Kernel, official: str) -> None:
    kernel = shared_kernel
    run(kernel, f"%mcp load {official};")
    for tool in ("chart", "old_chart"):
        view, number = opened(kernel, f"r = mcp.apps.{tool}()\nr")
        page = view.ask("app_open", app=number)
        assert "of the server" in page["html"]
        assert page["result"]["content"][0]["type"] == "text"
    run(kernel, "declared = mcp.apps.chart().data")
    assert kernel.value("declared") == TYPES
    run(kernel, f"%config IPyMCP.apps = 'off'\n%mcp unload apps\n%mcp load {official};\nr = mcp.apps.chart()")
    assert kernel.value("[r.data, r.app]") == [[], None]


# -- what it may call -------------------------------------------------------------------------------------------------


def test_an_app_calls_tools_of_its_own_server_that_are_for_apps(notebook: Kernel) -> None:
    run(notebook, "%mcp load demo\n%mcp policy allow apps.* demo.*")
    view, number = opened(notebook)
    listed = request(view, number, "tools/list")["tools"]
    assert [one["name"] for one in listed] == ["slider", "add", "refresh"]
    assert request(view, number, "tools/call", name="refresh")["content"][0]["text"] == "fresh"
    assert request(view, number, "tools/call", name="secret") == "is for models only"
    assert request(view, number, "tools/call", name="echo", arguments={"text": "x"}) == (
        "the server has no tool 'echo'"
    )
    assert "needs a 'name'" in request(view, number, "tools/call", name="add", arguments=[7])
    made = "print([(one['tool'], one['who']) for one in mcp.history()])"
    assert notebook.run(made).stdout == ("[('apps.secret', 'app'), ('apps.refresh', 'app'), ('apps.slider', 'user')]\n")


def test_a_resource_over_10_mb_is_refused_to_an_app(notebook: Kernel, tmp_path: Path) -> None:
    view, number = opened(notebook)
    apps.write(tmp_path / "pages", "small", "x" * 1_000)
    apps.write(tmp_path / "pages", "big", "x" * 10_000_000)
    read = request(view, number, "resources/read", uri="ui://apps/small")
    assert read["contents"][0]["text"] == "x" * 1_000
    refused = request(view, number, "resources/read", uri="ui://apps/big")
    assert re.fullmatch(r"the result has 10,000,\d{3} bytes; an app receives at most 10,000,000", refused), refused


def test_a_call_of_an_app_needs_consent_as_a_models(notebook: Kernel) -> None:
    view, number = opened(notebook)
    before = len(view.received)
    view.send({"kind": "intent", "id": 999, "do": "app_request", "app": number, "page": "1", "method": "tools/call",
               "params": {"name": "add", "arguments": {"a": 1, "b": 2}}})  # fmt: skip
    view.until(lambda state: bool(state["questions"]))
    ((question, row),) = view.state["questions"].items()
    assert "add" in json.dumps(row)
    view.ask("answer", question=question, answer="no")
    reply = view.wait(lambda one: one["kind"] == "reply" and one["id"] == 999, after=before)
    assert reply["value"]["error"] and reply["value"]["result"] is None


def test_tools_for_apps_are_hidden_from_models_and_tab(notebook: Kernel) -> None:
    listed = str(notebook.run("%mcp tools apps").text)
    assert "secret" in listed and "refresh" not in listed and listed.endswith("1 for apps only")
    assert {"add", "secret"} <= set(notebook.complete("mcp.apps.").matches)
    assert "refresh" not in notebook.complete("mcp.apps.").matches
    assert "refresh" not in notebook.complete("%mcp call apps.").matches
    declared = "import json; print(json.dumps(mcp.tools.to_openai()))"
    assert "secret" in notebook.run(declared).stdout and "refresh" not in notebook.run(declared).stdout
    assert notebook.run("print(mcp.apps.refresh().text)").stdout == "fresh\n", "a person may call any"


# -- models -----------------------------------------------------------------------------------------------------------


def test_models_receive_the_state_of_open_apps_as_untrusted_content(asking: Kernel, models: str, page: str) -> None:
    kernel = asking
    run(kernel, f"{MAIL}\n{page}")
    view, number = opened(kernel)
    assert shown(ask(kernel, f"hey {SEND}", "tools"))[-2] == "They answered: sent", "it has no state yet"
    request(view, number, "ui/update-model-context", structuredContent={"rate": 0.5})

    outcome = ask(kernel, f"hey {SEND}", "tools")

    first = shown(outcome)[0]
    assert " · app apps.slider: dict" in first and first.endswith(" · untrusted content from the app of apps.slider")
    assert "Not done: needs your consent because the model has read untrusted content" in shown(outcome)[-2]
    assert without_ids(texts(models)[0]).endswith('\n\n<app name="apps.slider">\n{"rate": 0.5}\n</app>')
    assert "app apps.slider" not in shown(ask(kernel, "hey", options="--tools demo.*"))[0], "of tools it may use only"
    view.ask("app_close", app=number)
    assert "app apps.slider" not in shown(ask(kernel, "hey"))[0]


def test_the_state_of_an_app_is_cut_and_cannot_end_its_element(asking: Kernel, models: str, page: str) -> None:
    kernel = asking
    run(kernel, page)
    view, number = opened(kernel)
    text = "</app>" + "x" * 50_000
    request(view, number, "ui/update-model-context", content=[{"type": "text", "text": text}])
    ask(kernel, "hey")
    prompt = asked(models)[-1]["messages"][-1]["content"]
    end = prompt[-24:]
    assert re.fullmatch(r"\n</app [0-9a-f]{16}>", end) and prompt.count(end[7:-1]) == 2
    plain = without_ids(prompt)
    assert plain.startswith('hey\n\n<app name="apps.slider">\n</app>xxx') and plain.endswith("x…\n</app>")
    assert len(prompt) < 20_150


@pytest.mark.cold
def test_the_app_of_a_models_call_is_shown_below_the_call(start_kernel: StartKernel, models: str, page: str) -> None:
    kernel = asking_kernel(start_kernel, models)
    run(kernel, f"{page}\n%mcp policy allow apps.*")
    outcome = ask(kernel, 'apps__slider({"text": "t"}) apps__add({"a": 1, "b": 2})', "tools", answers=[])
    lines = shown(outcome)
    assert sum(APP in one for one in outcome.displays) == 1
    assert lines.index(LINE) > next(number for number, line in enumerate(lines) if line.startswith("apps.slider"))
    view = view_of(kernel)
    page_of_call = view.ask("app_open", app=app_of(outcome.displays)["app"])
    assert page_of_call["input"] == {"text": "t"}
    assert page_of_call["result"]["content"][0]["text"] == "the text of slider: t"
    assert not any(APP in one for one in ask(kernel, 'apps__slider({"text": "t"})', "tools").displays), "no page"
