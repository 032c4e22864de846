"""Consent to calls: one question for those asked for at once, and what each answer is good for."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
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


class Asked:
    """A policy, and a user who gives these answers in turn."""

    def __init__(self, database: Database, *answers: ApprovalAnswer | None) -> None:
        self.policy = Policy()
        self.questions: list[ApprovalQuestion] = []
        self.noted: list[str] = []
        """What the calls were told of the questions and answers."""
        self._answers = list(answers)
        self._database = database
        self.approvals = Approvals(self.policy, lambda: SavedRules(database), self._answer)

    async def _answer(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        self.questions.append(question)
        return self._answers.pop(0)

    async def want(
        self, *tools: str, turn: str = "", caller: Caller = "model", conversation: Conversation | None = None
    ) -> list[str]:
        """Want these at once, and give those that may be called; what policy allows already is not asked about."""
        wishes = [PendingApproval(entry(tool), RIGHTS, caller, turn, b"{}", conversation) for tool in tools]
        outcomes = await asyncio.gather(*map(self._want, wishes), return_exceptions=True)
        return [tool for tool, outcome in zip(tools, outcomes, strict=True) if outcome is None]

    async def obtain(self, tool: str) -> None:
        """Ask for consent to a model's call."""
        await self._obtain(PendingApproval(entry(tool), RIGHTS, "model", "", b"{}"))

    async def _obtain(self, wish: PendingApproval) -> None:
        await self.approvals.obtain(wish, self.noted.append)

    async def _want(self, wish: PendingApproval) -> None:
        verdict = self.policy.check(wish.entry, wish.rights, wish.caller, wish.turn, wish.conversation)
        if verdict.decision == "ask":
            await self._obtain(wish)


def entry(tool: str) -> ToolEntry:
    return ToolEntry("fs", tool, tool, ToolDefinition(tool))


@pytest.fixture
def database(tmp_path: Path) -> Any:
    database = Database(tmp_path / "state.db")
    yield database
    database.close(5)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_calls_asked_for_at_once_are_one_question(database: Database) -> None:
    async def test() -> None:
        asked = Asked(database, "once", "no")
        assert await asked.want("read", "write", "read") == ["read", "write", "read"]
        assert [call.tool for call in asked.questions[0].calls] == ["read", "write", "read"]
        assert await asked.want("read") == []
        assert len(asked.questions) == 2
        together = "May fs.read, fs.write be called? · allowed once"
        assert asked.noted == [together] * 3 + ["May fs.read be called? · denied"]

    run(test)


@pytest.mark.parametrize(
    ("answer", "same", "other"),
    [("notebook", True, False), ("server", True, True), ("always", True, False), ("answer", True, False)],
)
def test_an_answer_allows_exactly_what_it_names(database: Database, answer: Any, same: bool, other: bool) -> None:
    async def test() -> None:
        asked = Asked(database, answer, "no", "no")
        assert await asked.want("read", turn="1") == ["read"]
        assert (await asked.want("read", turn="1") == ["read"]) is same
        assert (await asked.want("write", turn="1") == ["write"]) is other

    run(test)


def test_what_is_denied_stays_so_when_a_whole_server_is_allowed(database: Database) -> None:
    async def test() -> None:
        asked = Asked(database, "never", "server")
        assert await asked.want("erase") == []
        asked.policy.add_rule(Rule("fs.delete", "deny", "this notebook"))
        assert await asked.want("read") == ["read"]
        assert await asked.want("write", "erase", "delete") == ["write"]
        asked.policy.add_rule(Rule("fs.*", "allow", "this notebook"))
        assert await asked.want("erase", "delete") == ["erase", "delete"]

    run(test)


@pytest.mark.parametrize("answer", ["notebook", "server", "always", "never"])
def test_an_answer_holds_for_the_same_caller_only(database: Database, answer: ApprovalAnswer) -> None:
    async def test() -> None:
        asked = Asked(database, answer, "no", "once")
        asked.policy.add_rule(Rule("fs.*", "ask", "this notebook"))
        first = await asked.want("read", caller="user")
        assert await asked.want("read", caller="user") == first
        assert await asked.want("read") == []
        assert await asked.want("read", caller="app") == ["read"]
        assert len(asked.questions) == 3

    run(test)


def test_the_rest_of_an_answer_is_offered_only_where_there_is_one(database: Database) -> None:
    async def test() -> None:
        asked = Asked(database, "once", "once")
        await asked.want("read")
        await asked.want("read", turn="1")
        assert ["answer" in question.answers for question in asked.questions] == [False, True]

    run(test)


@pytest.mark.parametrize("answer", ["once", "answer", "server", "notebook", "always"])
def test_a_doubted_model_is_asked_about_once_in_a_conversation(database: Database, answer: ApprovalAnswer) -> None:
    async def test() -> None:
        asked, conversation = Asked(database, answer, "no"), Conversation()
        asked.policy.add_rule(Rule("fs.*", "allow", "this notebook"))
        assert await asked.want("write", turn="1", conversation=conversation) == ["write"]
        conversation.read("web.fetch")
        assert await asked.want("write", turn="1", conversation=conversation) == ["write"]
        assert await asked.want("write", turn="2", conversation=conversation) == ["write"]
        assert [call.why for question in asked.questions for call in question.calls] == [
            "the model has read untrusted content from web.fetch"
        ]
        assert (await asked.want("erase", turn="2", conversation=conversation) == ["erase"]) is (answer == "server")

    run(test)


def test_what_was_agreed_to_in_a_conversation_is_taken_back_with_the_rest(database: Database) -> None:
    async def test() -> None:
        asked, conversation = Asked(database, "once", "no"), Conversation()
        conversation.read("web.fetch")
        allowed = Rule("fs.*", "allow", "this notebook")
        asked.policy.add_rule(allowed)
        assert await asked.want("write", turn="1", conversation=conversation) == ["write"]
        asked.policy.reset()
        asked.policy.add_rule(allowed)
        assert await asked.want("write", turn="2", conversation=conversation) == []

    run(test)


def test_agreeing_once_to_a_doubted_model_takes_nothing_from_the_rules(database: Database) -> None:
    async def test() -> None:
        asked, conversation = Asked(database, "once", "no"), Conversation()
        conversation.read("web.fetch")
        assert await asked.want("write", turn="1", conversation=conversation) == ["write"]
        assert await asked.want("write", turn="1", conversation=conversation) == []
        assert [question.calls[0].why for question in asked.questions] == [
            conversation.taint,
            "rule: ask * (a model's call)",
        ]

    run(test)


def test_never_and_always_are_for_every_kernel(database: Database) -> None:
    async def test() -> None:
        assert await Asked(database, "always").want("read") == ["read"]
        assert await Asked(database, "never").want("write") == []
        later = Asked(database)
        assert await later.want("read", "write") == ["read"]
        assert later.questions == []

    run(test)


def test_an_answer_about_a_tool_named_like_a_glob_is_for_that_tool(database: Database) -> None:
    async def test() -> None:
        assert await Asked(database, "always").want("*") == ["*"]
        assert await Asked(database, "no").want("delete") == []

    run(test)


def test_a_question_without_an_answer_names_the_rule(database: Database) -> None:
    async def test() -> None:
        with pytest.raises(PolicyError) as caught:
            await Asked(database, None).approvals.obtain(
                PendingApproval(entry("read"), RIGHTS, "model", "", b"{}"), [].append
            )
        assert caught.value._two_lines() == [
            'PolicyError: fs.read: needs your consent by the rule "ask * (a model\'s call)", and no one answered',
            "  %mcp policy allow fs.read",
        ]

    run(test)


def test_who_stops_waiting_is_not_asked_about(database: Database) -> None:
    async def test() -> None:
        asked = Asked(database, "once")
        given_up = asyncio.ensure_future(asked.want("write"))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await asked.want("read") == ["read"]
        assert [call.tool for question in asked.questions for call in question.calls] == ["read"]

    run(test)


def test_a_question_that_fails_leaves_no_caller_waiting(database: Database) -> None:
    async def test() -> None:
        with pytest.raises(PolicyError, match="could not be asked about"):
            await Asked(database).approvals.obtain(
                PendingApproval(entry("read"), RIGHTS, "model", "", b"{}"), [].append
            )

    run(test)


@pytest.mark.parametrize(("answer", "allowed"), [("always", ["read"]), ("never", [])])
def test_always_and_never_end_the_asking_that_a_rule_of_this_notebook_began(
    database: Database, answer: ApprovalAnswer, allowed: list[str]
) -> None:
    async def run() -> None:
        asked = Asked(database, answer)
        asked.policy.add_rule(Rule("fs.*", "ask", "this notebook"))
        assert await asked.want("read") == allowed
        assert await asked.want("read") == allowed
        assert len(asked.questions) == 1

    asyncio.run(run())


def test_what_was_answered_here_gives_way_to_what_is_forbidden_elsewhere_since_and_to_nothing_else(
    database: Database,
) -> None:
    async def run() -> None:
        asked, elsewhere = Asked(database, "always"), SavedRules(database)
        assert await asked.want("read") == ["read"]
        asked.policy.add_rule(Rule("fs.write", "deny", "this notebook"))
        await elsewhere.keep("d1", "write", "allow")
        asked.policy.remember(await elsewhere.rules())
        assert await asked.want("read", "write") == ["read"]
        await elsewhere.keep("", "*.read", "deny")
        asked.policy.remember(await elsewhere.rules())
        assert await asked.want("read") == []
        await elsewhere.forget()
        asked.policy.remember(await elsewhere.rules())
        assert [str(rule) for rule in asked.policy.session_rules] == ["deny fs.write (this notebook)"]

    asyncio.run(run())


def test_code_is_shown_whole_line_by_line_at_a_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "\n".join(
        ["x = 1", "", *(f"x += {number}  # {'y' * 60}" for number in range(200)), "import os\u202e", "\tos.x"]
    )
    wanted = WantedCall("notebook", "run_python", {}, "model", "it would run here", "", code)
    monkeypatch.setattr("builtins.input", lambda prompt: "once")

    assert TerminalPrompts().ask(ApprovalQuestion((wanted,), ("once", "no"))) == "once"

    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["The model wants to run code in this notebook:", "  it would run here"]
    assert [line.removeprefix("  │ ")[:3] for line in shown[2:-1]] == [f"{number:3}" for number in range(1, 205)]
    assert [line[8:] for line in shown[2:-1]] == code.replace("\u202e", "⟨U+202E⟩").split("\n")
