"""Answers that are cut off or empty, as a cell shows them; tests/models/check_answers.py has them for each provider."""

import pytest

from tests.asking import CALL, ask, ask_line, failure, shown
from tests.kernels import Kernel

TWO = 'demo__echo({"text": "one"}) demo__echo({"text": "two"})'


@pytest.fixture
def kernel(asking: Kernel) -> Kernel:
    asking.run("%mcp policy allow demo.*")
    return asking


def test_a_response_that_broke_off_shows_no_card_and_is_not_recorded(kernel: Kernel) -> None:
    for _ in range(2):
        outcome = ask(kernel, TWO, "half", "--replay auto --chat c --out left")

        assert failure(outcome)[0] == "McpError: the answer broke off in the middle"
        assert shown(outcome)[1:] == ["Let me see. "]
    assert kernel.run("left.text, left.calls, left.reason, left.usage.requests").text == "('Let me see. ', [], '', 1)"
    assert kernel.value("len(mcp.history())") == 0


def test_the_error_of_an_empty_answer_says_where_the_partial_answer_is(kernel: Kernel) -> None:
    outcome = ask(kernel, CALL, "full", "--chat c --out left")

    error, hint = failure(outcome)
    assert error == "McpError: cut off by its length before it said anything"
    assert hint.startswith(
        "  ask for less; with a lower effort it reasons less · chat 'c' has the partial answer"
        " · --continue continues it · left has the partial answer · in: "
    )
    assert kernel.run("left.text, [call.text for call in left.calls], left.usage.requests").text == (
        "('Let me see. ', ['x'], 2)"
    )
    assert kernel.value("mcp.usage.requests") == 2


def test_a_web_page_in_place_of_a_model_is_two_lines(kernel: Kernel) -> None:
    line = ask_line(kernel, "hey", "page")

    assert failure(kernel.run(line)) == [
        "McpError: the provider answered, but not as a model does",
        f"  are the model's name and the URL right? A login page may answer in its place · in: {line}",
    ]


def test_an_answer_without_room_says_how_to_give_it_more(kernel: Kernel) -> None:
    line = "%mcp ask -m openai-chat:full --max-tokens 5 --out left hey"
    hint = "--max-tokens 4096 gives it more; with a lower effort it reasons less"

    assert failure(kernel.run(line)) == [
        "McpError: cut off by its length before it said anything",
        f"  {hint} · left has the partial answer · in: {line}",
    ]
    assert kernel.run("left.reason, left.usage.output_tokens").text == "('length', 7)"


def test_a_refusal_is_quoted(kernel: Kernel) -> None:
    assert failure(ask(kernel, "hey", "refuses")) == [
        "McpError: the model refused: I cannot do that.",
        f"  ask in other words, or another model · in: {ask_line(kernel, 'hey', 'refuses')}",
    ]


@pytest.mark.parametrize("model", ["uncounted", "negative"])
def test_tokens_that_the_provider_does_not_report_are_shown_as_unknown(kernel: Kernel, model: str) -> None:
    outcome = ask(kernel, "hey", model)

    assert shown(outcome)[-1] == "1 request, tokens not reported by the provider, so not limited"
    assert outcome.stderr == ""
    ask(kernel, "hey")
    assert kernel.run("print(mcp.usage)").stdout == (
        "2 requests, 11 tokens in, 7 out, tokens of 1 request not reported by the provider, so not limited\n"
    )


def test_a_model_that_failed_without_output_is_counted_and_not_in_the_chat(kernel: Kernel) -> None:
    models_asked = "anthropic:full,openai-chat:echo"

    outcome = kernel.run(f"%mcp ask -m {models_asked} --chat c --out answer hey")

    assert shown(outcome)[1].endswith(" · anthropic:full failed: cut off by its length before it said anything")
    assert shown(outcome)[-1] == "2 requests, 22 tokens in, 14 out · answered by openai-chat:echo"
    assert kernel.run("mcp.usage.requests, len(answer.messages)").text == "(2, 2)"
    limited = kernel.run(f"%mcp ask -m {models_asked} --tokens 15 hey")
    assert failure(limited)[0] == "McpError: stopped: it took more than 15 tokens", "no other model is asked after that"
    fewer = kernel.run(f"%mcp ask -m {models_asked} --rounds 1 hey")
    assert failure(fewer)[0] == "McpError: cut off by its length before it said anything"


def test_the_chat_says_which_calls_were_not_made(kernel: Kernel) -> None:
    kernel.run("""
        import asyncio
        async def wait(seconds: int) -> None:
            "Wait."
            print("waits", seconds)
            await asyncio.sleep(seconds)
        def results(messages):
            parts = [part for message in messages for part in message["parts"]]
            return [part["content"] for part in parts if part["part_kind"] == "tool-return"]
        text = 'wait({"seconds": 60}) wait({"seconds": 61})'
    """)
    stopped = ask(kernel, TWO, "tools", "--calls 1 --out left")
    assert failure(stopped)[0] == "McpError: stopped: it wanted more than 1 call"
    assert (
        kernel.run("set(results(left.messages))").text == "{'Not made: the answer was stopped (a limit was reached).'}"
    )

    cell = kernel.start("mcp.ask(text, model='tools', base_url=url, tools=[wait], chat='c')")
    cell.wait_for(lambda outcome: "waits 60" in outcome.stdout, 30)
    kernel.interrupt()
    assert "waits 61" not in cell.wait(20).stdout

    kernel.run("import time\nwhile 'c' not in mcp.chats: time.sleep(0.01)")
    why = "the answer was stopped (the user interrupted it, or its time was over)."
    assert kernel.value("results(mcp.chats['c'])") == [f"Unknown result: {why}", f"Not made: {why}"]
