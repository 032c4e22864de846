"""Calls of a model that need consent: at a prompt, in the card over the relay and the control channel, in a form."""

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import StartKernel
from tests.kernels import Cell, Kernel, Outcome
from tests.panels import CommView, ControlView, Message, SocketView, View, relay_file
from tests.scripted import DEMO

OWN = "application/vnd.ipymcp.panel+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
LONG = "x" * 5_000
ECHO = 'demo__echo({"text": "hey"})'
STOPPED = [
    "KeyboardInterrupt: the model was stopped, and its calls with it",
    "  completed calls stay in effect; --continue continues a --chat",
]


@pytest.fixture
def kernel(start_kernel: StartKernel, models: str) -> Kernel:
    """A kernel whose models have to ask about the demo server's tools."""
    kernel = start_kernel("models", env={"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{models}/v1"})
    setup = f"%load_ext ipymcp\n%mcp load demo -- {sys.executable} -I -S {DEMO}\n%mcp policy ask demo.*"
    assert kernel.run(f"{setup}\n%config IPyMCP.model = 'openai-chat:tools'").status == "ok"
    return kernel


def begin(kernel: Kernel, text: str, options: str = "") -> Cell:
    return kernel.start(f"%mcp ask {options} {text}", answers=())


def cards(outcome: Outcome) -> list[dict[str, Any]]:
    return [one for one in outcome.displays if "<details" in one.get("text/html", "")]


def lines(outcome: Outcome) -> list[str]:
    """The cards' lines, without times."""
    return [re.sub(r" · \d+\.\d s$", "", card["text/plain"]) for card in cards(outcome)]


def nothing_waits(outcome: Outcome) -> bool:
    return not any(OWN in one or WIDGET in one for one in outcome.displays)


def question_of(view: View) -> Message:
    view.hello()
    view.until(lambda state: bool(state["questions"]))
    return next(iter(view.state["questions"].values()))


@pytest.fixture
def relayed(kernel: Kernel) -> Iterator[SocketView]:
    """A sidebar."""
    with SocketView(relay_file(kernel)["socket"]) as view:
        view.hello()
        yield view


def test_a_card_that_waits_is_open_with_all_of_the_arguments(kernel: Kernel) -> None:
    cell = begin(kernel, f'demo__echo({{"text": "{LONG}\\u202e<b>"}})')
    cell.wait_for(lambda outcome: bool(outcome.prompts))

    [card] = cards(cell.outcome)
    assert card["text/plain"] == "demo.echo · waits for your answer"
    assert card["text/html"].startswith("<details open ")
    assert f"{LONG}⟨U+202E⟩&lt;b&gt;" in card["text/html"]
    kernel.answer("always")
    outcome = cell.wait()
    assert lines(outcome) == ["demo.echo · always allowed"]
    [card] = cards(outcome)
    assert card["text/html"].startswith("<details style=")
    assert "characters more)" in card["text/html"]
    assert nothing_waits(outcome)


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("once", "demo.echo · allowed once"),
        ("answer", "demo.echo · allowed for the rest of the answer"),
        ("server", "demo.echo · allowed, with all tools of the server in this notebook"),
        ("no", "demo.echo · denied"),
        ("never", "demo.echo · never allowed"),
    ],
)
def test_a_card_says_what_was_answered(kernel: Kernel, answer: str, line: str) -> None:
    assert lines(kernel.run(f"%mcp ask {ECHO}", answers=[answer])) == [line]


def test_where_nobody_can_answer_the_card_says_so_with_the_reason(kernel: Kernel) -> None:
    outcome = kernel.run(f"%mcp ask {ECHO}")

    assert lines(outcome) == ["demo.echo · not answered"]
    assert "needs your consent by the rule &#x27;ask demo.* (this notebook)&#x27;" in cards(outcome)[0]["text/html"]
    assert "--allow demo.echo in %mcp ask allows it beforehand</small>" in cards(outcome)[0]["text/html"]
    assert nothing_waits(outcome)
    assert lines(kernel.run(f"%mcp ask --allow demo.echo {ECHO}")) == ["demo.echo"]


@pytest.mark.parametrize("way", ["relay", "control channel"])
def test_a_view_answers_while_the_cell_blocks_the_kernel_and_the_card_names_its_question(
    kernel: Kernel, relayed: SocketView, way: str
) -> None:
    view = relayed if way == "relay" else ControlView(kernel)
    view.hello(control=True)

    cell = begin(kernel, ECHO)
    question = question_of(view)
    cell.wait_for(lambda outcome: any(OWN in card for card in cards(outcome)))

    life = view.of_kind("hello")[-1]["kernel"]
    assert cards(cell.outcome)[0][OWN] == {"version": 1, "kernel": life, "card": question["card"]}
    assert question["calls"][0]["arguments"] == {"text": "hey"}
    view.ask("answer", question=question["id"], answer="once")
    outcome = cell.wait()
    assert not outcome.prompts
    assert lines(outcome) == ["demo.echo · allowed once"]
    assert nothing_waits(outcome)


def test_of_calls_that_are_one_question_the_last_ones_card_has_it_and_the_others_hide(
    kernel: Kernel, relayed: SocketView
) -> None:
    cell = begin(kernel, " ".join(f'demo__echo({{"text": "{word}"}})' for word in ("one", "two", "three")))
    question = question_of(relayed)
    cell.wait_for(lambda outcome: sum(OWN in card for card in cards(outcome)) == 3)

    assert [call["arguments"]["text"] for call in question["calls"]] == ["one", "two", "three"]
    assert {card[OWN]["card"] for card in cards(cell.outcome)} == {question["card"]}
    assert [card[OWN].get("elsewhere", False) for card in cards(cell.outcome)] == [True, True, False]
    relayed.ask("answer", question=question["id"], answer="no")
    assert lines(cell.wait()) == ["demo.echo · denied"] * 3


def test_a_models_code_is_asked_about_in_its_card(kernel: Kernel, relayed: SocketView) -> None:
    cell = begin(kernel, 'run_python({"code": "print(6 * 7)"})', "--code")
    question = question_of(relayed)
    cell.wait_for(lambda outcome: any(OWN in card for card in cards(outcome)))

    assert cards(cell.outcome)[0][OWN]["card"] == question["card"]
    relayed.ask("answer", question=question["id"], answer="once")
    assert lines(cell.wait()) == ["notebook.run_python · allowed once"]


def test_a_page_with_widgets_alone_asks_below_the_cards_while_the_cell_blocks_where_it_is_heard(
    kernel: Kernel,
) -> None:
    subshell = kernel.make_subshell()
    cell = begin(kernel, ECHO)
    cell.wait_for(lambda outcome: any(WIDGET in one for one in outcome.displays))
    view = CommView(kernel, cell.outcome.displays)
    view.subshell = subshell
    view.send({"kind": "library"})
    view.hello(wants=["questions"])
    view.until(lambda state: bool(state["questions"]))

    view.ask("answer", question=next(iter(view.state["questions"])), answer="once")

    outcome = cell.wait()
    assert not outcome.prompts
    assert lines(outcome) == ["demo.echo · allowed once"]
    assert {} in outcome.displays, "the card says it: no line of the form's own"
    assert nothing_waits(outcome)


def test_an_interrupt_while_a_card_waits_is_two_lines_and_the_card_waits_no_more(
    kernel: Kernel, relayed: SocketView
) -> None:
    cell = begin(kernel, ECHO)
    question_of(relayed)
    cell.wait_for(lambda outcome: any(OWN in card for card in cards(outcome)))
    kernel.interrupt()

    outcome = cell.wait(20)

    assert outcome.error is not None and outcome.error.ename == "KeyboardInterrupt"
    assert outcome.error.traceback.splitlines() == STOPPED
    assert lines(outcome) == ["demo.echo · cancelled"]
    assert nothing_waits(outcome)
    relayed.until(lambda state: not state["questions"])
    assert lines(kernel.run(f"%mcp ask --allow * {ECHO}")) == ["demo.echo"]


def test_an_interrupt_while_a_call_runs_leaves_no_card_that_runs(kernel: Kernel) -> None:
    cell = begin(kernel, 'demo__slow({"seconds": 60})', "--allow *")
    cell.wait_for(lambda outcome: bool(cards(outcome)))
    kernel.interrupt()

    outcome = cell.wait(20)

    assert outcome.error is not None and outcome.error.traceback.splitlines() == STOPPED
    assert lines(outcome) == ["demo.slow · cancelled"]


def test_what_a_models_code_calls_is_asked_about_on_the_screen(kernel: Kernel) -> None:
    text = 'run_python({"code": "print(1)\\nprint(mcp.demo.echo(\'hey\').text)"})'

    outcome = kernel.run(f"%mcp ask --code --allow notebook.run_python {text}", answers=["once"])

    assert (
        "The model wants to run demo.echo:\n  rule: ask demo.* (this notebook)\n  the server's hints: read-only"
        in outcome.stdout
    )
    assert '  │ text = "hey"' in outcome.stdout
    assert "They answered: 1\nhey" in outcome.displays[-2]["text/plain"]


def test_an_answer_that_no_cell_shows_leaves_a_line_of_what_was_asked(kernel: Kernel) -> None:
    cell = kernel.start(f"answer = await mcp.ask.aio({ECHO!r})", answers=())
    cell.wait_for(lambda outcome: any(WIDGET in one for one in outcome.displays))
    view = CommView(kernel, cell.outcome.displays)
    view.send({"kind": "library"})
    view.hello(wants=["questions"])
    view.until(lambda state: bool(state["questions"]))
    [question] = view.state["questions"].values()
    assert "card" not in question

    view.ask("answer", question=question["id"], answer="once")

    assert cell.wait().displays == [{"text/plain": "May demo.echo be called? · allowed once"}]
