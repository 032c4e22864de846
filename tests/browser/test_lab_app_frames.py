"""The frames of apps in a notebook: keyboard focus, theme, size, display modes, scrolling, and many of them."""

import pytest
from playwright.sync_api import FrameLocator, Locator, Page, expect

from tests import apps
from tests.browser.conftest import ShowApp
from tests.browser.notebooks import Notebook, app_in, execute
from tests.browser.places import DARK, LIGHT

SCRIPT = """
  const modes = ["inline", "fullscreen", "pip"];
  globalThis.heard = ({ method, params }) => {
    if (method !== "ui/notifications/host-context-changed") return;
    for (const [name, value] of Object.entries(params)) shown(name, value);
  };
  const shown = (name, value) => {
    document.getElementById(name)?.remove();
    write(name, value?.variables ? value.variables["--color-background-primary"] : value);
  };
  const { hostContext } = await begin({ availableDisplayModes: modes });
  for (const [name, value] of Object.entries(hostContext)) shown(name, value);
  for (const mode of modes) {
    document.getElementById(`to-${mode}`).onclick = () => request("ui/request-display-mode", { mode });
  }
  const size = (height) => () => send({ method: "ui/notifications/size-changed", params: { width: 100, height } });
  document.getElementById("grow").onclick = size(700);
  document.getElementById("shrink").onclick = size(200);
  write("load", String(Math.random()));
"""
BODY = """
  <button id="grow">grow</button><input id="field"><button id="shrink">shrink</button>
  <button id="to-inline">inline</button><button id="to-fullscreen">full</button><button id="to-pip">pip</button>
"""


@pytest.fixture
def notebook(show_app: ShowApp) -> Notebook:
    """A notebook with the app in cell 1, and cells below it."""
    notebook = show_app("one", apps.page(SCRIPT, BODY), "mcp.apps.one();", *["x = 1\n" * 30] * 4)
    expect(app_in(notebook, 1).locator("#load")).to_have_count(1)
    return notebook


@pytest.fixture
def app(notebook: Notebook) -> FrameLocator:
    return app_in(notebook, 1)


@pytest.fixture
def frame(notebook: Notebook) -> Locator:
    return notebook.output(1).locator(".ipymcp-app-frame")


def test_tab_goes_through_the_app_and_keys_in_it_are_the_apps_until_escape(
    notebook: Notebook, page: Page, app: FrameLocator, frame: Locator
) -> None:
    before = notebook.output(1).get_by_role("button", name="Close", exact=True)
    before.focus()
    inside = ["grow", "field", "shrink", "to-inline", "to-fullscreen", "to-pip"]
    for each in inside:
        page.keyboard.press("Tab")
        expect(app.locator(f"#{each}")).to_be_focused()
    page.keyboard.press("Tab")
    expect(frame).not_to_be_focused()
    for each in reversed(inside):
        page.keyboard.press("Shift+Tab")
        expect(app.locator(f"#{each}")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(before).to_be_focused()

    cells = notebook.root.locator(".jp-CodeCell")
    count = cells.count()
    app.locator("#field").focus()
    page.keyboard.type("add")
    expect(app.locator("#field")).to_have_value("add")
    page.keyboard.press("Escape")
    head = notebook.output(1).locator(".ipymcp-app-head")
    expect(head).to_be_focused()
    page.keyboard.type("a")  # the page may have pretended that Escape was pressed
    expect(cells).to_have_count(count)
    page.keyboard.press("Escape")
    expect(notebook.cell(1)).to_be_focused()
    page.keyboard.type("a")
    expect(cells).to_have_count(count + 1)


def test_the_app_follows_the_theme_without_a_reload_and_is_readable_without_a_dark_theme_of_its_own(
    notebook: Notebook, page: Page, app: FrameLocator, frame: Locator
) -> None:
    load = app.locator("#load").inner_text()
    around = notebook.output(1).frame_locator(".ipymcp-app-frame").locator("html")
    for theme, name, background in ((DARK, "dark", "#212121"), (LIGHT, "light", "white")):
        execute(page, "apputils:change-theme", theme=theme)
        expect(app.locator("#theme")).to_have_text(name)
        expect(app.locator("#styles")).to_have_text(background)
        expect(frame).to_have_css("color-scheme", name)
        expect(around).to_have_css("color-scheme", name)
        expect(app.locator("html")).to_have_css("color-scheme", "normal")  # so the browser paints its background
    expect(app.locator("#load")).to_have_text(load)


def test_sizes_go_both_ways_and_display_modes_are_entered_and_left(
    notebook: Notebook, page: Page, app: FrameLocator, frame: Locator
) -> None:
    load = app.locator("#load").inner_text()
    inline = frame.bounding_box()
    for mode, name in (("fullscreen", "Full screen"), ("pip", "Corner")):
        for enter in (
            lambda mode=mode: app.locator(f"#to-{mode}").press("Enter"),
            lambda name=name: notebook.output(1).get_by_role("button", name=name).press("Enter"),
        ):
            enter()
            expect(app.locator("#displayMode")).to_have_text(mode)
            expect(app.locator("#containerDimensions")).to_contain_text('"height"')
            assert frame.bounding_box() != inline
            app.locator("#field").focus()
            page.keyboard.press("Escape")
            expect(app.locator("#displayMode")).to_have_text("inline")
            assert frame.bounding_box() == inline
    expect(app.locator("#load")).to_have_text(load)

    app.locator("#grow").press("Enter")
    expect(frame).to_have_css("height", "702px")
    app.locator("#shrink").press("Enter")
    expect(frame).to_have_css("height", "202px")
    page.set_viewport_size({"width": 900, "height": 900})
    width = frame.evaluate("each => each.clientWidth")
    expect(app.locator("#containerDimensions")).to_have_text(f'{{"width":{width},"maxHeight":2000}}')


SCROLL = "async (index) => { await jupyterapp.shell.currentWidget.content.scrollToItem(index); }"
WINDOWING = """mode => {
    const { content } = jupyterapp.shell.currentWidget;
    content.notebookConfig = { ...content.notebookConfig, windowingMode: mode };
}"""


@pytest.mark.parametrize("windowing", ["contentVisibility", "full", "defer", "none"])
def test_scrolling_away_and_back_does_not_reload(
    notebook: Notebook, page: Page, app: FrameLocator, windowing: str
) -> None:
    load = app.locator("#load").inner_text()
    page.evaluate(WINDOWING, windowing)
    for index in (6, 1):
        page.evaluate(SCROLL, index)
        expect(notebook.cell(index)).to_be_in_viewport()
    expect(app.locator("#load")).to_have_text(load)


def test_twenty_apps_are_live_at_once(notebook: Notebook, page: Page) -> None:
    notebook.write(2, "for _ in range(20):\n    mcp.apps.one().app.show(height=60)")
    notebook.run(2)
    frames = notebook.output(2).locator(".ipymcp-app-frame")
    expect(frames).to_have_count(20)
    for index in range(20):
        frames.nth(index).scroll_into_view_if_needed()
        expect(frames.nth(index).content_frame.frame_locator("iframe").locator("#load")).to_have_count(1)
    editor = notebook.cell(3).locator(".cm-content")
    editor.click()
    while not editor.evaluate("editor => editor === document.activeElement"):
        editor.click()  # a click just after scrolling may reach the app that was there before
    page.keyboard.type("# typed")
    expect(editor).to_contain_text("# typed")
    assert "# typed" in notebook.source(3)
