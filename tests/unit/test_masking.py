"""Secrets in every form in which text may contain them, and names of secrets."""

import base64
import html
import json
import re
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.config.definition import ServerDefinition
from ipymcp.config.redaction import masked, masked_code, sensitive
from ipymcp.masking import LABEL, Masks, looks_secret

SECRET = "p/a\"s's+ö<&>w\\rd %7"


def masks(*values: str) -> Masks:
    masks = Masks()
    masks.add(*values)
    return masks


FORMS = {
    "plain": SECRET,
    "json": json.dumps({"key": SECRET}),
    "json with letters as they are": json.dumps(SECRET, ensure_ascii=False),
    "json in json": json.dumps(json.dumps({"key": SECRET})),
    "json as Go writes it": json.dumps(SECRET).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
    "json with slashes escaped": json.dumps(SECRET).replace("/", "\\/"),
    "json with capitals": json.dumps(SECRET).replace("\\u00f6", "\\u00F6"),
    "repr": repr({"key": SECRET}),
    "repr within the other quotes": repr("it's \"" + SECRET),
    "repr of bytes": repr(SECRET.encode()),
    "ascii": ascii(SECRET),
    "html": html.escape(SECRET),
    "html with decimal apostrophes": html.escape(SECRET).replace("&#x27;", "&#39;"),
    "html text": html.escape(SECRET, quote=False),
    "url": quote(SECRET),
    "url parameter": quote_plus(SECRET),
    "url component": quote(SECRET, safe=""),
    "url in small letters": re.sub("%..", lambda found: found[0].lower(), quote(SECRET, safe="")),
    "Basic": base64.b64encode(f"user:{SECRET}".encode()).decode(),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 after one byte": base64.b64encode(b"1" + SECRET.encode() + b"rest").decode(),
    "base64 after two bytes": base64.b64encode(b"12" + SECRET.encode() + b"rest").decode(),
    "base64 for URLs": base64.urlsafe_b64encode(b"12" + SECRET.encode() + b"re").decode(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_secret_is_masked_in_every_form(form: str) -> None:
    shown = masks(SECRET)(f"before {form} after")
    assert LABEL in shown and shown.startswith("before ") and shown.endswith(" after")
    assert len(shown.replace(LABEL, "")) <= len("before  after") + 20  # quotes, keys, `user:` and base64's odd bits


def test_each_line_of_a_secret_is_masked() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
    shown = masks(key)(f"it says MIIEvQIBADANBgkq, and {json.dumps(key)}")
    assert shown == f'it says {LABEL}, and "{LABEL}\\n{LABEL}\\n{LABEL}\\n{LABEL}\\n"'


def test_short_values_are_not_masked() -> None:
    assert masks("1234567", "", "a\nb")("1234567 a b") == "1234567 a b"


def test_a_secret_that_contains_another_is_masked_whole() -> None:
    assert masks("password", "my-password-1")("my-password-1 password") == f"{LABEL} {LABEL}"


@given(st.integers(1, 15))
def test_of_a_secret_that_was_cut_only_three_characters_are_left(kept: int) -> None:
    secret = "0123456789abcdef"
    first, last = (LABEL, LABEL) if kept > 3 else (secret[:kept], secret[-kept:])
    assert masks(secret)(f"key {secret[:kept]}… and …{secret[-kept:]} end") == f"key {first}… and …{last} end"


@given(st.integers(0, 40))
def test_the_beginning_of_a_text_holds_no_part_of_a_secret(length: int) -> None:
    head = masks("0123456789abcdef").head("the key is 0123456789abcdef, really", length)
    assert head == f"the key is {LABEL}, really"[:length]


def test_texts_within_json_are_masked_and_nothing_else_is_touched() -> None:
    value = {"a": ["xx secret-1 xx", 1, None, True], "secret-1": 2.5}
    assert masks("secret-1").json(value) == {"a": [f"xx {LABEL} xx", 1, None, True], LABEL: 2.5}
    assert Masks().json(value) is value


SECRET_NAMES = """
OPENAI_API_KEY GITHUB_TOKEN token X-API-Key Authorization apiKey accessToken AWS_SECRET_ACCESS_KEY DB_PASSWORD
PGPASSWORD MYSQL_PWD Cookie client_secret GH_PAT NPM_CONFIG__AUTH SSH_KEY privateKey TOKEN_2 --api-key
DB_PASSWORD_1 API_KEY2 auth sig ConnectionString X-Auth
"""
OTHER_NAMES = """
PATH PWD OLDPWD GIT_AUTHOR_NAME SSH_AUTH_SOCK COMPASS MONKEY TOKENIZERS_PARALLELISM PUBLIC_KEY MAX_TOKENS
TOKEN_FILE HOME keyboard passenger
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [*((name, True) for name in SECRET_NAMES.split()), *((name, False) for name in OTHER_NAMES.split())],
)
def test_a_secret_is_recognised_by_its_name(name: str, expected: bool) -> None:
    assert looks_secret(name) is expected


BASIC = base64.b64encode(b"me:basic-password").decode()
DEFINITIONS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "remote": (
        {
            "url": "https://me:url-password@host/mcp?api_key=query-key&page=1",
            "headers": {"Authorization": "Bearer bearer-token", "Proxy-Authorization": f"Basic {BASIC}", "Accept": "*"},
            "auth": {"type": "oauth", "client_id": "public", "client_secret": "client-secret", "scopes": ["a"]},
        },
        {"Bearer bearer-token", "bearer-token", f"Basic {BASIC}", BASIC, "basic-password", "url-password", "query-key",
         "client-secret"},
    ),
    "local": (
        {
            "command": "run",
            "args": ("--api-key", "argument-key", "--token=argument-token", "--name", "x",
                     "postgres://u:db-password@host/db"),
            "env": {"API_KEY": "env-key", "DATABASE_URL": "postgres://u:p%40ss-word@host/db", "LEVEL": "debug",
                    "KEY": "/"},
        },
        {"argument-key", "argument-token", "db-password", "env-key", "p%40ss-word", "p@ss-word"},
    ),
    "bridge": (
        {
            "command": "npx",
            "args": ("mcp-remote", "https://host/mcp", "--header", "Authorization: Bearer header-token",
                     "--header=X-Api-Key:k", "--api-key", "-a1b2c3=="),
            "env": {"AUTH_HEADER": "Bearer env-token", "PLAIN": "ghp_abcdefgh01234567"},
        },
        {"Bearer header-token", "header-token", "k", "-a1b2c3==", "Bearer env-token", "env-token",
         "ghp_abcdefgh01234567"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "secrets"), DEFINITIONS.values(), ids=DEFINITIONS)
def test_the_secrets_of_a_definition_are_found(fields: dict[str, Any], secrets: set[str]) -> None:
    assert set(sensitive(ServerDefinition(name="x", **fields))) == secrets


@pytest.mark.parametrize(
    ("args", "secret"),
    [
        (("--header", "Authorization: Bearer abcDEF0123456789xyz="), "abcDEF0123456789xyz="),
        (("--header", f"Authorization: Basic {base64.b64encode(b'user:password').decode()}"), "password"),
        (("--header", "Cookie: session=abcdef0123456789"), "session=abcdef0123456789"),
        (("-H", "X-Auth-Token: a=b=cdefghijk"), "a=b=cdefghijk"),
        (("--x", "ghp_abcdefgh01234567="), "ghp_abcdefgh01234567="),
        (("https://h/?x=https://u:passw0rd9@h/",), "passw0rd9"),
        (("--auth", "token=abcdefgh123"), "abcdefgh123"),
        (("--api-key", "token=abcdefgh123"), "token=abcdefgh123"),
        (("--token=-hunter2secret",), "-hunter2secret"),
    ],
)
def test_a_secret_in_an_argument_with_equals_signs_is_found(args: tuple[str, ...], secret: str) -> None:
    assert secret in set(sensitive(ServerDefinition(name="x", command="run", args=args)))


def test_members_whose_masked_names_are_equal_are_all_kept() -> None:
    shown = masks("recipients_a", "recipients_b").json({"recipients_a": "attacker@evil", "recipients_b": "boss@corp"})
    assert shown == {"[secret]": "attacker@evil", "[secret] (2)": "boss@corp"}


def test_numbers_that_are_secrets_are_masked_within_json() -> None:
    shown = masks("1234567890").json({"pin": 1234567890, "n": 12, "ok": True})
    assert shown == {"pin": "[secret]", "n": 12, "ok": True}


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ('password = "hunter2secret"', 'password = "•••• (13 characters)"'),
        ("{'api-key' :  rb'hunter2secret'}", "{'api-key' :  rb'•••• (13 characters)'}"),
        (
            'os.environ["DB_PASSWORD"] = """hunter2\\"secret"""',
            'os.environ["DB_PASSWORD"] = """•••• (15 characters)"""',
        ),
        ("token: str | None = 'hunter2secret'", "token: str | None = '•••• (13 characters)'"),
        ("f(x='a', password='hunter2secret', name='b')", "f(x='a', password='•••• (13 characters)', name='b')"),
        (r"password='hunter2secret\'", "password='•••• (14 characters)'"),
        ("a/b+0123456789abcdef0123456789abcdef", "a/b+•••• (32 characters)"),
        ("Authorization: Bearer hunter2secret", "Authorization: Bearer •••• (13 characters)"),
        ("https://x/?a?token=hunter2secret&b=1", "https://x/?a?token=•••• (13 characters)&b=1"),
        ("password == 'x' or user['name'] = 'y'", "password == 'x' or user['name'] = 'y'"),
    ],
)
def test_secrets_in_code_are_masked(code: str, shown: str) -> None:
    assert masked_code(code) == shown


@pytest.mark.timeout(30)  # a pattern that reads a run again from each of its characters takes minutes
@pytest.mark.parametrize("prefix", ["", "a:", 'k="', "Key: "])
def test_masking_takes_time_in_proportion_to_the_length_of_any_text(prefix: str) -> None:
    letters, openings = ("x", "+", "?", "?a", " ", "\t", "a ", "a:\t", "\\", "+a1"), ('a="', "a='\"", "{", "${")
    for unit in (*letters, *openings, "://a:", "bearer ", "-----BEGIN "):
        text = prefix + unit * (30_000 // len(unit)) + "\n"
        assert masked(text) and masked_code(text)
