"""Permissions of a view in each mode, tested by raw messages: the kernel enforces them, whatever a page sends."""

import contextlib
import json
import sys
import threading
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
from ipymcp.runtime.host import Host
from tests.panel.notebooks import DEMO, NAMED, OWN, Notebook, OpenNotebook, command, named
from tests.panels import Message

ALL = ("once", "answer", "server", "notebook", "always", "never", "no")
FORM: dict[str, Any] = {"type": "object", "properties": {"password": {"type": "string", "format": "password"}}}
CANDIDATE = Candidate("theirs", "will run `theirs` in this folder.", ("Command     ./theirs",), (), ("gh",))
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


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("mode", ["view", "run"])
def test_a_question_goes_only_to_views_that_may_answer_its_kind(
    open_notebook: OpenNotebook, mode: str, name: str
) -> None:
    notebook = open_notebook()
    question = QUESTIONS[name]
    notebook.mode = mode
    view = notebook.view()
    answer = notebook.ask(QUESTIONS[name])
    if mode == "run" and question.kind in IN_RUN:
        assert view.question()["kind"] == question.kind
        view.leave()
        assert answer.result(10) == question.withdrawn
    else:
        assert answer.result(10) == question.unanswered
    assert mode == "run" or not any(one["set"].get("questions") for one in view.of_kind("patch"))


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_message_answers_a_question_that_the_mode_does_not_allow(open_notebook: OpenNotebook, name: str) -> None:
    notebook = open_notebook()
    full, older = notebook.view(), notebook.view(version=2)
    answer = notebook.ask(QUESTIONS[name])
    number = full.question()["id"]
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


def test_the_reason_names_the_kind_and_the_mode(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook()
    view = notebook.view()
    answer = notebook.ask(TRUST)
    question = view.question()
    notebook.mode = "run"
    error = view.reply("answer", question=question["id"], servers=["theirs"])["error"]
    assert error["message"] == "this panel may not answer a question of trust: its mode is run"
    notebook.mode = "full"
    view.answer(question, servers=["theirs"], secrets=[["theirs", "gh"]])
    assert answer.result(10) == TrustAnswer(frozenset({"theirs"}), frozenset({("theirs", "gh")}))


@pytest.mark.parametrize("name", ["approval", "sampling"])
def test_in_run_no_decision_lasts_longer_than_the_answer_of_a_model(open_notebook: OpenNotebook, name: str) -> None:
    notebook = open_notebook()
    notebook.mode = "run"
    view = notebook.view()
    answer = notebook.ask(QUESTIONS[name])
    row = view.question()
    assert row["answers"] == ["once", "answer", "no"]
    for lasting in ("server", "notebook", "always", "never"):
        reply = view.reply("answer", question=row["id"], answer=lasting)
        assert reply["error"]["message"] == "the answer must be one of once, answer, no"
    assert not answer.done()
    view.answer(row, answer="once")
    assert answer.result(10) == "once"


def test_a_question_that_no_view_may_answer_any_more_ends_unanswered(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook()
    view = notebook.view()
    trust = notebook.ask(TRUST)
    view.question()
    notebook.mode = "run"
    notebook.panel.send_mode()
    assert trust.result(10) is None
    view.until_no_question()

    form = notebook.ask(QUESTIONS["form of a server"])
    view.answer(view.question(), action="decline")
    assert form.result(10).action == "decline"


# -- servers that start at their first use ----------------------------------------------------------------------------

USES: dict[str, Message] = {
    "call": {"tool": "echo", "arguments": {"text": "a"}},
    "resources": {},
    "read": {"uri": "demo://notes.md"},
    "prompts": {},
    "prompt": {"prompt": "describe", "arguments": {"species": "Adelie"}},
}


def test_in_run_no_use_of_a_lazy_server_starts_one_that_needs_trust(tmp_path: Path) -> None:
    source = Source(scope="project", file=str(tmp_path / ".mcp.json"), folder=str(tmp_path))
    [definition] = from_mapping({"theirs": DEMO}).values()
    definition = definition.replace(source=source, lazy=True)
    with contextlib.closing(Mcp(Host())) as earlier:
        host = earlier._host
        host.loop.run(host.guard.trust.agree_to_typed(definition))
        host.loop.run(host.load([definition]))
        host.loop.run(host.sessions["theirs"].resources.refresh("resources", "templates", "prompts"))
        host.loop.run(host.guard.trust.revoke("theirs"))

    for verb, fields in USES.items():
        with contextlib.closing(Mcp(Host())) as lazy:
            host = lazy._host
            host.loop.run(host.load([definition]))
            session = host.sessions["theirs"]
            assert session.is_lazy and session.catalog.tools
            notebook = Notebook(lazy)
            notebook.mode = "run"
            view = notebook.view()
            error = view.reply(verb, server="theirs", **fields)["error"]
            assert (error["type"], error["message"]) == ("PolicyError", "needs trust, which this panel may not grant")
            assert session.is_lazy and session.pid is None and not view.state["questions"]

            host.loop.run(host.guard.trust.agree_to_typed(definition))
            assert view.reply(verb, server="theirs", **fields)["ok"], verb
            view.until_server("theirs", "ready")
            host.loop.run(host.guard.trust.revoke("theirs"))


# -- visitors ---------------------------------------------------------------------------------------------------------


def test_visitors_are_shown_nothing_of_the_machine(open_notebook: OpenNotebook, tmp_path: Path) -> None:
    secret_place = tmp_path / "private" / "server.py"
    broken = command(sys.executable, str(secret_place))
    notebook = open_notebook(own=OWN, theirs=named({"name": "a"}))
    notebook.mcp.load({"broken": broken}, wait=False)
    view = notebook.visitor()
    assert view.of_kind("hello")[0]["visitor"] is True
    view.until_server("broken", "error", 60)
    for row in view.state["servers"].values():
        assert (row["where"], row["source"], row["pid"]) == ("", "", None)
    error = view.state["servers"]["broken"]["error"]
    assert error == {"message": "This server cannot be used now.", "hint": None, "type": None}

    assert view.call("theirs", "a", path="x")["preview"]["variable"] is None
    died = view.call("own", "die")
    assert died["error"] == {"message": "This server cannot be used now.", "hint": None, "type": "ServerError"}
    failed = view.ask("history", outcome="failed")[0]
    assert (failed["error"], failed["notebook"], failed["cell"]) == ("failed", "", None)
    refused: dict[str, Message] = {"logs": {"on": True}, "code": {"tool": "a", "form": "python"}}
    refused |= {"protocol": {"on": True}, "repeat_code": {"row": failed["id"]}, "keep_result": {"row": failed["id"]}}
    for verb, fields in refused.items():
        error = view.reply(verb, server="theirs", **fields)["error"]
        assert error == {"message": f"this panel may not {verb}", "hint": None, "type": "PolicyError"}
    received = json.dumps(view.received)
    for private in (str(tmp_path), sys.executable, NAMED, "Traceback"):
        assert private not in received


def test_visitors_with_full_permissions_see_everything(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(theirs=named({"name": "a"}))
    view = notebook.visitor()
    notebook.mode = "full"
    notebook.panel.send_mode()
    view.until(lambda state: NAMED in state["servers"]["theirs"]["where"])
    assert view.of_kind("hello")[-1]["visitor"] is False
