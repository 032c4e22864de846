"""Arguments of a model's call that the user changes in the question, in a real kernel."""

import pytest

from tests.asking import ask, asked, asking_kernel
from tests.conftest import StartKernel
from tests.kernels import Kernel


@pytest.fixture
def kernel(start_kernel: StartKernel, models: str) -> Kernel:
    kernel = asking_kernel(start_kernel, models)
    kernel.run("%config IPyMCP.history = 'values'\n%mcp policy ask demo.*")
    return kernel


def test_changed_arguments_are_checked_sent_and_told_to_the_model(kernel: Kernel, models: str) -> None:
    answers = ["edit", "no json", '{"text": 1}', '{"text": "two"}']
    outcome = ask(kernel, 'demo__echo({"text": "one"})', "tools", "--out answer", answers=answers)

    assert len(outcome.prompts) == 4, outcome
    assert "  this is not JSON: " in outcome.stdout
    assert "  text: " in outcome.stdout, "what does not fit the schema is said, and asked again"
    results = [one["content"] for one in asked(models)[-1]["messages"] if one["role"] == "tool"]
    note = 'The user changed the arguments of this call. It was made with {"text":"two"}.'
    assert results == [f"{note}\ntwo"]
    assert "you changed the arguments" in str(outcome.displays[2]["text/plain"])
    assert kernel.run("answer.calls[0].sent").text == str({"text": "two"})
    offer = outcome.displays[2]["application/vnd.ipymcp.code+json"]
    assert offer == {"code": "mcp.demo.echo(text='two')"}
    kernel.run("history = %mcp history")
    assert kernel.run("[each.arguments for each in history.entries]").text == str([b'{"text":"two"}'])


def test_an_error_of_the_changed_call_is_told_with_the_change(kernel: Kernel, models: str) -> None:
    ask(kernel, 'demo__fail({"message": "a"})', "tools", answers=["edit", '{"message": "b"}'])

    (told,) = [one["content"] for one in asked(models)[-1]["messages"] if one["role"] == "tool"]
    assert "The user changed the arguments" in told and '{"message":"b"}' in told.replace("\\", "")


def test_an_empty_line_denies_the_call_and_equal_arguments_are_no_change(kernel: Kernel, models: str) -> None:
    ask(kernel, 'demo__echo({"text": "one"})', "tools", answers=["edit", ""])
    (told,) = [one["content"] for one in asked(models)[-1]["messages"] if one["role"] == "tool"]
    assert "you said no" in told
    ask(kernel, 'demo__echo({"text": "one"})', "tools", answers=["edit", '{"text": "one"}'])
    assert [one["content"] for one in asked(models)[-1]["messages"] if one["role"] == "tool"] == ["one"]


def test_calls_asked_about_together_and_those_of_code_are_not_edited(kernel: Kernel) -> None:
    two = 'demo__echo({"text": "one"}) demo__echo({"text": "two"})'
    outcome = ask(kernel, two, "tools", answers=["no"])
    assert "edit" not in outcome.stdout
    outcome = ask(kernel, 'run_python({"code": "1"})', "tools", "--code", answers=["no"])
    assert "edit" not in outcome.stdout
