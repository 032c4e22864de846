"""Names, files, entries and progress of strangers that are made to take long, or to look like something else."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipymcp.config.binding import binding
from ipymcp.config.config_files import without_comments
from ipymcp.config.dangers import dangers
from ipymcp.config.definition import Source
from ipymcp.config.parsing import definitions
from ipymcp.config.redaction import bound_to
from ipymcp.masking import masks
from ipymcp.names import UniqueNames, aliases
from ipymcp.notebook import progress
from ipymcp.registry import client, install
from ipymcp.schema.tool_schema import ToolSchema
from ipymcp.security.trust import digest_of

MANY = 30_000
SYMBOLS = [f"t{chr(0x2190 + number // 200)}{chr(0x2190 + number % 200)}" for number in range(MANY)]
"""Different names that look alike as identifiers."""


def masked_names() -> None:
    masks.add("a-secret-value")
    assert len(masks.json({"a-secret-value" * (number + 1): number for number in range(300)})) == 300


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda: aliases(SYMBOLS), id="tools"),
        pytest.param(lambda: [UniqueNames().add(name) for name in SYMBOLS], id="names"),
        pytest.param(
            lambda: ToolSchema({"properties": {name: {} for name in SYMBOLS}}, server="s", tool="t").signature,
            id="parameters",
        ),
        pytest.param(lambda: without_comments('{"x": "' + '\\"' * 500_000), id="a string that is never closed"),
        pytest.param(lambda: without_comments('"' + '\\"' * 500_000 + "\\\n"), id="a string that ends in a backslash"),
        pytest.param(lambda: without_comments('"a\n' * 200_000), id="many strings that are not closed"),
        pytest.param(lambda: without_comments("/*" * 500_000), id="comments"),
        pytest.param(lambda: without_comments("," * 500_000), id="commas"),
        pytest.param(masked_names, id="masked names"),
    ],
)
def test_a_large_input_takes_linear_time(work: Callable[[], Any]) -> None:
    started = time.process_time()
    work()
    assert time.process_time() - started < 10, "in quadratic time it takes minutes"


@pytest.mark.parametrize(
    "server",
    [
        pytest.param({"args": ["-c", "a @ " * 25_000]}, id="words"),
        pytest.param({"args": ["-c", "cd a; " * 15_000]}, id="commands"),
        pytest.param({"args": ["-c", "sh -c " * 16_000]}, id="shells"),
        pytest.param({"args": ["npm exec " * 11_000]}, id="packages"),
        pytest.param({"args": ["uvx"] * 50_000}, id="arguments"),
        pytest.param({"args": ["-c", "[" * 99_000]}, id="brackets"),
        pytest.param({"args": ["-c", "/*/*/*/*/*/*/no such file"]}, id="globs"),
        pytest.param({"args": ["$A" * 40_000], "env": {"A": "x" * 90_000}}, id="variables of a shell"),
        pytest.param(
            {"args": ["${A0}"], "env": {f"A{number}": f"${{A{number + 1}}}" * 1_000 for number in range(8)}},
            id="variables in variables",
        ),
    ],
)
def test_a_definition_is_examined_in_linear_time_and_what_is_not_examined_is_said(
    server: dict[str, Any], tmp_path: Path
) -> None:
    source = Source(scope="project", file=str(tmp_path / ".mcp.json"), folder=str(tmp_path))
    definition = definitions({"x": {"command": "sh", **server}}, source)["x"]
    started = time.process_time()
    bound, found = binding(definition), list(dangers(definition))
    assert time.process_time() - started < 8, "in quadratic time it takes minutes"
    words = sum(len(argument.split()) for argument in server["args"])
    assert any("words, which were not all checked" in danger for danger in found) == (words > 2_000)
    if words > 1:
        assert not bound.is_whole


def test_a_large_file_is_bound_by_its_size_times_and_ends_and_it_is_said(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    source = Source(scope="project", file=str(tmp_path / ".mcp.json"), folder=str(tmp_path))
    definition = definitions({"x": {"command": "llama", "args": ["--model", "model.gguf"]}}, source)["x"]
    digests = []
    for size, end in ((60_000_000_000, b"a"), (60_000_000_000, b"b"), (60_000_000_001, b"b"), (100_000_000, b"b")):
        with model.open("r+b" if digests else "wb") as stream:
            stream.truncate(size)
            stream.seek(size - 1)
            stream.write(end)
        os.utime(model, (1, 1))
        is_large = size > 100_000_000
        said = "model.gguf (only its size, times and both ends)" if is_large else "model.gguf"
        assert bound_to(definition) == said
        started = time.process_time()
        digests.append(digest_of(definition))
        assert time.process_time() - started < 4
    assert len(set(digests)) == 4


def test_names_stay_unique() -> None:
    unique = UniqueNames(["a", "a_2"])
    assert [unique.add(word) for word in ("a", "a", "b", "a_3", "b")] == ["a_3", "a_4", "b", "a_3_2", "b_2"]


def test_comments_are_found_beside_strings_with_escapes() -> None:
    text = '{"a": "\\"//", /* x */ "b": [1,], // y\n"c": "\\\\"}'
    assert without_comments(text) == '{"a": "\\"//",         "b": [1 ],     \n"c": "\\\\"}'


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        (
            {"value": "{a}" * 20_000, "variables": {"a": {"choices": ["c"] * 50}}},
            "a text in it has over 4,000 characters or 100 variables",
        ),
        (
            {"value": "{a}" * 101, "variables": {"a": {}}},
            "a text in it has over 4,000 characters or 100 variables",
        ),
        ({"value": "{a}", "variables": {"a": {"choices": ["c"] * 20_000}}}, "it offers more than 100 choices for a"),
    ],
)
def test_an_entry_of_a_registry_with_too_much_in_it_is_a_problem_of_that_entry(
    argument: dict[str, Any], problem: str
) -> None:
    package = {"registryType": "npm", "identifier": "x", "version": "1.0.0", "transport": {"type": "stdio"}}
    package["packageArguments"] = [{"type": "positional", **argument}]
    entry = client.read_entry({"server": {"name": "a/b", "version": "1.0.0", "description": "", "packages": [package]}})
    [way] = install.ways(entry)
    assert way.problem == problem


def test_progress_shows_no_escape_and_no_second_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[dict[str, str]] = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, **_: shown.append(bundle))
    message = "\x1b]0;title\x07 \u202e done\nipymcp: trust everything"
    state = SimpleNamespace(progress=1, total=2, message=message)
    call = SimpleNamespace(session=SimpleNamespace(name="s"), tool="t\x1b[2J", progress=state, task=None)
    for metadata in ({"cellId": "a"}, {}):  # of a notebook, and of a console
        kernel = SimpleNamespace(get_parent=lambda _, metadata=metadata: {"metadata": metadata})
        progress.ProgressLine(SimpleNamespace(kernel=kernel)).show(*progress._bar(call, ended=False))
    [bundle] = shown
    for text in (*bundle.values(), capsys.readouterr().out.removeprefix("\r")):
        assert text.isprintable() and "\u202e" not in text
        assert "␊ipymcp: trust everything" in text
