"""Logins whose browser comes back through the Jupyter server, without one."""

import asyncio
import hashlib

import pytest

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth.redirect import LoopbackRedirect
from ipymcp.runtime.oauth_redirects import Redirects

HUB = "https://hub.example/user/ada/ipymcp/oauth/callback"


def redirects(*addresses: object, lifetime: float = 600.0) -> Redirects:
    redirects = Redirects(lifetime)
    redirects.addresses = lambda: addresses
    return redirects


def awaits(redirects: Redirects, state: str) -> bool:
    reply = redirects.reply_to({"kind": "awaits", "digest": hashlib.sha256(state.encode()).hexdigest()})
    assert reply == {"kind": "awaits", "awaited": reply["awaited"]}
    return reply["awaited"]


def bring(redirects: Redirects, **parameters: object) -> bool:
    reply = redirects.reply_to({"kind": "redirected", "brought": parameters})
    assert reply == {"kind": "redirected", "taken": reply["taken"]}
    return reply["taken"]


@pytest.mark.anyio
async def test_the_answer_to_a_login_comes_as_an_address_and_only_once() -> None:
    logins = redirects(HUB)
    redirect = await logins.open("s", ())
    assert redirect.uri == HUB
    assert awaits(logins, "s") and not awaits(logins, "other")
    assert not bring(logins, state="other", code="c")
    assert bring(logins, state="s", code="c&d", iss="https://i")
    assert not bring(logins, state="s", code="c")
    assert not awaits(logins, "s")
    assert await redirect.received() == f"{HUB}?state=s&code=c%26d&iss=https%3A%2F%2Fi"
    await redirect.aclose()


@pytest.mark.anyio
async def test_a_login_that_ended_takes_no_answer() -> None:
    logins = redirects(HUB)
    await (await logins.open("s", ())).aclose()
    assert not bring(logins, state="s", code="c")


@pytest.mark.anyio
async def test_a_state_is_good_for_ten_minutes() -> None:
    assert Redirects()._lifetime == 600
    logins = redirects(HUB, lifetime=0.03)
    redirect = await logins.open("s", ())
    with pytest.raises(AuthError, match=r"the login was not completed within 0.0005 minutes"):
        await asyncio.wait_for(redirect.received(), 10)
    assert not bring(logins, state="s", code="c")
    await redirect.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "address",
    [
        None,
        7,
        "http://hub.example/ipymcp/oauth/callback",
        "https://hub.example/elsewhere",
        f"{HUB}?x=1",
        f"{HUB}#x",
        "https://ada:pw@hub.example/ipymcp/oauth/callback",
        "javascript:alert(1)//ipymcp/oauth/callback",
        f"https://{'a' * 2000}.example/ipymcp/oauth/callback",
    ],
)
async def test_an_address_that_no_code_should_go_to_is_not_used(address: object) -> None:
    redirect = await redirects(address).open("s", ())
    assert isinstance(redirect, LoopbackRedirect)
    await redirect.aclose()
    usable = await redirects(address, "http://localhost:8888/ipymcp/oauth/callback").open("s", ())
    assert usable.uri == "http://localhost:8888/ipymcp/oauth/callback"
    await usable.aclose()


@pytest.mark.parametrize("message", [None, [], {"kind": "hello"}, {"kind": "intent", "do": "call"}])
def test_a_message_about_something_else_is_left_to_views(message: object) -> None:
    assert redirects(HUB).reply_to(message) is None


@pytest.mark.parametrize("brought", [None, [], {"state": 1}, {"state": "s", "code": None}, {"state": "\ud800"}])
def test_a_malformed_answer_is_not_taken(brought: object) -> None:
    assert redirects(HUB).reply_to({"kind": "redirected", "brought": brought}) == {"kind": "redirected", "taken": False}
