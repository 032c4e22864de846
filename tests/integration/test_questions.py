"""Questions of servers, answered at a prompt: in a sync call, in an await, from a thread, or by no one."""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import kernels
from tests.clients import asking_server
from tests.environments import ROOT
from tests.kernels import KERNELS, Cell, Kernel, Outcome

every_kernel = pytest.mark.kernels(*KERNELS)
WITHIN = 1.5
"""Seconds from an interrupt to the end of its cell, the traceback drawn."""


def asks(number: int) -> str:
    return shlex.join(asking_server(f"sdk{number}"))


@pytest.fixture(scope="module")
def shared(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """One kernel for many tests, with a server that asks by requests and one that asks by input rounds."""
    with kernels.started(kernel_name, tmp_path_factory.mktemp(kernel_name)) as kernel:
        setup = f"%load_ext ipymcp\nimport asyncio, threading\n%mcp load old -- {asks(1)}\n%mcp load new -- {asks(2)}"
        outcome = kernel.run(setup)
        assert outcome.status == "ok", outcome
        kernel.run("1 / 0")  # the first traceback takes its time: what draws it is imported
        yield kernel


def run(kernel: Kernel, code: str, *answers: str) -> Outcome:
    outcome = kernel.run(code, answers=answers)
    assert outcome.status == "ok", (outcome.error, outcome.prompts, outcome.stdout)
    return outcome


def at_prompt(kernel: Kernel, code: str) -> Cell:
    cell = kernel.start(code, answers=())
    cell.wait_for(lambda outcome: bool(outcome.prompts))
    return cell


def interrupted(kernel: Kernel, cell: Cell) -> tuple[str, float]:
    began = time.monotonic()
    kernel.interrupt()
    outcome = cell.wait()
    assert outcome.error is not None, outcome
    return outcome.error.ename, time.monotonic() - began


@every_kernel
@pytest.mark.parametrize("server", ["old", "new"])
def test_a_form_is_filled_at_the_prompts_of_a_sync_call(shared: Kernel, server: str) -> None:
    outcome = run(shared, f"print(mcp.{server}.ask_form().text)", "Ada", "", "")
    assert outcome.prompts == [
        "Name: ",
        "Age (a whole number, at least 0, optional) [30]: ",
        "Send? [Enter: yes, again] ",
    ]
    assert outcome.stdout == (
        f"{server}.ask_form asks for your input:\n"
        "  │ Who are you?\n"
        "Enter accepts the value in [ ] · - omits an optional value · !decline · !cancel\n"
        "  │ Yours.\n"
        "Ada is 30\n"
    )


@every_kernel
@pytest.mark.parametrize("server", ["old", "new"])
def test_a_form_is_filled_at_the_prompts_of_an_awaited_call(shared: Kernel, server: str) -> None:
    assert run(shared, f"print((await mcp.{server}.ask_form.aio()).text)", "Ada", "36", "").stdout.endswith(
        "Ada is 36\n"
    )


@pytest.mark.parametrize("server", ["old", "new"])
def test_a_form_is_filled_at_the_prompts_of_a_call_in_a_thread(shared: Kernel, server: str) -> None:
    code = f"""
        thread = threading.Thread(target=lambda: print(mcp.{server}.ask_form().text))
        thread.start(); thread.join()
    """
    outcome = run(shared, "\n".join(line.strip() for line in code.splitlines()), "Ada", "36", "")
    assert outcome.stdout.endswith("Ada is 36\n")


def test_of_two_calls_each_is_asked_about_its_own(shared: Kernel) -> None:
    calls = "mcp.old.ask_form.aio(message='First?'), mcp.new.ask_form.aio()"
    code = f"a, b = await asyncio.gather({calls})\nprint(a.text, b.text)"
    outcome = run(shared, code, "Ada", "", "", "Bob", "", "")
    assert "Ada is 30" in outcome.stdout and "Bob is 30" in outcome.stdout
    assert len(outcome.prompts) == 6


def test_invalid_answers_are_asked_for_again(shared: Kernel) -> None:
    outcome = run(shared, "print(mcp.old.ask_form().text)", "", '""', "old", "-1", "36", "again", "Ada", "36", "")
    assert outcome.stdout.endswith("Ada is 36\n")
    assert '  This value is required; "" is an empty text\n' in outcome.stdout
    assert "  Must be a whole number\n" in outcome.stdout
    assert "  Must be at least 0\n" in outcome.stdout


@pytest.mark.parametrize(("word", "action"), [("!decline", "decline"), ("!cancel", "cancel")])
def test_the_user_declines_or_cancels(shared: Kernel, word: str, action: str) -> None:
    assert run(shared, "print(mcp.old.ask_form().text)", word).stdout.endswith(f"\n{action}\n")


@pytest.mark.parametrize("server", ["old", "new"])
def test_an_address_is_shown_in_full_with_its_domain(shared: Kernel, server: str) -> None:
    outcome = run(shared, f"print(mcp.{server}.ask_url().text)", "")
    assert outcome.stdout == (
        f"{server} wants you to open example.com:\n"
        "  │ Please log in.\n"
        "  https://example.com/login?state=1\n"
        "Nothing is opened for you. Enter: I agree, and open it myself · !decline · !cancel\n"
        "accept\n"
    )


@pytest.mark.timed
@every_kernel
@pytest.mark.parametrize("call", ["mcp.old.ask_form()", "await mcp.old.ask_form.aio()"])
def test_where_no_one_can_answer_a_question_is_cancelled_at_once(shared: Kernel, call: str) -> None:
    began = time.monotonic()
    outcome = shared.run(f"r = {call}\nprint(r.text)")
    assert (outcome.status, outcome.stdout) == ("ok", "cancel\n")
    assert outcome.stderr == (
        "ipymcp: old.ask_form asked a question, which was cancelled because no one can be asked: "
        "answer in code with mcp.on_elicitation(function)\n"
    )
    logged = shared.run("print(list(mcp.servers['old'].logs())[-1]['text'])").stdout
    assert logged == "its question was answered 'cancel': no one could be asked\n"
    assert time.monotonic() - began < 5


def test_a_question_of_a_call_that_no_one_waits_for_is_cancelled_at_once(shared: Kernel) -> None:
    code = "call = mcp.old.ask_form.submit()\nwhile not call.done: await asyncio.sleep(0.01)\nprint(call.result().text)"
    assert run(shared, code).stdout == "cancel\n"


def test_a_submitted_call_asks_where_its_result_is_waited_for(shared: Kernel) -> None:
    code = "call = mcp.old.ask_in_time.submit(20)\nprint(call.result().text)"
    outcome = run(shared, code, "Ada", "", "")
    assert outcome.stdout.endswith(("accept\n", "cancel\n")), outcome.stdout


@pytest.mark.timed
@every_kernel
@pytest.mark.parametrize("server", ["old", "new"])
@pytest.mark.parametrize(
    ("call", "errors"),
    [
        ("mcp.{}.ask_form()", ("KeyboardInterrupt",)),
        ("await mcp.{}.ask_form.aio()", ("CancelledError", "KeyboardInterrupt")),
    ],
    ids=["sync", "awaited"],
)
def test_an_interrupt_at_the_prompt_of_a_call_ends_it(
    shared: Kernel, call: str, errors: tuple[str, ...], server: str
) -> None:
    name, seconds = interrupted(shared, at_prompt(shared, call.format(server)))
    assert name in errors
    assert seconds < WITHIN
    assert run(shared, f"print(mcp.{server}.ask_form().text)", "Ada", "", "").stdout.endswith("Ada is 30\n")


@pytest.mark.timed
@pytest.mark.parametrize(
    "call", ["mcp.{}.ask_form.options(timeout=0.5)()", "await mcp.{}.ask_form.options(timeout=0.5).aio()"]
)
@pytest.mark.parametrize("server", ["old", "new"])
def test_the_calls_clock_stands_still_while_the_user_thinks(shared: Kernel, server: str, call: str) -> None:
    cell = at_prompt(shared, f"r = {call.format(server)}\nprint(r.text)")
    thinking = time.monotonic() + 1.2
    shared.read_until(lambda: time.monotonic() > thinking, 30)
    cell.answers.extend(["", ""])
    shared.answer("Ada")
    outcome = cell.wait()
    assert outcome.status == "ok", outcome.error
    assert outcome.stdout.endswith("Ada is 30\n")


def test_a_server_that_asks_by_a_request_in_the_stateless_era_is_reopened_with_a_handshake(shared: Kernel) -> None:
    run(shared, f"%mcp load pushing -- env ANOTHER=definition {asks(2)}")
    assert shared.run("mcp.servers['pushing'].protocol_version").text == "'2026-07-28'"
    outcome = shared.run("mcp.pushing.push()", answers=[])
    assert outcome.error is not None
    assert "call the tool again" in outcome.error.traceback, outcome.error.traceback
    assert run(shared, "print(mcp.pushing.push().text)", "Ada", "", "").stdout.endswith("Ada is 30\n")
    assert shared.run("mcp.servers['pushing'].protocol_version").text == "'2025-11-25'"
    assert "reopening the session with a handshake" in run(shared, "print(list(mcp.servers['pushing'].logs()))").stdout
    run(shared, "%mcp unload pushing")


@pytest.mark.parametrize("word", ["", "yes", "Y", "ok"])
def test_yes_is_taken_as_people_write_it(shared: Kernel, word: str) -> None:
    assert run(shared, "print(mcp.old.ask_form().text)", "Ada", "36", word).stdout.endswith("Ada is 36\n")
    assert run(shared, "print(mcp.old.ask_url().text)", word).stdout.endswith("\naccept\n")


def test_an_unknown_word_is_repeated_with_the_expected_ones(shared: Kernel) -> None:
    outcome = run(shared, "print(mcp.old.ask_form().text)", "Ada", "36", "sure", "Again", "Bob", "7", "Yes")
    assert "  'sure' is not one of: yes, again\n" in outcome.stdout
    assert outcome.stdout.endswith("Bob is 7\n")
    assert run(shared, "print(mcp.old.ask_url().text)", "No").stdout.endswith("\ndecline\n")


# -- the user's own functions -----------------------------------------------------------------------------------------

Answering = Callable[[str], Outcome]


@pytest.fixture
def answering(shared: Kernel) -> Iterator[Answering]:
    """Has a function answer a form."""
    yield lambda function: run(shared, f"mcp.on_elicitation({function})\nprint(mcp.old.ask_form().text)")
    run(shared, "mcp.on_elicitation(None)")


@pytest.mark.parametrize("server", ["old", "new"])
def test_functions_of_the_user_answer_instead(shared: Kernel, server: str) -> None:
    code = f"""
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    @mcp.on_elicitation
    async def form(question):
        await asyncio.sleep(0)
        return {{"name": question.tool or "?"}}
    @mcp.on_sampling
    def model(request):
        return request.messages[0]["content"]["text"].rstrip("?").rpartition(" ")[2] + ": Paris"
    mcp.restart("old")
print(mcp.{server}.ask_form().text, mcp.{server}.ask_model().text, mcp.{server}.ask_roots().text)
mcp.on_elicitation(None), mcp.on_sampling(None)
mcp.restart("old")
"""
    folder = Path(shared.folder).as_uri()
    assert run(shared, code).stdout == f"ask_form is 30 unknown: France: Paris {folder}\n"


NO_MATCH = "on_elicitation returned values that do not match the schema: "


@pytest.mark.parametrize(
    ("gives", "why"),
    [
        ("{'name': 5}", NO_MATCH + "name: expected string, got 5"),
        ("{}", NO_MATCH + "missing argument 'name'"),
        ("{'name': 'Ada', 'years': 3}", NO_MATCH + "no argument 'years'"),
        ("{'name': 'Ada', 'age': -1}", NO_MATCH + "age: must be at least 0, got -1"),
        (
            "5",
            "on_elicitation returned 5: return a dict of values, True to accept, False to decline, or None to cancel",
        ),
        ("1 / 0", "on_elicitation raised ZeroDivisionError('division by zero')"),
    ],
)
def test_an_answer_that_does_not_fit_the_form_is_not_sent_and_reported(
    answering: Answering, gives: str, why: str
) -> None:
    outcome = answering(f"lambda question: {gives}")
    assert outcome.stdout == "cancel\n"
    assert outcome.stderr == f"ipymcp: old.ask_form asked a question that was cancelled: {why}\n"


@pytest.mark.parametrize(("gives", "answer"), [("False", "decline"), ("None", "cancel"), ("{'name': 'A'}", "A is 30")])
def test_a_function_declines_cancels_or_accepts(answering: Answering, gives: str, answer: str) -> None:
    outcome = answering(f"lambda question: {gives}")
    assert (outcome.stdout, outcome.stderr) == (f"{answer}\n", "")


@pytest.mark.parametrize("word", ["on_elicitation", "on_sampling"])
def test_only_a_function_can_be_set_to_answer(shared: Kernel, word: str) -> None:
    error = shared.run(f"mcp.{word}('x')").error
    assert error is not None
    assert error.traceback == (
        f"ArgumentError: {word}(): function: expected a function or None, got 'x'\n"
        f"  {word}(function) · in: mcp.{word}('x')"
    )


def test_a_function_that_a_server_does_not_know_of_waits_for_a_restart_and_says_so(shared: Kernel) -> None:
    try:
        run(shared, "mcp.on_sampling(None), mcp.restart('old')")
        late = run(shared, "mcp.on_sampling(lambda request: 'x')").stderr
        at_once = run(shared, "mcp.on_elicitation(lambda question: {'name': 'Ada'})").stderr
        assert run(shared, "print(mcp.old.ask_form().text)").stdout == "Ada is 30\n"
    finally:
        run(shared, "mcp.on_elicitation(None), mcp.on_sampling(None)")
    assert late == "ipymcp: old will use the new sampling setting after a restart: %mcp restart old\n"
    assert at_once == ""


def test_a_function_for_sampling_that_fails_is_reported_in_the_cell(shared: Kernel) -> None:
    try:
        run(shared, "mcp.on_sampling(lambda request: 1 / 0)\nmcp.restart('old')")
        outcome = shared.run("mcp.old.ask_model()")
    finally:
        run(shared, "mcp.on_sampling(None)\nmcp.restart('old')")
    assert outcome.stderr == (
        "ipymcp: old.ask_model asked for a model's response and got none: on_sampling raised "
        "ZeroDivisionError('division by zero')\n"
    )


@pytest.mark.kernels("kernel-7", "kernel-6")
def test_a_coroutine_bound_to_the_kernels_loop_runs_there_where_configured(shared: Kernel) -> None:
    code = """
%config IPyMCP.nested_loop = "handlers"
kernels_loop = asyncio.get_running_loop()
lock = asyncio.Lock()
@mcp.on_elicitation
async def form(question):
    async with lock:
        await asyncio.sleep(0.01)
    return {"name": str(asyncio.get_running_loop() is kernels_loop)}
print(mcp.old.ask_form().text, (await mcp.old.ask_form.aio()).text)
"""
    try:
        first = shared.start(code, answers=())
        queued = shared.start("print('not lost')", answers=())
        assert first.wait().stdout == "True is 30 True is 30\n", first.outcome
        assert queued.wait().stdout == "not lost\n"
    finally:
        run(shared, "%config IPyMCP.nested_loop = 'off'\nmcp.on_elicitation(None)")


def test_calls_may_wait_by_nesting_the_kernels_loop(shared: Kernel) -> None:
    code = """
%config IPyMCP.nested_loop = "always"
ticks = []
async def tick():
    while True:
        ticks.append(1)
        await asyncio.sleep(0.001)
task = asyncio.ensure_future(tick())
@mcp.on_elicitation
def form(question):
    while len(ticks) < 3: threading.Event().wait(0.001)
    return {"name": "Ada"}
print(mcp.old.ask_form().text)
task.cancel()
"""
    try:
        assert run(shared, code).stdout == "Ada is 30\n"
    finally:
        run(shared, "%config IPyMCP.nested_loop = 'off'\nmcp.on_elicitation(None)")


# -- scripts ----------------------------------------------------------------------------------------------------------


def test_a_script_without_a_terminal_cancels_at_once() -> None:
    code = f"""
import ipymcp, sys
command = {asking_server("sdk1")!r}
with ipymcp.connect({{"old": {{"command": command[0], "args": command[1:]}}}}) as mcp:
    print(mcp.old.ask_form().text)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="Ada\n\n\n",
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout == "cancel\n"
