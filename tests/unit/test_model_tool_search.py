"""A search over tools, as a model uses it."""

from __future__ import annotations

import json

from ipymcp.llm.providers import Declaration
from ipymcp.llm.tool_search import ToolSearch


def tool(name: str, description: str = "") -> Declaration:
    return Declaration(name, name.partition("__")[0], name, description, {"type": "object"}, ())


TOOLS = [
    tool("git__log", "[git] Show the commits of a repository."),
    tool("github__createIssue", "[github] Open an issue in a repository."),
    tool("fs__read_file", "[fs] Read a file as text."),
    tool("fs__write_file", "[fs] Write text to a file."),
    tool("fs__list_directory", "[fs] The files of a folder."),
]
FINDER = ToolSearch(lambda: TOOLS)


NOTHING = "No tool matches. There are tools of git, github, fs."


def found(query: str, limit: int = 8) -> list[str]:
    told = FINDER.search_tools(query, limit)
    assert isinstance(told, list), told
    return [one["name"] for one in told]


def test_words_of_the_name_count_most_and_rare_ones_more_than_frequent_ones() -> None:
    assert found("create github issues")[0] == "github__createIssue"
    assert found("read a file")[0] == "fs__read_file"
    assert found("commits of the repository")[0] == "git__log"


def test_what_has_none_of_the_words_is_not_found() -> None:
    assert FINDER.search_tools("weather") == NOTHING
    assert FINDER.search_tools("") == NOTHING


def test_no_more_are_given_than_asked_for() -> None:
    assert len(found("file", limit=2)) == 2
    assert len(found("file", limit=0)) == len(found("file", limit=-1)) == 1
    assert FINDER.search_tools("commits") == [
        {"name": "git__log", "description": TOOLS[0].description, "parameters": {"type": "object"}}
    ]


def test_a_model_is_told_of_two_tools_instead() -> None:
    search, call = FINDER.declarations()

    assert (search.name, call.name) == ("search_tools", "call_tool")
    assert search.parameters["required"] == ["query"]
    assert call.parameters["required"] == ["name", "arguments"]


def test_words_of_any_script_are_found() -> None:
    finder = ToolSearch(lambda: [tool("w__now", "[w] Погода в городе."), *TOOLS])

    (told,) = finder.search_tools("погода")

    assert isinstance(told, dict) and told["name"] == "w__now"


def test_what_is_found_need_not_be_read_in_pages() -> None:
    wide = {"type": "object", "properties": {"x" * 6_000: {"type": "string"}}}
    finder = ToolSearch(lambda: [Declaration(f"a__file{number}", "a", "f", "A file.", wide) for number in range(9)])

    told = finder.search_tools("file")

    assert isinstance(told, list) and len(json.dumps(told)) < 20_000
    assert [one["parameters"] == wide for one in told] == [True, True, *[False] * 6]
    assert told[-1]["parameters"] == "search for its name to see them"


def test_the_best_matches_are_described_within_the_limit() -> None:
    part = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(200)}}
    huge = {"type": "object", "properties": {f"a{number}": part for number in range(100)}}
    long = "[a] A file. " * 900
    finder = ToolSearch(lambda: [Declaration(f"a__file{number}", "a", "f", long, huge) for number in range(20)])

    told = finder.search_tools("file", 20)

    assert isinstance(told, list) and len(json.dumps(told, ensure_ascii=False)) < 20_000
    first, *others = told
    assert first["parameters"]["properties"]["a99"] == {"type": "object", "description": "(…)"}
    assert [one["name"] for one in others] == [f"a__file{number}" for number in range(1, 20)]
