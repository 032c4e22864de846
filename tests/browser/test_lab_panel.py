"""The sidebar in everyday use: what a person sees of lists, calls and questions, and where the focus goes."""

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import FloatRect, Locator, Page, expect

from tests.browser.conftest import Open, WithSidebar
from tests.browser.notebooks import execute
from tests.browser.places import in_cell, resize_sidebar, sidebar
from tests.browser.test_lab_looks import faults
from tests.environments import ROOT

MISBEHAVING = f"{sys.executable} {ROOT}/tests/servers/misbehaving.py"
NAMED = str(ROOT / "tests" / "servers" / "named.py")


def is_in_sight(button: Locator) -> bool:
    """Whether nothing lies over the middle of a button."""
    return bool(
        button.evaluate(
            "e => { const r = e.getBoundingClientRect();"
            " return e.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2)); }"
        )
    )


def test_a_long_question_of_trust_has_its_buttons_in_sight_and_its_cell_says_where_it_waits(
    open_with_sidebar: WithSidebar, work: Path
) -> None:
    args = [NAMED, '{"name": "a"}', *(f"--option-{number}=value" for number in range(20))]
    servers = {f"theirs{number}": {"command": sys.executable, "args": args} for number in range(6)}
    (work / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    notebook, panel = open_with_sidebar("%load_ext ipymcp", "%mcp load theirs0 theirs1 theirs2 theirs3 theirs4 theirs5")
    expect(panel.root.get_by_role("heading", name="No servers yet")).to_be_visible()
    notebook.begin(1)
    question = panel.root.get_by_role("alertdialog")
    expect(question).to_be_visible()
    expect(notebook.output(1)).to_contain_text("Waiting for your answer in the MCP panel.")
    expect(panel.root.locator(".mcp-click-guard")).to_have_count(0)
    for name in ("Trust selected", "Don't trust"):
        assert is_in_sight(panel.button(name)), name
    last = question.get_by_role("region").last
    last.scroll_into_view_if_needed()
    assert "--option-19=value" in last.inner_text()
    panel.press("Don't trust")
    expect(question).to_have_count(0)
    expect(notebook.output(1)).not_to_contain_text("Waiting for your answer")


def test_lists_fill_their_place_and_calls_of_cells_show_as_they_end(open_with_sidebar: WithSidebar) -> None:
    tools = " ".join(f"'{json.dumps({'name': f'tool_{number:03}'})}'" for number in range(120))
    notebook, panel = open_with_sidebar(
        "%load_ext ipymcp",
        f"%mcp load many -- {sys.executable} {NAMED} {tools}",
        "for n in range(60): mcp.many.tool_001(path=str(n))",
        "mcp.many.tool_002(path='x')",
    )
    notebook.run(1)
    view = panel.show("Tools")
    expect(view.get_by_role("treeitem").first).to_be_visible()
    assert reaches_the_end(view.get_by_role("tree"))
    calls = panel.calls()
    notebook.run(2)
    expect(calls.first).to_contain_text("many.tool_001")
    assert reaches_the_end(panel.root.get_by_role("listbox", name="Calls"))
    calls.first.click()
    chosen = panel.root.get_by_role("region", name="Selected call")
    expect(chosen).to_contain_text("many.tool_001")
    notebook.run(3)
    panel.go_back()
    expect(calls.first).to_contain_text("many.tool_002")


def reaches_the_end(rows: Locator) -> bool:
    """Whether the rows that are drawn fill the list."""
    return bool(
        rows.evaluate(
            "list => [...list.querySelectorAll('.mcp-row')].at(-1).getBoundingClientRect().bottom"
            " >= list.getBoundingClientRect().bottom"
        )
    )


def test_name_and_path_of_a_server_that_can_be_loaded_stand_beside_each_other(
    open_notebook: Open, work: Path, page: Page
) -> None:
    folder = work / "a-project-with-a-long-name" / "and-a-folder-in-it"
    folder.mkdir(parents=True)
    servers = {name: {"command": "python"} for name in ("weather", "a_server_with_quite_a_long_name_of_its_own")}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    notebook = open_notebook("%load_ext ipymcp", name=str((folder / "notebook").relative_to(work)))
    notebook.run(0)
    known = sidebar(page).root.get_by_role("region", name="Servers that can be loaded")
    lines = known.get_by_role("listitem").filter(has_text=str(folder))
    expect(lines).to_have_count(2)
    for line in lines.all():
        path = line.get_by_text(str(folder))
        expect(path).to_have_attribute("title", f"python\n{folder}/.mcp.json")
        parts = [
            box(part) for part in (line.locator(".mcp-card-name > .mcp-ellipsis"), path, line.get_by_role("button"))
        ]
        assert all(part["width"] > 40 for part in parts)
        for left, right in itertools.pairwise(parts):
            assert left["x"] + left["width"] <= right["x"]


def box(element: Locator) -> FloatRect:
    """The position of an element on the page."""
    place = element.bounding_box()
    assert place is not None
    return place


def test_a_long_text_in_a_table_costs_its_row_no_height_and_the_others_no_room(open_with_sidebar: WithSidebar) -> None:
    notebook, panel = open_with_sidebar("%load_ext ipymcp", f"%mcp load own -- {MISBEHAVING};")
    notebook.run(1)
    view = panel.find_tool("echo", "own.echo")
    row = {"species": "Adelie", "note": "some words " * 60, "mass": 3750.123456789012, "island": "Torgersen"}
    view.get_by_label("text").fill(json.dumps([row] * 4))
    panel.press("Run")
    expect(panel.outcome.get_by_role("row")).to_have_count(5)
    for line in panel.outcome.get_by_role("row").all():
        assert box(line)["height"] < 30
    table = panel.outcome.locator(".mcp-table")
    for cell in panel.outcome.get_by_role("row").last.get_by_role("cell").all():
        cell.scroll_into_view_if_needed()
        frame, place = box(table), box(cell)
        assert frame["x"] <= place["x"] and place["x"] + place["width"] <= frame["x"] + frame["width"] + 2
        is_whole = cell.evaluate("e => e.scrollWidth <= e.clientWidth")
        assert is_whole or len(cell.get_attribute("title") or "") == 100
    expect(panel.outcome.get_by_role("cell", name="3750.123457").first).to_have_css("text-align", "end")
    panel.press("Row 2")
    expect(panel.outcome.get_by_role("region", name="Row 2")).to_contain_text("some words " * 60)


def test_a_rule_that_is_typed_in_a_cell_shows_at_once_in_the_tool_that_is_open(open_with_sidebar: WithSidebar) -> None:
    notebook, panel = open_with_sidebar(
        "%load_ext ipymcp", "%mcp load demo;", "%mcp policy deny demo.echo;", "%mcp policy reset;"
    )
    notebook.run(1)
    view = panel.find_tool("echo", "demo.echo")
    expect(view.get_by_role("button", name="Run")).to_be_visible()
    expect(view.get_by_text("denied by policy")).to_have_count(0)
    notebook.run(2)
    expect(view.get_by_text("denied by policy")).to_be_visible()
    notebook.run(3)
    expect(view.get_by_text("denied by policy")).to_have_count(0)


def test_a_command_moves_the_focus_to_what_it_opens(open_with_sidebar: WithSidebar, page: Page) -> None:
    notebook, panel = open_with_sidebar("%load_ext ipymcp", "%mcp load demo;", "x = 1", "")
    notebook.run(1)
    panel.expect_state("demo", "ready")
    notebook.choose(2)
    execute(page, "ipymcp:open")
    expect(panel.root.get_by_role("tab", name="Servers")).to_be_focused()
    execute(page, "ipymcp:show-tools")
    box = panel.root.get_by_role("searchbox", name="Search tools")
    expect(box).to_be_focused()
    page.keyboard.type("echo")
    expect(panel.root.get_by_role("treeitem")).to_have_count(2)
    page.keyboard.press("Enter")
    expect(panel.root.get_by_role("heading", name="echo")).to_be_visible()
    expect(panel.root.get_by_label("text", exact=True)).to_be_focused()
    page.keyboard.type("hello")
    panel.press("Insert as code")
    expect(panel.root.locator(".mcp-notice")).to_contain_text("Inserted")
    assert (notebook.source(2), notebook.source(3)) == ("x = 1", "mcp.demo.echo(text='hello')")

    page.set_viewport_size({"width": 1000, "height": 500})
    panel.go_back()
    panel.find_tool("query", "demo.query").get_by_label("table").select_option("penguins")
    panel.press("Run")
    rows = panel.outcome.get_by_role("table")
    expect(rows).to_be_visible()
    expect(panel.outcome.get_by_role("button", name="Insert variable")).to_be_in_viewport(
        ratio=0.95
    )  # a part of a pixel


def test_a_click_that_a_question_has_overtaken_is_ignored(open_with_sidebar: WithSidebar, page: Page) -> None:
    notebook, panel = open_with_sidebar(
        "%load_ext ipymcp", "%mcp load demo;\n%mcp policy ask demo.*;", "mcp.demo.echo('a')"
    )
    notebook.run(1)
    panel.expect_state("demo", "ready")
    # As soon as the question is drawn, the page clicks where its first button lies.
    page.evaluate("""() => {
        window.early = null;
        new MutationObserver((_, observer) => {
            const button = document.querySelector("[role=alertdialog] .mcp-primary");
            if (!button) return;
            observer.disconnect();
            requestAnimationFrame(() => {
                const {x, y, width, height} = button.getBoundingClientRect();
                window.early = button.contains(document.elementFromPoint(x + width / 2, y + height / 2));
            });
        }).observe(document.body, {childList: true, subtree: true});
    }""")
    notebook.begin(2)
    page.wait_for_function("() => window.early !== null")
    assert page.evaluate("() => window.early") is False
    panel.press("Allow once")
    expect(panel.root.get_by_role("alertdialog")).to_have_count(0)
    expect(notebook.output(2)).to_contain_text("a")


def test_after_a_restart_the_notebook_is_offered_what_it_used(open_with_sidebar: WithSidebar) -> None:
    notebook, panel = open_with_sidebar("%load_ext ipymcp\n%mcp load demo;", "x = 1")
    panel.expect_state("demo", "ready")
    notebook.restart()
    offered = panel.root.get_by_text("Restore demo?")
    expect(offered).to_be_visible()
    assert faults(panel) == []

    texts = watched(panel.root)
    panel.press("Load ipymcp only")
    expect(panel.root.get_by_role("heading", name="No servers yet")).to_be_visible()
    assert "cannot connect" not in texts()
    expect(offered).to_be_visible()  # now the kernel knows it
    assert faults(panel) == []
    panel.press("Insert as first cell")
    assert notebook.source(0) == "%load_ext ipymcp\n%mcp load demo"
    panel.press("Restore")
    panel.expect_state("demo", "ready")

    notebook.restart()
    expect(offered).to_be_visible()
    panel.root.get_by_role("checkbox", name="Also insert the cell that does this").check()
    panel.press("Restore")
    panel.expect_state("demo", "ready")
    assert [notebook.source(index) for index in (0, 2)] == ["%load_ext ipymcp\n%mcp load demo", "x = 1"]


def watched(root: Locator) -> Callable[[], str]:
    """Give a function that gives all texts that an element has shown meanwhile, also for an instant."""
    root.evaluate("""root => {
        window.shown = [];
        const observer = new MutationObserver(() => shown.push(root.innerText));
        observer.observe(root, {childList: true, subtree: true, characterData: true});
    }""")
    return lambda: str(root.page.evaluate("() => shown.join()"))


def test_a_server_that_a_cell_defined_is_restored_and_one_that_is_missing_stays_offered(
    open_notebook: Open, work: Path, page: Page
) -> None:
    file = work / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"gone": {"command": sys.executable, "args": [NAMED, '{"name": "a"}']}}}))
    typed = f"%mcp load other -- {MISBEHAVING} --era legacy;"
    notebook = open_notebook("%load_ext ipymcp", typed, "mcp.load('servers.json', trust=True);")
    for cell in range(3):
        notebook.run(cell)
    panel = sidebar(page)
    panel.expect_state("gone", "ready")
    file.unlink()
    notebook.restart()
    expect(panel.root.get_by_text("Restore other and gone?")).to_be_visible()
    panel.press("Restore")
    panel.expect_state("other", "ready")
    expect(panel.root.locator(".mcp-notice")).to_contain_text(f"Not restored:\ngone: {file}: no such file")
    panel.press("Dismiss")
    expect(panel.root.get_by_text("Restore gone?")).to_be_visible()
    panel.press("Forget")
    expect(panel.root.get_by_text("Restore gone?")).to_have_count(0)
    notebook.restart()
    expect(panel.root.get_by_text("Restore other?")).to_be_visible()


def test_a_start_that_lacks_a_value_has_a_field_for_it(open_with_sidebar: WithSidebar, work: Path, page: Page) -> None:
    definition = {"command": sys.executable, "args": [NAMED, '{"name": "a"}'], "env": {"KEY": "${SUCH_A_KEY}"}}
    (work / "servers.json").write_text(json.dumps({"mcpServers": {"keyed": definition}}))
    notebook, panel = open_with_sidebar("%load_ext ipymcp", "mcp.load('servers.json', trust=True, wait=False);")
    notebook.run(1)
    panel.expect_state("keyed", "failed")
    expect(panel.root).to_contain_text("${SUCH_A_KEY} is not set in this kernel")
    assert faults(panel) == []
    panel.press("Retry")
    panel.expect_state("keyed", "failed")
    panel.press("Copy")
    assert "SUCH_A_KEY" in page.evaluate("navigator.clipboard.readText()")
    panel.root.get_by_label("Value of SUCH_A_KEY").fill("a-key-of-mine")
    panel.press("Set and start")
    panel.expect_state("keyed", "ready")
    assert "a-key-of-mine" not in (work / "servers.json").read_text()


def test_a_template_suggests_what_its_server_completes(open_with_sidebar: WithSidebar, page: Page) -> None:
    _, panel = open_with_sidebar("%load_ext ipymcp\n%mcp load demo;")
    panel.list("Resources").get_by_role("treeitem").filter(has_text="template").click()
    field = panel.root.get_by_label("species")
    field.press_sequentially("ge")
    options = panel.root.locator("datalist option")
    expect(options).to_have_count(1)
    expect(options).to_have_attribute("value", "Gentoo")
    field.fill("Gentoo")
    page.keyboard.press("Enter")
    expect(panel.root).to_contain_text("Biscoe")


def test_a_long_line_of_a_log_is_read_as_a_whole_in_a_narrow_sidebar(
    open_with_sidebar: WithSidebar, page: Page
) -> None:
    line = "word 漢字 " * 40 + "the end"
    server = {"command": sys.executable, "args": ["-c", f"import sys; sys.exit({line!r})"], "restart": False}
    _, panel = open_with_sidebar(f"%load_ext ipymcp\nmcp.load({{'loud': {server}}}, trust=True, wait=False)")
    panel.expect_state("loud", "failed")
    execute(page, "application:toggle-left-area")
    lines = panel.show("Logs").locator(".mcp-line")
    heights = []
    for width in (300, 1000):
        resize_sidebar(page, width)
        long = lines.filter(has_text="the end").first
        expect(long).to_be_visible()
        page.wait_for_function("width => document.querySelector('.mcp-stream').clientWidth > width - 40", arg=width)
        sizes = "each => [each.clientHeight, each.scrollHeight, each.clientWidth, each.scrollWidth]"
        high, whole, wide, needed = long.evaluate(sizes)
        assert (high, wide) == (whole, needed)
        heights.append(high)
        assert lines.last.evaluate(
            "each => each.getBoundingClientRect().bottom <= each.closest('.mcp-rows').getBoundingClientRect().bottom"
        )
    assert heights[0] > heights[1] >= 18


def test_all_buttons_of_a_narrow_panel_are_in_sight(open_notebook: Open, page: Page) -> None:
    notebook = open_notebook("%load_ext ipymcp\n%mcp load demo;", "%mcp panel")
    notebook.run(0)
    notebook.run(1)
    panel = in_cell(notebook, 1)
    panel.expect_state("demo", "ready")
    height = "each => each.clientHeight"
    box = panel.root.locator(".mcp-panel")
    assert 160 <= box.evaluate(height) < 400, "one server fills the panel"
    panel.show("Tools")
    expect(panel.tool("demo.echo")).to_be_visible()
    assert box.evaluate("each => each.scrollHeight <= each.clientHeight && each.clientHeight <= 480")
    panel.show("Servers")
    panel.root.evaluate("each => { each.style.width = '240px'; }")
    for name in ("Add server…", "Configured servers…", "Actions of all servers"):
        assert is_in_sight(panel.button(name)), name
