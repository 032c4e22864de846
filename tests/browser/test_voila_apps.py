"""Apps in a Voilà page, where a visitor can agree to nothing."""

from pathlib import Path

from playwright.sync_api import Page, expect

from tests import apps
from tests.browser.notebooks import write_notebook
from tests.browser.places import LOAD, Voila

DECLARES = {"csp": {"connectDomains": ["https://data.example"]}}


def test_an_app_is_shown_to_visitors_without_what_only_the_author_may_grant(
    voila: Voila, page: Page, tmp_path: Path
) -> None:
    script = """
      await begin();
      const { result } = await request("ui/update-model-context", { structuredContent: { rate: 1 } });
      write("done", result);
      await fetch("https://data.example/").catch((error) => write("network", error.name));
    """
    apps.write(tmp_path / "pages", "map", apps.page(script), DECLARES)
    write_notebook(voila.folder / "page.ipynb", [f"{LOAD}\n{apps.load(tmp_path / 'pages')}", "mcp.apps.map()"])
    page.goto(f"{voila.url}voila/render/page.ipynb", timeout=60_000)
    app = page.frame_locator(".ipymcp-app-frame").frame_locator("iframe")
    expect(app.locator("#done")).to_have_text("{}")
    expect(app.locator("#network")).to_have_text("TypeError")
    expect(page.get_by_role("button", name="Allow", exact=True)).to_have_count(0)
    expect(page.get_by_text("the text of map")).to_be_visible()
