"""Permissions of a view in each mode, tested by raw messages: the kernel enforces them, whatever a page sends."""

import asyncio
import json
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from ipymcp import Mcp
from ipymcp.config.config_files import from_mapping
from ipymcp.config.definition import Source
from ipymcp.interaction.elicitation import FormQuestion, InputQuestion, UrlQuestion
from ipymcp.interaction.questions import (
    ApprovalQuestion,
    Candidate,
    LoginQuestion,
    Question,
    SamplingQuestion,
    TrustAnswer,
    TrustQuestion,
    WantedCall,
)
from ipymcp.notebook import call_code
from ipymcp.panel.commands import COMMANDS
from ipymcp.panel.panel import Panel, PanelContext
from ipymcp.runtime.host import Host
from tests.environments import server_command
from tests.panel.notebooks import NAMED, Notebook, Open, command, named
from tests.panels import DirectView, Message

ALL = ("once", "answer", "server", "notebook", "always", "never", "no")
FORM: dict[str, Any] = {"type": "object", "properties": {"password": {"type": "string", "format": "password"}}}
CANDIDATE = Candidate("theirs", ("run: ./theirs",), (), ("gh",))
CALL = WantedCall("demo", "query", {}, "model", "ask *", "")

TRUST = TrustQuestion("/project/mcp.json", "belongs to a project", (CANDIDATE,))
LOGIN = LoginQuestion(
    "far", "https://example.com/authorize", "example.com", (), threading.Event(), "far.example", "example.com"
)
PASTE = LoginQuestion("far", "https://example.com/authorize", "example.com", (), None, "far.example", "example.com")
QUESTIONS: dict[str, Question[Any]] = {
    "trust": TRUST,
    "login": LOGIN,
    "login whose address is pasted": PASTE,
    "values of a definition": InputQuestion("far", None, "mcp.json asks for a value", FORM),
    "form of a server": FormQuestion("far", None, "Who are you?", FORM),
    "visit": UrlQuestion("demo", "query", "Come", "https://example.com/"),
    "approval": ApprovalQuestion((CALL,), ALL),
    "sampling": SamplingQuestion((CALL,), ALL),
}
IN_RUN = {"form", "approval", "sampling"}
EVERY_ANSWER: list[Message] = [
    {"servers": ["theirs"], "secrets": [["theirs", "gh"]]},
    {"action": "accept", "content": {"password": "x", "address": "http://127.0.0.1/?code=1"}},
    *({"answer": answer} for answer in ALL),
]


def ask(notebook: Notebook, name: str) -> Future[Any]:
    host = notebook.mcp._host
    return asyncio.run_coroutine_threadsafe(host.questions.ask(QUESTIONS[name]), host.loop.loop)


def opened_question(view: DirectView) -> Message:
    view.until(lambda state: bool(state["questions"]))
    [row] = view.state["questions"].values()
    return row


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("mode", ["view", "run"])
def test_a_question_goes_only_to_views_that_may_answer_its_kind(opened: Open, mode: str, name: str) -> None:
    notebook = opened()
    question = QUESTIONS[name]
    notebook.mode = mode
    view = notebook.view()
    answer = ask(notebook, name)
    if mode == "run" and question.kind in IN_RUN:
        assert opened_question(view)["kind"] == question.kind
        view.leave()
        assert answer.result(10) == question.withdrawn
    else:
        assert answer.result(10) == question.unanswered
    assert mode == "run" or not any(one["set"].get("questions") for one in view.of_kind("patch"))


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_message_answers_a_question_of_a_kind_that_the_mode_does_not_have(opened: Open, name: str) -> None:
    notebook = opened()
    full, older = notebook.view(), notebook.view(version=2)
    answer = ask(notebook, name)
    number = opened_question(full)["id"]
    kind = QUESTIONS[name].kind
    views = [older]
    if kind not in IN_RUN:  # the mode is another now, and the views have not been told yet
        notebook.mode = "run"
        views.append(full)
    for view in views:
        for message in EVERY_ANSWER:
            reply = view.reply("answer", question=number, **message)
            assert reply["error"]["type"] == "PolicyError", (message, reply)
    assert not answer.done()
    notebook.mode = "full"
    full.leave()
    assert answer.result(10) == QUESTIONS[name].withdrawn


def test_the_reason_names_the_kind_and_the_mode(opened: Open) -> None:
    notebook = opened()
    view = notebook.view()
    answer = ask(notebook, "trust")
    number = opened_question(view)["id"]
    notebook.mode = "run"
    error = view.reply("answer", question=number, servers=["theirs"])["error"]
    assert error["message"] == "this panel may not answer a question of trust: its mode is run"
    notebook.mode = "full"
    view.ask("answer", question=number, servers=["theirs"], secrets=[["theirs", "gh"]])
    assert answer.result(10) == TrustAnswer(frozenset({"theirs"}), frozenset({("theirs", "gh")}))


@pytest.mark.parametrize("name", ["approval", "sampling"])
def test_in_run_no_answer_outlasts_the_answer_of_a_model(opened: Open, name: str) -> None:
    notebook = opened()
    notebook.mode = "run"
    view = notebook.view()
    answer = ask(notebook, name)
    row = opened_question(view)
    assert row["answers"] == ["once", "answer", "no"]
    for lasting in ("server", "notebook", "always", "never"):
        reply = view.reply("answer", question=row["id"], answer=lasting)
        assert reply["error"]["message"] == "the answer must be one of once, answer, no"
    assert not answer.done()
    view.ask("answer", question=row["id"], answer="once")
    assert answer.result(10) == "once"


def test_a_question_that_no_view_may_answer_any_more_is_answered_by_nobody(opened: Open) -> None:
    notebook = opened()
    view = notebook.view()
    trust = ask(notebook, "trust")
    opened_question(view)
    notebook.mode = "run"
    notebook.panel.send_mode()
    assert trust.result(10) is None
    view.until(lambda state: not state["questions"])

    form = ask(notebook, "form of a server")
    number = opened_question(view)["id"]
    view.ask("answer", question=number, action="decline")
    assert form.result(10).action == "decline"


# -- servers that start at their first use ----------------------------------------------------------------------------

USES: list[tuple[str, Message]] = [
    ("call", {"tool": "echo", "arguments": {"text": "a"}}),
    ("resources", {}),
    ("read", {"uri": "demo://notes.md"}),
    ("prompts", {}),
    ("prompt", {"prompt": "describe", "arguments": {"species": "Adelie"}}),
]


@pytest.mark.parametrize(("verb", "fields"), USES)
def test_in_run_no_use_of_a_lazy_server_starts_one_that_needs_an_agreement(
    tmp_path: Path, verb: str, fields: Message
) -> None:
    source = Source(scope="project", file=str(tmp_path / ".mcp.json"), folder=str(tmp_path))
    [definition] = from_mapping({"theirs": command(*server_command("demo"))}).values()
    definition = definition.replace(source=source, lazy=True)
    known = Mcp(Host())
    trust = known._host.guard.trust
    known._host.loop.run(trust.agree_to_typed(definition))
    known._host.loop.run(known._host.load([definition]))
    known._host.loop.run(known._host.sessions["theirs"].resources.refresh("resources", "templates", "prompts"))
    known._host.loop.run(trust.revoke("theirs"))
    known.close()

    lazy = Mcp(Host())
    lazy._host.loop.run(lazy._host.load([definition]))
    session = lazy._host.sessions["theirs"]
    assert session.is_lazy and session.catalog.tools
    notebook = Notebook(lazy)
    notebook.mode = "run"
    try:
        view = notebook.view()
        error = view.reply(verb, server="theirs", **fields)["error"]
        assert (error["type"], error["message"]) == ("PolicyError", "needs trust, which this panel may not grant")
        assert session.is_lazy and session.pid is None and not view.state["questions"]

        lazy._host.loop.run(lazy._host.guard.trust.agree_to_typed(definition))
        assert view.reply(verb, server="theirs", **fields)["ok"]
        view.until(lambda state: state["servers"]["theirs"]["state"] == "ready")
    finally:
        lazy.close()


# -- visitors ---------------------------------------------------------------------------------------------------------


def visited(notebook: Notebook) -> DirectView:
    """The view of a stranger, as Voilà has them."""
    notebook.mode = "run"
    context = PanelContext(lambda: notebook.mode, lambda: "mcp", "one life", call_code, has_visitors=True)
    notebook.panel = Panel(notebook.mcp, context, COMMANDS)
    return notebook.view()


def test_visitors_are_shown_nothing_of_the_machine(opened: Open, tmp_path: Path) -> None:
    secret_place = tmp_path / "private" / "server.py"
    broken = command(sys.executable, str(secret_place))
    notebook = opened(own=command(*server_command("misbehaving")), theirs=named({"name": "a"}))
    notebook.mcp.load({"broken": broken}, wait=False)
    view = visited(notebook)
    assert view.of_kind("hello")[0]["visitor"] is True
    view.until(lambda state: state["servers"].get("broken", {}).get("state") == "error", 60)
    for row in view.state["servers"].values():
        assert (row["where"], row["source"], row["pid"]) == ("", "", None)
    error = view.state["servers"]["broken"]["error"]
    assert error == {"message": "This server cannot be used now.", "hint": None, "type": None}

    assert view.call("theirs", "a", path="x")["preview"]["variable"] is None
    died = view.call("own", "die")
    assert died["error"] == {"message": "This server cannot be used now.", "hint": None, "type": "ServerError"}
    failed = view.ask("history", outcome="failed")[0]
    assert (failed["error"], failed["notebook"], failed["cell"]) == ("failed", "", None)
    refused: list[tuple[str, Message]] = [("logs", {"on": True}), ("code", {"tool": "a", "form": "python"})]
    refused += [
        ("protocol", {"on": True}),
        ("repeat_code", {"row": failed["id"]}),
        ("keep_result", {"row": failed["id"]}),
    ]
    for verb, fields in refused:
        error = view.reply(verb, server="theirs", **fields)["error"]
        assert error == {"message": f"this panel may not {verb}", "hint": None, "type": "PolicyError"}
    heard = json.dumps(view.heard)
    for private in (str(tmp_path), sys.executable, NAMED, "Traceback"):
        assert private not in heard


def test_visitors_to_whom_everything_is_allowed_see_everything(opened: Open) -> None:
    notebook = opened(theirs=named({"name": "a"}))
    view = visited(notebook)
    notebook.mode = "full"
    notebook.panel.send_mode()
    view.until(lambda state: NAMED in state["servers"]["theirs"]["where"])
    assert view.of_kind("hello")[-1]["visitor"] is False
