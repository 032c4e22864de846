"""What answers of models cost, and settings of models: in a real kernel, with models that answer by a script."""

import json

import pytest

from tests.asking import CALL, ask, ask_line, asked, failure, shown
from tests.kernels import Kernel

CLAUDE = "anthropic:claude-opus-4-5"
IN, OUT, CACHED = 5e-6, 25e-6, 0.5e-6
"""Dollars per token of claude-opus-4-5."""


@pytest.fixture
def kernel(asking: Kernel) -> Kernel:
    return asking


def test_the_cost_is_shown_and_kept(kernel: Kernel) -> None:
    first, second = 11 * IN + 700 * OUT, 6 * IN + 5 * CACHED + 700 * OUT

    outcome = kernel.run(f"%mcp ask -m {CLAUDE} --out answer {CALL}")

    assert shown(outcome)[-1] == "2 requests, 22 tokens in (5 cached), 1,400 out, about $0.035"
    cost = float(kernel.run("print(answer.cost)").stdout)
    assert cost == pytest.approx(first + second)
    ask(kernel, "hey", options="--out other")
    assert kernel.run("print(other.cost, other.usage.input_tokens)").stdout == "None 11\n"
    total = "3 requests, 33 tokens in (5 cached), 1,407 out, about $0.035 and 1 request of unknown price\n"
    assert kernel.run("print(mcp.usage)").stdout == total
    assert json.loads(kernel.run("print(__import__('json').dumps(answer.json()['usage']))").stdout) == {
        "requests": 2,
        "input_tokens": 22,
        "output_tokens": 1_400,
        "cached_tokens": 5,
        "cost": pytest.approx(cost),
    }


def test_a_limit_in_dollars_leaves_a_partial_answer(kernel: Kernel, models: str) -> None:
    before = len(asked(models))

    stopped = kernel.run(f"%mcp ask -m {CLAUDE} --dollars 0.01 --out answer {CALL}")

    error, hint = failure(stopped)
    assert error == "McpError: stopped: it cost about $0.018, more than $0.010"
    assert hint.startswith("  --dollars 0.02 allows more · answer has the partial answer")
    assert len(asked(models)) - before == 1
    assert (
        kernel.run("print(answer.text, len(answer.calls), round(answer.cost, 6))").stdout == "Let me see.  0 0.017555\n"
    )


def test_a_question_over_its_limit_or_without_a_price_is_not_sent(kernel: Kernel, models: str) -> None:
    before = len(asked(models))

    dear = kernel.run(f"%mcp ask -m {CLAUDE} --dollars 0.0001 What of all this?")
    unknown = ask(kernel, "hey", options="--dollars 1")
    checked = kernel.run("import ipymcp\nipymcp.Limits(dollars='1')")

    assert failure(dear)[0].startswith("McpError: not sent: the question alone costs about $0.00")
    error, hint = failure(unknown)
    assert error == "McpError: the price of echo is unknown, so its dollars cannot be limited"
    assert hint.startswith("  limit tokens instead: --tokens 100000")
    assert failure(checked)[0] == "ArgumentError: Limits(): dollars: expected a number, 0 or more or None, got '1'"
    assert len(asked(models)) == before


def test_a_dry_run_estimates_the_cost(kernel: Kernel, models: str) -> None:
    before = len(asked(models))
    kernel.run("text = 'many words ' * 1000")

    priced = kernel.run(f"%mcp ask -m {CLAUDE} --dry-run --tools - What of $text?").text or ""
    unpriced = ask(kernel, "hey", options="--dry-run --tools -").text or ""

    assert " tokens in a round, about $0.014; answers are extra\n" in priced
    assert " tokens in a round, price unknown; answers are extra\n" in unpriced
    assert len(asked(models)) == before


def test_options_of_the_line_are_settings_of_the_model(kernel: Kernel, models: str) -> None:
    ask(kernel, "hey", options="--effort high --max-tokens 20000 --temperature 0")

    request = asked(models)[-1]
    assert (request["reasoning_effort"], request["temperature"], request["max_completion_tokens"]) == (
        "high",
        0,
        20_000,
    )
    refused = failure(kernel.run("%mcp ask -m openai:gpt-5 --temperature 0 hey"))
    assert refused[0] == "McpError: gpt-5 accepts no temperature"
    assert refused[1].startswith("  omit the temperature · in: ")
    line = f"%mcp ask -m {CLAUDE} --effort high --max-tokens 100 hey"
    assert failure(kernel.run(line))[1] == f"  --max-tokens 32768, or a lower effort · in: {line}"


LIMITS = [
    ("--rounds 0", "McpError: stopped: 0 rounds were not enough", "--rounds 25 allows more"),
    ("--calls 0", "McpError: stopped: it wanted more than 0 calls", "--calls 100 allows more"),
    ("--tokens 0", "McpError: stopped: it took more than 0 tokens", "--tokens 1000000 allows more"),
    ("--dollars 0", "McpError: not sent: the question alone costs about $0.00", "--dollars 0.01 allows more"),
]


@pytest.mark.parametrize(("option", "error", "hint"), LIMITS)
def test_a_limit_of_0_holds(kernel: Kernel, option: str, error: str, hint: str) -> None:
    first, second = failure(kernel.run(f"%mcp ask -m {CLAUDE} --allow * {option} {CALL}"))

    assert first.startswith(error)
    assert second.startswith(f"  {hint}")
    assert kernel.value("len(mcp.history())") == 0


def test_impossible_limits_are_refused_on_the_line_as_in_python(kernel: Kernel) -> None:
    seconds = kernel.run("%mcp ask -m x --seconds 0 hey").stderr
    rounds = kernel.run("%mcp ask -m x --rounds 2.5 hey").stderr

    assert seconds.startswith("UsageError: --seconds: expected a number of seconds greater than 0, got 0\n")
    assert rounds.startswith("UsageError: --rounds: expected a whole number, 0 or more, got 2.5\n")


def test_another_model_is_asked_if_one_fails_immediately(kernel: Kernel) -> None:
    outcome = ask(kernel, "hey", '"down, echo"', "--out answer")

    first, second, text, cost = shown(outcome)
    assert first.startswith("down · 5 tools of demo, about ")
    assert second.startswith("echo · 5 tools of demo, about ")
    assert second.endswith(" · down failed: the provider answered 503: come back later")
    assert text == "You said: hey"
    assert cost == "1 request, 11 tokens in, 7 out · answered by echo"
    assert kernel.run("print(answer.model)").stdout == "echo\n"
    listed = kernel.run("print(mcp.ask('hey', model=['down', 'echo'], base_url=url))")
    assert listed.stdout == "You said: hey\n"
    error, hint = failure(ask(kernel, "hey", "down,down"))
    assert error == "McpError: the provider answered 503: come back later"
    assert hint.startswith("  ask again · down failed: the provider answered 503: come back later")


def test_no_other_model_is_asked_after_a_call(kernel: Kernel, models: str) -> None:
    before = len(asked(models))

    outcome = ask(kernel, CALL, "late,echo", "--out answer")

    assert failure(outcome)[0] == "McpError: the provider answered 503: come back later"
    assert "echo" not in [request["model"] for request in asked(models)[before:]]
    assert kernel.run("print(len(answer.calls))").stdout == "1\n"


def test_reasoning_is_folded_and_not_part_of_the_text(kernel: Kernel) -> None:
    options = "--effort low --out answer"
    for line in (f"%mcp ask -m {CLAUDE} {options} hey", ask_line(kernel, "hey", options=options)):
        outcome = kernel.run(line)

        _, thought, text, _ = outcome.displays
        assert thought["text/plain"] == "Thought: 6 words"
        assert thought["text/html"].startswith("<details><summary><small>Thought: 6 words</small></summary><pre")
        assert "Let me think. It is &lt;b&gt;plain&lt;/b&gt;." in thought["text/html"]
        assert text["text/plain"] == "You said: hey"
        kept = kernel.run("print(answer.thinking, '|', answer.text)").stdout
        assert kept == "Let me think. It is <b>plain</b>. | You said: hey\n"


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
