"""What answers of models cost, and settings of models: in a real kernel, with models that answer by a script."""

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.asking import CALL, ask, asked, asking_kernel, failure, shown
from tests.conftest import StartKernel
from tests.kernels import Kernel, Outcome

CLAUDE, GPT = "anthropic:claude-opus-4-5", "openai-chat:gpt-4o"
IN, OUT, CACHED = 5e-6, 25e-6, 0.5e-6
"""Dollars per token of claude-opus-4-5."""


@pytest.fixture
def kernel(start_kernel: StartKernel, models: str) -> Kernel:
    kernel = asking_kernel(start_kernel, models)
    kernel.run(f"%env OPENAI_BASE_URL={models}/v1")
    return kernel


def ask_provider(kernel: Kernel, model: str, text: str, **how: object) -> Outcome:
    return kernel.run(f"%mcp ask -m {model} {text}", **how)


def without_marks(value: Any) -> Any:
    """A request without the marks of what is to be cached."""
    if isinstance(value, dict):
        return {name: without_marks(one) for name, one in value.items() if name != "cache_control"}
    return [without_marks(one) for one in value] if isinstance(value, list) else value


def test_what_a_provider_can_cache_is_marked_and_stays_the_same(kernel: Kernel, models: str) -> None:
    before = len(asked(models))
    kernel.run("long = 'word ' * 20_000\ndef essay() -> str:\n    'An essay.'\n    return long")
    kernel.run("tools = mcp.tools('demo.*') + essay")
    text = f"essay({{}}) {CALL}"
    run = f"print(mcp.ask({text!r}, model={CLAUDE!r}, tools=tools, chat='c').usage)"
    assert "2 requests" in kernel.run(run).stdout
    assert "2 requests" in kernel.run(run).stdout

    requests = asked(models)[before:]
    assert len(requests) == 4
    for request in requests:
        assert request["tools"][-1]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
        assert request["system"][-1]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
        assert request["cache_control"]["type"] == "ephemeral", "of the conversation"
    for one, next_one in pairwise(requests):
        assert json.dumps(without_marks(one["tools"])) == json.dumps(without_marks(next_one["tools"]))
        assert json.dumps(without_marks(one["system"])) == json.dumps(without_marks(next_one["system"]))
        sent = without_marks(one["messages"])
        assert json.dumps(sent) == json.dumps(without_marks(next_one["messages"])[: len(sent)])


@pytest.mark.parametrize("model", ["openai:gpt-4o", GPT, "google:gemini-2.5-flash"])
def test_what_precedes_is_the_same_where_a_provider_caches_by_itself(kernel: Kernel, models: str, model: str) -> None:
    before = len(asked(models))
    for _ in range(2):
        ask_provider(kernel, model, f"--chat c {CALL}")

    requests = asked(models)[before:]
    assert len(requests) == 4
    for one, next_one in pairwise(requests):
        conversation = next(name for name in ("messages", "input", "contents") if name in one)
        sent = one.pop(conversation)
        assert json.dumps(sent) == json.dumps(next_one[conversation][: len(sent)])
        assert json.dumps(one) == json.dumps({name: next_one[name] for name in one})


def test_the_cost_is_said_and_kept(kernel: Kernel) -> None:
    one, two = 11 * IN + 700 * OUT, 6 * IN + 5 * CACHED + 700 * OUT

    outcome = ask_provider(kernel, CLAUDE, f"--out answer {CALL}")

    assert shown(outcome)[-1] == "2 requests, 22 tokens in (5 cached), 1,400 out, about $0.035"
    cost = float(kernel.run("print(answer.cost)").stdout)
    assert cost == pytest.approx(one + two)
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

    stopped = ask_provider(kernel, CLAUDE, f"--dollars 0.01 --out answer {CALL}")

    error, hint = failure(stopped)
    assert error == "McpError: stopped: it cost about $0.018, more than $0.010"
    assert hint.startswith("  --dollars 0.02 allows more · answer has the partial answer")
    assert len(asked(models)) - before == 1
    assert (
        kernel.run("print(answer.text, len(answer.calls), round(answer.cost, 6))").stdout == "Let me see.  0 0.017555\n"
    )


def test_what_would_be_too_dear_or_has_no_price_is_not_sent(kernel: Kernel, models: str) -> None:
    before = len(asked(models))

    dear = ask_provider(kernel, CLAUDE, "--dollars 0.0001 What of all this?")
    unknown = ask(kernel, "hey", options="--dollars 1")
    checked = kernel.run("import ipymcp\nipymcp.Limits(dollars='1')")

    assert failure(dear)[0].startswith("McpError: not sent: the question alone costs about $0.00")
    error, hint = failure(unknown)
    assert error == "McpError: the price of echo is unknown, so its dollars cannot be limited"
    assert hint.startswith("  limit tokens instead: --tokens 100000")
    assert failure(checked)[0] == "ArgumentError: Limits(): dollars: expected a number, 0 or more or None, got '1'"
    assert len(asked(models)) == before


def test_a_dry_run_says_what_the_question_would_cost(kernel: Kernel, models: str) -> None:
    before = len(asked(models))
    kernel.run("text = 'many words ' * 1000")

    priced = ask_provider(kernel, CLAUDE, "--dry-run --tools - What of $text?").text or ""
    unpriced = ask(kernel, "hey", options="--dry-run --tools -").text or ""

    assert " tokens in a round, about $0.014; answers are extra\n" in priced
    assert " tokens in a round, price unknown; answers are extra\n" in unpriced
    assert len(asked(models)) == before


def test_settings_are_sent_as_the_provider_takes_them(kernel: Kernel, models: str) -> None:
    options = "--effort high --max-tokens 20000"
    ask_provider(kernel, CLAUDE, f"{options} hey")
    claude = asked(models)[-1]
    ask_provider(kernel, "openai:gpt-5", f"{options} hey")
    gpt = asked(models)[-1]
    ask(kernel, "hey", options=f"{options} --temperature 0")
    plain = asked(models)[-1]
    kernel.run(f"mcp.ask('hey', model={CLAUDE!r}, temperature=0.5)")

    assert claude["thinking"]["type"] == "enabled" and claude["max_tokens"] == 20_000
    assert gpt["reasoning"]["effort"] == "high" and gpt["max_output_tokens"] == 20_000
    assert (plain["reasoning_effort"], plain["temperature"], plain["max_completion_tokens"]) == ("high", 0, 20_000)
    assert asked(models)[-1]["temperature"] == 0.5


@pytest.mark.parametrize(
    ("model", "options", "refused"),
    [
        ("openai:gpt-5", "--temperature 0", "gpt-5 accepts no temperature"),
        ("openai:gpt-5.1", "--temperature 0 --effort low", "gpt-5.1 accepts no temperature with an effort"),
        ("anthropic:claude-opus-4-8", "--temperature 0", "claude-opus-4-8 accepts no temperature"),
        (CLAUDE, "--temperature 0.5 --effort high", "claude-opus-4-5 accepts no temperature with an effort"),
        (GPT, "--effort high", "gpt-4o accepts no effort"),
    ],
)
def test_a_setting_that_the_model_does_not_take_is_one_line(
    kernel: Kernel, models: str, model: str, options: str, refused: str
) -> None:
    before = len(asked(models))
    outcome = ask_provider(kernel, model, f"{options} hey")
    word = refused.partition(" accepts no ")[2].partition(" ")[0]
    error, hint = failure(outcome)
    assert (error, hint.partition(" · ")[0]) == (f"McpError: {refused}", f"  omit the {word}")
    assert len(asked(models)) == before


@pytest.mark.parametrize(
    ("model", "name", "effort", "budget"),
    [(CLAUDE, "claude-opus-4-5", "high", "16,384"), ("google:gemini-2.5-flash", "gemini-2.5-flash", "low", "2,048")],
)
def test_reasoning_that_leaves_no_room_for_an_answer_is_not_asked_for(
    kernel: Kernel, models: str, model: str, name: str, effort: str, budget: str
) -> None:
    before = len(asked(models))
    line = f"%mcp ask -m {model} --effort {effort} --max-tokens 100 hey"

    assert failure(kernel.run(line)) == [
        f"McpError: {name} reasons with up to {budget} tokens at this effort, which leaves no room within 100",
        f"  --max-tokens {2 * int(budget.replace(',', ''))}, or a lower effort · in: {line}",
    ]
    assert len(asked(models)) == before
    assert ask_provider(kernel, model, f"--effort {effort} --max-tokens 40000 hey").status == "ok"


@pytest.mark.parametrize("model", ["openai-chat:gpt-5", "openai:gpt-5", CLAUDE])
def test_no_tool_is_declared_as_strict(kernel: Kernel, models: str, model: str) -> None:
    kernel.run("def keep(text: str, value) -> None:\n    'Keep a value of any type.'")

    kernel.run(f"mcp.ask('hey', model={model!r}, tools=[keep])")

    sent = json.dumps(asked(models)[-1]["tools"])
    assert '"required": ["text", "value"]' in sent
    assert '"strict": true' not in sent


LIMITS = [
    ("--rounds 0", "McpError: stopped: 0 rounds were not enough", "--rounds 25 allows more"),
    ("--calls 0", "McpError: stopped: it wanted more than 0 calls", "--calls 100 allows more"),
    ("--tokens 0", "McpError: stopped: it took more than 0 tokens", "--tokens 1000000 allows more"),
    ("--dollars 0", "McpError: not sent: the question alone costs about $0.00", "--dollars 0.01 allows more"),
]


@pytest.mark.parametrize(("option", "error", "hint"), LIMITS)
def test_a_limit_of_0_holds(kernel: Kernel, option: str, error: str, hint: str) -> None:
    first, second = failure(ask_provider(kernel, CLAUDE, f"--allow * {option} {CALL}"))

    assert first.startswith(error)
    assert second.startswith(f"  {hint}")
    assert kernel.run("[one['tool'] for one in mcp.history(limit=9)]").text == "[]"


def test_limits_that_there_cannot_be_are_refused_on_the_line_as_in_python(kernel: Kernel) -> None:
    seconds = kernel.run("%mcp ask -m x --seconds 0 hey").stderr
    rounds = kernel.run("%mcp ask -m x --rounds 2.5 hey").stderr

    assert seconds.startswith("UsageError: --seconds: expected a number of seconds greater than 0, got 0\n")
    assert rounds.startswith("UsageError: --rounds: expected a whole number, 0 or more, got 2.5\n")


def test_another_model_is_asked_if_one_fails_at_once(kernel: Kernel) -> None:
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


def test_no_other_model_repeats_what_one_has_done(kernel: Kernel, models: str) -> None:
    before = len(asked(models))

    outcome = ask(kernel, CALL, "late,echo", "--out answer")

    assert failure(outcome)[0] == "McpError: the provider answered 503: come back later"
    assert [one["model"] for one in asked(models)[before:]].count("echo") == 0
    assert kernel.run("print(len(answer.calls))").stdout == "1\n"


def test_reasoning_is_folded_and_no_part_of_the_text(kernel: Kernel) -> None:
    for model, options in ((CLAUDE, "--effort low"), ("echo --base-url $url", "--effort low")):
        model = model.replace("$url", kernel.run("print(url)").stdout.strip())
        outcome = ask_provider(kernel, model, f"{options} --out answer hey")

        _, thought, text, _ = outcome.displays
        assert thought["text/plain"] == "Thought: 6 words"
        assert thought["text/html"].startswith("<details><summary><small>Thought: 6 words</small></summary><pre")
        assert "Let me think. It is &lt;b&gt;plain&lt;/b&gt;." in thought["text/html"]
        assert text["text/plain"] == "You said: hey"
        kept = kernel.run("print(answer.thinking, '|', answer.text)").stdout
        assert kept == "Let me think. It is <b>plain</b>. | You said: hey\n"
