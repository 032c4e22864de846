"""Calls of a model that need consent: at a prompt, in the card over the relay and the control channel, in a form."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.asking import asking_kernel, shown, texts
from tests.conftest import StartKernel
from tests.kernels import Cell, Kernel, Outcome
from tests.panels import CommView, ControlView, Message, SocketView, View, relay_file

OWN = "application/vnd.ipymcp.panel+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
SETTINGS = "%config IPyMCP.model = 'openai-chat:tools'\n%config IPyMCP.history = 'values'\n%mcp policy ask demo.*"
LONG = "x" * 5_000
ECHO = 'demo__echo({"text": "hey"})'
STOPPED = [
    "KeyboardInterrupt: the model was stopped, and its calls with it",
    "  completed calls stay in effect; --continue continues a --chat",
]


@pytest.fixture
def kernel(asking: Kernel) -> Kernel:
    """A kernel whose models have to ask about the demo server's tools."""
    assert asking.run(SETTINGS).status == "ok"
    return asking


def begin(kernel: Kernel, text: str, options: str = "") -> Cell:
    return kernel.start(f"%mcp ask {options} {text}", answers=())


def cards(outcome: Outcome) -> list[dict[str, Any]]:
    return [display for display in outcome.displays if "<details" in display.get("text/html", "")]


def lines(outcome: Outcome) -> list[str]:
    """The cards' lines, without times."""
    return [re.sub(r" · \d+\.\d s$", "", card["text/plain"]) for card in cards(outcome)]


def nothing_waits(outcome: Outcome) -> bool:
    return not any(OWN in display or WIDGET in display for display in outcome.displays)


def question_of(view: View) -> Message:
    view.hello()
    return open_question(view)


def open_question(view: View) -> Message:
    view.until(lambda state: bool(state["questions"]))
    return next(iter(view.state["questions"].values()))


def widget_view(cell: Cell, kernel: Kernel) -> CommView:
    cell.wait_for(lambda outcome: any(WIDGET in display for display in outcome.displays))
    return CommView(kernel, cell.outcome.displays)


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


def test_where_no_one_can_answer_the_card_says_so_with_the_reason(kernel: Kernel) -> None:
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


def test_several_calls_are_one_question_in_the_card_of_the_last(kernel: Kernel, relayed: SocketView) -> None:
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


@pytest.mark.cold
def test_a_page_with_widgets_alone_asks_below_the_cards_while_the_cell_blocks(
    start_kernel: StartKernel, models: str
) -> None:
    kernel = asking_kernel(start_kernel, models)  # a subshell stays in its kernel
    kernel.run(SETTINGS)
    subshell = kernel.make_subshell()
    cell = begin(kernel, ECHO)
    view = widget_view(cell, kernel)
    view.subshell = subshell
    view.send({"kind": "library"})
    view.hello(wants=["questions"])

    view.ask("answer", question=open_question(view)["id"], answer="once")

    outcome = cell.wait()
    assert not outcome.prompts
    assert lines(outcome) == ["demo.echo · allowed once"]
    assert {} in outcome.displays, "the card says it: no line of the form's own"
    assert nothing_waits(outcome)


def test_an_interrupt_while_a_card_waits_is_two_lines_and_cancels_the_card(kernel: Kernel, relayed: SocketView) -> None:
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


def test_an_interrupt_while_a_call_runs_cancels_its_card(kernel: Kernel) -> None:
    cell = begin(kernel, 'demo__slow({"seconds": 60})', "--allow *")
    # The card is open while the model writes the arguments, and closed once the call is made.
    cell.wait_for(
        lambda outcome: any(
            card["text/html"].startswith("<details style") and "60" in card["text/html"] for card in cards(outcome)
        )
    )
    kernel.interrupt()

    outcome = cell.wait(20)

    assert outcome.error is not None and outcome.error.traceback.splitlines() == STOPPED
    assert lines(outcome) == ["demo.slow · cancelled"]


def test_a_call_of_a_models_code_is_asked_about_at_the_prompt(kernel: Kernel) -> None:
    text = 'run_python({"code": "print(1)\\nprint(mcp.demo.echo(\'hey\').text)"})'

    outcome = kernel.run(f"%mcp ask --code --allow notebook.run_python {text}", answers=["once"])

    assert (
        "The model wants to run demo.echo:\n  Rule: ask demo.* (this notebook)\n  The server says: read-only"
        in outcome.stdout
    )
    assert '  │ text = "hey"' in outcome.stdout
    assert "They answered: 1\nhey" in outcome.displays[-2]["text/plain"]


def test_a_call_from_the_panel_is_the_users_after_a_models_code_too(kernel: Kernel, relayed: SocketView) -> None:
    kernel.run('%mcp ask --code --allow notebook.run_python run_python({"code": "print(1)"})')

    kernel.run("%mcp policy reset")

    assert "error" not in relayed.call("demo", "echo", text="mine")
    assert kernel.value("[[one.caller, one.model, one.answer] for one in mcp.history(limit=1).entries]") == [
        ["panel", "", ""]
    ]


def test_an_answer_that_no_cell_shows_leaves_a_line_about_the_question(kernel: Kernel) -> None:
    cell = kernel.start(f"answer = await mcp.ask.aio({ECHO!r})", answers=())
    view = widget_view(cell, kernel)
    view.send({"kind": "library"})
    view.hello(wants=["questions"])
    question = open_question(view)
    assert "card" not in question

    view.ask("answer", question=question["id"], answer="once")

    assert cell.wait().displays == [{"text/plain": "May demo.echo be called? · allowed once"}]


# -- arguments that the user changes in the question ------------------------------------------------------------------


def test_changed_arguments_are_checked_and_sent_and_the_model_learns_of_the_change(kernel: Kernel, models: str) -> None:
    answers = ["edit", "no json", '{"text": 1}', '{"text": "two"}']
    outcome = kernel.run(f"%mcp ask --out answer {ECHO}", answers=answers)

    assert len(outcome.prompts) == 4, outcome
    assert "  This is not JSON: " in outcome.stdout
    assert "  text: " in outcome.stdout, "arguments that do not match the schema are asked for again"
    note = 'The user changed the arguments of this call. It was made with {"text":"two"}.'
    assert texts(models, "tool") == [f"{note}\ntwo"]
    assert "you changed the arguments" in shown(outcome)[2]
    assert kernel.run("answer.calls[0].sent").text == str({"text": "two"})
    offer = outcome.displays[2]["application/vnd.ipymcp.code+json"]
    assert offer == {"code": "mcp.demo.echo(text='two')"}
    kernel.run("history = %mcp history")
    assert kernel.run("[row.arguments for row in history.entries]").text == str([b'{"text":"two"}'])


def test_an_error_of_the_changed_call_is_reported_with_the_change(kernel: Kernel, models: str) -> None:
    kernel.run('%mcp ask demo__fail({"message": "a"})', answers=["edit", '{"message": "b"}'])

    (result,) = texts(models, "tool")
    assert "The user changed the arguments" in result and '{"message":"b"}' in result.replace("\\", "")


def test_an_empty_line_denies_the_call_and_equal_arguments_are_not_a_change(kernel: Kernel, models: str) -> None:
    kernel.run(f"%mcp ask {ECHO}", answers=["edit", ""])
    (result,) = texts(models, "tool")
    assert "you said no" in result
    kernel.run(f"%mcp ask {ECHO}", answers=["edit", '{"text": "hey"}'])
    assert texts(models, "tool") == ["hey"]


def test_calls_asked_about_together_and_those_of_code_are_not_edited(kernel: Kernel) -> None:
    for line in (f"%mcp ask {ECHO} {ECHO}", '%mcp ask --code run_python({"code": "1"})'):
        outcome = kernel.run(line, answers=["no"])
        assert outcome.prompts and "edit" not in outcome.stdout
