"""The document around an app's page, as a real Jupyter server serves it."""

import pytest

from tests.jupyter_servers import JupyterServer

FRAME = "ipymcp/apps/frame"


def directives(policy: str) -> dict[str, str]:
    return dict(one.split(" ", 1) for one in policy.split("; "))


def test_the_document_is_sandboxed_and_kept_by_no_one(server: JupyterServer) -> None:
    with server.anonymous() as stranger:
        reply = stranger.get(FRAME)
    assert reply.status_code == 200
    found = directives(reply.headers["Content-Security-Policy"])
    assert found["sandbox"] == "allow-scripts allow-forms"
    assert found["default-src"] == found["connect-src"] == found["frame-src"] == "'none'"
    assert found["frame-ancestors"] == "'self'"
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_it_is_the_same_for_a_user_and_a_stranger_and_sets_no_cookies(server: JupyterServer) -> None:
    with server.anonymous() as stranger, server.browser() as user:
        replies = [client.get(FRAME) for client in (stranger, user, server.http)]
        token = server.http.headers["Authorization"].removeprefix("token ")
        secrets = [token, *user.cookies.values()]
    assert len({reply.text for reply in replies}) == 1
    assert len({reply.headers["Content-Security-Policy"] for reply in replies}) == 1
    assert not any("Set-Cookie" in reply.headers for reply in replies)
    assert secrets[1:], "the user has cookies"
    assert not any(secret in replies[1].text for secret in secrets)


def test_the_query_grants_origins_and_nothing_else(server: JupyterServer) -> None:
    origins = {"connect": "https://a.example,wss://b.example:8443", "resource": "https://*.c.example", "eval": "1"}
    with server.anonymous() as stranger:
        found = directives(stranger.get(FRAME, params=origins).headers["Content-Security-Policy"])
    assert found["connect-src"] == "https://a.example wss://b.example:8443"
    assert found["img-src"] == "data: blob: https://*.c.example"
    assert found["script-src"] == "'unsafe-inline' 'report-sample' blob: data: 'unsafe-eval' https://*.c.example"
    assert found["frame-src"] == "'none'" and found["sandbox"] == "allow-scripts allow-forms"


@pytest.mark.parametrize(
    "value",
    [
        "*",
        "'self'",
        "data:",
        "http://a.example",
        "https://a.example; sandbox allow-same-origin",
        "https://a.example\r\nSet-Cookie: a=b",
        "https://a.example/'unsafe-inline'",
        '"><script>alert(1)</script>',
    ],
)
def test_no_query_writes_a_header_or_the_document(server: JupyterServer, value: str) -> None:
    with server.anonymous() as stranger:
        plain, reply = stranger.get(FRAME), stranger.get(FRAME, params={"connect": value})
    assert reply.text == plain.text
    assert reply.headers["Content-Security-Policy"] == plain.headers["Content-Security-Policy"]
    assert "Set-Cookie" not in reply.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_can_only_be_read(server: JupyterServer, method: str) -> None:
    with server.anonymous() as stranger:
        assert stranger.request(method, FRAME).status_code in (403, 405)
