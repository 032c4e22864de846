"""Apps in cells: what a user sees, what the page receives, and what it may ask."""

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from tests import apps
from tests.browser.conftest import ShowApp
from tests.browser.notebooks import app_in
from tests.browser.places import opened
from tests.jupyter_servers import JupyterServer


def test_an_app_is_shown_above_the_text_knows_what_it_shows_and_has_a_state_that_is_a_value_in_python(
    show_app: ShowApp,
) -> None:
    html = apps.page("""
      globalThis.heard = ({ method, params }) => write(method.split("/").at(-1), params);
      const { hostContext, hostInfo } = await begin();
      write("context", hostContext);
      write("host", hostInfo.name);
      const { result } = await request("ui/update-model-context", { structuredContent: { rate: 0.5 } });
      write("updated", result);
    """)
    call = "r = mcp.apps.chart(text='t')\nseen = []\nr.app.on_update(seen.append)\nr"
    notebook = show_app("chart", html, "print(r.app.context, seen)", "r.app", call=call)
    app = app_in(notebook, 1)
    expect(app.locator("#host")).to_have_text("ipymcp")
    expect(app.locator("#tool-input")).to_have_text('{"arguments":{"text":"t"}}')
    expect(app.locator("#tool-result")).to_contain_text("text/html;profile=mcp-app")
    expect(app.locator("#context")).to_contain_text('"theme":"light"')
    expect(notebook.output(1)).to_contain_text("the text of chart: t")
    expect(app.locator("#updated")).to_have_text("{}")
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("{'rate': 0.5} [{'rate': 0.5}]")
    notebook.run(3)
    expect(notebook.output(3)).to_contain_text("<app of apps.chart, ui://apps/chart>")


def test_a_call_of_an_app_is_asked_about_and_comes_back_also_after_an_app_that_is_gone_has_asked(
    show_app: ShowApp,
) -> None:
    script = """
      await begin();
      const { result } = await request("tools/call", { name: "add", arguments: { a: 1, b: 2 } });
      write("sum", result.content[0].text);
    """
    notebook = show_app("form", apps.page(script), "mcp.history()")
    expect(notebook.output(1)).to_contain_text("An app wants to run apps.add")
    notebook.write(1, "print('no app')")
    notebook.run(1)
    notebook.write(1, "mcp.apps.form()")
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("An app wants to run apps.add")
    notebook.output(1).get_by_role("button", name="Allow once").click()
    expect(app_in(notebook, 1).locator("#sum")).to_have_text("3")
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("apps.add")


DECLARES = {"csp": {"connectDomains": ["https://data.example"]}, "permissions": {"camera": {}}}


def test_declared_domains_are_asked_about_once_and_a_changed_page_again(show_app: ShowApp, work: Path) -> None:
    page = apps.page("await begin(); write('done', 'first');")
    notebook = show_app("map", page, "mcp.apps.map()", "mcp.apps.map()", ui=DECLARES)
    output = notebook.output(1)
    expect(output).to_contain_text("It wants to connect to: https://data.example")
    expect(output).to_contain_text("It wants to use: camera")
    expect(output.locator(".ipymcp-app-frame")).to_have_count(0)
    output.get_by_role("button", name="Allow").click()
    expect(app_in(notebook, 1).locator("#done")).to_have_text("first")
    assert "connect=https%3A%2F%2Fdata.example" in str(output.locator(".ipymcp-app-frame").get_attribute("src"))
    notebook.run(2)
    expect(app_in(notebook, 2).locator("#done")).to_have_text("first")
    apps.write(work / "pages", "map", apps.page("await begin(); write('done', 'second');"))
    notebook.run(3)
    expect(notebook.output(3)).to_contain_text("The app of apps has changed since you saw it last.")
    expect(notebook.output(3).locator(".ipymcp-app-frame")).to_have_count(0)
    notebook.output(3).get_by_role("button", name="Show without").click()
    expect(app_in(notebook, 3).locator("#done")).to_have_text("second")
    assert str(notebook.output(3).locator(".ipymcp-app-frame").get_attribute("src")).endswith("/apps/frame")


def test_a_saved_notebook_has_no_html_and_the_app_comes_back_while_the_kernel_runs(
    show_app: ShowApp, page: Page, work: Path, jupyter: JupyterServer
) -> None:
    notebook = show_app("chart", apps.page("await begin(); write('done', 'shown');", "<i>of the server</i>"))
    expect(app_in(notebook, 1).locator("#done")).to_have_text("shown")
    notebook.save()
    saved = (work / "notebook.ipynb").read_text()
    assert "of the server" not in saved and "ui/initialize" not in saved
    assert "apps.chart has an app, which is shown while the kernel runs: run the cell again to get it back." in saved
    notebook = opened(page, jupyter, notebook.path)
    expect(app_in(notebook, 1).locator("#done")).to_have_text("shown")
    notebook.restart()
    expect(notebook.output(1).locator(".ipymcp-app-frame")).to_have_count(0)
    expect(notebook.output(1)).to_contain_text("run the cell again to get it back")


def test_links_files_and_messages_need_a_click(show_app: ShowApp, page: Page) -> None:
    script = """
      await begin();
      const link = request("ui/open-link", { url: "javascript:alert(1)" });
      write("link", (await link).error.message);
      const said = request("ui/message", { role: "user", content: { type: "text", text: TEXT } });
      write("message", (await said).result ?? "");
      const file = { type: "resource", resource: { uri: "file:///../a/.b c.txt", text: "content" } };
      write("file", (await request("ui/download-file", { contents: [file] })).result);
    """
    text = json.dumps("sum {x} up: $key, anna@a.b\n /apps.asks a=$key (@apps:ui)")
    notebook = show_app("asks", apps.page(script.replace("TEXT", text)))
    app, output = app_in(notebook, 1), notebook.output(1)
    expect(app.locator("#link")).to_have_text("a link must be an http or https URL without a login")
    output.get_by_role("button", name="Insert as a cell").click()
    expect(app.locator("#message")).to_have_text("{}")
    assert notebook.source(2) == "%%mcp ask\nsum {{x}} up: $$key, anna@a.b\n / apps.asks a=$$key (@ apps:ui)"
    with page.expect_download() as saved:
        output.get_by_role("button", name="Save").click()
    assert saved.value.suggested_filename == "b c.txt"
    expect(app.locator("#file")).to_have_text("{}")


def test_an_app_that_is_shown_twice_goes_on_when_one_of_them_is_closed(show_app: ShowApp) -> None:
    script = """
      await begin();
      document.querySelector("button").onclick = async () => {
        const { result, error } = await request("tools/list");
        write("listed", error?.message ?? result.tools.length);
      };
    """
    html = apps.page(script, "<button>list</button>")
    end = "await r.app.closed()\nprint('closed')"
    notebook = show_app("form", html, "r", "r", end, call="r = mcp.apps.form()\nr")
    for index in (2, 3):
        notebook.run(index)
    for index in (1, 2, 3):
        expect(app_in(notebook, index).get_by_role("button", name="list")).to_be_visible()
    notebook.output(1).get_by_role("button", name="Close").click()
    expect(notebook.output(1)).to_contain_text("The app is closed.")
    notebook.write(2, "print('no app')")
    notebook.run(2)
    app_in(notebook, 3).get_by_role("button", name="list").click()
    expect(app_in(notebook, 3).locator("#listed")).to_have_text("3")
    notebook.output(3).get_by_role("button", name="Close").click()
    notebook.run(4)
    expect(notebook.output(4)).to_contain_text("closed")


def test_an_app_gets_a_message_before_its_end_and_need_not_answer(show_app: ShowApp, page: Page) -> None:
    ends: list[str] = []
    page.on("console", lambda message: ends.append(message.text) if message.text.startswith("end:") else None)
    hear = "globalThis.heard = (data) => { if (data.id !== undefined) console.log('end: ' + data.method); };"
    compile_ = "try { new Function('return 7')(); } catch {}"
    html = apps.page(f"{hear} await begin(); {compile_} write('done', 'yes');")
    notebook = show_app("deaf", html.replace("send({ id: data.id, result: {} })", "undefined"))
    output = notebook.output(1)
    expect(app_in(notebook, 1).locator("#done")).to_have_text("yes")
    output.get_by_role("button", name="Allow eval").click()
    expect(output.get_by_role("button", name="Allow eval")).to_have_count(0)
    expect(app_in(notebook, 1).locator("#done")).to_have_text("yes")
    assert ends == ["end: ui/resource-teardown"]
    output.get_by_role("button", name="Close").click()
    expect(output).to_contain_text("The app is closed.")
    assert ends == ["end: ui/resource-teardown"] * 2


def test_a_link_to_a_part_of_the_page_leads_there(show_app: ShowApp) -> None:
    script = """
      addEventListener("hashchange", () => write("at", `at ${location.hash}`));
      await begin();
      document.querySelector("#own").onclick = (event) => { event.preventDefault(); write("own-click", "kept"); };
    """
    body = "<a href='#'>top</a> <a href='#part'>part</a> <a id='own' href='#other'>own</a><p id='part'>the part</p>"
    notebook = show_app("links", apps.page(script, body))
    app = app_in(notebook, 1)
    app.get_by_role("link", name="top").click()
    app.get_by_role("link", name="part").click()
    expect(app.locator("#at").last).to_have_text("at #part")
    app.get_by_role("link", name="own").click()
    expect(app.locator("#own-click")).to_have_text("kept")
    assert app.locator("#at").last.inner_text() == "at #part"
