"""Logins whose browser comes back through the Jupyter server, without one."""

import asyncio
import hashlib
from typing import Any

import pytest

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth.redirect import LoopbackRedirect
from ipymcp.runtime.oauth_redirects import Redirects

HUB = "https://hub.example/user/ada/ipymcp/oauth/callback"


def redirects(*addresses: object, lifetime: float = 600.0) -> Redirects:
    made = Redirects(lifetime)
    made.addresses = lambda: addresses
    return made


def awaits(made: Redirects, state: str) -> Any:
    return made.reply_to({"kind": "awaits", "digest": hashlib.sha256(state.encode()).hexdigest()})


def bring(made: Redirects, **brought: object) -> Any:
    return made.reply_to({"kind": "redirected", "brought": brought})


def test_what_was_brought_comes_as_an_address_and_only_once() -> None:
    async def body() -> None:
        made = redirects(HUB)
        redirect = await made.open("s", ())
        assert redirect.uri == HUB
        assert awaits(made, "s") == {"kind": "awaits", "awaited": True}
        assert awaits(made, "other") == {"kind": "awaits", "awaited": False}
        assert bring(made, state="other", code="c") == {"kind": "redirected", "taken": False}
        assert bring(made, state="s", code="c&d", iss="https://i") == {"kind": "redirected", "taken": True}
        assert bring(made, state="s", code="c") == {"kind": "redirected", "taken": False}
        assert awaits(made, "s")["awaited"] is False
        assert await redirect.received() == f"{HUB}?state=s&code=c%26d&iss=https%3A%2F%2Fi"
        await redirect.aclose()

    asyncio.run(body())


def test_a_login_that_ended_is_waited_for_no_more() -> None:
    async def body() -> None:
        made = redirects(HUB)
        await (await made.open("s", ())).aclose()
        assert bring(made, state="s", code="c")["taken"] is False

    asyncio.run(body())


def test_a_state_is_good_for_ten_minutes() -> None:
    assert Redirects()._lifetime == 600

    async def body() -> None:
        made = redirects(HUB, lifetime=0.03)
        redirect = await made.open("s", ())
        with pytest.raises(AuthError, match=r"the login was not completed within 0.0005 minutes"):
            await asyncio.wait_for(redirect.received(), 10)
        assert bring(made, state="s", code="c")["taken"] is False
        await redirect.aclose()

    asyncio.run(body())


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
def test_an_address_that_no_code_should_go_to_is_not_used(address: object) -> None:
    async def body() -> None:
        redirect = await redirects(address).open("s", ())
        assert isinstance(redirect, LoopbackRedirect)
        await redirect.aclose()
        usable = await redirects(address, "http://localhost:8888/ipymcp/oauth/callback").open("s", ())
        assert usable.uri == "http://localhost:8888/ipymcp/oauth/callback"
        await usable.aclose()

    asyncio.run(body())


@pytest.mark.parametrize("message", [None, [], {"kind": "hello"}, {"kind": "intent", "do": "call"}])
def test_what_is_about_something_else_is_left_to_views(message: object) -> None:
    assert redirects(HUB).reply_to(message) is None


@pytest.mark.parametrize("brought", [None, [], {"state": 1}, {"state": "s", "code": None}, {"state": "\ud800"}])
def test_what_is_brought_wrongly_is_not_taken(brought: object) -> None:
    assert redirects(HUB).reply_to({"kind": "redirected", "brought": brought}) == {"kind": "redirected", "taken": False}
