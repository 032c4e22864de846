"""The callback page of a login: a real authorization server, a real kernel, a browser made of requests."""

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.jupyter.logins import begin, callback
from tests.jupyter_servers import JupyterServer, ServedKernel, started
from tests.servers.oauth_server import Behaviour, running

CONFIG = {
    "IdentityProvider": {"cookie_options": {"samesite": "Strict"}},
    "ServerApp": {"allow_remote_access": True},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """A server whose strict cookies no browser sends from another site."""
    with started(tmp_path_factory.mktemp("jupyter"), CONFIG) as server:
        yield server


@pytest.fixture(scope="module")
def module_kernel(server: JupyterServer) -> ServedKernel:
    kernel = server.start_kernel()
    kernel.load()
    return kernel


@pytest.fixture
def kernel(module_kernel: ServedKernel) -> Iterator[ServedKernel]:
    """A kernel that the tests share; the server that they log in to is unloaded."""
    yield module_kernel
    module_kernel.run("mcp.unload('docs')")


def post(server: JupyterServer, answer: dict[str, Any], *, xsrf: bool = True) -> int:
    """Post what the callback page posts, as a user who is logged in to Jupyter."""
    with server.browser() as browser:
        headers = {"X-XSRFToken": browser.cookies["_xsrf"], "Origin": server.origin} if xsrf else {}
        return browser.post("ipymcp/oauth/redirected", json=answer, headers=headers).status_code


def test_the_page_is_the_same_for_every_browser_and_changes_nothing(server: JupyterServer) -> None:
    with server.anonymous() as browser:
        page = browser.get("ipymcp/oauth/callback", params={"code": "the-code", "state": "the-state"})
        assert page.status_code == 200 and "set-cookie" not in page.headers
        assert page.text == browser.get("ipymcp/oauth/callback").text
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
        policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
        script, style = (re.findall(rf"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL) for tag in ("script", "style"))
        digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for [text] in (script, style)]
        assert policy == {
            "default-src": "'none'",
            "script-src": f"'sha256-{digests[0]}'",
            "style-src": f"'sha256-{digests[1]}'",
            "connect-src": "'self'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        assert 'history.replaceState(null, "", location.pathname)' in script[0]
        assert browser.post("ipymcp/oauth/callback").status_code in (403, 405)
    assert "the-code" not in server.log() and "the-state" not in server.log()


def test_a_login_ends_at_the_jupyter_server_once(
    server: JupyterServer, kernel: ServedKernel, other: ServedKernel
) -> None:
    with running() as site, server.view(kernel) as view, server.view(other) as elsewhere:
        elsewhere.hello(callback=callback(server))
        answer = begin(server, kernel, view, site)
        assert len(base64.urlsafe_b64decode(answer["state"] + "=")) == 32  # 256 bits
        assert post(server, answer, xsrf=False) == 403
        with server.anonymous() as stranger:
            assert stranger.post("ipymcp/oauth/redirected", json=answer).status_code == 403
        assert post(server, {**answer, "state": answer["state"][:-2]}) == 404
        assert post(server, {"code": answer["code"]}) == 400
        assert post(server, answer) == 200
        assert post(server, answer) == 404
        view.until_server("docs", "ready")
        assert "docs" not in elsewhere.state["servers"]
        assert kernel.run("print(mcp.docs.whoami().text)") == "you are logged in\n"
        for secret in [answer["code"], answer["state"], *site.tokens]:
            assert secret not in server.log()


def test_an_answer_of_another_issuer_is_refused_by_the_kernel(server: JupyterServer, kernel: ServedKernel) -> None:
    with running(Behaviour()) as site, server.view(kernel) as view:
        answer = begin(server, kernel, view, site)
        assert post(server, {**answer, "iss": "https://evil.example"}) == 200
        view.until(lambda state: bool(state["servers"]["docs"]["error"]))
        assert "names another issuer" in view.state["servers"]["docs"]["error"]["message"]
        assert post(server, answer) == 404


def test_a_login_that_was_cancelled_takes_no_answer(server: JupyterServer, kernel: ServedKernel) -> None:
    with running() as site, server.view(kernel) as view:
        answer = begin(server, kernel, view, site)
        view.answer(view.question("wait"), action="cancel")
        view.until(lambda state: bool(state["servers"]["docs"]["error"]))
        assert post(server, answer) == 404
        view.ask("unload", server="docs")
        again = begin(server, kernel, view, site)
        assert again["state"] != answer["state"]
        assert post(server, {**answer, "state": again["state"]}) == 200  # the code of another login
        view.until(lambda state: state["servers"]["docs"]["state"] in ("error", "needs_auth"))
        assert not site.tokens


def test_the_callback_works_behind_a_proxy_that_speaks_tls(server: JupyterServer) -> None:
    """The browser's origin is https and another host's; the proxy hands the Host header on, as JupyterHub's does."""
    with server.browser(Host="hub.example") as browser:
        assert browser.get("ipymcp/oauth/callback?code=c&state=s").status_code == 200
        headers = {"Origin": "https://hub.example", "X-XSRFToken": browser.cookies["_xsrf"]}
        taken = browser.post("ipymcp/oauth/redirected", json={"code": "c", "state": "s"}, headers=headers)
        assert (taken.status_code, taken.json()["message"]) == (404, "no notebook is waiting for this login")
        evil = {**headers, "Origin": "https://evil.example"}
        refused = browser.post("ipymcp/oauth/redirected", json={"code": "c", "state": "s"}, headers=evil)
        assert refused.status_code in (403, 404) and "waiting" not in refused.text
