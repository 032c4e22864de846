"""Questions asked by a form in the output of an awaiting cell, where no panel is open. Real kernels, raw messages."""

import json
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from ipymcp.interaction.questions import ApprovalPage
from ipymcp.panel.questions import PanelQuestions
from ipymcp.panel.state import PanelState
from tests.environments import ROOT, server_command
from tests.integration.notebooks import done, opened, text
from tests.kernels import Cell, Kernel, Outcome
from tests.panels import CommView, Message, wait_for_views
from tests.servers.oauth_server import running

WIDGET = "application/vnd.jupyter.widget-view+json"
NAMED = ROOT / "tests" / "servers" / "named.py"
ASKING = [server_command("sdk2")[0], str(ROOT / "tests" / "servers" / "sdk_asks.py")]
ASK = "r = await mcp.asks.ask_form.aio()"


@pytest.fixture(scope="module")
def shared(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel with a server that asks."""
    with opened(kernel_name, tmp_path_factory.mktemp("forms"), {"asks": ASKING}) as kernel:
        yield kernel


@pytest.fixture
def asking(shared: Kernel) -> Iterator[Kernel]:
    """The module's kernel, in which no form is shown and no rule holds."""
    shared.comms.clear()
    yield shared
    done(shared, "mcp.policy.reset()")
    wait_for_views(shared, 0)


@pytest.fixture
def fresh(kernel: Kernel) -> Kernel:
    """A kernel with a server that asks, which does not know yet whether a page draws forms."""
    done(kernel, f"%load_ext ipymcp\n%mcp load asks -- {shlex.join(ASKING)};")
    return kernel


def is_shown(outcome: Outcome) -> bool:
    return any(WIDGET in display for display in outcome.displays)


def form_of(kernel: Kernel, cell: Cell) -> CommView:
    """The form that a cell shows."""
    cell.wait_for(is_shown)
    return CommView(kernel, cell.outcome.displays)


def asked(kernel: Kernel, cell: Cell) -> tuple[CommView, Message]:
    """The form that a cell shows, drawn by a page, and what it asks."""
    view = form_of(kernel, cell)
    view.send({"kind": "library"})
    view.hello(wants=["questions"])
    view.until(lambda state: bool(state["questions"]))
    return view, next(iter(view.state["questions"].values()))


def line(cell: Cell) -> str:
    """The line that a form leaves in a finished cell."""
    assert not cell.outcome.prompts
    [shown] = cell.outcome.displays
    assert set(shown) == {"text/plain"}
    return shown["text/plain"]


def test_an_awaiting_cell_asks_below_itself_and_keeps_a_line(asking: Kernel) -> None:
    cell = asking.start(ASK, answers=())
    view, question = asked(asking, cell)
    assert (question["type"], question["title"], question["message"]) == (
        "fill",
        "asks.ask_form asks for your input",
        "Who are you?",
    )
    assert not view.state["servers"]
    assert view.ask("answer", question=question["id"], action="accept", content={"age": -1})["errors"]
    view.ask("answer", question=question["id"], action="accept", content={"name": "Ada", "age": 36})
    assert cell.wait().error is None
    assert line(cell) == 'asks.ask_form asked: Who are you? · name = "Ada", age = 36'
    assert text(asking, "r.text") == "'Ada is 36'"
    wait_for_views(asking, 0)
    closed = [message["content"]["comm_id"] for message in asking.comms if message["msg_type"] == "comm_close"]
    assert view.comm in closed


@pytest.mark.parametrize(
    ("cell", "kind", "answer", "left"),
    [
        (ASK, "fill", {"action": "decline"}, "asks.ask_form asked: Who are you? · declined"),
        (
            "await mcp.asks.ask_url.aio()",
            "visit",
            {"action": "accept"},
            "asks wanted you to open example.com · agreed",
        ),
        (
            "await mcp.demo.query.aio('penguins')",
            "approve",
            {"answer": "once"},
            "May demo.query be called? · allowed once",
        ),
    ],
)
def test_each_kind_of_question_has_its_line(
    asking: Kernel, cell: str, kind: str, answer: dict[str, str], left: str
) -> None:
    done(asking, "%mcp policy ask demo.query")
    running = asking.start(cell, answers=())
    view, question = asked(asking, running)
    assert question["type"] == kind
    view.ask("answer", question=question["id"], **answer)
    running.wait()
    assert line(running) == left


@pytest.mark.cold
def test_trust_is_asked_below_the_cell_that_loads(kernel: Kernel) -> None:
    server = {"command": sys.executable, "args": [str(NAMED), '{"name": "a"}']}
    (kernel.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": server}}))
    done(kernel, "%load_ext ipymcp")
    cell = kernel.start("from ipymcp import mcp; await mcp.load.aio('theirs')", answers=())
    view, question = asked(kernel, cell)
    assert [server["name"] for server in question["candidates"]] == ["theirs"]
    view.ask("answer", question=question["id"], servers=["theirs"], secrets=[])
    assert cell.wait().error is None
    assert line(cell) == f"Trust servers of {kernel.folder / '.mcp.json'}? · yes: theirs"


def test_a_login_is_asked_below_the_cell_and_waits_for_the_browser(kernel: Kernel, tmp_path: Path) -> None:
    with running() as server:
        file = tmp_path / "servers.json"
        file.write_text(json.dumps({"mcpServers": {"docs": {"url": server.url}}}))
        done(kernel, "%load_ext ipymcp")
        cell = kernel.start(f"from ipymcp import mcp; await mcp.load.aio({str(file)!r})", answers=())
        view, question = asked(kernel, cell)
        assert (question["type"], question["title"]) == ("visit", "docs wants you to log in")
        view.ask("answer", question=question["id"], action="accept")
        view.until(lambda state: any(row["type"] == "wait" for row in state["questions"].values()))
        httpx.get(question["url"], follow_redirects=True)
        assert cell.wait().error is None
        assert line(cell) == f"docs wanted you to log in at {server.origin[7:]} · logged in"
        assert text(kernel, "mcp.docs.whoami().text") == "'you are logged in'"


def test_where_nothing_draws_forms_it_is_a_prompt_once_after_two_seconds_and_then_at_once(fresh: Kernel) -> None:
    began = time.monotonic()
    cell = fresh.start(ASK, answers=["!decline"])
    form_of(fresh, cell)
    cell.wait_for(lambda outcome: bool(outcome.prompts))
    assert 2 <= time.monotonic() - began < 15  # as long as a page that loads the code is waited for
    cell.wait()
    assert cell.outcome.displays[0] == {}
    check_prompt(fresh)
    wait_for_views(fresh, 0)


def test_a_page_that_is_slow_to_load_the_code_is_waited_for(asking: Kernel) -> None:
    cell = asking.start(ASK, answers=())
    view = form_of(asking, cell)
    view.send({"kind": "library"})
    with pytest.raises(TimeoutError):
        cell.wait(3)
    assert not cell.outcome.prompts
    _, question = asked(asking, cell)
    view.ask("answer", question=question["id"], action="cancel")
    cell.wait()
    assert line(cell) == "asks.ask_form asked: Who are you? · not answered"


def test_where_no_one_can_answer_it_is_cancelled_at_once_and_nothing_is_shown(asking: Kernel) -> None:
    outcome = asking.run(ASK)  # as nbclient and papermill do
    assert not outcome.displays
    assert not outcome.prompts
    assert not asking.comms


def test_a_cell_that_blocks_the_kernel_is_asked_at_the_prompt(asking: Kernel) -> None:
    check_prompt(asking, "mcp.asks.ask_form()")


@pytest.mark.parametrize("is_drawn", [True, False])
def test_an_interrupt_takes_it_back(asking: Kernel, is_drawn: bool) -> None:
    cell = asking.start(ASK, answers=())
    if is_drawn:
        asked(asking, cell)
    else:
        form_of(asking, cell).send({"kind": "library"})  # or it would be a prompt after two seconds
    asking.interrupt()
    outcome = cell.wait(10)
    assert outcome.error is not None
    assert outcome.error.ename in ("KeyboardInterrupt", "CancelledError")
    assert not outcome.prompts
    asking.read_until(lambda: not is_shown(cell.outcome), 10)
    left: list[Any] = [{"text/plain": "asks.ask_form asked: Who are you? · not answered"}, {}]
    assert outcome.displays[0] in left
    following = asking.start(ASK, answers=())
    form_of(asking, following).send({"kind": "library"})  # it is drawn as well
    asking.interrupt()
    following.wait()


@pytest.mark.parametrize("card", ["c1", ""])
@pytest.mark.parametrize("is_earlier", [True, False], ids=["a view from before", "a new view"])
def test_a_view_that_shows_the_card_of_a_call_removes_the_form_with_its_question(card: str, is_earlier: bool) -> None:
    shown: list[str] = ["form"]
    form: Any = SimpleNamespace(supersede=lambda _: shown.clear())
    loop: Any = SimpleNamespace(call=lambda function, *arguments: function(*arguments))
    state = PanelState(cast("Any", None), sections=())
    views: list[Any] = ["a view's channel"] if is_earlier else []
    questions = PanelQuestions(loop, state, lambda _: views, lambda _: False)
    questions.open(
        "approve", ApprovalPage(server="", title="Run it?", message="", calls=(), answers=("once",), card=card), form
    )
    if not is_earlier:
        questions.supersede_forms(cast("Any", None))
    assert shown == ([] if card else ["form"])


def test_a_page_that_closes_leaves_the_question_unanswered(asking: Kernel) -> None:
    cell = asking.start(ASK, answers=())
    view, _ = asked(asking, cell)
    view.send({"kind": "bye"})
    cell.wait()
    assert line(cell) == "asks.ask_form asked: Who are you? · not answered"


def test_without_anywidget_it_is_a_prompt_and_a_panel_is_for_ipymcps_extension_alone(fresh: Kernel) -> None:
    done(fresh, "import sys; sys.modules['anywidget'] = None")
    check_prompt(fresh)
    [panel] = done(fresh, "%mcp panel", answers=()).displays
    assert set(panel) == {"text/plain", "text/html", "application/vnd.ipymcp.panel+json"}


@pytest.mark.cold  # a forked kernel has imported anywidget
def test_a_form_that_cannot_be_made_is_a_prompt(fresh: Kernel) -> None:
    done(fresh, "import sys, types; sys.modules['anywidget'] = module = types.ModuleType('anywidget')")
    done(fresh, "import importlib.machinery as m; module.__spec__ = m.ModuleSpec('anywidget', None)")
    check_prompt(fresh)


def test_a_panel_that_may_only_look_asks_at_the_prompt(asking: Kernel) -> None:
    done(asking, '%config IPyMCP.panel = "view"')
    check_prompt(asking)
    done(asking, '%config IPyMCP.panel = "full"')


def check_prompt(kernel: Kernel, cell: str = ASK) -> None:
    """Check that a cell asks at the prompt and shows no form."""
    outcome = kernel.run(cell, answers=["!decline"])
    assert outcome.prompts
    assert not outcome.displays
