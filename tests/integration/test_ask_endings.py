"""Answers that end before their end, or with nothing: in a real kernel, with models that answer by a script."""

import pytest

from tests.asking import CALL, address, ask, asking_kernel, failure, shown
from tests.conftest import StartKernel
from tests.kernels import Kernel

PROVIDERS = ["openai-chat", "openai-responses", "anthropic", "google"]
TWO = 'demo__echo({"text": "one"}) demo__echo({"text": "two"})'
HINTS = {
    "full": "ask for less; with a lower effort it reasons less",
    "filtered": "ask in other words, or another model",
    "mute": "ask again",
}


@pytest.fixture
def kernel(start_kernel: StartKernel, models: str) -> Kernel:
    kernel = asking_kernel(start_kernel, models)
    kernel.run(f"%env OPENAI_BASE_URL={models}/v1\n%mcp policy allow demo.*\nfrom ipymcp import mcp")
    return kernel


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_call_of_a_response_that_broke_off_is_made(kernel: Kernel, provider: str) -> None:
    outcome = kernel.run(f"%mcp ask -m {provider}:half --replay auto --chat c --out left {TWO}")

    assert failure(outcome)[0] == "McpError: the answer broke off in the middle"
    assert shown(outcome)[1:] == ["Let me see. "], "no card"
    assert kernel.run("left.text, left.calls, left.reason, left.usage.requests").text == "('Let me see. ', [], '', 1)"
    assert kernel.run("[one['tool'] for one in mcp.history(limit=9)]").text == "[]"
    again = kernel.run(f"%mcp ask -m {provider}:half --replay auto {TWO}")
    assert failure(again)[0] == "McpError: the answer broke off in the middle", "it was not recorded"
    assert shown(kernel.run(f"%mcp ask -m {provider}:echo --chat c still there?"))[1] == "You said: still there?"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_calls_of_one_id_are_each_made_and_answered(kernel: Kernel, provider: str) -> None:
    outcome = kernel.run(f"%mcp ask -m {provider}:twins --chat c --out answer {TWO}")

    assert shown(outcome)[-2] == "They answered: one | two", outcome
    kernel.run(f"%mcp ask -m {provider}:twins --chat c --out answer {TWO}")
    ids = "[part['tool_call_id'] for one in answer.messages for part in one['parts'] if 'tool_call_id' in part]"
    assert kernel.run(f"len({ids}), len(set({ids}))").text == "(8, 4)", "in the whole chat"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_an_empty_answer_cost_is_counted_and_what_was_done_is_kept(kernel: Kernel, provider: str) -> None:
    total = 0
    for model, first, requests in (
        ("full", "McpError: cut off by its length before it said anything", 2),
        ("filtered", "McpError: the provider's content filter stopped the answer at its beginning (", 2),
        ("mute", "McpError: the model answered nothing, even when asked again", 4),
    ):
        outcome = kernel.run(f"%mcp ask -m {provider}:{model} --chat {model} --out left {CALL}")

        line, hint = failure(outcome)
        assert line.startswith(first)
        assert hint.startswith(
            f"  {HINTS[model]} · chat '{model}' has the partial answer · --continue continues it · left has"
        )
        made = kernel.run("left.text, [one.text for one in left.calls], left.usage.requests").text
        assert made == f"('Let me see. ', ['x'], {requests})"
        total += requests
        assert kernel.run("mcp.usage.requests").text == str(total)
        said = shown(kernel.run(f"%mcp ask -m {provider}:echo --chat {model} still there?"))
        assert said[1] == "You said: still there?", "the chat goes on"
        total += 1


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
        f"  ask in other words, or another model · in: %mcp ask -m refuses --base-url {address(kernel)}  hey",
    ]


@pytest.mark.parametrize("provider", PROVIDERS[:3])
def test_a_call_that_the_length_cut_off_is_not_made_without_arguments(kernel: Kernel, provider: str) -> None:
    kernel.run("def wipe(path='/'):\n    'Wipe.'\n    return 'wiped'\ntext = 'wipe({\"path\": \"/tmp\"})'")

    outcome = kernel.run(f"answer = mcp.ask(text, model='{provider}:clipped', tools=[wipe])")

    assert outcome.status == "ok", outcome
    assert kernel.run("[one.was_made for one in answer.calls]").text == "[False]"
    assert "the arguments are not valid JSON" in str(kernel.run("print(answer)").stdout)


@pytest.mark.parametrize("model", ["uncounted", "negative"])
def test_tokens_that_the_provider_does_not_report_are_said_to_be_unknown(kernel: Kernel, model: str) -> None:
    outcome = ask(kernel, "hey", model)

    assert shown(outcome)[-1] == "1 request, tokens not reported by the provider, so not limited"
    assert outcome.stderr == ""
    ask(kernel, "hey")
    assert kernel.run("print(mcp.usage)").stdout == (
        "2 requests, 11 tokens in, 7 out, tokens of 1 request not reported by the provider, so not limited\n"
    )


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_is_no_model_is_two_lines(kernel: Kernel, models: str, provider: str) -> None:
    lines = [f"%mcp ask -m {provider}:{name} hey" for name in ("page", "moved")]
    page, moved = (failure(kernel.run(line)) for line in lines)

    hint = "  are the model's name and the URL right?"
    assert page == [
        "McpError: the provider answered, but not as a model does",
        f"{hint} A login page may answer in its place · in: {lines[0]}",
    ]
    assert moved == [
        "McpError: the provider answered 307: it redirects to http://127.0.0.1:9/v2",
        f"{hint} · in: {lines[1]}",
    ]


def test_a_model_that_failed_silently_is_counted_and_leaves_nothing_in_the_chat(kernel: Kernel, models: str) -> None:
    models_asked = "anthropic:full,openai-chat:echo"

    outcome = kernel.run(f"%mcp ask -m {models_asked} --chat c --out answer hey")

    assert shown(outcome)[1].endswith(" · anthropic:full failed: cut off by its length before it said anything")
    assert shown(outcome)[-1] == "2 requests, 22 tokens in, 14 out · answered by openai-chat:echo"
    assert kernel.run("mcp.usage.requests, len(answer.messages)").text == "(2, 2)"
    limited = kernel.run(f"%mcp ask -m {models_asked} --tokens 15 hey")
    assert failure(limited)[0] == "McpError: stopped: it took more than 15 tokens", "no other model is asked after that"
    fewer = kernel.run(f"%mcp ask -m {models_asked} --rounds 1 hey")
    assert failure(fewer)[0] == "McpError: cut off by its length before it said anything"


def test_the_model_is_told_which_calls_were_not_made(kernel: Kernel) -> None:
    kernel.run("""
        import asyncio
        async def wait(seconds: int) -> None:
            "Wait."
            print("waits", seconds)
            await asyncio.sleep(seconds)
        def told(messages):
            parts = [part for one in messages for part in one["parts"]]
            return [part["content"] for part in parts if part["part_kind"] == "tool-return"]
        text = 'wait({"seconds": 60}) wait({"seconds": 61})'
    """)
    stopped = ask(kernel, TWO, "tools", "--calls 1 --out left")
    assert failure(stopped)[0] == "McpError: stopped: it wanted more than 1 call"
    assert kernel.run("set(told(left.messages))").text == "{'Not made: the answer was stopped (a limit was reached).'}"

    cell = kernel.start("mcp.ask(text, model='tools', base_url=url, tools=[wait], chat='c')")
    cell.wait_for(lambda outcome: "waits 60" in outcome.stdout, 30)
    kernel.interrupt()
    assert "waits 61" not in cell.wait(20).stdout

    kernel.run("while 'c' not in mcp.chats: pass")
    why = "the answer was stopped (the user interrupted it, or its time was over)."
    assert kernel.value("told(mcp.chats['c'])") == [f"Unknown result: {why}", f"Not made: {why}"]
