"""The panel's side in the kernel, without a kernel: what views are shown, and what they may do. Real servers."""

import asyncio
import base64
import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

import ipymcp
from ipymcp import Mcp, ToolResult
from ipymcp.interaction.elicitation import CANCELLED, ElicitationAnswer, FormQuestion, UrlQuestion
from ipymcp.interaction.questions import A, LoginQuestion, Question
from ipymcp.masking import masks
from ipymcp.panel.results import Preview, PreviewImage, preview
from ipymcp.runtime.host import Host
from ipymcp.runtime.question_routing import QuestionHandle
from ipymcp.text import visible
from tests.environments import ROOT, server_command
from tests.panel.notebooks import DEMO, HOSTILE, NAMED, Notebook, OpenNotebook, command, named
from tests.panels import DirectView, Message

RAW_ASKS = command(sys.executable, str(ROOT / "tests" / "servers" / "raw_asks.py"))
SDK2_ASKS = command(server_command("sdk2")[0], str(ROOT / "tests" / "servers" / "sdk_asks.py"))
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
ASK_FORM = {"method": "elicitation/create", "params": FORM}


# -- what is shown ----------------------------------------------------------------------------------------------------


def until_listed(view: DirectView) -> Message:
    """Wait until the demo server's row counts its prompts and resources, which are listed once a view is open."""
    view.until(lambda state: all(state["servers"]["demo"][kind] for kind in ("prompts", "resources")))
    return view.state["servers"]["demo"]


def test_hello_is_answered_by_hello_and_a_snapshot(open_notebook: OpenNotebook) -> None:
    demo = open_notebook(demo=DEMO)
    view = DirectView(demo.panel)
    hello = view.hello()

    version = ipymcp.__version__
    life = {"mode": "full", "namespace": "mcp", "kernel": "one life", "control": False, "visitor": False}
    assert hello == {"kind": "hello", "version": 1, "ipymcp": version, **life}
    row = until_listed(view)
    assert time.time() - 60 < row.pop("since") < time.time()
    assert row.pop("pid") == demo.mcp.servers["demo"].pid
    assert row.pop("where").startswith(sys.executable)
    assert row.pop("tools_version") > 0
    assert row.pop("instructions").startswith("A server to try MCP on.")
    assert row == {
        **{"name": "demo", "alias": "demo", "state": "ready", "lazy": False, "transport": "stdio"},
        **{"protocol": "2026-07-28", "version": "1.0.0", "source": "this notebook", "own": False},
        **{"calls": 0, "tools": 5, "resources": 3, "prompts": 1, "disabled_tools": 0},
        **{"error": None, "missing": None, "starting": None, "has_icon": False},
        "capabilities": ["completions", "logging", "prompts", "resources", "tools"],
    }


def test_a_change_is_a_patch_and_nothing_is_sent_while_nothing_changes(demo: Notebook) -> None:
    view = demo.view()
    until_listed(view)
    view.settle()
    before = len(view.received)
    for _ in range(5):
        view.settle()
    assert len(view.received) == before, view.received[before:]

    demo.mcp.policy.deny("demo.query")
    view.listen(lambda: len(view.received) > before, 30)
    view.settle()
    assert {message["kind"] for message in view.received[before:]} == {"patch"}


def test_a_start_shows_its_attempt_its_seconds_and_the_last_line_that_was_written(own: Notebook) -> None:
    view = own.view()
    code = "import sys; print('no database', file=sys.stderr, flush=True); sys.exit(3)"
    loading = ThreadPoolExecutor(1).submit(own.mcp.load, {"weak": {"command": sys.executable, "args": ["-c", code]}})

    def is_retried(state: Any) -> bool:
        starting = state["servers"].get("weak", {}).get("starting")
        return bool(starting and starting["attempt"] == 2 and starting["line"] == "no database")

    view.until(is_retried)
    starting = view.state["servers"]["weak"]["starting"]
    assert starting["attempts"] == 4
    assert time.time() - 30 < starting["since"] < time.time()
    own.mcp.unload("weak")
    loading.exception(10)


def test_patches_come_at_most_ten_times_a_second(own: Notebook) -> None:
    view = own.view()
    before = view.state["servers"]["own"]["calls"]
    began = time.monotonic()
    while len(view.of_kind("patch")) < 3 or view.state["servers"]["own"]["calls"] <= before + 100:
        own.mcp.own.echo("again")
        view.listen(view.taken.empty, 30)
    assert len(view.of_kind("patch")) <= 10 * (time.monotonic() - began) + 1


def test_a_panel_shows_servers_that_come_and_go_and_a_card_its_own_alone(demo: Notebook) -> None:
    view, card = demo.view(), demo.view(server="second")
    demo.mcp.load({"second": named({"name": "a"})})
    view.until_server("second", "ready")
    demo.mcp.policy.deny("demo.query")
    demo.mcp.stop("second")
    card.until_server("second", "stopped")
    card.settle()
    shown = [message["state"]["servers"] for message in card.of_kind("snapshot")]
    shown += [message["set"].get("servers", {}) for message in card.of_kind("patch")]
    assert set().union(*shown) == {"second"}
    demo.mcp.unload("second")
    view.until(lambda state: [*state["servers"]] == ["demo"])


def test_a_running_call_is_shown_with_its_progress(own: Notebook) -> None:
    view = own.view()
    call = own.mcp.own.progress.submit(interval=0.05, count=0)
    view.until(lambda state: any(row["progress"] for row in state["calls"].values()))
    row = view.state["calls"][str(call.number)]

    assert row["progress"]["message"].startswith("step ")
    assert (row["server"], row["tool"], row["origin"], row["cell"]) == ("own", "progress", "user", None)
    call.cancel()
    view.until(lambda state: not state["calls"])


def test_secrets_are_masked_and_strangers_text_is_made_visible(open_notebook: OpenNotebook) -> None:
    masks.add("hunter2-hunter2")
    tool = {"name": "a", "description": f"{HOSTILE} hunter2-hunter2", "title": HOSTILE}
    secret = '{"name": "b", "title": "sk-abcdefghijklmnop0123456789"}'
    view = open_notebook(own=command(sys.executable, NAMED, json.dumps(tool), secret)).view()
    row = view.ask("tools", server="own")[0]

    assert row["description"] == "<img src=x onerror=alert(1)>⟨U+202E⟩ [secret]"
    assert row["title"] == "<img src=x onerror=alert(1)>⟨U+202E⟩"
    assert "•••• (29 characters)" in view.state["servers"]["own"]["where"]
    assert "hunter2-hunter2" not in json.dumps(view.received)


def test_why_a_server_does_not_run_is_shown_with_the_hint(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook()
    notebook.mcp.load({"gone": {"command": "/no/such/program"}}, wait=False)
    view = notebook.view()
    view.until_server("gone", "error")
    error = view.state["servers"]["gone"]["error"]
    assert (error["type"], error["message"]) == (
        "CommandNotFound",
        "There is no program '/no/such/program' (looked for /no/such/program)",
    )
    assert error["hint"]


# -- what may be done -------------------------------------------------------------------------------------------------


def test_servers_are_stopped_started_disabled_and_unloaded(open_notebook: OpenNotebook) -> None:
    view = open_notebook(demo=DEMO).view()
    for verb, state in [("stop", "stopped"), ("start", "ready"), ("disable", "disabled"), ("enable", "ready")]:
        view.ask(verb, server="demo")
        view.until_server("demo", state)
    view.ask("restart", server="demo")
    view.ask("stop_all")
    view.until_server("demo", "stopped")
    view.ask("start_all")
    view.until_server("demo", "ready")
    before = view.state["servers"]["demo"]["pid"]
    view.ask("restart_all")
    view.until(lambda now: now["servers"]["demo"]["pid"] not in (None, before))
    view.ask("unload", server="demo")
    view.until(lambda now: not now["servers"])
    assert view.ask("load", what=["demo"]) is None
    view.until_server("demo", "ready")


def test_tools_are_disabled_for_calls_and_enabled_again(demo: Notebook) -> None:
    view = demo.view()
    query, echo, unknown = [{"server": "demo", "tool": name} for name in ("query", "echo", "kwery")]
    assert not view.reply("disable_tools", tools=[echo, unknown])["ok"]
    assert not view.ask("tool", **echo)["disabled"], "all or none"
    view.ask("disable_tools", tools=[query, echo])
    view.until(lambda state: state["servers"]["demo"]["disabled_tools"] == 2)
    view.ask("enable_tools", tools=[echo])
    row = view.ask("tool", **query)
    assert (row["disabled"], row["decision"]) == (True, "allow"), "a tool that is switched off keeps its decision"
    view.until(lambda state: state["servers"]["demo"]["disabled_tools"] == 1)
    refused = view.reply("call", server="demo", tool="query", arguments={"table": "penguins"})
    assert refused["error"] == {"message": "is disabled", "hint": "choose Enable", "type": "PolicyError"}
    view.ask("enable_tools", tools=[query])
    row = view.ask("tool", **query)
    assert (row["disabled"], row["decision"]) == (False, "allow")
    assert view.call("demo", "query", table="penguins", limit=1)["ok"]


def test_names_are_compared_as_they_are_whatever_they_look_like(open_notebook: OpenNotebook) -> None:
    server, tool = "<b>a[1].*</b>", f"x[2]* {HOSTILE}"
    notebook = open_notebook(**{server: named({"name": tool}, {"name": "x2"}), "other": named({"name": tool})})
    view = notebook.view()
    assert set(view.state["servers"]) == {server, "other"}
    assert {row["name"] for row in view.ask("tools", server=server)} == {tool, "x2"}
    shown = view.call(server, tool, path="x")["preview"]["json"]
    assert shown == {"tool": visible(tool), "arguments": {"path": "x"}}

    view.ask("disable_tools", tools=[{"server": server, "tool": tool}])
    off = {(row["server"], row["name"]) for row in view.ask("tools") if row["disabled"]}
    assert off == {(server, tool)}
    view.ask("stop", server=server)
    view.until_server(server, "stopped")
    assert view.state["servers"]["other"]["state"] == "ready"


def test_a_call_gives_its_number_at_once_and_its_result_later(demo: Notebook) -> None:
    view = demo.view()
    result = view.call("demo", "query", table="penguins", limit=2)
    shown = result["preview"]

    assert (shown["json"]["count"], shown["truncated"], shown["image"]) == (2, False, None)
    assert (shown["html"], shown["table"]["result"], shown["table"]["page"]["total"]) == (None, result["call"], 2)
    assert shown["variable"] == f"mcp.results[{result['call']}]"
    assert demo.mcp.results[result["call"]].data["count"] == 2
    assert view.ask("history", words="demo.")[0]["tool"] == "query"


def test_a_result_is_previewed_by_what_a_cell_shows_of_it() -> None:
    def shown(*parts: Message) -> Preview:
        return preview(ToolResult(json.dumps({"content": parts}).encode(), server="fs", tool="read"), None)

    rendered = shown({"type": "text", "text": "# Birds\n\n- *one*\n- two\n\n![x](http://elsewhere.example/x.png)"})
    assert rendered.html is None
    assert rendered.markdown is not None
    assert rendered.markdown.startswith("# Birds")
    assert "![" not in rendered.markdown, "a picture from elsewhere would be loaded"
    assert not shown({"type": "text", "text": "plain"}).markdown
    link = {"type": "resource_link", "uri": "https://x.example/a", "name": "a"}
    listed = shown(link, {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"})
    assert listed.html is not None and listed.html.count("https://x.example/a") == 1 and "<audio" in listed.html
    assert listed.links == []


def test_an_image_is_previewed_as_an_image(demo: Notebook) -> None:
    shown = demo.view().call("demo", "plot")["preview"]
    assert '<img src="data:image/png;base64,' in shown["html"]  # with the text beside it
    assert (shown["image"], shown["truncated"]) == (None, False)
    [image] = demo.mcp.demo.plot().images

    def alone(data: str) -> Preview:
        content = {"content": [{"type": "image", "data": data, "mimeType": "image/jpeg"}]}
        return preview(ToolResult(json.dumps(content).encode(), server="demo", tool="plot"), None)

    assert alone(image.base64).image == PreviewImage(mime="image/png", data=image.base64)
    large = alone(base64.b64encode(image.data + bytes(4_000_000)).decode())
    assert (large.image, large.truncated) == (None, True)


def test_a_part_of_a_large_result_is_shown_and_all_is_kept(own: Notebook) -> None:
    view = own.view()
    result = view.call("own", "big", megabytes=20)
    assert (result["preview"]["truncated"], len(result["preview"]["text"])) == (True, 50_000)
    assert result["preview"]["size"] > 20_000_000
    assert len(own.mcp.results[result["call"]].text) == 20_000_000
    assert view.call("own", "big", megabytes=20, kind="rows")["preview"]["json"] is None
    assert max(view.sizes) < 400_000


def test_a_result_that_is_not_json_is_sent_as_json(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(own=command(*server_command("misbehaving", "taint=nan,surrogate")))
    preview = notebook.view().call("own", "echo", text="x")["preview"]
    assert preview["json"] == {"value": None}


def test_a_call_is_cancelled(own: Notebook) -> None:
    view = own.view()
    number = view.ask("call", server="own", tool="sleep", arguments={"seconds": 60})["call"]
    view.until(lambda state: str(number) in state["calls"])
    assert view.state["calls"][str(number)]["origin"] == "panel"
    view.ask("cancel", call=number)
    result = view.wait(lambda message: message["kind"] == "result")
    assert result["error"] == {"message": "cancelled by you in the panel", "hint": None, "type": "CallCancelled"}
    assert view.reply("cancel", call=number)["error"]["message"] == f"no call {number} is running"


@pytest.mark.parametrize("way", ["a call of the panel", "an awaited call", "an awaited map"])
def test_a_call_that_is_cancelled_while_the_user_is_asked_closes_the_question_and_is_not_made(
    own: Notebook, way: str
) -> None:
    own.mcp.policy.ask("own.echo")
    view, echo, session = own.view(), own.mcp.own.echo, own.host.sessions["own"]
    before = session.calls

    async def cancel() -> None:
        running = asyncio.ensure_future(echo.map.aio(["a", "b"]) if way == "an awaited map" else echo.aio("a"))
        await asyncio.to_thread(view.question, "approve")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    if way == "a call of the panel":
        number = view.ask("call", server="own", tool="echo", arguments={"text": "x"})["call"]
        view.question("approve")
        view.ask("cancel", call=number)
        assert view.result(number)["error"]["type"] == "CallCancelled"
    else:
        asyncio.run(cancel())
    view.until_no_question()
    assert session.calls == before


def test_a_question_of_a_call_is_answered_or_closed_with_the_call(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(legacy={**RAW_ASKS, "era": "legacy"}, modern={**RAW_ASKS, "era": "modern"})
    view = notebook.view()
    needed = {"resultType": "input_required", "inputRequests": {"who": ASK_FORM}}
    for submit in (
        lambda: notebook.mcp.legacy.ask.submit(requests=[ASK_FORM]),
        lambda: notebook.mcp.modern.need.submit(result=needed),
    ):
        call = submit()
        view.question()
        assert call.cancel()
        view.until_no_question()

    call = notebook.mcp.legacy.ask.submit(requests=[ASK_FORM])
    view.until(lambda state: [row["waits"] for row in state["calls"].values()] == [True])
    assert view.answer(view.question(), action="decline") is None
    call.result(30)


def test_a_form_of_a_server_is_filled_in(open_notebook: OpenNotebook) -> None:
    view = open_notebook(asks=SDK2_ASKS).view()
    number = view.ask("call", server="asks", tool="ask_form", arguments={})["call"]
    question = view.question()
    title = "asks.ask_form asks for your input"
    assert (question["type"], question["server"], question["title"]) == ("fill", "asks", title)
    wrong = view.answer(question, action="accept", content={})
    assert {tuple(fault["path"]) for fault in wrong["errors"]} >= {("name",)}
    assert set(question["schema"]["properties"]) == {"name", "age"}
    assert view.answer(question, action="accept", content={"name": "Ada", "age": 36}) is None
    result = view.result(number)
    assert result["ok"], result
    assert "Ada" in result["preview"]["text"]
    view.until_no_question()
    assert view.reply("answer", question=question["id"], action="cancel")["error"]["type"] == "UnknownName"


def test_arguments_are_validated_all_at_once(demo: Notebook) -> None:
    view = demo.view()
    wrong = view.ask("validate", server="demo", tool="query", arguments={"limit": "many"})
    assert wrong == {
        "errors": [
            {"path": ["limit"], "message": "Expected integer, got 'many'"},
            {"path": ["table"], "message": "Required"},
        ]
    }
    assert view.ask("validate", server="demo", tool="query", arguments={"table": "penguins"}) == {"errors": []}
    refused = view.reply("call", server="demo", tool="query", arguments={"limit": 1})
    assert refused["error"]["type"] == "ArgumentError"


def test_resources_and_prompts_are_listed_and_read(demo: Notebook) -> None:
    view = demo.view()
    listed = view.ask("resources", server="demo")
    assert listed["resources"][0]["uri"] == "demo://penguins.csv"
    assert listed["templates"]
    read = view.ask("read", server="demo", uri="demo://penguins.csv")
    assert read["text"].startswith("species,")
    described = next(row for row in view.ask("prompts", server="demo") if row["name"] == "describe")
    assert described["arguments"][0]["required"]
    shown = view.ask("prompt", server="demo", prompt="describe", arguments={"species": "Gentoo"})
    assert shown["text"].startswith("user: ")
    assert "Gentoo" in str(eval(shown["variable"], {"mcp": demo.mcp}))


def test_the_server_suggests_values_for_arguments_of_prompts_and_parameters_of_templates(demo: Notebook) -> None:
    view = demo.view()
    assert view.ask("suggest", server="demo", prompt="describe", argument="species", typed="g") == ["Gentoo"]
    [template] = view.ask("resources", server="demo")["templates"]
    [parameter] = template["parameters"]
    subject = {"server": "demo", "template": template["template"], "argument": parameter["name"]}
    assert view.ask("suggest", **subject, typed="", others={"other": "x"}) == ["Adelie", "Chinstrap", "Gentoo"]
    assert view.ask("suggest", server="demo", prompt="unknown", argument="species") == []


def test_the_memory_of_a_server_is_measured_on_request(demo: Notebook) -> None:
    memory = demo.view().ask("memory", server="demo")
    assert memory["processes"] >= 1
    assert 1_000_000 < memory["bytes"] < 1_000_000_000


# -- questions --------------------------------------------------------------------------------------------------------


def asked(view: DirectView, question: Callable[[], Any]) -> tuple[Future[Any], Message]:
    """Ask in a thread; give the coming answer, and the question as the view shows it."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(question)
    pool.shutdown(wait=False)
    return future, view.question()


def asking(notebook: Notebook, question: Question[A]) -> QuestionHandle[A]:
    return notebook.panel.questions.begin(question, None, lambda: None)


def login(redirected: threading.Event | None) -> LoginQuestion:
    return LoginQuestion(
        "far",
        "https://example.com/authorize?x=1",
        "example.com",
        ("read", "write"),
        redirected,
        site="mcp.example.com",
        answer_to="token.example.com",
        paste_error=lambda address: "" if "code=" in address else "the answer contains no code",
    )


@pytest.mark.parametrize("is_opened", [True, False], ids=["opened by the panel", "opened elsewhere"])
def test_a_browser_that_comes_back_ends_a_login(demo: Notebook, is_opened: bool) -> None:
    view, back = demo.view(), threading.Event()
    future, question = asked(view, asking(demo, login(back)).answer)
    assert (question["type"], question["url"]) == ("visit", "https://example.com/authorize?x=1")
    assert question["message"] == (
        "Log in at example.com, for the server at mcp.example.com; the answer goes to token.example.com.\n\n"
        "It may then: read, write"
    )
    if is_opened:
        view.answer(question, action="accept")
        view.question("wait")
    back.set()
    assert future.result(10) == ""
    view.until_no_question()


def test_a_login_without_a_callback_asks_for_the_address_until_it_is_right(demo: Notebook) -> None:
    view = demo.view()
    future, question = asked(view, asking(demo, login(None)).answer)
    view.answer(question, action="accept")
    first = view.question("fill")
    assert view.answer(first, action="accept", content={})["errors"]
    view.answer(first, action="accept", content={"address": "https://example.com/cb"})
    view.until(lambda state: bool(set(state["questions"]) - {first["id"]}))
    second = view.question("fill")
    assert second["message"] == "The answer contains no code. Paste the whole address that the browser ended at."
    view.answer(second, action="accept", content={"address": "https://example.com/cb?code=1"})
    assert future.result(10) == "https://example.com/cb?code=1"


def test_a_login_that_waits_for_its_browser_holds_up_no_other_question(demo: Notebook) -> None:
    view = demo.view()
    abandoned = demo.ask(login(threading.Event()))
    view.answer(view.question("visit"), action="accept")
    view.question("wait")
    other = demo.ask(login(threading.Event()))
    view.until(lambda state: [row["type"] for row in state["questions"].values()] == ["wait", "visit"])
    waiting, visit = view.state["questions"].values()
    view.answer(visit, action="cancel")
    assert other.result(10) is None
    assert not abandoned.done()
    view.answer(waiting, action="cancel")
    assert abandoned.result(10) is None
    view.until_no_question()


def test_a_question_that_is_withdrawn_first_is_not_asked(demo: Notebook) -> None:
    view = demo.view()
    late = asking(demo, UrlQuestion("far", "tool", "Come", "https://example.com/"))
    late.withdraw()
    assert late.answer() == CANCELLED
    late_login = asking(demo, login(threading.Event()))
    late_login.withdraw()
    assert late_login.answer() is None
    view.settle()
    assert not any(message["set"].get("questions") for message in view.of_kind("patch"))


def test_a_question_that_is_open_when_the_loop_is_stopped_does_not_start_it_again(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook()
    view, loop = notebook.view(), notebook.host.loop
    notebook.ask(login(None))
    view.question("visit")
    loop.stop()
    assert not loop.is_running
    assert not notebook.panel.shown.rows["questions"]


def test_a_login_and_a_visit_may_be_refused(demo: Notebook) -> None:
    view = demo.view()
    future, question = asked(view, asking(demo, login(None)).answer)
    view.answer(question, action="cancel")
    assert future.result(10) is None
    visit = UrlQuestion("far", "tool", f"Please {HOSTILE}", "https://example.com/")
    view.until_no_question()
    future, question = asked(view, asking(demo, visit).answer)
    assert question["message"] == "Please <img src=x onerror=alert(1)>⟨U+202E⟩"
    assert (question["title"], question["domain"]) == ("far wants you to open example.com", "example.com")
    view.answer(question, action="decline")
    assert future.result(10) == ElicitationAnswer("decline")


def test_a_question_ends_with_the_last_view(demo: Notebook) -> None:
    view = demo.view()
    future, _ = asked(view, asking(demo, login(None)).answer)
    view.leave()
    assert future.result(10) is None


@pytest.mark.parametrize(
    ("format_", "wrong", "problem", "right"),
    [
        ("email", "nope", "Must be an email address", "a@example.com"),
        ("uri", "nope", "Must be an address, such as https://host/path", "https://example.com/a"),
        ("date", "28.7.2026", "Must be a date, such as 2026-07-28", "2026-07-28"),
        ("date-time", "2026-07-28", "Must be a timestamp, such as 2026-07-28T09:30:00Z", "2026-07-28T09:30:00Z"),
    ],
)
def test_the_format_of_a_value_is_checked_in_the_kernel(
    demo: Notebook, format_: str, wrong: str, problem: str, right: str
) -> None:
    view = demo.view()
    field = {"type": "string", "format": format_, "title": "Yours"}
    schema = {"type": "object", "properties": {"value": field}}
    answer = demo.ask(FormQuestion("far", None, "Please", schema))
    question = view.question()
    faults = view.answer(question, action="accept", content={"value": wrong})
    assert faults == {"errors": [{"path": ["value"], "message": problem}]}
    assert view.answer(question, action="accept", content={"value": right}) is None
    assert answer.result(10).content == {"value": right}


# -- what a notebook used before ---------------------------------------------------------------------------------------


def test_servers_are_offered_to_the_notebook_that_used_them_and_to_no_other(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"files": named({"name": "a"}), "other": named({"name": "b"})}}))
    path = str(tmp_path / "one.ipynb")

    def used(notebook: str, *loads: Any, unload: Sequence[str] = (), forget: Sequence[str] = ()) -> Message:
        mcp = Mcp(Host(notebook=notebook))
        try:
            for each in loads:
                mcp.load(*each, wait=False, trust=True)
            mcp.unload(*unload)
            view = Notebook(mcp).view()
            if forget:
                view.ask("forget", what=forget)
            return view.ask("used")
        finally:
            mcp.close()

    assert used(path) == {"names": [], "what": [], "line": "", "typed": []}
    typed = {"typed": named({"name": "c"})}
    assert used(path, ["demo"], [str(file)], [typed])["names"] == [], "what is loaded is not offered"
    offered = used(path)
    assert offered["names"] == ["demo", "files", "other", "typed"]
    assert offered["what"] == ["demo", "typed", str(file), "files", "other"], "what was typed in a cell comes back, too"
    assert offered["line"] == f"%mcp load demo typed {file} files other"
    assert offered["typed"] == []
    assert used(str(tmp_path / "renamed.ipynb"))["names"] == []
    assert used(path, ["demo"], unload=["demo"])["names"] == ["files", "other", "typed"]

    file.unlink()
    with contextlib.closing(Mcp(Host(notebook=path))) as mcp:
        mcp.policy.deny("typed.*")
        view = Notebook(mcp).view()
        missing = [{"name": name, "reason": ANY} for name in ("files", "other")]
        assert view.ask("restore") == {"servers": ["typed"], "rules": 1, "missing": missing}
        assert view.ask("used")["names"] == ["files", "other"]
        assert mcp.servers["typed"].state == "ready"
        view.ask("forget", what=["files", "typed"])
        assert view.ask("used")["names"] == ["other"]
    assert used(path)["names"] == ["other", "typed"], "what is loaded is not forgotten"


# -- modes, and malformed messages ------------------------------------------------------------------------------------

VERBS = {
    "view": {"logs", "tools", "tool", "icon", "history", "details"},
    "run": {"call", "cancel", "validate", "code", "resources", "read", "subscribe", "prompts", "prompt", "suggest"}
    | {"answer", "refresh", "repeat", "repeat_code", "keep_result", "rows", "row", "file"},
    "full": {"start", "stop", "restart", "unload", "start_all", "stop_all", "enable", "disable", "trust", "login"}
    | {"load", "known", "memory", "protocol", "restart_all", "enable_tools", "disable_tools", "set_value", "used"}
    | {"restore", "forget"}
    | {"registry", "search", "try", "pasted", "trial_progress", "keep", "drop", "definition", "remove", "load_file"},
}
REQUIRED = {"words": "x", "trial": 1, "keep": "me", "by": "command", "what": "x", "path": "x", "text": "x"}
"""Fields with which the commands that add a server would be carried out."""


@pytest.mark.parametrize("mode", ["view", "run", "full"])
def test_the_kernel_enforces_the_mode(open_notebook: OpenNotebook, mode: str) -> None:
    notebook = open_notebook()
    notebook.host.registry_address = "http://127.0.0.1:9"
    notebook.mode = mode
    view = notebook.view()
    every = set[str]().union(*VERBS.values())
    allowed = {"view": VERBS["view"], "run": VERBS["view"] | VERBS["run"], "full": every}[mode]

    for verb in every:
        # Without any field, what is let through is refused for that, or harmless.
        for fields in ({}, {**REQUIRED, "server": "x"})[: 1 if verb in allowed else 2]:
            reply = view.reply(verb, **fields)
            refused = not reply["ok"] and reply["error"]["type"] == "PolicyError"
            assert refused == (verb not in allowed), (verb, reply)
            if refused:
                assert reply["error"]["message"] == f"this panel may not {verb}: its mode is {mode}"
                assert reply["error"]["hint"] == 'in a cell: %config IPyMCP.panel = "full" allows it'


def test_another_mode_counts_at_once_and_is_sent_to_views(demo: Notebook) -> None:
    view = demo.view()
    demo.mode = "view"
    demo.panel.send_mode()
    view.wait(lambda message: message["kind"] == "hello" and message["mode"] == "view")
    assert view.reply("stop", server="demo")["error"]["type"] == "PolicyError"


def test_a_view_of_another_version_may_only_look_and_its_hello_may_have_other_fields(demo: Notebook) -> None:
    view = demo.view(version=2, wants={"servers": True}, server=7)
    assert (view.of_kind("hello")[0]["mode"], [*view.state["servers"]]) == ("view", ["demo"])
    error = view.reply("stop", server="demo")["error"]
    assert error["type"] == "PolicyError"
    assert error["hint"] == "panel and kernel are of different versions: upgrade the older one"
    assert view.ask("tools")

    ours = DirectView(demo.panel)
    ours.send({"kind": "hello", "version": 1, "client": "cell", "wants": {"servers": True}})
    error = ours.wait(lambda message: message["kind"] == "reply")["error"]
    assert error["message"] == "'hello' is malformed: Expected `array | null`, got `object` - at `$.wants`"


def test_a_view_that_may_not_answer_sees_no_questions(demo: Notebook) -> None:
    view, other = demo.view(), demo.view(version=2)
    future, question = asked(view, asking(demo, login(threading.Event())).answer)
    other.settle()
    assert other.state["questions"] == {}
    view.answer(question, action="cancel")
    assert future.result(10) is None


NOT_NUMBERS = [(None, "null"), ("7", "str"), (True, "bool"), (1.5, "float"), ([1], "array")]


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        *((text, "a message is a JSON object") for text in (None, 7, "hello", [], [{"kind": "hello"}])),
        *(
            ({"kind": "intent", "id": number, "do": "tools"}, f"'intent' is malformed: {expected}")
            for number, kind in NOT_NUMBERS
            for expected in [f"Expected `int`, got `{kind}` - at `$.id`"]
        ),
    ],
)
def test_a_malformed_message_is_answered_by_an_error(demo: Notebook, message: object, fault: str) -> None:
    view = demo.view()
    view.send(message)
    reply = view.wait(lambda answer: answer["kind"] == "reply")
    assert reply == {
        "kind": "reply", "id": None, "ok": False, "error": {"message": fault, "hint": None, "type": "Malformed"}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "fields", "message"),
    [
        ("fly", {}, "there is no verb 'fly'"),
        (["start"], {}, "there is no verb \"['start']\""),
        ("start", {}, "'start' is malformed: Object missing required field `server`"),
        ("start", {"server": "nobody"}, "there is no server 'nobody'"),
        ("start", {"server": {"a": 1}}, "'start' is malformed: Expected `str`, got `object` - at `$.server`"),
        ("start", {"server": "x" * 10_001}, "'start' is malformed: Expected `str` of length <= 10000 - at `$.server`"),
        ("tool", {"server": "demo", "tool": "nothing"}, "there is no tool 'nothing'"),
        (
            "call",
            {"server": "demo", "tool": "query", "arguments": [1]},
            "'call' is malformed: Expected `object`, got `array` - at `$.arguments`",
        ),
        ("load", {"what": "demo"}, "'load' is malformed: Expected `array`, got `str` - at `$.what`"),
        ("load", {"what": []}, "'load' is malformed: Expected `array` of length >= 1 - at `$.what`"),
        ("cancel", {"call": "all"}, "'cancel' is malformed: Expected `int`, got `str` - at `$.call`"),
        ("cancel", {"call": 10**9}, "no call 1000000000 is running"),
        (
            "code",
            {"server": "demo", "tool": "query", "form": "perl"},
            "'code' is malformed: Invalid enum value 'perl' - at `$.form`",
        ),
        ("logs", {"server": "demo", "on": "yes"}, "'logs' is malformed: Expected `bool`, got `str` - at `$.on`"),
        ("answer", {"question": "q7"}, "the question is no longer open"),
    ],
)
def test_a_malformed_intent_is_answered_and_the_panel_works_on(
    demo: Notebook, verb: Any, fields: Message, message: str
) -> None:
    view = demo.view()
    reply = view.reply(verb, **fields)
    assert (reply["ok"], reply["error"]["message"]) == (False, message)
    assert view.ask("tools")


def test_unknown_kinds_and_fields_are_ignored(demo: Notebook) -> None:
    view = demo.view()
    view.send({"kind": "wave", "id": 1})
    assert view.ask("tools", colour="red")
    assert len(view.of_kind("reply")) == 1
