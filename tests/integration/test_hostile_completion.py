"""Tab among names and values that want to run: each match is inserted and its cell run, and nothing of theirs runs."""

import json
from collections.abc import Iterator

import pytest

from tests.environments import server_command
from tests.integration.notebooks import done, opened
from tests.kernels import Kernel
from tests.servers.raw_stdio import INJECTIONS

PROJECT = {
    "mcpServers": {
        **{name: {"command": "true", "env": {"A": f"${{secret:{name}}}"}} for name in INJECTIONS},
        "kept": {"command": "true", "env": {"A": "${secret:gh-token}"}},
    }
}
SENDING = ["%mcp call evil.say lang={}", "mcp.evil.say(lang={})"]
"""Cells whose result is what was sent to the server."""
LINES = [
    "%mcp call evil.{}",
    "%mcp call {}",
    "%mcp read evil {}",
    "%mcp read evil mark://t/{{lang}} lang={}",
    "%mcp prompt evil.{}",
    "%mcp prompt evil.greet lang={}",
    "%mcp secret set {}",
    "%mcp secret delete {}",
    "%mcp load {}",
    "%mcp load ./{}",
    "%mcp config explain {}",
    "%mcp config import {}",
    "%mcp config import ./{}",
    "%mcp tools {}",
    "%mcp pins accept {}",
    "%mcp policy allow {}",
]
CODE = [
    'x = mcp.evil["{}"]',
    'x = mcp["{}"]',
    'x = mcp.evil.resources["{}"]',
    'x = mcp.evil.prompts["{}"]',
    "x = mcp.evil.prompts.greet(lang={})",
]


@pytest.fixture(scope="module")
def kernel(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "mcp.json").write_text(json.dumps(PROJECT))
    for name in INJECTIONS:
        (folder / f"{name.replace('/', '')}.json").write_text("{}")
    with opened(kernel_name, folder, {"evil": [*server_command("marked"), '""']}) as kernel:
        done(kernel, "api_key = 'only-for-the-notebook'")
        yield kernel


def insertions(kernel: Kernel, pattern: str) -> list[str]:
    """The cells that come of Tab at `{}` in a pattern, without a quote, within either, and after a few letters."""
    before, after = pattern.replace("{{", "\0").replace("}}", "\1").split("{}")
    before, after = (part.replace("\0", "{").replace("\1", "}") for part in (before, after))
    cells: list[str] = []
    is_code = not before.startswith("%")
    for quote in ("",) if before.endswith(('"', "./")) else ("", "'", '"'):
        # Names of Python's own may follow a letter in code, where no quote is open.
        for typed in ("",) if is_code and not quote else ("", "en", "{"):
            code = f"{before}{quote}{typed}"
            completion = kernel.complete(code)
            assert completion.end == len(code)
            cells += [code[: completion.start] + match + quote + after for match in completion.matches]
    return list(dict.fromkeys(cells))


@pytest.mark.parametrize("pattern", [*SENDING, *LINES, *CODE])
def test_nothing_that_tab_inserts_runs_or_is_evaluated(kernel: Kernel, pattern: str) -> None:
    cells = insertions(kernel, pattern)
    assert all(cell.isprintable() for cell in cells)
    for cell in cells:
        outcome = kernel.run(cell)
        assert not (kernel.folder / "pwned").exists(), cell
        said = f"{outcome.text}{outcome.stdout}{outcome.stderr}{outcome.error}"
        assert "only-for-the-notebook" not in said, cell
        assert "SyntaxError" not in said, cell


@pytest.mark.parametrize("pattern", SENDING)
def test_what_tab_inserts_is_sent_as_the_server_named_it(kernel: Kernel, pattern: str) -> None:
    sent: set[str] = set()
    for cell in insertions(kernel, pattern):
        done(kernel, f"answer = {cell}")
        sent.add(json.loads(done(kernel, "print(answer.text)").stdout).get("lang", ""))
    assert sent - {""} == {"marked", *(value for value in INJECTIONS if value.isprintable())}


def test_a_secret_whose_name_cannot_be_typed_is_not_offered(kernel: Kernel) -> None:
    matches = kernel.complete("%mcp secret set ").matches
    assert "gh-token" in matches and not any("{" in match or "'" in match for match in matches)


@pytest.mark.parametrize("quote", ["", "'", '"'])
@pytest.mark.parametrize("line", ["%mcp ask -m openai:gpt-5 ", "%%mcp ask -m openai:gpt-5\n"])
def test_only_prompts_that_can_be_referred_to_are_offered_in_a_question(kernel: Kernel, line: str, quote: str) -> None:
    code = f"{line}/{quote}evil."
    completion = kernel.complete(code)
    cells = [code[: completion.start] + match for match in completion.matches]
    if quote:
        assert cells == [code]
    else:
        assert f"{line}/evil.greet" in cells
        assert not {*"'\"${ "} & {*"".join(cell.removeprefix(line) for cell in cells)}
