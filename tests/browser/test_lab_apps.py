"""Apps in cells: what a user sees, what the page is told, and what it may ask."""

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from tests import apps
from tests.browser.conftest import Open
from tests.browser.notebooks import app_in
from tests.browser.places import LOAD, without_extension


def test_an_app_is_shown_above_the_text_and_told_what_it_shows(open_notebook: Open, page: Page, work: Path) -> None:
    html = apps.page("""
      globalThis.heard = ({ method, params }) => write(method.split("/").at(-1), params);
      const { hostContext, hostInfo } = await begin();
      write("context", hostContext);
      write("host", hostInfo.name);
    """)
    apps.write(work / "pages", "chart", html)
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", "r = mcp.apps.chart(text='t')\nr", "r.app")
    notebook.run(0)
    notebook.run(1)
    app = app_in(notebook, 1)
    expect(app.locator("#host")).to_have_text("ipymcp")
    expect(app.locator("#tool-input")).to_have_text('{"arguments":{"text":"t"}}')
    expect(app.locator("#tool-result")).to_contain_text("text/html;profile=mcp-app")
    expect(app.locator("#context")).to_contain_text('"theme":"light"')
    expect(notebook.output(1)).to_contain_text("the text of chart: t")
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("<app of apps.chart, ui://apps/chart>")


def test_a_call_of_an_app_is_asked_about_and_comes_back(open_notebook: Open, page: Page, work: Path) -> None:
    script = """
      await begin();
      document.querySelector("button").onclick = async () => {
        const { result } = await request("tools/call", { name: "add", arguments: { a: 1, b: 2 } });
        write("sum", result.content[0].text);
      };
    """
    apps.write(work / "pages", "form", apps.page(script, "<button>add</button>"))
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", "mcp.apps.form()", "mcp.history()")
    notebook.run(0)
    notebook.run(1)
    app_in(notebook, 1).get_by_role("button", name="add").click()
    expect(notebook.output(1)).to_contain_text("An app wants to run apps.add")
    notebook.output(1).get_by_role("button", name="Allow once").click()
    expect(app_in(notebook, 1).locator("#sum")).to_have_text("3")
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("apps.add")


def test_a_question_of_an_app_that_is_gone_does_not_keep_others_waiting(open_notebook: Open, work: Path) -> None:
    script = "await begin(); await request('tools/call', { name: 'add', arguments: { a: 1, b: 2 } });"
    apps.write(work / "pages", "form", apps.page(script))
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", "mcp.apps.form()")
    notebook.run(0)
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("An app wants to run apps.add")
    notebook.write(1, "print('no app')")
    notebook.run(1)
    notebook.write(1, "mcp.apps.form()")
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("An app wants to run apps.add")


def test_what_an_app_says_of_its_state_is_a_value_in_python(open_notebook: Open, work: Path) -> None:
    script = """
      await begin();
      const { result } = await request("ui/update-model-context", { structuredContent: { rate: 0.5 } });
      write("told", result);
    """
    apps.write(work / "pages", "slider", apps.page(script))
    cells = "r = mcp.apps.slider()\nseen = []\nr.app.on_update(seen.append)\nr", "print(r.app.context, seen)"
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", *cells)
    notebook.run(0)
    notebook.run(1)
    expect(app_in(notebook, 1).locator("#told")).to_have_text("{}")
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("{'rate': 0.5} [{'rate': 0.5}]")


DECLARES = {"csp": {"connectDomains": ["https://data.example"]}, "permissions": {"camera": {}}}


def test_declared_domains_are_asked_about_once_and_a_changed_page_again(
    open_notebook: Open, page: Page, work: Path
) -> None:
    apps.write(work / "pages", "map", apps.page("await begin(); write('done', 'first');"), DECLARES)
    cells = (f"{LOAD}\n{apps.load(work / 'pages')}", "mcp.apps.map()", "mcp.apps.map()", "mcp.apps.map()")
    notebook = open_notebook(*cells)
    notebook.run(0)
    notebook.run(1)
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
    open_notebook: Open, page: Page, work: Path
) -> None:
    apps.write(work / "pages", "chart", apps.page("await begin(); write('done', 'shown');", "<i>of the server</i>"))
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", "mcp.apps.chart()")
    notebook.run(0)
    notebook.run(1)
    expect(app_in(notebook, 1).locator("#done")).to_have_text("shown")
    notebook.save()
    saved = (work / "notebook.ipynb").read_text()
    assert "of the server" not in saved and "ui/initialize" not in saved
    assert "apps.chart has an app, which is shown while the kernel runs: run the cell again to get it back." in saved
    page.reload()
    notebook.wait()
    expect(app_in(notebook, 1).locator("#done")).to_have_text("shown")
    notebook.restart()
    expect(notebook.output(1).locator(".ipymcp-app-frame")).to_have_count(0)
    expect(notebook.output(1)).to_contain_text("run the cell again to get it back")


def test_an_app_without_our_extension_in_the_page_is_a_widget(open_notebook: Open, page: Page, work: Path) -> None:
    without_extension(page)
    script = """
      await begin();
      const { result } = await request("ui/update-model-context", { content: [{ type: "text", text: "hi" }] });
      write("done", result);
    """
    apps.write(work / "pages", "chart", apps.page(script))
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", "r = mcp.apps.chart()\nr", "r.app.context")
    notebook.run(0)
    notebook.run(1)
    expect(app_in(notebook, 1).locator("#done")).to_have_text("{}")
    expect(notebook.output(1)).to_contain_text("the text of chart")
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("'hi'")


def test_links_files_and_messages_need_a_click(open_notebook: Open, page: Page, work: Path) -> None:
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
    apps.write(work / "pages", "asks", apps.page(script.replace("TEXT", text)))
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", "mcp.apps.asks()")
    notebook.run(0)
    notebook.run(1)
    app, output = app_in(notebook, 1), notebook.output(1)
    expect(app.locator("#link")).to_have_text("a link must be an http or https URL without a login")
    output.get_by_role("button", name="Insert as a cell").click()
    expect(app.locator("#message")).to_have_text("{}")
    assert notebook.source(2) == "%%mcp ask\nsum {{x}} up: $$key, anna@a.b\n / apps.asks a=$$key (@ apps:ui)"
    with page.expect_download() as saved:
        output.get_by_role("button", name="Save").click()
    assert saved.value.suggested_filename == "b c.txt"
    expect(app.locator("#file")).to_have_text("{}")


def test_an_app_that_is_shown_twice_goes_on_when_one_of_them_is_closed(open_notebook: Open, work: Path) -> None:
    script = """
      await begin();
      document.querySelector("button").onclick = async () => {
        const { result, error } = await request("tools/list");
        write("listed", error?.message ?? result.tools.length);
      };
    """
    apps.write(work / "pages", "form", apps.page(script, "<button>list</button>"))
    cells = ("r = mcp.apps.form()\nr", "r", "r", "await r.app.closed()\nprint('closed')")
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", *cells)
    for index in range(4):
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


def test_an_app_is_told_of_its_end_and_need_not_answer(open_notebook: Open, page: Page, work: Path) -> None:
    ends: list[str] = []
    page.on("console", lambda message: ends.append(message.text) if message.text.startswith("end:") else None)
    hear = "globalThis.heard = (data) => { if (data.id !== undefined) console.log('end: ' + data.method); };"
    compile_ = "try { new Function('return 7')(); } catch {}"
    html = apps.page(f"{hear} await begin(); {compile_} write('done', 'yes');")
    apps.write(work / "pages", "deaf", html.replace("send({ id: data.id, result: {} })", "undefined"))
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", "mcp.apps.deaf()")
    notebook.run(0)
    notebook.run(1)
    output = notebook.output(1)
    expect(app_in(notebook, 1).locator("#done")).to_have_text("yes")
    output.get_by_role("button", name="Allow eval").click()
    expect(output.get_by_role("button", name="Allow eval")).to_have_count(0)
    expect(app_in(notebook, 1).locator("#done")).to_have_text("yes")
    assert ends == ["end: ui/resource-teardown"]
    output.get_by_role("button", name="Close").click()
    expect(output).to_contain_text("The app is closed.")
    assert ends == ["end: ui/resource-teardown"] * 2


def test_a_link_to_a_part_of_the_page_leads_there(open_notebook: Open, work: Path) -> None:
    script = """
      addEventListener("hashchange", () => write("at", `at ${location.hash}`));
      await begin();
      document.querySelector("#own").onclick = (event) => { event.preventDefault(); write("own-click", "kept"); };
    """
    body = "<a href='#'>top</a> <a href='#part'>part</a> <a id='own' href='#other'>own</a><p id='part'>the part</p>"
    apps.write(work / "pages", "links", apps.page(script, body))
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", "mcp.apps.links()")
    notebook.run(0)
    notebook.run(1)
    app = app_in(notebook, 1)
    app.get_by_role("link", name="top").click()
    app.get_by_role("link", name="part").click()
    expect(app.locator("#at").last).to_have_text("at #part")
    app.get_by_role("link", name="own").click()
    expect(app.locator("#own-click")).to_have_text("kept")
    assert app.locator("#at").last.inner_text() == "at #part"
