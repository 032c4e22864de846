"""The panel's side in the kernel, without a kernel: what views are shown, and what they may do. Real servers."""

import asyncio
import base64
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ipymcp
from ipymcp import Mcp, ToolResult
from ipymcp.interaction.elicitation import CANCELLED, ElicitationAnswer, UrlQuestion
from ipymcp.interaction.questions import A, LoginQuestion, Question
from ipymcp.masking import masks
from ipymcp.panel.messages import Preview, PreviewImage
from ipymcp.panel.rows import preview
from ipymcp.runtime.host import Host
from ipymcp.runtime.question_routing import QuestionHandle
from ipymcp.text import visible
from tests.environments import ROOT, server_command
from tests.panel.notebooks import NAMED, Notebook, Open, command, named, quiet
from tests.panels import DirectView, Message

HOSTILE = "<img src=x onerror=alert(1)>\u202e"
RAW_ASKS = str(ROOT / "tests" / "servers" / "raw_asks.py")
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
ASK_FORM = {"method": "elicitation/create", "params": FORM}


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_hello_is_answered_by_hello_and_a_snapshot(demo: Notebook) -> None:
    view = DirectView(demo.panel)
    hello = view.hello()

    version = ipymcp.__version__
    life = {"mode": "full", "namespace": "mcp", "kernel": "one life", "control": False, "visitor": False}
    assert hello == {"kind": "hello", "version": 1, "ipymcp": version, **life}
    view.until(
        lambda state: all(state["servers"]["demo"][kind] for kind in ("prompts", "resources"))
    )  # listed because somebody looks
    row = view.state["servers"]["demo"]
    assert time.time() - 60 < row.pop("since") < time.time()
    assert row.pop("pid") == demo.mcp.servers["demo"].pid
    assert row.pop("where").startswith(sys.executable)
    assert row.pop("tools_version") > 0
    assert row.pop("instructions").startswith("A server to try MCP on.")
    assert row == {
        **{"name": "demo", "alias": "demo", "state": "ready", "lazy": False, "transport": "stdio"},
        **{
            "protocol": "2026-07-28",
            "version": "1.0.0",
            "source": "this notebook",
            "own": False,
            "calls": 0,
            "tools": 5,
            "resources": 3,
        },
        **{"prompts": 1, "disabled_tools": 0, "error": None, "missing": None, "starting": None},
        "capabilities": ["completions", "logging", "prompts", "resources", "tools"],
    }


def test_a_change_is_a_patch_and_nothing_is_sent_while_nothing_changes(demo: Notebook) -> None:
    view = demo.view()
    quiet(view)
    before = len(view.heard)

    quiet(view, 1.5)
    assert len(view.heard) == before, view.heard[before:]

    demo.mcp.stop("demo")
    view.until(lambda state: state["servers"]["demo"]["state"] == "stopped")
    assert {one["kind"] for one in view.heard[before:]} == {"patch"}


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
    began = time.monotonic()
    while time.monotonic() - began < 1.5:
        own.mcp.own.echo("again")
    quiet(view)

    assert 2 <= len(view.of_kind("patch")) <= 10 * (time.monotonic() - began)
    assert view.state["servers"]["own"]["calls"] > 100


def test_a_server_that_comes_and_one_that_goes_are_seen(demo: Notebook) -> None:
    view = demo.view()
    demo.mcp.load({"second": named({"name": "a"})})
    view.until(lambda state: state["servers"].get("second", {}).get("state") == "ready")
    demo.mcp.unload("demo")
    view.until(lambda state: [*state["servers"]] == ["second"])


def test_a_card_hears_of_its_own_server_alone(opened: Open) -> None:
    notebook = opened(one=named({"name": "a"}), other=named({"name": "b"}))
    card = notebook.view(server="one")
    notebook.mcp.stop("other")
    notebook.mcp.stop("one")
    card.until(lambda state: state["servers"]["one"]["state"] == "stopped")
    assert [*card.state["servers"]] == ["one"]


def test_a_call_that_runs_is_shown_with_its_progress(own: Notebook) -> None:
    view = own.view()
    call = own.mcp.own.progress.submit(interval=0.05, count=0)
    view.until(lambda state: any(row["progress"] for row in state["calls"].values()))
    row = view.state["calls"][str(call.number)]

    assert row["progress"]["message"].startswith("step ")
    assert (row["server"], row["tool"], row["origin"], row["cell"]) == ("own", "progress", "user", None)
    call.cancel()
    view.until(lambda state: not state["calls"])


def test_secrets_are_masked_and_strangers_text_is_made_visible(opened: Open) -> None:
    masks.add("hunter2-hunter2")
    tool = {"name": "a", "description": f"{HOSTILE} hunter2-hunter2", "title": HOSTILE}
    secret = '{"name": "b", "title": "sk-abcdefghijklmnop0123456789"}'
    notebook = opened(own=command(sys.executable, NAMED, json.dumps(tool), secret))
    view = notebook.view()
    row = view.ask("tools", server="own")[0]

    assert row["description"] == "<img src=x onerror=alert(1)>⟨U+202E⟩ [secret]"
    assert row["title"] == "<img src=x onerror=alert(1)>⟨U+202E⟩"
    assert "•••• (29 characters)" in view.state["servers"]["own"]["where"]
    assert "hunter2-hunter2" not in json.dumps(view.heard)


def test_why_a_server_does_not_run_is_shown_with_the_hint(opened: Open) -> None:
    notebook = opened()
    notebook.mcp.load({"gone": {"command": "/no/such/program"}}, wait=False)
    view = notebook.view()
    view.until(lambda state: state["servers"].get("gone", {}).get("state") == "error")
    error = view.state["servers"]["gone"]["error"]
    assert (error["type"], error["message"]) == (
        "CommandNotFound",
        "there is no program '/no/such/program' (looked for /no/such/program)",
    )
    assert error["hint"]


# -- what may be done -------------------------------------------------------------------------------------------------


def test_servers_are_stopped_started_disabled_and_unloaded(demo: Notebook) -> None:
    view = demo.view()
    for verb, state in [("stop", "stopped"), ("start", "ready"), ("disable", "disabled"), ("enable", "ready")]:
        view.ask(verb, server="demo")
        view.until(lambda now, state=state: now["servers"]["demo"]["state"] == state)
    view.ask("restart", server="demo")
    view.ask("stop_all")
    view.until(lambda now: now["servers"]["demo"]["state"] == "stopped")
    view.ask("start_all")
    view.until(lambda now: now["servers"]["demo"]["state"] == "ready")
    before = view.state["servers"]["demo"]["pid"]
    view.ask("restart_all")
    view.until(lambda now: now["servers"]["demo"]["pid"] not in (None, before))
    view.ask("unload", server="demo")
    view.until(lambda now: not now["servers"])
    assert view.ask("load", what=["demo"]) is None
    view.until(lambda now: now["servers"].get("demo", {}).get("state") == "ready")


def test_tools_are_disabled_for_calls_and_enabled_again(demo: Notebook) -> None:
    view = demo.view()
    query, echo, unknown = [{"server": "demo", "tool": name} for name in ("query", "echo", "kwery")]
    assert not view.reply("disable_tools", tools=[echo, unknown])["ok"]
    assert not view.ask("tool", **echo)["disabled"], "all or none"
    view.ask("disable_tools", tools=[query, echo])
    view.until(lambda state: state["servers"]["demo"]["disabled_tools"] == 2)
    view.ask("enable_tools", tools=[echo])
    assert view.ask("tool", server="demo", tool="query")["disabled"]
    view.until(lambda state: state["servers"]["demo"]["disabled_tools"] == 1)
    refused = view.reply("call", server="demo", tool="query", arguments={"table": "penguins"})
    assert refused["error"] == {
        "message": "is disabled",
        "hint": "press Enable",
        "type": "PolicyError",
    }
    view.ask("enable_tools", tools=[query])
    assert view.call("demo", "query", table="penguins", limit=1)["ok"]


def test_names_are_what_they_are_whatever_they_look_like(opened: Open) -> None:
    server, tool = "<b>a[1].*</b>", f"x[2]* {HOSTILE}"
    notebook = opened(**{server: named({"name": tool}, {"name": "x2"}), "other": named({"name": tool})})
    view = notebook.view()
    assert set(view.state["servers"]) == {server, "other"}
    assert {one["name"] for one in view.ask("tools", server=server)} == {tool, "x2"}
    shown = view.call(server, tool, path="x")["preview"]["json"]
    assert shown == {"tool": visible(tool), "arguments": {"path": "x"}}

    view.ask("disable_tools", tools=[{"server": server, "tool": tool}])
    off = {(one["server"], one["name"]) for one in view.ask("tools") if one["disabled"]}
    assert off == {(server, tool)}
    view.ask("stop", server=server)
    view.until(lambda state: state["servers"][server]["state"] == "stopped")
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


def test_an_image_is_previewed_as_one(demo: Notebook) -> None:
    shown = demo.view().call("demo", "plot")["preview"]
    assert '<img src="data:image/png;base64,' in shown["html"]  # with the text beside it
    assert (shown["image"], shown["truncated"]) == (None, False)
    [image] = demo.mcp.demo.plot().images
    alone = {"content": [{"type": "image", "data": image.base64, "mimeType": "image/jpeg"}]}
    result = ToolResult(json.dumps(alone).encode(), server="demo", tool="plot")
    assert preview(result, None).image == PreviewImage(mime="image/png", data=image.base64)
    alone["content"][0]["data"] = base64.b64encode(image.data + bytes(4_000_000)).decode()
    result = ToolResult(json.dumps(alone).encode(), server="demo", tool="plot")
    assert (preview(result, None).image, preview(result, None).truncated) == (None, True)


def test_of_a_large_result_a_part_is_shown_and_all_is_kept(own: Notebook) -> None:
    view = own.view()
    result = view.call("own", "big", megabytes=20)
    assert (result["preview"]["truncated"], len(result["preview"]["text"])) == (True, 50_000)
    assert result["preview"]["size"] > 20_000_000
    assert len(own.mcp.results[result["call"]].text) == 20_000_000
    assert view.call("own", "big", megabytes=20, kind="rows")["preview"]["json"] is None
    assert max(view.sizes) < 400_000


def test_what_is_no_json_is_sent_as_json(opened: Open) -> None:
    notebook = opened(own=command(*server_command("misbehaving", "taint=nan,surrogate")))
    preview = notebook.view().call("own", "echo", text="x")["preview"]
    assert preview["json"] == {"value": None}


def test_a_call_is_cancelled(own: Notebook) -> None:
    view = own.view()
    number = view.ask("call", server="own", tool="sleep", arguments={"seconds": 60})["call"]
    view.until(lambda state: str(number) in state["calls"])
    assert view.state["calls"][str(number)]["origin"] == "panel"
    view.ask("cancel", call=number)
    result = view.wait(lambda one: one["kind"] == "result")
    assert result["error"] == {"message": f"call {number} was cancelled", "hint": None, "type": "CallCancelled"}
    assert view.reply("cancel", call=number)["error"]["message"] == f"no call {number} is running"


def test_a_call_that_is_cancelled_while_the_user_is_asked_closes_the_question_and_is_not_made(own: Notebook) -> None:
    own.mcp.policy.ask("own.echo")
    view = own.view()
    number = view.ask("call", server="own", tool="echo", arguments={"text": "x"})["call"]
    view.until(lambda state: types(state) == ["approve"])
    view.ask("cancel", call=number)
    result = view.wait(lambda one: one["kind"] == "result")
    assert (result["call"], result["error"]["type"]) == (number, "CallCancelled")
    view.until(lambda state: not state["questions"])
    assert own.mcp._host.sessions["own"].calls == 0


@pytest.mark.parametrize("is_map", [False, True])
def test_awaited_calls_that_are_cancelled_while_the_user_is_asked_close_it(own: Notebook, is_map: bool) -> None:
    own.mcp.policy.ask("own.echo")
    view, echo = own.view(), own.mcp.own.echo

    async def main() -> None:
        running = asyncio.ensure_future(echo.map.aio(["a", "b"]) if is_map else echo.aio("a"))
        await asyncio.to_thread(view.until, lambda state: types(state) == ["approve"])
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    view.until(lambda state: not state["questions"])
    assert own.mcp._host.sessions["own"].calls == 0


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_question_of_a_call_is_closed_with_the_call(opened: Open, era: str) -> None:
    notebook = opened(raw={**command(sys.executable, RAW_ASKS), "era": era})
    view = notebook.view()
    if era == "legacy":
        call = notebook.mcp.raw.ask.submit(requests=[ASK_FORM])
    else:
        call = notebook.mcp.raw.need.submit(result={"resultType": "input_required", "inputRequests": {"who": ASK_FORM}})
    view.until(lambda state: bool(state["questions"]))
    assert call.cancel()
    view.until(lambda state: not state["questions"])


def test_a_call_whose_server_asks_waits_for_an_answer(opened: Open) -> None:
    notebook = opened(raw={**command(sys.executable, RAW_ASKS), "era": "legacy"})
    view = notebook.view()
    call = notebook.mcp.raw.ask.submit(requests=[ASK_FORM])
    view.until(lambda state: [row["waits"] for row in state["calls"].values()] == [True])
    [question] = view.state["questions"].values()
    assert view.ask("answer", question=question["id"], action="decline") is None
    call.result(30)


def test_arguments_are_validated_all_at_once(demo: Notebook) -> None:
    view = demo.view()
    wrong = view.ask("validate", server="demo", tool="query", arguments={"limit": "many"})
    assert wrong == {
        "errors": [
            {"path": ["limit"], "message": "expected integer, got 'many'"},
            {"path": ["table"], "message": "is missing"},
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
    described = next(one for one in view.ask("prompts", server="demo") if one["name"] == "describe")
    assert described["arguments"][0]["required"]
    shown = view.ask("prompt", server="demo", prompt="describe", arguments={"species": "Gentoo"})
    assert shown["text"].startswith("user: ")
    assert "Gentoo" in str(eval(shown["variable"], {"mcp": demo.mcp}))


def test_the_server_suggests_values_for_arguments_of_prompts_and_parameters_of_templates(demo: Notebook) -> None:
    view = demo.view()
    assert view.ask("suggest", server="demo", prompt="describe", argument="species", typed="g") == ["Gentoo"]
    [template] = view.ask("resources", server="demo")["templates"]
    [parameter] = template["parameters"]
    asked = {"server": "demo", "template": template["template"], "argument": parameter["name"]}
    assert view.ask("suggest", **asked, typed="", others={"other": "x"}) == ["Adelie", "Chinstrap", "Gentoo"]
    assert view.ask("suggest", server="demo", prompt="unknown", argument="species") == []


def test_the_memory_of_a_server_is_measured_when_asked_for(demo: Notebook) -> None:
    memory = demo.view().ask("memory", server="demo")
    assert memory["processes"] >= 1
    assert 1_000_000 < memory["bytes"] < 1_000_000_000


# -- questions --------------------------------------------------------------------------------------------------------


def asked(view: DirectView, question: Callable[[], Any]) -> tuple[Future[Any], Message]:
    """Ask in a thread, and give what the view is shown."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(question)
    pool.shutdown(wait=False)
    view.until(lambda state: bool(state["questions"]))
    return future, next(iter(view.state["questions"].values()))


def asking(demo: Notebook, question: Question[A]) -> QuestionHandle[A]:
    return demo.panel.questions.begin(question, None, lambda: None)


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


def test_a_login_waits_for_the_browser_to_come_back(demo: Notebook) -> None:
    view, back = demo.view(), threading.Event()
    future, question = asked(view, asking(demo, login(back)).answer)
    assert (question["type"], question["url"]) == ("visit", "https://example.com/authorize?x=1")
    assert question["message"] == (
        "Log in at example.com, for the server at mcp.example.com; the answer goes to token.example.com.\n\n"
        "It may then: read, write"
    )
    view.ask("answer", question=question["id"], action="accept")
    view.until(lambda state: types(state) == ["wait"])
    back.set()
    assert future.result(10) == ""
    view.until(lambda state: not state["questions"])


def test_a_browser_that_comes_back_ends_a_login_whether_or_not_the_panel_opened_it(demo: Notebook) -> None:
    view, back = demo.view(), threading.Event()
    future, _ = asked(view, asking(demo, login(back)).answer)
    back.set()
    assert future.result(10) == ""
    view.until(lambda state: not state["questions"])


def test_a_pasted_address_with_a_slip_is_asked_for_again(demo: Notebook) -> None:
    view = demo.view()
    future, question = asked(view, asking(demo, login(None)).answer)
    view.ask("answer", question=question["id"], action="accept")
    view.until(lambda state: types(state) == ["fill"])
    first = next(iter(view.state["questions"].values()))
    view.ask("answer", question=first["id"], action="accept", content={"address": "https://example.com/cb"})
    view.until(lambda state: bool(set(state["questions"]) - {first["id"]}))
    second = next(iter(view.state["questions"].values()))
    assert second["message"] == "The answer contains no code. Paste the whole address that the browser ended at."
    view.ask("answer", question=second["id"], action="accept", content={"address": "https://example.com/cb?code=1"})
    assert future.result(10) == "https://example.com/cb?code=1"


def types(state: dict[str, dict[str, Any]]) -> list[str]:
    return [one["type"] for one in state["questions"].values()]


def ask(demo: Notebook, question: Question[Any]) -> Future[Any]:
    host = demo.mcp._host
    return asyncio.run_coroutine_threadsafe(host.questions.ask(question), host.loop.loop)


def test_a_login_that_waits_for_its_browser_holds_up_no_other_question(demo: Notebook) -> None:
    view = demo.view()
    abandoned = ask(demo, login(threading.Event()))
    view.until(lambda state: types(state) == ["visit"])
    view.ask("answer", question=next(iter(view.state["questions"])), action="accept")
    view.until(lambda state: types(state) == ["wait"])
    other = ask(demo, login(threading.Event()))
    view.until(lambda state: types(state) == ["wait", "visit"])
    waiting, visit = view.state["questions"]
    view.ask("answer", question=visit, action="cancel")
    assert other.result(10) is None
    assert not abandoned.done()
    view.ask("answer", question=waiting, action="cancel")
    assert abandoned.result(10) is None
    view.until(lambda state: not state["questions"])


def test_a_question_that_was_withdrawn_before_it_is_asked_is_not_asked(demo: Notebook) -> None:
    view = demo.view()
    late = asking(demo, UrlQuestion("far", "tool", "Come", "https://example.com/"))
    late.withdraw()
    assert late.answer() == CANCELLED
    late_login = asking(demo, login(threading.Event()))
    late_login.withdraw()
    assert late_login.answer() is None
    view.ask("tools")
    assert not view.state["questions"]


def test_a_question_that_is_open_when_the_loop_is_stopped_does_not_start_it_anew(opened: Open) -> None:
    notebook = opened()
    view, loop = notebook.view(), notebook.mcp._host.loop
    ask(notebook, login(None))
    view.until(lambda state: types(state) == ["visit"])
    loop.stop()
    assert not loop.is_running
    assert not notebook.panel.shown.rows["questions"]


def test_a_login_without_a_way_back_wants_the_address(demo: Notebook) -> None:
    view = demo.view()
    future, question = asked(view, asking(demo, login(None)).answer)
    view.ask("answer", question=question["id"], action="accept")
    view.until(lambda state: types(state) == ["fill"])
    [pasted] = view.state["questions"]
    assert view.ask("answer", question=pasted, action="accept", content={})["errors"]
    view.ask("answer", question=pasted, action="accept", content={"address": "http://127.0.0.1/?code=1"})
    assert future.result(10) == "http://127.0.0.1/?code=1"


def test_a_login_and_a_visit_may_be_refused(demo: Notebook) -> None:
    view = demo.view()
    future, question = asked(view, asking(demo, login(None)).answer)
    view.ask("answer", question=question["id"], action="cancel")
    assert future.result(10) is None
    visit = UrlQuestion("far", "tool", f"Please {HOSTILE}", "https://example.com/")
    view.until(lambda state: not state["questions"])
    future, question = asked(view, asking(demo, visit).answer)
    assert question["message"] == "Please <img src=x onerror=alert(1)>⟨U+202E⟩"
    assert (question["title"], question["domain"]) == ("far.tool asks you to visit example.com", "example.com")
    view.ask("answer", question=question["id"], action="decline")
    assert future.result(10) == ElicitationAnswer("decline")


def test_with_the_last_view_goes_the_question(demo: Notebook) -> None:
    view = demo.view()
    future, _ = asked(view, asking(demo, login(None)).answer)
    view.leave()
    assert future.result(10) is None


# -- what a notebook used before ---------------------------------------------------------------------------------------


def test_a_notebook_is_offered_what_it_used_and_no_other_is(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"files": named({"name": "a"}), "other": named({"name": "b"})}}))
    path = str(tmp_path / "one.ipynb")

    def used(notebook: str, *loads: Any, unload: Sequence[str] = ()) -> Message:
        mcp = Mcp(Host(notebook=notebook))
        try:
            for each in loads:
                mcp.load(*each, wait=False, trust=True)
            mcp.unload(*unload)
            view = Notebook(mcp).view()
            return view.ask("used")
        finally:
            mcp.close()

    assert used(path) == {"names": [], "what": [], "line": "", "typed": []}
    typed = {"typed": named({"name": "c"})}
    assert used(path, ["demo"], [str(file)], [typed])["names"] == [], "what is loaded is not offered"
    offered = used(path)
    assert offered["names"] == ["demo", "files", "other", "typed"]
    assert offered["what"] == ["demo", str(file), "files", "other"], "what was typed in a cell, its cell loads"
    assert offered["line"] == f"%mcp load demo {file} files other"
    assert offered["typed"] == ["typed"]
    assert used(str(tmp_path / "renamed.ipynb"))["names"] == []
    assert used(path, ["demo"], unload=["demo"])["names"] == ["files", "other", "typed"]


# -- modes, and what is no message ------------------------------------------------------------------------------------

VERBS = {
    "view": {"logs", "tools", "tool", "history", "details"},
    "run": {"call", "cancel", "validate", "code", "resources", "read", "prompts", "prompt", "suggest"}
    | {"answer", "refresh", "repeat", "repeat_code", "keep_result"},
    "full": {"start", "stop", "restart", "unload", "start_all", "stop_all", "enable", "disable", "trust", "login"}
    | {"load", "known", "memory", "protocol", "restart_all", "enable_tools", "disable_tools", "set_value", "used"},
}


@pytest.mark.parametrize("mode", ["view", "run", "full"])
def test_the_kernel_enforces_the_mode(demo: Notebook, mode: str) -> None:
    demo.mode = mode
    view = demo.view()
    allowed = {"view": VERBS["view"], "run": VERBS["view"] | VERBS["run"], "full": set().union(*VERBS.values())}[mode]

    for verb in set().union(*VERBS.values()):
        reply = view.reply(verb)  # without any field: what is let through is refused for that, or harmless
        refused = not reply["ok"] and reply["error"]["type"] == "PolicyError"
        assert refused == (verb not in allowed), (verb, reply)
        if refused:
            assert reply["error"]["message"] == f"this panel may not {verb}: its mode is {mode}"
            assert reply["error"]["hint"] == 'in a cell: %config IPyMCP.panel = "full" allows it'


def test_another_mode_counts_at_once_and_is_told(demo: Notebook) -> None:
    view = demo.view()
    demo.mode = "view"
    demo.panel.send_mode()
    view.wait(lambda one: one["kind"] == "hello" and one["mode"] == "view")
    assert view.reply("stop", server="demo")["error"]["type"] == "PolicyError"


def test_a_view_of_another_version_may_only_look(demo: Notebook) -> None:
    view = demo.view(version=2)
    assert view.of_kind("hello")[0]["mode"] == "view"
    error = view.reply("stop", server="demo")["error"]
    assert error["type"] == "PolicyError"
    assert error["hint"] == "panel and kernel are of different versions: upgrade the older one"
    assert view.ask("tools")


def test_a_hello_of_another_version_may_have_other_fields_and_one_of_ours_may_not(demo: Notebook) -> None:
    view = demo.view(version=2, wants={"servers": True}, server=7)
    assert (view.of_kind("hello")[0]["mode"], [*view.state["servers"]]) == ("view", ["demo"])
    ours = DirectView(demo.panel)
    ours.send({"kind": "hello", "version": 1, "client": "cell", "wants": {"servers": True}})
    error = ours.wait(lambda one: one["kind"] == "reply")["error"]
    assert error["message"] == "'hello' is malformed: Expected `array | null`, got `object` - at `$.wants`"


def test_who_may_not_answer_sees_no_questions(demo: Notebook) -> None:
    view, other = demo.view(), demo.view(version=2)
    future, question = asked(view, asking(demo, login(threading.Event())).answer)
    assert other.ask("tools")  # it has heard of all that came before
    assert other.state["questions"] == {}
    view.ask("answer", question=question["id"], action="cancel")
    assert future.result(10) is None


@pytest.mark.parametrize("message", [None, 7, "hello", [], [{"kind": "hello"}]])
def test_what_is_no_object_is_answered_by_an_error(demo: Notebook, message: object) -> None:
    view = demo.view()
    view.send(message)
    reply = view.wait(lambda one: one["kind"] == "reply")
    fault = {"message": "a message is a JSON object", "hint": None, "type": "Malformed"}
    assert reply == {"kind": "reply", "id": None, "ok": False, "error": fault}


@pytest.mark.parametrize(
    ("verb", "fields", "said"),
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
def test_a_malformed_intent_is_answered_and_the_panel_lives_on(
    demo: Notebook, verb: Any, fields: Message, said: str
) -> None:
    view = demo.view()
    reply = view.reply(verb, **fields)
    assert (reply["ok"], reply["error"]["message"]) == (False, said)
    assert view.ask("tools")


@pytest.mark.parametrize(
    ("number", "kind"), [(None, "null"), ("7", "str"), (True, "bool"), (1.5, "float"), ([1], "array")]
)
def test_an_intent_without_a_number_is_answered_without_one(demo: Notebook, number: object, kind: str) -> None:
    view = demo.view()
    view.send({"kind": "intent", "id": number, "do": "tools"})
    reply = view.wait(lambda one: one["kind"] == "reply")
    fault = {
        "message": f"'intent' is malformed: Expected `int`, got `{kind}` - at `$.id`",
        "hint": None,
        "type": "Malformed",
    }
    assert reply == {"kind": "reply", "id": None, "ok": False, "error": fault}


def test_unknown_kinds_and_fields_are_ignored(demo: Notebook) -> None:
    view = demo.view()
    view.send({"kind": "wave", "id": 1})
    assert view.ask("tools", colour="red")
    assert len(view.of_kind("reply")) == 1
