"""Consent to calls: one question for concurrent calls, and the scope of each answer."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import pytest

from ipymcp.errors import PolicyError
from ipymcp.interaction.questions import ApprovalAnswer, ApprovalQuestion, Caller, WantedCall
from ipymcp.interaction.terminal import TerminalPrompts
from ipymcp.protocol.types import ToolDefinition
from ipymcp.runtime.catalog import ToolEntry
from ipymcp.security.approvals import Approvals, PendingApproval
from ipymcp.security.policy import Policy
from ipymcp.security.rules import Rule, SavedRules, ServerGrants
from ipymcp.security.untrusted import Conversation
from ipymcp.storage.database import Database

RIGHTS = ServerGrants("d1")
ASK_ALL, ALLOW_ALL = Rule("fs.*", "ask", "this notebook"), Rule("fs.*", "allow", "this notebook")


def entry(tool: str) -> ToolEntry:
    return ToolEntry("fs", tool, tool, ToolDefinition(tool))


def pending(
    tool: str, caller: Caller = "model", turn: str = "", conversation: Conversation | None = None
) -> PendingApproval:
    return PendingApproval(entry(tool), RIGHTS, caller, turn, b"{}", conversation)


class ApprovingUser:
    """A policy, and a user who gives these answers in turn."""

    def __init__(self, database: Database, *answers: ApprovalAnswer | None) -> None:
        self.policy = Policy()
        self.questions: list[ApprovalQuestion] = []
        self.noted: list[str] = []
        """The notes about questions and answers that the calls received."""
        self._answers = list(answers)

        self.approvals = Approvals(self.policy, lambda: SavedRules(database), self._answer)

    async def _answer(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        self.questions.append(question)
        return self._answers.pop(0)

    async def want(
        self, *tools: str, turn: str = "", caller: Caller = "model", conversation: Conversation | None = None
    ) -> list[str]:
        """Ask for these calls at once and return those that are allowed; no question is asked where policy decides."""
        wishes = [pending(tool, caller, turn, conversation) for tool in tools]
        outcomes = await asyncio.gather(*map(self._want, wishes), return_exceptions=True)
        return [tool for tool, outcome in zip(tools, outcomes, strict=True) if outcome is None]

    async def _want(self, wish: PendingApproval) -> None:
        verdict = self.policy.check(wish.entry, wish.rights, wish.caller, wish.turn, wish.conversation)
        if verdict.decision == "ask":
            await self.approvals.obtain(wish, self.noted.append)


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))  # type: ignore[arg-type]

    return run


@on_a_loop
async def test_concurrent_calls_are_one_question(database: Database) -> None:
    user = ApprovingUser(database, "once", "no")
    assert await user.want("read", "write", "read") == ["read", "write", "read"]
    assert [call.tool for call in user.questions[0].calls] == ["read", "write", "read"]
    assert await user.want("read") == []
    assert len(user.questions) == 2
    together = "May fs.read, fs.write be called? · allowed once"
    assert user.noted == [together] * 3 + ["May fs.read be called? · denied"]


@pytest.mark.parametrize(
    ("answer", "same", "other"),
    [("notebook", True, False), ("server", True, True), ("always", True, False), ("answer", True, False)],
)
@on_a_loop
async def test_an_answer_allows_exactly_the_calls_in_its_scope(
    database: Database, answer: Any, same: bool, other: bool
) -> None:
    user = ApprovingUser(database, answer, "no", "no")
    assert await user.want("read", turn="1") == ["read"]
    assert (await user.want("read", turn="1") == ["read"]) is same
    assert (await user.want("write", turn="1") == ["write"]) is other


@on_a_loop
async def test_a_denied_tool_stays_denied_when_its_whole_server_is_allowed(database: Database) -> None:
    user = ApprovingUser(database, "never", "server")
    assert await user.want("erase") == []
    user.policy.add_rule(Rule("fs.delete", "deny", "this notebook"))
    assert await user.want("read") == ["read"]
    assert await user.want("write", "erase", "delete") == ["write"]
    user.policy.add_rule(ALLOW_ALL)
    assert await user.want("erase", "delete") == ["erase", "delete"]


@pytest.mark.parametrize("answer", ["notebook", "server", "always", "never"])
@on_a_loop
async def test_an_answer_holds_for_the_same_caller_only(database: Database, answer: ApprovalAnswer) -> None:
    user = ApprovingUser(database, answer, "no", "once")
    user.policy.add_rule(ASK_ALL)
    first = await user.want("read", caller="user")
    assert await user.want("read", caller="user") == first
    assert await user.want("read") == []
    assert await user.want("read", caller="app") == ["read"]
    assert len(user.questions) == 3


@on_a_loop
async def test_the_rest_of_a_models_answer_is_a_choice_only_during_one(database: Database) -> None:
    user = ApprovingUser(database, "once", "once")
    await user.want("read")
    await user.want("read", turn="1")
    assert ["answer" in question.answers for question in user.questions] == [False, True]


@pytest.mark.parametrize("answer", ["once", "answer", "server", "notebook", "always"])
@on_a_loop
async def test_a_tainted_conversation_is_asked_about_once(database: Database, answer: ApprovalAnswer) -> None:
    user, conversation = ApprovingUser(database, answer, "no"), Conversation()
    user.policy.add_rule(ALLOW_ALL)
    assert await user.want("write", turn="1", conversation=conversation) == ["write"]
    conversation.read("web.fetch")
    assert await user.want("write", turn="1", conversation=conversation) == ["write"]
    assert await user.want("write", turn="2", conversation=conversation) == ["write"]
    assert [call.why for question in user.questions for call in question.calls] == [
        "the model has read untrusted content from web.fetch"
    ]
    assert (await user.want("erase", turn="2", conversation=conversation) == ["erase"]) is (answer == "server")


@on_a_loop
async def test_a_reset_revokes_what_was_agreed_to_in_a_conversation(database: Database) -> None:
    user, conversation = ApprovingUser(database, "once", "no"), Conversation()
    conversation.read("web.fetch")
    user.policy.add_rule(ALLOW_ALL)
    assert await user.want("write", turn="1", conversation=conversation) == ["write"]
    user.policy.reset()
    user.policy.add_rule(ALLOW_ALL)
    assert await user.want("write", turn="2", conversation=conversation) == []


@on_a_loop
async def test_agreeing_once_in_a_tainted_conversation_leaves_the_rules_in_force(database: Database) -> None:
    user, conversation = ApprovingUser(database, "once", "no"), Conversation()
    conversation.read("web.fetch")
    assert await user.want("write", turn="1", conversation=conversation) == ["write"]
    assert await user.want("write", turn="1", conversation=conversation) == []
    reasons = [question.calls[0].why for question in user.questions]
    assert reasons == [conversation.taint, "rule: ask * (a model's call)"]


@on_a_loop
async def test_never_and_always_hold_in_every_kernel(database: Database) -> None:
    assert await ApprovingUser(database, "always").want("read") == ["read"]
    assert await ApprovingUser(database, "never").want("write") == []
    later = ApprovingUser(database)
    assert await later.want("read", "write") == ["read"]
    assert later.questions == []


@on_a_loop
async def test_an_answer_about_a_tool_named_like_a_glob_is_for_that_tool(database: Database) -> None:
    assert await ApprovingUser(database, "always").want("*") == ["*"]
    assert await ApprovingUser(database, "no").want("delete") == []


@on_a_loop
async def test_a_question_without_an_answer_names_the_rule(database: Database) -> None:
    with pytest.raises(PolicyError) as caught:
        await ApprovingUser(database, None).approvals.obtain(pending("read"), [].append)
    assert caught.value._two_lines() == [
        'PolicyError: fs.read: needs your consent by the rule "ask * (a model\'s call)", and no one answered',
        "  %mcp policy allow fs.read",
    ]


@on_a_loop
async def test_a_cancelled_call_is_not_asked_about(database: Database) -> None:
    user = ApprovingUser(database, "once")
    given_up = asyncio.ensure_future(user.want("write"))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await user.want("read") == ["read"]
    assert [call.tool for question in user.questions for call in question.calls] == ["read"]


@on_a_loop
async def test_a_question_that_fails_leaves_no_caller_waiting(database: Database) -> None:
    with pytest.raises(PolicyError, match="could not be asked about"):
        await ApprovingUser(database).approvals.obtain(pending("read"), [].append)


@pytest.mark.parametrize(("answer", "allowed"), [("always", ["read"]), ("never", [])])
@on_a_loop
async def test_always_and_never_override_a_rule_of_this_notebook_that_asks(
    database: Database, answer: ApprovalAnswer, allowed: list[str]
) -> None:
    user = ApprovingUser(database, answer)
    user.policy.add_rule(ASK_ALL)
    assert await user.want("read") == allowed
    assert await user.want("read") == allowed
    assert len(user.questions) == 1


@on_a_loop
async def test_an_answer_is_overridden_only_by_a_later_deny_rule_of_another_kernel(database: Database) -> None:
    user, elsewhere = ApprovingUser(database, "always"), SavedRules(database)
    assert await user.want("read") == ["read"]
    user.policy.add_rule(Rule("fs.write", "deny", "this notebook"))
    await elsewhere.keep("d1", "write", "allow")
    user.policy.remember(await elsewhere.rules())
    assert await user.want("read", "write") == ["read"]
    await elsewhere.keep("", "*.read", "deny")
    user.policy.remember(await elsewhere.rules())
    assert await user.want("read") == []
    await elsewhere.forget()
    user.policy.remember(await elsewhere.rules())
    assert [str(rule) for rule in user.policy.session_rules] == ["deny fs.write (this notebook)"]


def test_a_prompt_shows_all_lines_of_code_with_their_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "\n".join(
        ["x = 1", "", *(f"x += {number}  # {'y' * 60}" for number in range(200)), "import os\u202e", "\tos.x"]
    )
    wanted = WantedCall("notebook", "run_python", {}, "model", "it would run here", "", code)
    monkeypatch.setattr("builtins.input", lambda prompt: "once")

    assert TerminalPrompts().ask(ApprovalQuestion((wanted,), ("once", "no"))) == "once"

    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["The model wants to run code in this notebook:", "  It would run here"]
    assert [line.removeprefix("  │ ")[:3] for line in shown[2:-1]] == [f"{number:3}" for number in range(1, 205)]
    assert [line[8:] for line in shown[2:-1]] == code.replace("\u202e", "⟨U+202E⟩").split("\n")
