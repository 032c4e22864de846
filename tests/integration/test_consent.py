"""Consent to calls, in a real kernel: for every way to call, at once, interrupted, and where no one can answer."""

import pytest

from tests.asking import LOAD_DEMO, failure
from tests.kernels import Kernel

SETUP = f"""
{LOAD_DEMO.replace("demo", "alpha", 1)}
%mcp policy ask alpha.slow;
import asyncio, threading
model = mcp.alpha.slow.options(caller="model")
def in_thread(function):
    outcomes = []
    def target():
        try:
            outcomes.append(function().text)
        except Exception as error:
            outcomes.append(str(error))
    thread = threading.Thread(target=target)
    thread.start()
    thread.join(30)
    return outcomes
"""
WAYS = {
    "sync": "print(model(seconds=0))",
    "await": "print(await model.aio(seconds=0))",
    "submit": "print(model.submit(seconds=0).result())",
    "thread": "print(*in_thread(lambda: model(seconds=0)))",
}
DONE = "Done: 10 steps in 0 s.\n"


@pytest.fixture
def kernel(shared_kernel: Kernel) -> Kernel:
    outcome = shared_kernel.run(SETUP)
    assert outcome.status == "ok", outcome
    return shared_kernel


def test_the_question_about_a_map_shows_some_of_its_calls(kernel: Kernel) -> None:
    kernel.run("mcp.policy.ask('alpha.echo')")
    outcome = kernel.run("mcp.alpha.echo.map([f'row {n}' for n in range(9)]).summary['succeeded']", answers=["once"])
    asked = outcome.stdout[outcome.stdout.index("Run alpha.echo") :].splitlines()
    assert (outcome.text, outcome.prompts) == ("9", ["Allow? [no] "])
    assert asked[0] == "Run alpha.echo 9 times?"
    assert asked[3:9] == [
        "  The arguments of the first call:",
        '  │ text = "row 0"',
        "  Some of the others:",
        *(f'  │ {{"text":"row {row}"}}' for row in (1, 4, 8)),
    ]


def test_every_way_to_call_asks_and_returns(kernel: Kernel) -> None:
    for way, code in WAYS.items():
        agreed = kernel.run(code, answers=["once"])
        assert (agreed.prompts, agreed.stdout[-len(DONE) :]) == (["Allow? [no] "], DONE), way
        refused = kernel.run(code, answers=[""])
        error = refused.stdout if way == "thread" else failure(refused)[0]
        assert "alpha.slow: you said no" in error, way
        unasked = kernel.run(code, answers=None)
        error = unasked.stdout if way == "thread" else failure(unasked)[0]
        assert "needs your consent by the rule 'ask alpha.slow (this notebook)', and no one answered" in error, way


def test_calls_at_once_are_one_question_on_a_loop_and_in_threads(kernel: Kernel) -> None:
    gathered = "print(len(await asyncio.gather(*(model.aio(seconds=0) for _ in range(5)))))"
    threaded = """
threads = [threading.Thread(target=model, kwargs={"seconds": 0}) for _ in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join(30)
print(sum(thread.is_alive() for thread in threads))
"""
    assert kernel.run(gathered, answers=["once"]).prompts == ["Allow these 5? [no] "]
    outcome = kernel.run(threaded, answers=["yes"] * 5)
    assert outcome.stdout.endswith("0\n")
    assert outcome.prompts[0].startswith("Allow")


@pytest.mark.parametrize("way", ["sync", "await", "submit"])
def test_a_question_that_is_interrupted_makes_no_call(kernel: Kernel, way: str) -> None:
    cell = kernel.start(WAYS[way], answers=())
    cell.wait_for(lambda outcome: bool(outcome.prompts))
    kernel.interrupt()
    assert cell.wait(20).status == "error"
    calls = "print([row for row in mcp.history().entries if not row.error])\n"
    after = kernel.run(calls + WAYS["sync"], answers=["y"])
    assert after.stdout.startswith("[]\n")
    assert after.stdout.endswith(DONE)


@pytest.mark.parametrize(("answer", "outcome"), [("always", DONE), ("never", "PolicyError: alpha.slow: denied by the")])
def test_always_and_never_are_not_asked_again(kernel: Kernel, answer: str, outcome: str) -> None:
    kernel.run(WAYS["sync"], answers=[answer])
    again = kernel.run(WAYS["sync"], answers=[])
    assert again.prompts == []
    assert (again.stdout if again.error is None else failure(again)[0]).startswith(outcome)


def test_a_question_shows_both_ends_of_a_long_value_and_its_invisible_characters(kernel: Kernel) -> None:
    code = "mcp.alpha.echo.options(caller='model')('rm ' + 'x' * 3000 + '\\u202e; ls')"
    kernel.run("%mcp policy ask alpha.echo;")
    (shown,) = (line for line in kernel.run(code, answers=["n"]).stdout.splitlines() if line.startswith("  │ "))
    assert shown.startswith('  │ text = "rm xxx')
    assert " characters that are not shown) …" in shown
    assert shown.endswith('x⟨U+202E⟩; ls"')
