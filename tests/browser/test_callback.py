"""The callback page of a login: a real browser comes from another site to a server with strict cookies."""

import html
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from tests.browser.conftest import Open
from tests.browser.places import LOAD, sidebar
from tests.jupyter.logins import asked, callback
from tests.jupyter_servers import TOKEN, JupyterServer, started
from tests.panels import SocketView
from tests.servers.oauth_server import OAuthServer, running

STRICT = {"IdentityProvider": {"cookie_options": {"samesite": "Strict"}}}

TAKEN = "The notebook has received the answer. You can close this page."
NOTHING = "This page is where logins of notebooks end. There is nothing to see."


class Login:
    """One that a kernel waits for: the way to that kernel, and the address where to log in."""

    def __init__(self, server: JupyterServer, site: OAuthServer) -> None:
        self.kernel = server.start_kernel()
        self.kernel.load()
        self.view = SocketView(json.loads(self.kernel.announcement.read_text())["socket"])
        self.site = site
        self.url = asked(server, self.kernel, self.view, site)

    def consent(self, page: Page) -> None:
        """Agree on a page of the authorization server: what follows comes from there."""
        link = f'<!doctype html><title>consent</title><a href="{html.escape(self.url)}">I agree</a>'
        self.site.behaviour.pages["/consent"] = link
        page.goto(f"{self.site.origin}/consent")
        page.get_by_role("link", name="I agree").click()

    def is_made(self) -> None:
        """Wait until the server behind it is ready."""
        self.view.until(lambda state: state["servers"]["docs"]["state"] == "ready")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """At `localhost`: to a browser another site than 127.0.0.1, where the authorization server is."""
    with started(tmp_path_factory.mktemp("strict"), STRICT) as server:
        server.url = server.url.replace("127.0.0.1", "localhost")
        yield server


@pytest.fixture
def login(strict: JupyterServer) -> Iterator[Login]:
    with running() as site:
        login = Login(strict, site)
        with login.view:
            yield login


@pytest.fixture
def stranger(browser: Browser) -> Iterator[Page]:
    """A page of a new browser context."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


def log_in(page: Page, server: JupyterServer) -> None:
    page.goto(f"{server.url}login")
    page.get_by_label("Password or token").fill(TOKEN)
    page.get_by_role("button", name="Log in").first.click()
    page.wait_for_url(lambda url: "login" not in url)


def says(page: Page, text: str) -> None:
    expect(page.get_by_role("status")).to_have_text(text)


def test_a_login_ends_in_the_kernel_and_leaves_nothing_in_the_address_bar(
    strict: JupyterServer, login: Login, stranger: Page
) -> None:
    requests: list[Request] = []
    log_in(stranger, strict)
    stranger.on("request", lambda request: requests.append(request))
    login.consent(stranger)
    says(stranger, TAKEN)
    assert stranger.url == callback(strict)
    login.is_made()

    by_path = {urlsplit(request.url).path.removeprefix("/some/where"): request for request in requests}
    came, posted = (by_path[f"/ipymcp/oauth/{name}"] for name in ("callback", "redirected"))
    assert "code=" in came.url and "state=" in came.url
    assert "username-" not in came.all_headers().get("cookie", "")  # it came from another site
    assert "username-" in posted.all_headers()["cookie"] and "referer" not in posted.all_headers()
    assert not stranger.evaluate("location.search + location.hash")
    stranger.reload()
    says(stranger, NOTHING)


def test_a_login_begun_in_the_sidebar_ends_there(jupyter: JupyterServer, page: Page, open_notebook: Open) -> None:
    with running() as site:
        notebook = open_notebook(LOAD, f"%mcp load docs {site.url}")
        notebook.run(0)
        panel = sidebar(page)
        panel.show("Servers")  # it is connected: what a blocking cell asks would go to a prompt before that
        notebook.begin(1)
        with page.context.expect_page() as opened:
            panel.press("Open link")
        assert opened.value.url.startswith(callback(jupyter))
        says(opened.value, TAKEN)
        opened.value.close()
        panel.expect_state("docs", "ready")
        notebook.until_idle()


def test_without_a_login_to_jupyter_the_page_asks_for_it_and_the_login_ends_after_a_second_try(
    strict: JupyterServer, login: Login, stranger: Page
) -> None:
    login.consent(stranger)
    says(stranger, "Log in to Jupyter in this browser, in another tab. Then try again.")
    assert stranger.url == callback(strict)
    log_in(stranger.context.new_page(), strict)
    stranger.get_by_role("button", name="Try again").click()
    says(stranger, TAKEN)
    expect(stranger.get_by_role("button")).to_be_hidden()
    login.is_made()


def test_an_answer_that_no_login_waits_for_is_reported_and_no_script_in_it_runs(
    strict: JupyterServer, stranger: Page
) -> None:
    log_in(stranger, strict)
    stranger.goto(f"{callback(strict)}?state=<script>document.title='evil'</script>&code=<img+src=x+onerror=alert(1)>")
    says(stranger, "No login of a notebook is waiting for this.")
    stranger.goto(f"{callback(strict)}?state=one&state=two&code=c")
    says(stranger, NOTHING)
    assert stranger.title() == "ipymcp"
