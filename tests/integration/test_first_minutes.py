"""The first five minutes of a new user: the README, followed to the letter where its own lines installed ipymcp."""

import pytest

from tests.conftest import StartKernel
from tests.environments import README_BLOCKS, ROOT, environment
from tests.kernels import Kernel, Outcome


@pytest.fixture
def kernel_name() -> str:
    return "readme"


@pytest.fixture
def kernel(start_kernel: StartKernel, tmp_path) -> Kernel:
    """A kernel of that environment, in which `uvx` has what it fetched before, and no network."""
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "uv.toml").write_text("offline = true")
    cache = environment("readme").folder / "uv-cache"
    return start_kernel(env={"XDG_CONFIG_HOME": str(tmp_path), "UV_CACHE_DIR": str(cache)})


def shown(outcome: Outcome) -> str:
    """What a cell shows."""
    bundles = [*outcome.displays, *filter(None, [outcome.result])]
    return "\n".join(str(text) for bundle in bundles for text in bundle.values())


@pytest.mark.cold
def test_every_block_of_the_readme_works_as_it_is_pasted_in_the_order_it_is_read(kernel: Kernel) -> None:
    assert {language for language, _ in README_BLOCKS} == {"", "sh"}  # a shell's lines made the environment
    cells = [text for language, text in README_BLOCKS if language == ""]

    outcomes = [kernel.run(cell) for cell in cells]

    assert [(outcome.error, outcome.stderr) for outcome in outcomes] == [(None, "")] * len(cells)
    first, tables, panel, time = map(shown, outcomes)
    assert "Dream" in first  # of the map
    assert "✓ demo: ready, 5 tools" in tables
    assert tables.count("Torgersen") >= 1  # the line in the middle of the cell
    assert tables.count("Dream") >= 1
    assert "MCP servers" in panel
    assert "Europe/Paris" in time
    assert kernel.run("mcp.servers['time'].state").text == "'ready'"


def test_the_readme_is_short_and_leads_to_the_documents() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert len(text.splitlines()) <= 150
    assert "make demo" in text
    assert "make test" in text
