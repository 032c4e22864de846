"""The example servers of the extension's own project, each with its app in JupyterLab and in Notebook 7."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from playwright.sync_api import BrowserContext, FrameLocator, Locator, expect

from tests.browser.notebooks import Notebook, app_in, write_notebook
from tests.browser.places import LOAD, opened
from tests.environments import environment
from tests.jupyter_servers import JupyterServer

PLACES = {"JupyterLab": "lab/tree", "Notebook 7": "notebooks"}
ALLOWED = "%mcp policy allow {name}.*;"


@dataclass
class Shown:
    """An app that is shown in a cell."""

    notebook: Notebook
    output: Locator
    page: FrameLocator

    def press(self, name: str) -> None:
        """Press a button of the page by the keyboard: a frame that grows moves under the pointer."""
        self.page.get_by_role("button", name=name, exact=True).press("Enter")

    def press_beside(self, name: str) -> None:
        """Press one of our buttons around the page."""
        button = self.output.get_by_role("button", name=name, exact=True).first
        expect(button).to_be_enabled()
        button.press("Enter")

    def allow_call(self, tool: str) -> None:
        """Agree to a call of the app."""
        expect(self.output).to_contain_text(re.compile(f"An app wants to run [a-z]+.{tool}"))
        self.press_beside("Allow once")

    def fill_the_window_and_back(self) -> None:
        """Press the button of the page that asks for another display mode, then ours."""
        self.page.get_by_title("Toggle fullscreen").press("Enter")
        self.press_beside("Back to the notebook")
        expect(self.output.get_by_role("button", name="Full screen")).to_be_visible()


def ask_the_time(app: Shown) -> None:
    time = app.page.get_by_text(re.compile(r"^\d{4}-\d\d-\d\dT")).first
    first = time.inner_text()
    app.press("Get Server Time")
    app.allow_call("get-time")
    expect(time).not_to_have_text(first)


def change_the_budget(app: Shown) -> None:
    app.page.locator("select").first.select_option("250000")
    expect(app.page.locator("body")).to_contain_text("/ $250,000")


def see_cohorts(app: Shown) -> None:
    app.allow_call("get-cohort-data")
    expect(app.page.locator("body")).to_contain_text("M11")


def see_segments(app: Shown) -> None:
    app.allow_call("get-customer-data")
    expect(app.page.locator("body")).to_contain_text("Enterprise")


def debug(app: Shown) -> None:
    app.press("Call debug-refresh")
    expect(app.page.locator("body")).to_contain_text("server-tool-result")


def read_why_the_map_is_missing(app: Shown) -> None:
    expect(app.page.locator("body")).to_contain_text("Failed to load CesiumJS from CDN")


def turn_the_page(app: Shown) -> None:
    expect(app.page.locator("body")).to_contain_text("of 2")
    expect(app.page.locator("body")).to_contain_text("first page")
    app.page.locator("#next-btn").press("Enter")
    expect(app.page.locator("body")).to_contain_text("second page")


def move_a_slider(app: Shown) -> None:
    app.page.locator("input[type=range]").first.fill("90000")
    expect(app.page.locator("body")).to_contain_text("$90K")
    app.press("Reset")
    expect(app.page.locator("body")).to_contain_text("$50K")


def fill_the_window(app: Shown) -> None:
    app.fill_the_window_and_back()


def read_the_music(app: Shown) -> None:
    expect(app.page.locator("body")).to_contain_text("Twinkle, Twinkle Little Star")


def poll(app: Shown) -> None:
    app.allow_call("poll-system-stats")
    expect(app.page.locator("body")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))
    app.press("Stop")


def allow_code(app: Shown) -> None:
    frame = app.output.locator(".ipymcp-app-frame")
    if "eval=1" not in str(frame.get_attribute("src")):  # what was allowed in JupyterLab is allowed in Notebook 7
        expect(app.page.locator("body")).to_contain_text("Evaluating a string as JavaScript violates")
        app.press_beside("Allow eval")
        expect(frame).to_have_attribute("src", re.compile("eval=1"))
    expect(app.page.locator("canvas")).to_be_visible()
    expect(app.page.locator("body")).not_to_contain_text("violates")
    app.fill_the_window_and_back()


def try_to_speak(app: Shown) -> None:
    app.press("Start")
    expect(app.page.locator("body")).to_contain_text("Microphone access denied")


def read_why_the_video_is_missing(app: Shown) -> None:
    expect(app.page.locator("body")).to_contain_text("Error loading video")
    expect(app.page.locator("body")).to_contain_text("fetch failed")


def read_why_the_article_is_missing(app: Shown) -> None:
    app.press("↺")
    app.allow_call("get-first-degree-links")
    expect(app.output).not_to_contain_text("An app wants to run")
    circle = app.page.locator("canvas")  # the article's is in the middle, and takes clicks once it shows its title
    circle.hover()
    expect(app.page.locator("body")).to_contain_text("Penguin")
    circle.click()
    expect(app.page.locator("body")).to_contain_text("fetch failed")


class Example(NamedTuple):
    """One of the servers: a call whose result has an app, and an interaction with it.

    Attributes:
        name: The server's name in the notebook.
        call: The call.
        act: The interaction.
        setup: A line before the call.
        arguments: Further arguments of the server's command.
    """

    name: str
    call: str
    act: Callable[[Shown], None]
    setup: str = ""
    arguments: str = ""


WIKI = "get_first_degree_links(url='https://en.wikipedia.org/wiki/Penguin')"
PDF = "display_pdf(url=mcp.pdf.list_pdfs().data['localFiles'][0])"
EXAMPLES = {
    "basic-react": Example("react", "get_time()", ask_the_time),
    "basic-vanillajs": Example("vanilla", "get_time()", ask_the_time),
    "budget-allocator": Example("budget", "get_budget_data()", change_the_budget),
    "cohort-heatmap": Example("cohort", "get_cohort_data()", see_cohorts),
    "customer-segmentation": Example("customers", "get_customer_data()", see_segments),
    "debug": Example("debug", "debug_tool()", debug, ALLOWED),
    "map": Example("map", "show_map()", read_why_the_map_is_missing),
    "pdf": Example("pdf", PDF, turn_the_page, ALLOWED, "two.pdf"),
    "scenario-modeler": Example("scenarios", "get_scenario_data()", move_a_slider),
    "shadertoy": Example("shader", "render_shadertoy()", fill_the_window),
    "sheet-music": Example("music", "play_sheet_music()", read_the_music),
    "system-monitor": Example("system", "get_system_info()", poll),
    "threejs": Example("threejs", "show_threejs_scene()", allow_code),
    "transcript": Example("transcript", "transcribe()", try_to_speak),
    "video-resource": Example("video", "play_video(videoId='bunny-1mb')", read_why_the_video_is_missing),
    "wiki-explorer": Example("wiki", WIKI, read_why_the_article_is_missing),
}


def pdf(*pages: str) -> bytes:
    """A document with a line on each page."""
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, line in enumerate(pages):
        stream = f"BT /F1 24 Tf 20 100 Td ({line}) Tj ET"
        content, font = f"/Contents {5 + 2 * index} 0 R", "/Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] {content} {font} >>")
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    text, offsets = "%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        offsets.append(len(text))
        text += f"{number} 0 obj\n{each}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    return f"{text}{head}trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(text)}\n%%EOF".encode()


@pytest.fixture(scope="module", params=PLACES)
def open_page(request: pytest.FixtureRequest, context: BrowserContext, jupyter: JupyterServer) -> Iterator[Notebook]:
    """A notebook whose second cell is run for each server; one page and one kernel for them all."""
    place = request.param
    folder = jupyter.folder / "examples"
    folder.mkdir(exist_ok=True)
    (folder / "two.pdf").write_bytes(pdf("first page", "second page"))
    write_notebook(folder / "examples.ipynb", [LOAD, ""])
    with context.new_page() as page:
        notebook = opened(page, jupyter, "examples/examples.ipynb", PLACES[place])
        notebook.run(0)
        yield notebook


@pytest.mark.parametrize("server", EXAMPLES)
def test_an_example_server_shows_its_app(open_page: Notebook, server: str) -> None:
    name, call, act, setup, arguments = EXAMPLES[server]
    lines = [f"%mcp load {name} -- {command(server)} {arguments};", setup.format(name=name), f"mcp[{name!r}].{call}"]
    open_page.write(1, "\n".join(filter(None, lines)))
    open_page.run(1)
    output = open_page.output(1)
    app = Shown(open_page, output, app_in(open_page, 1))
    allow = output.get_by_role("button", name="Allow", exact=True)
    expect(output.locator(".ipymcp-app-frame").or_(allow)).to_be_visible()
    if allow.is_visible():
        app.press_beside("Allow")
    act(app)
    expect(output).not_to_contain_text("The app was stopped")


def command(name: str) -> str:
    """The command of an example server."""
    modules = environment("interop/ext-apps").folder / "node_modules"
    return f"node {modules}/@modelcontextprotocol/server-{name}/dist/index.js --stdio"
