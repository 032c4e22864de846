"""The documents are true: Python blocks run, the README's lines work against real servers, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environments import ROOT
from tests.kernels import Kernel

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)|src=\"(?!https?:)([^\"]+)\"")
_REPOSITORY = re.compile(r"https://(?:github|raw\.githubusercontent)\.com/ipymcp/ipymcp/(?:blob/)?main/([^)#\s\"]+)")
_ANCHOR = re.compile(r"\]\((?!https?:)([^)#\s]*)#([^)]+)\)")
_REPOSITORY_ANCHOR = re.compile(r"https://github\.com/ipymcp/ipymcp/blob/main/([^)#\s]+)#([^)\s]+)")
_DOCUMENTS = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return [body for found, body in _BLOCK.findall(text) if found == language]


def is_script(block: str) -> bool:
    return "import ipymcp\n" in block


@pytest.mark.parametrize("document", ["README.md", "docs/reference.md"])
def test_every_python_block_runs_in_a_kernel_in_the_order_it_is_read(document: str, kernel: Kernel) -> None:
    cells = [block for block in blocks(document, "python") if not is_script(block)]
    assert len(cells) >= 5

    failures = [(cell, outcome.error) for cell in cells if (outcome := kernel.run(cell)).status != "ok"]

    assert failures == []


@pytest.mark.parametrize("document", ["README.md", "docs/reference.md"])
def test_every_script_runs_without_ipython(document: str, tmp_path: Path) -> None:
    scripts = [block for block in blocks(document, "python") if is_script(block)]
    assert scripts

    for script in scripts:
        check = f"{script}\nimport sys\nassert 'IPython' not in sys.modules, 'IPython was imported'"
        done = subprocess.run([sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_first_block_of_the_readme_works_as_it_is_pasted(kernel: Kernel) -> None:
    outcome = kernel.run(blocks("README.md", "")[0])

    assert outcome.error is None
    assert outcome.result is not None
    assert ">Dream</td>" in outcome.result["text/html"]
    assert outcome.stderr == ""


def test_the_transcript_of_the_readme_runs_against_the_servers_it_names(
    kernel: Kernel, server_command: Callable[..., list[str]]
) -> None:
    first, *others = blocks("README.md", "")
    transcript = next(block for block in others if "npx -y @modelcontextprotocol/server-everything" in block)
    for typed, name in (
        ("npx -y @modelcontextprotocol/server-everything", "everything"),
        ("uvx mcp-server-time", "time"),
    ):
        assert typed in transcript
        transcript = transcript.replace(typed, shlex.join(server_command(name)))
    assert kernel.run(first).status == "ok"

    failures = [
        (line, outcome.error) for line in transcript.splitlines() if (outcome := kernel.run(line)).status != "ok"
    ]

    assert failures == []
    assert kernel.run("[mcp.everything.get_sum(2, 40) == r, r.text]").text == "[True, 'The sum of 2 and 40 is 42.']"
    assert kernel.run("list(mcp)").text == "['demo', 'everything', 'time']"


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
    assert len(_REPOSITORY.findall(text)) > 20
