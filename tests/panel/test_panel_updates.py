"""Updates of a panel, and its services for a page: history, templates, hints, words."""

import re
from typing import Any

import pytest

from ipymcp.errors import AuthError, CallError, CallTimeout, CommandNotFound, McpError, ServerStopped, TrustError
from ipymcp.panel.problems import panel_hint
from ipymcp.runtime.server_status import State
from tests.environments import ROOT, server_command
from tests.panel.notebooks import Notebook, OpenNotebook, command
from tests.panels import DirectView, Message
from tests.processes import wait_until

OFFERING = command(*server_command("offering"))


def newest(view: DirectView, after: int, **fields: Any) -> Message:
    """The newest row of the history, once the kernel says that there is one."""
    view.wait(lambda one: one["kind"] == "history", after=after)
    return view.ask("history", limit=1, **fields)[0]


def test_views_are_notified_of_every_call_that_has_ended(own: Notebook) -> None:
    view = own.view()
    before = len(view.received)
    own.mcp.own.echo("a")
    done = newest(view, before)
    assert (done["tool"], done["outcome"], done["error"]) == ("echo", "done", "")

    before = len(view.received)
    with pytest.raises(McpError):
        own.mcp.own.refuse(code=-32000, message="no", data=None)
    failed = newest(view, before)
    assert (failed["tool"], failed["outcome"]) == ("refuse", "failed")

    before = len(view.received)
    call = own.mcp.own.sleep.submit(60)
    view.until(lambda state: bool(state["calls"]))
    view.ask("cancel", call=call.number)
    cancelled = newest(view, before)
    assert (cancelled["tool"], cancelled["outcome"]) == ("sleep", "cancelled")
    assert done["id"] < failed["id"] < cancelled["id"]
    assert "sleep" not in {row["tool"] for row in view.ask("history", outcome="failed")}


def test_a_template_has_its_parameters_and_is_expanded_in_the_kernel(demo: Notebook) -> None:
    view = demo.view()
    [template] = view.ask("resources", server="demo")["templates"]
    assert template["parameters"] == [{"name": "species", "description": None, "required": True}]
    read = view.ask("read", server="demo", template=template["template"], arguments={"species": "Adelie"})
    assert "Adelie" in read["text"]
    missing = view.reply("read", server="demo", template=template["template"], arguments={})["error"]
    assert (missing["type"], missing["message"]) == ("ArgumentError", "missing argument 'species'")
    other = view.reply("read", server="demo", template="demo://{other}", arguments={"other": "x"})["error"]
    assert other["message"] == "there is no template 'demo://{other}'"
    odd = view.reply("read", server="demo", template=template["template"], arguments={"species": "a/b c"})["error"]
    assert "demo://penguins/a%2Fb%20c" in odd["message"]


def test_a_view_learns_that_a_resource_it_subscribed_to_has_changed(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(s=OFFERING)
    view = notebook.view()
    assert view.ask("resources", server="s")["subscribable"]
    note = {"server": "s", "uri": "note://a"}

    def updates(count: int | None) -> Message:
        return view.wait(lambda message: message["kind"] == "resource" and message["updates"] == count)

    view.ask("subscribe", **note, on=True)
    assert updates(0) == {"kind": "resource", **note, "updates": 0, "problem": None}
    notebook.mcp.s.write(uri="note://a", text="second")
    updates(1)
    kept = len(notebook.mcp.results)
    assert view.ask("read", **note, again=True)["text"] == "second"
    assert len(notebook.mcp.results) == kept

    view.ask("subscribe", **note, on=False)
    updates(None)
    subscriptions = notebook.host.sessions["s"].subscriptions
    wait_until(lambda: len(subscriptions) == 0)


def test_a_subscription_ends_with_the_server_the_mode_and_the_view(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(s=OFFERING)
    view = notebook.view()
    subscriptions = notebook.host.sessions["s"].subscriptions
    view.ask("subscribe", server="s", uri="note://a", on=True)
    assert len(subscriptions) == 1
    notebook.mode = "view"
    notebook.panel.send_mode()
    wait_until(lambda: len(subscriptions) == 0)
    assert view.reply("subscribe", server="s", uri="note://a", on=True)["error"]["type"] == "PolicyError"

    notebook.mode = "full"
    view.ask("subscribe", server="s", uri="note://a", on=True)
    view.send({"kind": "bye"})
    wait_until(lambda: len(subscriptions) == 0)

    other = notebook.view()
    other.ask("subscribe", server="s", uri="note://b", on=True)
    notebook.mcp.unload("s")
    other.wait(lambda message: message["kind"] == "resource" and message["updates"] is None)


def test_a_server_that_announces_no_changes_cannot_be_subscribed_to(open_notebook: OpenNotebook) -> None:
    view = open_notebook(s=command(*server_command("offering"), "silent")).view()
    assert not view.ask("resources", server="s")["subscribable"]
    error = view.reply("subscribe", server="s", uri="note://a", on=True)["error"]
    assert error["message"] == "does not announce changes of its resources"
    assert error["hint"] == "read the resource again instead"


def test_views_are_notified_of_every_change_in_a_list_of_tools(demo: Notebook) -> None:
    view = demo.view()
    view.until(lambda now: all(now["servers"]["demo"][kind] for kind in ("prompts", "resources")))
    view.settle()
    version = view.state["servers"]["demo"]["tools_version"]

    def decision() -> str:
        """A tool's row, after the view has learned that the list is stale."""
        nonlocal version
        view.until(lambda now: now["servers"]["demo"]["tools_version"] != version)
        version = view.state["servers"]["demo"]["tools_version"]
        return next(row["decision"] for row in view.ask("tools", server="demo") if row["name"] == "query")

    demo.mcp.policy.ask("demo.query")
    assert decision() == "ask"
    demo.mcp.policy.deny("demo.*")
    assert decision() == "deny"
    demo.mcp.policy.reset()
    assert decision() == "allow"
    demo.mcp.disable("demo.query")
    demo.mcp.enable("demo.query")
    decision()

    view.settle()
    calls = view.state["servers"]["demo"]["calls"]
    demo.mcp.demo.echo("a")
    view.until(lambda now: now["servers"]["demo"]["calls"] == calls + 1)
    assert view.state["servers"]["demo"]["tools_version"] == version, "a call changes nothing of them"


HINTS: list[tuple[McpError, str | None]] = [
    (
        TrustError("no", hint="%mcp start evil asks for it, or set IPYMCP_TRUST=1 where no one can be asked"),
        "choose Trust…",
    ),
    (AuthError("no", hint="%mcp start docs asks again"), "choose Log in"),
    (ServerStopped("is stopped", hint="%mcp start fs"), "choose Start"),
    (ServerStopped("is stopped", hint="%mcp start 'my server'"), "choose Start"),
    (ServerStopped("is stopped", hint="%mcp start 'it''s mine'"), "choose Start"),
    (ServerStopped("is disabled", hint="%mcp enable fs"), "choose Enable"),
    (ServerStopped("is starting", hint="%mcp shows its progress"), "see Servers"),
    (CallTimeout("late", hint="give it longer: timeout=…, or %mcp restart fs"), "choose Restart"),
    (CallError("no", hint="reported by the tool; .result has all of it"), "reported by the tool"),
    (McpError("no", hint="its prompts: %mcp prompts fs"), "its prompts: see Tools"),
    (McpError("no", hint="%mcp policy allow fs.x"), "in a cell: %mcp policy allow fs.x"),
    (McpError("no", hint="did you mean 'filter'?"), "did you mean 'filter'?"),
    (CommandNotFound("no", hint="install it, or name its full path"), "install it, or name its full path"),
    (McpError("no", hint="get it; %mcp restart fs, or name its path"), "get it; choose Restart, or name its path"),
    (McpError("no"), None),
]


@pytest.mark.parametrize(("error", "hint"), HINTS)
def test_a_hint_names_buttons_where_there_are_some(error: McpError, hint: str | None) -> None:
    assert panel_hint(error) == hint


def test_the_page_and_the_kernel_have_one_word_for_each_state() -> None:
    page = (ROOT / "labextension" / "src" / "views" / "parts.tsx").read_text()
    labels = re.findall(r'^  (\w+): \{ label: \(\) => trans\.__\("([^"]+)"\), tone:', page, re.MULTILINE)
    assert dict(labels) == {state.value: state.record.label for state in State}
