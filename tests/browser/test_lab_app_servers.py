"""The example servers of the extension's own project, each with its app in JupyterLab and in Notebook 7."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.places import LOAD
from tests.browser.test_lab_apps import app_in
from tests.environments import MissingEnvironment, environment

CALLS = {
    "basic-react": ("get_time()", "Get Server Time"),
    "basic-vanillajs": ("get_time()", "Get Server Time"),
    "budget-allocator": ("get_budget_data()", "Budget"),
    "cohort-heatmap": ("get_cohort_data()", "Cohort"),
    "customer-segmentation": ("get_customer_data()", "Customer"),
    "debug": ("debug_tool()", "Debug"),
    "map": ("show_map()", ""),
    "scenario-modeler": ("get_scenario_data()", "Scenario"),
    "shadertoy": ("render_shadertoy()", ""),
    "sheet-music": ("play_sheet_music()", ""),
    "system-monitor": ("get_system_info()", "System"),
    "threejs": ("show_threejs_scene()", ""),
    "transcript": ("transcribe()", "Start"),
    "video-resource": ("play_video(videoId='bunny-1mb')", ""),
    "wiki-explorer": ("get_first_degree_links(url='https://en.wikipedia.org/wiki/Penguin')", ""),
}
"""A call of each, and words of its page. The server for PDFs is not among them: without the internet its tool fails."""


def command(name: str) -> str:
    try:
        modules = environment("interop/ext-apps").folder / "node_modules"
    except MissingEnvironment as error:
        pytest.skip(str(error))
    return f"node {modules}/@modelcontextprotocol/server-{name}/dist/index.js --stdio"


@pytest.mark.parametrize("place", ["lab/tree", "notebooks"])
@pytest.mark.parametrize("name", CALLS)
def test_an_example_server_shows_its_app(open_notebook: Open, name: str, place: str) -> None:
    call, words = CALLS[name]
    notebook = open_notebook(f"{LOAD}\n%mcp load app -- {command(name)}", f"mcp.app.{call}", app=place)
    notebook.run(0)
    notebook.run(1)
    output = notebook.output(1)
    frame = output.locator(".ipymcp-app-frame")
    allow = output.get_by_role("button", name="Allow", exact=True)
    expect(frame.or_(allow)).to_be_visible()
    if allow.is_visible():
        allow.click()
    app = app_in(notebook, 1)
    expect(app.locator("body")).to_be_attached()
    if words:
        expect(app.locator("body")).to_contain_text(re.compile(words))
    expect(output).not_to_contain_text("The app was stopped")
