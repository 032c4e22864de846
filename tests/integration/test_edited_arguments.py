"""Arguments of a model's call that the user changes in the question, in a real kernel."""

import pytest

from tests.asking import ask, shown, texts
from tests.kernels import Kernel


@pytest.fixture
def kernel(asking: Kernel) -> Kernel:
    asking.run("%config IPyMCP.history = 'values'\n%mcp policy ask demo.*")
    return asking


def test_changed_arguments_are_checked_and_sent_and_the_model_learns_of_the_change(kernel: Kernel, models: str) -> None:
    answers = ["edit", "no json", '{"text": 1}', '{"text": "two"}']
    outcome = ask(kernel, 'demo__echo({"text": "one"})', "tools", "--out answer", answers=answers)

    assert len(outcome.prompts) == 4, outcome
    assert "  this is not JSON: " in outcome.stdout
    assert "  text: " in outcome.stdout, "what does not fit the schema is said, and asked again"
    note = 'The user changed the arguments of this call. It was made with {"text":"two"}.'
    assert texts(models, "tool") == [f"{note}\ntwo"]
    assert "you changed the arguments" in shown(outcome)[2]
    assert kernel.run("answer.calls[0].sent").text == str({"text": "two"})
    offer = outcome.displays[2]["application/vnd.ipymcp.code+json"]
    assert offer == {"code": "mcp.demo.echo(text='two')"}
    kernel.run("history = %mcp history")
    assert kernel.run("[each.arguments for each in history.entries]").text == str([b'{"text":"two"}'])


def test_an_error_of_the_changed_call_is_reported_with_the_change(kernel: Kernel, models: str) -> None:
    ask(kernel, 'demo__fail({"message": "a"})', "tools", answers=["edit", '{"message": "b"}'])

    (result,) = texts(models, "tool")
    assert "The user changed the arguments" in result and '{"message":"b"}' in result.replace("\\", "")


def test_an_empty_line_denies_the_call_and_equal_arguments_are_not_a_change(kernel: Kernel, models: str) -> None:
    ask(kernel, 'demo__echo({"text": "one"})', "tools", answers=["edit", ""])
    (result,) = texts(models, "tool")
    assert "you said no" in result
    ask(kernel, 'demo__echo({"text": "one"})', "tools", answers=["edit", '{"text": "one"}'])
    assert texts(models, "tool") == ["one"]


def test_calls_asked_about_together_and_those_of_code_are_not_edited(kernel: Kernel) -> None:
    two = 'demo__echo({"text": "one"}) demo__echo({"text": "two"})'
    outcome = ask(kernel, two, "tools", answers=["no"])
    assert "edit" not in outcome.stdout
    outcome = ask(kernel, 'run_python({"code": "1"})', "tools", "--code", answers=["no"])
    assert "edit" not in outcome.stdout
