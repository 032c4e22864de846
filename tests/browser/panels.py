"""The panel as a user finds it on a page, wherever that is."""

from playwright.sync_api import Locator, expect


class Panel:
    """A panel, or a card.

    Args:
        root: The element it is drawn in.
    """

    def __init__(self, root: Locator) -> None:
        self.root = root

    def button(self, name: str) -> Locator:
        return self.root.get_by_role("button", name=name, exact=True)

    def press(self, name: str) -> None:
        self.button(name).click()

    def show(self, view: str) -> Locator:
        """Bring a view to the front, and give it."""
        self.root.get_by_role("tab", name=view).click()
        return self.root.get_by_role("tabpanel", name=view)

    def list(self, kind: str) -> Locator:
        """Show the tools, resources or prompts of servers, and give the view."""
        view = self.show("Tools")
        self.go_back()
        view.get_by_role("group", name="What to list").get_by_role("button", name=kind).click()
        return view

    def server(self, name: str) -> Locator:
        """The card of a server."""
        return self.root.locator(".mcp-card", has=self.root.page.get_by_role("button", name=name, exact=True))

    def expect_state(self, server: str, state: str) -> None:
        """Wait until a server is in that state."""
        expect(self.server(server).locator(".mcp-state")).to_have_text(state)

    def fact(self, server: str, name: str) -> Locator:
        """The value of a fact in a server's details."""
        return self.server(server).locator("dt", has_text=name).locator("xpath=following-sibling::dd[1]")

    def choose(self, menu: str, item: str) -> None:
        """Choose an item of a menu."""
        self.press(menu)
        self.root.get_by_role("menuitem", name=item, exact=True).click()

    def find_tool(self, words: str, name: str) -> Locator:
        """Search for a tool and choose it; gives the view of tools."""
        view = self.show("Tools")
        view.get_by_role("searchbox", name="Search tools").fill(words)
        self.tool(name).click()
        expect(view.get_by_role("heading", name=name)).to_be_visible()
        return view

    def tool(self, name: str) -> Locator:
        """The row of a tool in the list, by the name with its server in front."""
        return self.root.get_by_role("treeitem").filter(has=self.root.page.get_by_title(name, exact=True))

    def calls(self) -> Locator:
        """The rows of finished calls, newest first, in the view that this brings to the front."""
        return self.show("Activity").get_by_role("listbox", name="Calls").get_by_role("option")

    def go_back(self) -> None:
        """To the list, where only it or what was chosen of it is to be seen."""
        back = self.root.locator(".mcp-back button:visible")
        if back.count():
            back.click()

    @property
    def outcome(self) -> Locator:
        """The result of the last call of the visible tool."""
        return self.root.locator(".mcp-outcome:visible")

    @property
    def status(self) -> Locator:
        return self.root.locator(".mcp-status")
