"""Logging in, against a real authorization server on loopback."""

from __future__ import annotations

import asyncio
import json

from tests.oauth_user import ScriptedUser, oauth, send
from tests.servers.oauth_server import running


def test_a_first_request_logs_the_user_in_and_is_sent_again() -> None:
    user = ScriptedUser()
    with running() as server:
        answer = asyncio.run(send(oauth(server.url, user=user), server.url))
    assert answer.json()["result"]["tools"][0]["name"] == "whoami"
    [request] = user.requests
    assert request.domain == server.origin.removeprefix("http://")
    assert request.issuer == server.origin
    assert request.redirect_uri.startswith("http://127.0.0.1:")
    [authorize] = server.seen("/authorize")
    assert authorize.fields["code_challenge_method"] == "S256"
    assert authorize.fields["resource"] == server.url
    assert "scope" not in authorize.fields
    [token] = server.seen("/token")
    assert token.fields["resource"] == server.url
    assert token.fields["redirect_uri"] == authorize.fields["redirect_uri"]
    [registration] = server.seen("/register")
    assert json.loads(registration.fields["application_type"]) == "native"
    assert json.loads(registration.fields["grant_types"]) == ["authorization_code", "refresh_token"]
