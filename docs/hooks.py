"""Hooks of the documentation site (mkdocs): its first page, the reference of `%mcp` lines, links out of `docs/`."""

from __future__ import annotations

import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from ipymcp.notebook.magics import dispatch

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://github.com/ipymcp/ipymcp/blob/main/"
PICTURES = "https://raw.githubusercontent.com/ipymcp/ipymcp/main/docs/"
SUBCOMMANDS = "<!-- the subcommands -->"
LINK = re.compile(r"^```.*?^```|`[^`\n]+`(?!\])|\]\((?!https?:|#)([^)#\s]+)", re.DOTALL | re.MULTILINE)
"""A link within the repository; code is matched as well, so that nothing in it is taken for one."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make the first page from the README, whose links and pictures lead into the repository."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = readme.replace(PICTURES, "").replace(f"{REPOSITORY}docs/", "").replace(REPOSITORY, "../")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the subcommands, and let links to files outside of `docs/` lead to the repository.

    Raises:
        PluginError: A link leads out of `docs/` to a file that does not exist.
    """
    source = page.file.src_uri

    def outward(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), match[1]))
        if target.startswith("docs/") and not (ROOT / target).is_dir():
            return match[0]
        if not (ROOT / target).exists():
            raise PluginError(f"{source}: a link to {match[1]}, which does not exist")
        return f"]({REPOSITORY}{target}"

    return LINK.sub(outward, markdown).replace(SUBCOMMANDS, subcommands())


def subcommands() -> str:
    """Describe every subcommand, as `%mcp help WORD` does, in the order of `%mcp help`."""
    return "\n".join(described(word) for word in dispatch.MODULES)


def described(word: str) -> str:
    """One subcommand: a heading, its summary, and its help as it is printed."""
    usage, _, text = dispatch.command(word).help.partition("\n\n")
    summary, _, rest = text.partition("\n\n")
    return f"## `{word}`\n\n{summary}\n\n```text\n{usage}\n{f'{chr(10)}{rest}' if rest else ''}\n```\n"


def on_post_build(config: MkDocsConfig) -> None:
    """Check what mkdocs does not: pictures and anchors that are written as HTML, and that no page fetches anything.

    Raises:
        PluginError: Something is missing, or comes from elsewhere.
    """
    site = Path(config.site_dir)
    pages = {path.relative_to(site).as_posix(): References() for path in site.rglob("*.html")}
    for name, references in pages.items():
        references.feed((site / name).read_text(encoding="utf-8"))
    faults = [fault for name in pages if name != "404.html" for fault in faults_of(name, pages, site)]
    if faults:
        raise PluginError("\n".join(faults))


def faults_of(name: str, pages: dict[str, References], site: Path) -> list[str]:
    """Find the links of a page that lead nowhere, and the addresses from which it fetches something."""
    faults = [f"{name} fetches {url}" for url in pages[name].fetched if re.match(r"(https?:)?//", url)]
    for url in (*pages[name].linked, *pages[name].fetched):
        if re.match(r"[a-z]+:|//", url):
            continue
        path, _, anchor = unquote(url).partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
        if not (site / target).exists():
            faults.append(f"{name} refers to {url}, which does not exist")
        elif anchor and target in pages and anchor not in pages[target].ids:
            faults.append(f"{name} refers to {url}, and there is no such heading")
    return faults


class References(HTMLParser):
    """Collects the links of a page, the addresses that it fetches, and the ids that it defines."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = {"", "__top"}
        self.linked: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the references of an element."""
        found: dict[str, Any] = dict(attrs)
        if found.get("id"):
            self.ids.add(found["id"])
        if tag == "a" and found.get("href"):
            self.linked.append(found["href"])
        if found.get("src"):
            self.fetched.append(found["src"])
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload", "preconnect", "modulepreload"):
            self.fetched.append(found["href"])
