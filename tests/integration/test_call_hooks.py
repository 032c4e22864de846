"""Functions of the user before and after each call of a tool, in a real kernel."""

import pytest

from tests.asking import LOAD_DEMO, ask, asking_kernel, failure, shown
from tests.conftest import StartKernel
from tests.kernels import Kernel

SEES = """
seen = []
@mcp.before_call
{kind} look(call):
    seen.append(call)
    if call.arguments.get("text") == "change":
        return dict(text="changed")
    if call.arguments.get("text") == "in place":
        call.arguments["text"] = "changed in place"
    if call.arguments.get("text") == "refuse":
        raise PermissionError("not this text")
    if call.arguments.get("text") == "invalid":
        return dict(nonsense=1)
    if call.arguments.get("text") == "odd":
        return 5
    if call.arguments.get("text") == "broken":
        1 / 0
    if call.arguments.get("text") == "own":
        mcp.demo.echo("change")
"""


@pytest.fixture
def kernel(shared_kernel: Kernel) -> Kernel:
    assert shared_kernel.run(LOAD_DEMO).status == "ok"
    return shared_kernel


def echo(kernel: Kernel, text: str) -> str:
    outcome = kernel.run(f"print(mcp.demo.echo({text!r}).text)")
    return "\n".join(failure(outcome)) if outcome.error else outcome.stdout.strip()


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_function_sees_changes_and_refuses_calls(kernel: Kernel, kind: str) -> None:
    kernel.run(SEES.replace("{kind}", kind))

    assert echo(kernel, "hey") == "hey"
    assert echo(kernel, "change") == "changed"
    assert echo(kernel, "in place") == "changed in place"
    assert echo(kernel, "refuse").startswith("PolicyError: demo.echo: refused by look() of mcp.before_call: not this")
    assert echo(kernel, "broken").startswith(
        "CallError: demo.echo: not made: look() of mcp.before_call raised ZeroDivisionError: division by zero"
    )
    assert echo(kernel, "odd").startswith("CallError: demo.echo: not made: look() of mcp.before_call returned 5")
    assert "not made" in echo(kernel, "invalid") or "nonsense" in echo(kernel, "invalid")
    assert echo(kernel, "own") == "own", "the function's own calls do not call it"
    call = kernel.run("print(seen[0], sorted(seen[0].arguments))").stdout
    assert call.startswith("<HookedCall ") and call.endswith("demo.echo by the user> ['text']\n")
    kept = kernel.run("print([row['outcome'] for row in mcp.history(tool='echo', failed=True)])").stdout
    assert kept.count("refused") == 1, kept
    kernel.run("mcp.before_call(None)")
    assert echo(kernel, "change") == "change"


def test_hooks_run_for_every_way_to_call(kernel: Kernel) -> None:
    kernel.run(SEES.replace("{kind}", "def"))
    kernel.run("@mcp.after_call\ndef loud(call):\n    return call.result.text.upper()")

    ways = (
        "mcp.demo.echo('change')",
        "await mcp.demo.echo.aio('change')",
        "mcp.demo.echo.submit('change').result()",
        "await mcp.demo.echo.submit('change')",
        "mcp.demo.echo.call({'text': 'change'})",
        "[*mcp.demo.echo.map([{'text': 'change'}])][0]",
    )
    for way in ways:
        assert kernel.run(f"print({way})").stdout == "CHANGED\n", way
    assert kernel.run("%mcp call demo.echo text=change").text == "ToolResult demo.echo: CHANGED"
    many = "{result.text for result in await asyncio.gather(*(mcp.demo.echo.aio('change') for _ in range(20)))}"
    assert kernel.run(f"import asyncio\nprint({many})").stdout == "{'CHANGED'}\n"


def test_a_hook_sees_and_replaces_results_and_errors(kernel: Kernel) -> None:
    kernel.run(
        "after = []\n@mcp.after_call\nasync def look(call):\n    after.append((call.result, call.error))\n"
        "    if call.tool == 'fail': return 'mended'\n"
        "    if call.arguments.get('text') == 'hide': raise ValueError('no')"
    )

    assert echo(kernel, "hey") == "hey"
    assert kernel.run("print(mcp.demo.fail(message='why'))").stdout == "mended\n"
    assert kernel.run("print(after[0][0].text, after[0][1], after[1][0], type(after[1][1]).__name__)").stdout == (
        "hey None None ToolError\n"
    )
    assert echo(kernel, "hide").startswith(
        "CallError: demo.echo: made, but its result is withheld: look() of mcp.after_call raised ValueError: no"
    )
    kernel.run("call = mcp.demo.echo.submit('hey')\ncall.result()\ncall.result()")
    assert kernel.run("print(len(after))").stdout == "4\n", "once for each call"


def test_a_wrong_function_is_one_line(kernel: Kernel) -> None:
    for name in ("before_call", "after_call"):
        error = failure(kernel.run(f"mcp.{name}(5)"))[0]
        assert error == f"ArgumentError: {name}(): function: expected a function or None, got 5"


@pytest.mark.cold
def test_policy_and_question_are_about_the_changed_arguments(start_kernel: StartKernel, models: str) -> None:
    kernel = asking_kernel(start_kernel, models)
    kernel.run("%mcp policy ask demo.echo\n@mcp.before_call\ndef look(call):\n    return {'text': call.caller}")

    outcome = ask(kernel, 'demo__echo({"text": "hidden"})', "tools", answers=["once"])

    assert "hidden" not in outcome.stdout
    assert "  text: model" in outcome.stdout or '"model"' in outcome.stdout, outcome.stdout
    assert shown(outcome)[-2] == "They answered: model"
    kernel.run("@mcp.before_call\ndef look(call):\n    raise PermissionError('not by a model')")
    refused = ask(kernel, 'demo__echo({"text": "x"})', "tools")
    assert "Not done: refused by look() of mcp.before_call: not by a model." in shown(refused)[-2]
    assert refused.prompts == []
    own = ask(kernel, "run_python({})", "echo", "--code")
    assert own.status == "ok"
