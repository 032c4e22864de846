"""A real JupyterHub behind TLS and two users: each reaches only their own kernels."""

import json
from collections.abc import Iterator

import pytest
from tornado.httpclient import HTTPClientError

from tests.hubs import Hub, HubUser, started
from tests.jupyter.logins import begin, callback
from tests.jupyter_servers import ServedKernel
from tests.servers.oauth_server import running

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with started(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture(scope="module")
def alice(hub: Hub) -> HubUser:
    return hub.user("alice")


@pytest.fixture(scope="module")
def bob(hub: Hub) -> HubUser:
    return hub.user("bob")


@pytest.fixture(scope="module")
def kernel(alice: HubUser) -> ServedKernel:
    """Alice's, with the demo server."""
    kernel = alice.start_kernel()
    kernel.load()
    kernel.run("%mcp load demo")
    return kernel


@pytest.fixture(scope="module")
def bobs(bob: HubUser) -> ServedKernel:
    kernel = bob.start_kernel()
    kernel.load()
    return kernel


def post(user: HubUser, answer: dict[str, str], *, to: HubUser | None = None) -> int:
    """Post what the callback page posts, in a user's browser."""
    return user.ask("POST", f"{(to or user).path}ipymcp/oauth/redirected", answer).status_code


def test_a_user_reaches_their_own_kernels(alice: HubUser, kernel: ServedKernel) -> None:
    with alice.view(kernel) as view:
        assert view.hello(client="sidebar")["mode"] == "full"
        assert view.state["servers"]["demo"]["state"] == "ready"
        assert "Adelie" in json.dumps(view.call("demo", "query", table="penguins", limit=1)["preview"])


def test_another_user_of_the_hub_is_refused_everywhere(
    hub: Hub, alice: HubUser, bob: HubUser, kernel: ServedKernel, bobs: ServedKernel
) -> None:
    bob.browser.get(alice.path)  # as far as the hub lets him
    with bob.view(bobs) as own:
        own.hello()
    with pytest.raises(HTTPClientError) as refused:
        bob.view(kernel, of=alice)
    assert refused.value.code == 403
    with pytest.raises(HTTPClientError) as refused:
        alice.view(kernel, origin="https://evil.example")
    assert refused.value.code == 403
    answer = {"state": "s", "code": "c"}
    assert post(bob, answer, to=alice) == 403
    with hub.client(headers={"Authorization": f"token {hub.token('bob')}"}) as script:
        assert script.post(f"{bob.path}ipymcp/oauth/redirected", json=answer).status_code == 404
        assert script.post(f"{alice.path}ipymcp/oauth/redirected", json=answer).status_code == 403


def test_a_login_comes_back_through_the_hubs_proxy_to_the_kernel_that_waits(
    hub: Hub, alice: HubUser, bob: HubUser, kernel: ServedKernel, bobs: ServedKernel
) -> None:
    with running() as site, alice.view(kernel) as view, bob.view(bobs) as bobs_view:
        answer, bobs_answer = begin(alice, kernel, view, site), begin(bob, bobs, bobs_view, site)
        with hub.client() as stranger:
            page = stranger.get(callback(alice), params=answer)
            assert page.status_code == 200 and "set-cookie" not in page.headers
            assert page.headers["cache-control"] == "no-store" and page.headers["referrer-policy"] == "no-referrer"
            assert stranger.post(f"{alice.url}ipymcp/oauth/redirected", json=answer).status_code == 403
        assert post(bob, answer, to=alice) == 403
        assert post(alice, bobs_answer) == 404
        assert post(bob, answer) == 404
        assert post(alice, answer) == 200
        assert post(alice, answer) == 404
        assert post(bob, bobs_answer) == 200
        for each in (view, bobs_view):
            each.until_server("docs", "ready")
        assert kernel.run("print(mcp.docs.whoami().text)") == "you are logged in\n"
        for secret in [answer["code"], answer["state"], bobs_answer["state"], *site.tokens]:
            assert secret not in hub.log()
