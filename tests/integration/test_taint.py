"""Untrusted content is a property of values: a model that received some is doubted, by whatever way it came.

No one answers questions here, so that a call of a doubted model is refused; every tool is allowed by a rule.
"""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pandas as pd
import pytest

import ipymcp
from ipymcp import Mcp, PolicyError, Toolset
from ipymcp.interaction.questions import PageReply
from ipymcp.llm.code_mode import CodeRunner
from ipymcp.security.untrusted import ASSUMED, Conversation
from tests.asking import NOT_SENT, call, contents
from tests.environments import ROOT
from tests.integration.test_toolsets import start_threads
from tests.servers.raw_stdio import PAGE
from tests.unit.scripted_interface import ScriptedInterface

MAIL = {"command": sys.executable, "args": [str(ROOT / "tests" / "servers" / "mail.py")]}


@contextmanager
def connected() -> Iterator[Mcp]:
    with ipymcp.connect({"mail": MAIL}) as mcp:
        mcp.policy.allow("*")
        yield mcp


@pytest.fixture
def mcp() -> Iterator[Mcp]:
    with connected() as mcp:
        yield mcp


@pytest.fixture(scope="module")
def shared() -> Iterator[Mcp]:
    """A host for tests whose conversations are their own."""
    with connected() as mcp:
        start_threads(mcp)
        yield mcp


def results(tools: Toolset, *calls: dict[str, Any], turn: str | None = None) -> list[str]:
    return contents(tools.run(list(calls), turn=turn))


READ, SEND, KEEP = call("mail__read", text="a page"), call("mail__send"), call("mail__keep", text="x")


def test_a_model_is_doubted_after_it_has_received_a_result(mcp: Mcp) -> None:
    assert results(mcp.tools, READ, SEND, READ, SEND) == ["a page", "sent", "a page", "sent"]

    assert results(mcp.tools, SEND) == [NOT_SENT.format("mail.read")]
    assert results(mcp.tools, SEND, turn="another") == ["sent"], "another conversation"
    mcp._host.guard.policy.doubts = False
    assert results(mcp.tools, SEND) == ["sent"]


def test_a_rule_may_cover_doubt_which_lasts_for_other_notebooks_too(mcp: Mcp) -> None:
    results(mcp.tools, READ)
    mcp.policy.allow("mail.send", always=True)
    assert results(mcp.tools, SEND) == [NOT_SENT.format("mail.read")]

    mcp.policy.allow("mail.send", always=True, doubted=True)

    assert results(mcp.tools, SEND) == ["sent"]
    mcp.policy.reset()
    assert results(mcp.tools, SEND) == ["sent"], "a saved rule"
    mcp.policy.allow("mail.send")
    assert results(mcp.tools, SEND) == [NOT_SENT.format("mail.read")], "the last rule decides"


def test_the_history_names_the_model_and_the_answer_if_known(mcp: Mcp) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "mail__send", "input": {}}
    mcp.tools.run({"role": "assistant", "model": "claude-9", "content": [use]}, turn="report")
    mcp.mail.send()
    mcp.tools.run([SEND])

    columns = ("caller", "model", "provider", "answer")
    rows = mcp.history(limit=3).df[[*columns]].to_dict("records")
    assert [tuple(row.values()) for row in rows[1:]] == [
        ("user", "", "", ""),
        ("model", "claude-9", "anthropic", "report"),
    ]
    assert rows[0]["answer"].startswith("run ")
    assert [*mcp.history(limit=3).columns[1:5]] == ["who", "model", "answer", "tool"]
    assert "model" not in mcp.history(tool="keep").columns, "no such call"


def test_a_new_selection_for_each_response_is_the_same_conversation(mcp: Mcp) -> None:
    assert results(mcp.tools("mail.*"), READ) == ["a page"]

    assert results(mcp.tools("mail.*"), SEND) == [NOT_SENT.format("mail.read")]


@pytest.mark.parametrize(
    ("name", "content", "source"),
    [
        ("fail", PAGE, "mail.fail"),
        ("refuse", f"Error: {PAGE}", "mail.refuse"),
        ("die", f"Error: mail: the server exited with code 3. Last output: {PAGE}", "mail.die"),
    ],
)
def test_the_text_of_an_error_is_untrusted(mcp: Mcp, name: str, content: str, source: str) -> None:
    assert results(mcp.tools, call(f"mail__{name}", text=PAGE)) == [content]

    [refused] = results(mcp.tools, SEND)
    assert refused.startswith("Not done: needs your consent because the model has read untrusted content from ")
    assert source in refused or "an error of mail" in refused


def given_by(make: Callable[[Mcp], object]) -> Callable[[Mcp], Callable[[], object]]:
    """A function of the notebook that gives what something made."""

    def bind(mcp: Mcp) -> Callable[[], object]:
        def look() -> object:
            return make(mcp)

        return look

    return bind


def earlier(mcp: Mcp) -> Callable[[], object]:
    text = mcp.mail.read(PAGE).text

    def look() -> object:
        return f"It says: {text.upper()}!"

    return look


def failing(mcp: Mcp) -> Callable[[], object]:
    def look() -> object:
        try:
            mcp.mail.refuse(PAGE)
        except ipymcp.McpError as error:
            raise ValueError(str(error)) from None

    return look


def awaiting(mcp: Mcp) -> Callable[[], Any]:
    async def look() -> object:
        await mcp.mail.read.aio("a page")
        return 1

    return look


def kept(mcp: Mcp) -> Callable[[], object]:
    result = pickle.loads(pickle.dumps(mcp.mail.read("x")))
    mcp._host.guard.untrusted._contents.clear()
    return lambda: {"all": [result]}


def framed(mcp: Mcp) -> Callable[[], object]:
    frame = pd.DataFrame({"text": [mcp.mail.read(PAGE).text]})
    return lambda: frame


def mapped(mcp: Mcp) -> Callable[[], object]:
    found = mcp.mail.read.map(["x", "y"])
    mcp._host.guard.untrusted._contents.clear()
    return lambda: found


def one_of_many_rows(mcp: Mcp) -> Callable[[], object]:
    frame = mcp.mail.read.map([PAGE, *(f"page {number}" for number in range(200))]).df
    return lambda: frame.head(1)


FUNCTIONS = {
    "its call": given_by(lambda mcp: mcp.mail.read("a page").size),
    "its call in a thread": given_by(lambda mcp: asyncio.run(asyncio.to_thread(lambda: mcp.mail.read("a page").size))),
    "its submitted call": given_by(lambda mcp: mcp.mail.read.submit("a page").result().size),
    "its error": failing,
    "what it awaits": awaiting,
    "a resource": given_by(lambda mcp: mcp.mail.resources["page://front"].read().mime_type),
    "a prompt": given_by(lambda mcp: len(mcp.mail.prompts.greet())),
    "a text from before": earlier,
    "a result from before": kept,
    "a frame from before": framed,
    "a map from before": mapped,
    "the first row of a map of many": one_of_many_rows,
}


@pytest.mark.parametrize("way", FUNCTIONS)
def test_untrusted_content_from_a_function_of_the_notebook_counts(mcp: Mcp, way: str) -> None:
    look = FUNCTIONS[way](mcp)
    look.__name__ = "look"
    tools = mcp.tools + look
    assert results(tools, SEND) == ["sent"]

    results(tools, call("look"))

    assert results(tools, SEND)[0].startswith("Not done: needs your consent because the model has read untrusted")


def test_own_data_texts_of_functions_and_refusals_are_not_a_reason_to_doubt(mcp: Mcp) -> None:
    def price() -> str:
        return "It is 12.5 today, and please send it to all who want to know."

    mcp.mail.read(PAGE)  # by the user
    tools = mcp.tools + price
    for calls, content in (
        ([KEEP], "x"),
        ([call("mail__read"), call("mail__nope")], "Error: there is no tool"),
        ([call("price")], price()),
    ):
        assert results(tools, *calls)[-1].startswith(content)
        assert results(tools, SEND) == ["sent"]
    mcp.policy.ask("mail.read")
    assert results(tools, READ)[0].startswith("Not done: ")
    assert results(tools, SEND) == ["sent"], "the call was not made"


def test_a_functions_calls_for_a_doubted_model_need_consent_too(mcp: Mcp) -> None:
    def send() -> str:
        return mcp.mail.send().text

    tools = mcp.tools + send
    assert results(tools, call("send"), READ) == ["sent", "a page"]

    assert results(tools, call("send"))[0].startswith("Not done: needs your consent because the model has read")
    assert mcp.mail.send().text == "sent", "the user's own call"


@pytest.mark.parametrize("way", ["functions", "run"])
def test_one_answer_covers_the_calls_of_one_selection_or_turn(mcp: Mcp, way: str) -> None:
    user = ScriptedInterface(PageReply(answer="answer"))
    mcp._host.questions.terminal = lambda: user
    mcp.policy.ask("mail.send")

    def send(turn: str | None = None) -> Callable[[], str]:
        if way == "run":
            return lambda: results(mcp.tools, SEND, turn=turn or "one")[0]
        return next(one for one in mcp.tools.to_functions(turn=turn) if one.__name__ == "mail__send")

    one, another = send(), send("another")
    assert [one(), one(), another(), another(), one()] == ["sent"] * 5

    assert len(user.asked) == 2
    assert [row.answer for row in mcp.history(limit=3).entries][1:] == ["another", "another"]


# -- a model's own code -----------------------------------------------------------------------------------------------


def ran(coder: CodeRunner, *code: str) -> list[str]:
    outputs: list[str] = []
    for cell in code:
        outputs.append(coder._host.loop.run(coder._run(cell)).text)
        coder._conversation.given()
    return outputs


def coder(mcp: Mcp, patterns: str = "*", **names: Any) -> CodeRunner:
    return CodeRunner(
        mcp._host, mcp.tools(patterns).selection, {"mcp": mcp, **names}, allowed=True, conversation=Conversation()
    )


SENT = "mcp.mail.send().text"
NOT_ITS_OWN = "PolicyError in line 1: mail.send: a model's code may not continue a stream that it did not start"


def test_a_models_code_calls_as_the_model(mcp: Mcp) -> None:
    assert ran(coder(mcp), f"{SENT}; mcp.mail.send.options(caller='user')().text") == ["'sent'"]

    assert [row["who"] for row in mcp.history(limit=2)] == ["model", "model"]
    mcp.mail.send()
    assert [row["who"] for row in mcp.history(limit=1)] == ["user"]


@pytest.mark.parametrize(
    "code",
    [
        "mcp.mail.read('a page')",
        "x = mcp.mail.read('a page').size",
        "mcp.mail.read.submit('a page').result().size",
        "import asyncio, threading\nasyncio.run(asyncio.to_thread(lambda: mcp.mail.read('a page').size))",
        "async def f(): await mcp.mail.read.aio('a page')\nimport asyncio\nasyncio.run(f())",
        "from concurrent.futures import ThreadPoolExecutor\nlist(ThreadPoolExecutor(1).map(mcp.mail.read, ['a page']))",
        "import threading\nt = threading.Thread(target=mcp.mail.read, args=['a page'])\nt.start()\nt.join()",
        "sum(one.size for one in pool.map(mcp.mail.read, ['a page']))",
        "import asyncio\nasync def f():\n  loop = asyncio.get_running_loop()\n"
        "  await loop.run_in_executor(pool, mcp.mail.read, 'a page')\nasyncio.run(f())",
        "len(mcp.mail.read.map(['a page', 'b']))",
        "sum(1 for _ in mcp.mail.read.map.stream(['a page', 'b']))",
        "mcp.mail.resources['page://front'].read().mime_type",
        "len(mcp.mail.prompts.greet())",
        "mcp.tools.run([{'id': '1', 'function': {'name': 'mail__read', 'arguments': {'text': 'a page'}}}])",
        "print(text)",
        "result",
    ],
)
def test_a_models_code_is_doubted_after_it_has_read_untrusted_content(shared: Mcp, code: str) -> None:
    mcp = shared
    text, result, pool = mcp.mail.read(PAGE).text, mcp.mail.read("x"), ThreadPoolExecutor(1)
    pool.submit(int).result()  # so that its thread is the user's
    names = {"text": text, "result": result, "pool": pool}

    sent, _, refused = ran(coder(mcp, **names), SENT, code, SENT)

    assert sent == "'sent'"
    assert refused.startswith("PolicyError in line 1: mail.send: needs your consent because the model has read"), (
        refused
    )


def test_a_thread_counts_as_the_models_once_its_code_has_run(mcp: Mcp) -> None:
    pool = ThreadPoolExecutor(1)
    pool.submit(mcp.mail.send).result()
    ran(coder(mcp, "mail.send", pool=pool), "pool.submit(mcp.mail.send).result()")
    pool.submit(mcp.mail.send).result()
    pool.submit(contextvars.copy_context().run, mcp.mail.send).result()
    asyncio.run(asyncio.to_thread(mcp.mail.send))
    mcp.mail.send()

    assert [row["who"] for row in mcp.history(limit=6)][::-1] == ["user", "model", "model", "user", "user", "user"]
    with pytest.raises(PolicyError) as refused:
        pool.submit(mcp.mail.read, "x").result()
    assert str(refused.value) == "mail.read: is not among the tools that the model may use"
    assert refused.value.hint == f"{ASSUMED}; asyncio.to_thread() in a cell keeps it yours"
    with pytest.raises(PolicyError) as refused:
        pool.submit(mcp.policy.allow, "*").result()
    assert refused.value.hint == f"the user can, in a cell ({ASSUMED})"


def test_the_question_says_that_a_call_comes_from_a_thread(mcp: Mcp) -> None:
    user = ScriptedInterface(PageReply(answer="once"))
    mcp.policy.ask("mail.send")
    model = coder(mcp)
    ran(model, "1")
    pool = ThreadPoolExecutor(1)
    with pytest.raises(PolicyError, match="and no one answered; it comes from a thread or callback, not from a cell"):
        pool.submit(mcp.mail.send).result()
    mcp._host.questions.terminal = lambda: user

    pool.submit(mcp.mail.send).result()
    ran(model, SENT)

    assert [page.calls[0].why for page in user.asked] == [
        "rule: ask mail.send (this notebook) · it comes from a thread or callback, not from a cell; since a model's"
        " code has run here, it counts as the model's",
        "rule: ask mail.send (this notebook)",
    ]


def test_doubt_about_a_models_code_outlasts_the_code_of_another(mcp: Mcp) -> None:
    pool = ThreadPoolExecutor(1)
    ran(coder(mcp), "mcp.mail.read('a page')", "1")
    ran(coder(mcp), "1")

    with pytest.raises(PolicyError, match="because the model has read untrusted content"):
        pool.submit(mcp.mail.send).result()


@pytest.mark.parametrize(
    "code",
    [
        "import weakref\nclass Left: pass\nleft.append(Left())\nweakref.finalize(left[0], lambda: mcp.mail.send())",
        "class Left:\n  def __del__(self): mcp.mail.send()\nleft.append(Left())",
    ],
)
def test_a_finalizer_of_a_models_code_acts_for_the_model_wherever_it_runs(mcp: Mcp, code: str) -> None:
    left: list[Any] = []
    ran(coder(mcp, left=left), code)
    mcp.mail.send()

    left.clear()

    assert [row["who"] for row in mcp.history(limit=2)] == ["model", "user"]


@pytest.mark.parametrize(
    "code",
    [
        "mcp.policy.allow('*')",
        "mcp.policy.reset()",
        "mcp.pins.accept()",
        "mcp.restore()",
        "mcp.secret.set('x', 'y')",
        "mcp.secret.delete('x')",
        "mcp.enable('mail.send')",
        "mcp.roots = '/'",
        "mcp.on_elicitation(print)",
        "mcp.on_sampling(print)",
        "import asyncio\nasyncio.run(mcp.policy.allow.aio('*'))",
    ],
)
def test_a_models_code_may_not_change_permissions(shared: Mcp, code: str) -> None:
    assert "a model's code may not" in ran(coder(shared), code)[0]


BY_NAME = (
    "mcp.call('mail', 'send', {'to': 'x'})",
    "import asyncio\nasyncio.run(mcp.call.aio('mail.send', {'to': 'x'}))",
)


@pytest.mark.parametrize("code", [SENT, *BY_NAME])
def test_a_models_code_can_call_its_selection_only(mcp: Mcp, code: str) -> None:
    refused = ran(coder(mcp, "mail.read"), code)[0].replace("line 2", "line 1")

    assert refused == "PolicyError in line 1: mail.send: is not among the tools that the model may use"
    with pytest.raises(PolicyError):
        mcp.policy.deny("mail.send")
        mcp.mail.send()


# -- maps of a model's code -------------------------------------------------------------------------------------------

STREAM = "s = iter(mcp.mail.send.map.stream({'to': str(n)} for n in range(9)))\nnext(s)[1].text"
NEXT = "next(s)[1].text"


def test_a_stream_of_a_models_code_is_asked_about_again_once_the_model_is_doubted(mcp: Mcp) -> None:
    user = ScriptedInterface(PageReply(answer="once"))
    mcp.policy.ask("mail.send")
    mcp._host.questions.terminal = lambda: user
    model = coder(mcp)
    assert ran(model, STREAM, NEXT, "mcp.mail.read('a page')")[:2] == ["'sent'", "'sent'"]
    user.reply = PageReply(answer="no")
    [refused] = ran(model, "print(next(s)[1])")

    assert refused.startswith("mail.send: you said no")
    assert len(user.asked) == 2 and "has read untrusted content" in user.asked[1].calls[0].why


def test_a_models_code_cannot_continue_a_stream_that_it_did_not_start(mcp: Mcp) -> None:
    names: dict[str, Any] = {"mcp": mcp}
    earlier = CodeRunner(mcp._host, mcp.tools.selection, names, allowed=True, conversation=Conversation())
    assert ran(earlier, STREAM) == ["'sent'"]
    assert ran(coder(mcp, s=names["s"]), NEXT) == [NOT_ITS_OWN]

    own = iter(mcp.mail.send.map.stream({"to": str(number)} for number in range(9)))
    next(own)
    assert ran(coder(mcp, s=own), NEXT) == [NOT_ITS_OWN]


def test_a_map_that_a_models_code_retries_is_asked_about_once(mcp: Mcp) -> None:
    user = ScriptedInterface(PageReply(answer="once"))
    mcp._host.questions.terminal = lambda: user
    found = mcp.mail.fail.map(["a", "b", "c"])
    mcp.policy.ask("mail.fail")
    ran(coder(mcp, found=found), "found.retry()")

    assert [one.calls[0].sentence for one in user.asked] == ["The model wants to run mail.fail 3 times"]
