"""The documents are true: Python blocks run, links lead somewhere. `test_first_minutes.py` is about the README."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments import ROOT, environment, server_command
from tests.kernels import Kernel

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)|src=\"(?!https?:)([^\"]+)\"")
_REPOSITORY = re.compile(
    r"https://(?:github|raw\.githubusercontent)\.com/ipymcp/ipymcp/(?:(?:blob|tree)/)?main/([^)#\s\"]+)"
)
_ANCHOR = re.compile(r"\]\((?!https?:)([^)#\s]*)#([^)]+)\)")
_REPOSITORY_ANCHOR = re.compile(r"https://github\.com/ipymcp/ipymcp/blob/main/([^)#\s]+)#([^)\s]+)")
_DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"]
)


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return [body for found, body in _BLOCK.findall(text) if found == language]


def is_script(block: str) -> bool:
    return "import ipymcp\n" in block


def cells(document: str) -> list[str]:
    """The blocks of a page that are cells: those marked `python`, and those without a mark, in order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [body for language, body in _BLOCK.findall(text) if language in ("", "python")]


_PAGES = [
    document
    for document in _DOCUMENTS
    if document.startswith("docs/") and not document.startswith("docs/adr/") and cells(document)
]
_OTHERS = {
    "docs/how-to/apps.md": "needs a server from npm with an app; tests/browser has others",
    "docs/how-to/evals.md": "needs pydantic-evals: test_evals.py",
    "docs/model-libraries.md": "needs a model: test_ask.py",
}
"""The pages whose cells need more than the README installs, and what runs them."""


def test_every_page_with_cells_begins_with_one_that_loads_the_extension() -> None:
    assert set(_OTHERS) < set(_PAGES)
    others = {document for document in _PAGES if not cells(document)[0].startswith("%load_ext ipymcp\n")}
    assert others == {"docs/how-to/ci.md", "docs/how-to/evals.md"}  # a script; models of a library


@pytest.mark.parametrize("document", [document for document in _PAGES if document not in _OTHERS])
@pytest.mark.kernels("readme")
def test_every_cell_of_a_page_runs_in_order_where_the_lines_of_the_readme_installed_ipymcp(
    document: str, kernel: Kernel
) -> None:
    sqlite = environment("interop/sqlite").python
    commands = {
        "npx -y @modelcontextprotocol/server-filesystem": shlex.join(server_command("filesystem")),
        "uvx --with mcp<2 mcp-server-sqlite": shlex.join([str(sqlite), str(sqlite.with_name("mcp-server-sqlite"))]),
    }
    for cell in cells(document):
        if "asyncio.run(" in cell:
            continue  # a script
        for typed, installed in commands.items():
            cell = cell.replace(typed, installed)
        outcome = kernel.run(cell)
        assert (outcome.error, outcome.stderr) == (None, ""), cell


_ITEM = re.compile(r"^[ ]*(?:-|\d+\.) (.+(?:\n[ ]+(?!-|\d+\.).+)*)", re.MULTILINE)


@pytest.mark.parametrize(
    "document", [one for one in _DOCUMENTS if one.startswith(("README", "docs/")) and "/adr/" not in one]
)
def test_no_item_of_a_list_has_more_than_sixty_words(document: str) -> None:
    text = _BLOCK.sub("", (ROOT / document).read_text(encoding="utf-8"))
    assert [item for item in _ITEM.findall(text) if len(item.split()) > 60] == []


@pytest.mark.parametrize("document", _PAGES)
def test_a_table_that_a_page_shows_is_the_last_line_of_its_cell(document: str) -> None:
    for cell in cells(document):
        lines = [line.partition("  #")[0].rstrip() for line in cell.rstrip().splitlines()]
        hidden = [line for line in lines[:-1] if re.fullmatch(r"[\w.]\S*\.df", line)]
        assert hidden == [], document


@pytest.mark.parametrize("document", ["docs/how-to/ci.md", "docs/using-tools.md", "docs/reference.md"])
def test_every_script_runs_without_ipython(document: str, tmp_path: Path) -> None:
    scripts = [block for block in blocks(document, "python") if is_script(block)]
    assert scripts

    for script in scripts:
        check = f"{script}\nimport sys\nassert 'IPython' not in sys.modules, 'IPython was imported'"
        done = subprocess.run([sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_error_in_the_tour_is_the_one_that_is_shown(kernel: Kernel) -> None:
    [written] = blocks("docs/first-five-minutes.md", "text")
    typed, _, shown = written.partition("\n")
    assert kernel.run("%load_ext ipymcp\n%mcp load demo\nfrom ipymcp import mcp").error is None

    error = kernel.run(typed).error

    assert error is not None
    assert error.traceback == shown.rstrip()


def test_the_question_in_the_reference_is_the_one_that_is_asked(kernel: Kernel) -> None:
    [written] = [block for block in blocks("docs/reference.md", "text") if "asks for your input" in block]
    server = ROOT / "examples" / "servers" / "booking.py"
    assert kernel.run(f"%load_ext ipymcp\n%mcp load booking -- python {server}\nfrom ipymcp import mcp").error is None

    answers = ["2", "4", ""]
    outcome = kernel.run('mcp.booking.book("2026-12-24")', answers=answers)

    typed = [f"{prompt}{answer}".rstrip() for prompt, answer in zip(outcome.prompts, answers, strict=True)]
    assert [*outcome.stdout.splitlines(), *typed] == written.splitlines()
    assert outcome.text == "ToolResult booking.book: Booked for 2026-12-24: Bar, 4 guests."


@pytest.mark.parametrize("document", _DOCUMENTS)
def test_every_link_into_the_repository_leads_somewhere(document: str) -> None:
    text = _BLOCK.sub("", (ROOT / document).read_text(encoding="utf-8"))
    targets = [first or second for first, second in _LINK.findall(text)]

    missing = [target for target in targets if not (ROOT / document).parent.joinpath(target).exists()]
    missing += [target for target in _REPOSITORY.findall(text) if not (ROOT / target).exists()]

    assert missing == []


def headings(document: Path) -> set[str]:
    text = _BLOCK.sub("", document.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_to_a_heading_names_one_that_exists() -> None:
    for document in map(ROOT.joinpath, _DOCUMENTS):
        text = document.read_text(encoding="utf-8")
        links = [(document.parent / path if path else document, anchor) for path, anchor in _ANCHOR.findall(text)]
        links += [(ROOT / path, anchor) for path, anchor in _REPOSITORY_ANCHOR.findall(text)]
        missing = [(path.name, anchor) for path, anchor in links if anchor not in headings(path)]
        assert missing == [], document


def test_no_link_or_picture_of_the_readme_is_relative_since_pypi_shows_it_too() -> None:
    text = _BLOCK.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))

    assert [first or second for first, second in _LINK.findall(text)] == []
    assert len(_REPOSITORY.findall(text)) > 10
