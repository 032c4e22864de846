"""Results that are too long for a model: their previews, and their pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest

import ipymcp
from ipymcp import Mcp, ToolResult, Toolset
from tests.asking import call, contents
from tests.integration.test_toolsets import start_threads


@pytest.fixture(scope="module")
def mcp() -> Iterator[Mcp]:
    with ipymcp.connect("demo") as mcp:
        mcp.policy.allow("*")
        start_threads(mcp)
        yield mcp


def stored(mcp: Mcp, function: Callable[[], Any]) -> tuple[Toolset, str, int]:
    """A selection with a function, the preview of its long value, and the number of the stored result."""
    function.__name__ = "function"
    tools = mcp.tools + [function]
    (preview,) = contents(tools.run([call("function")]))
    return tools, preview, int(preview.partition("handle=")[2].partition(" ")[0])


def test_a_model_that_reads_a_long_result_before_there_is_one_is_told_so() -> None:
    with ipymcp.connect("demo") as mcp:
        told = contents(mcp.tools.run([call("read_result", handle=1)]))
    assert told == ["Error: no long result is kept yet (all results are shown in full)"]


def test_a_long_text_is_stored_and_read_in_pages(mcp: Mcp) -> None:
    text = "".join(f"line {number}\n" for number in range(10_000))

    (shown,) = contents(mcp.tools.run([call("demo__echo", text=text)]))

    handle = int(shown.partition("handle=")[2].partition(" ")[0])
    assert shown == (
        f"[Too long to show in full: {len(text):,} characters. Stored as result {handle}: call read_result with"
        f" handle={handle} to read more. The user has it as mcp.results[{handle}].]\n{text[:4_950]}"
    )
    assert mcp.results[handle].text == text
    assert mcp.tools.to_openai()[-1]["function"]["name"] == "read_result"
    (more,) = contents(mcp.tools.run([call("read_result", handle=handle, offset=4_950)]))
    assert json.loads(more) == {"text": text[4_950:14_850], "next": 14_850}


def test_a_long_table_is_stored_and_read_by_rows_and_columns(mcp: Mcp) -> None:
    def rows() -> list[dict[str, Any]]:
        return [{"n": number, "kind": "ab"[number % 2], "note": "x" * 100} for number in range(1_000)]

    tools, preview, handle = stored(mcp, rows)

    assert preview.startswith("[Too long to show in full: 1,000 rows of n: int, kind: str, note: str. Stored as result")
    assert len(json.loads(preview.partition("\n")[2])) == 5
    asked = call("read_result", handle=handle, offset=2, limit=2, columns=["n"], where={"kind": "b"})
    assert json.loads(contents(tools.run([asked]))[0]) == {"rows": [{"n": 5}, {"n": 7}], "matching": 500, "next": 4}
    (page,) = contents(tools.run([call("read_result", handle=handle, limit=10_000)]))
    assert json.loads(page)["next"] == len(json.loads(page)["rows"]) < 200
    assert contents(tools.run([call("read_result", handle=handle, columns=["m"])])) == [
        "Error: there is no column 'm' (columns: n, kind, note)"
    ]
    assert contents(tools.run([call("read_result", handle=10**9)]))[0].startswith(
        "Error: there is no result 1000000000 ("
    )


def kept(mcp: Mcp, value: Any, **how: Any) -> tuple[str, Any]:
    """The preview of a long value for a model, and the pages that the model then reads."""
    tools, preview, handle = stored(mcp, lambda: value)
    assert len(preview) < 20_000
    (page,) = contents(tools.run([call("read_result", handle=handle, **how)]))
    return preview.partition("]\n")[0], json.loads(page)


def test_every_kind_of_table_is_read_by_rows_and_columns(mcp: Mcp) -> None:
    numbers = range(10_000)
    how: dict[str, Any] = {"where": {"b": 7}, "columns": ["a"]}
    for table in (
        "a,b\n" + "".join(f"x,{number}\n" for number in numbers),
        {"a": ["x"] * 10_000, "b": [*numbers]},
        pd.DataFrame({"a": "x", "b": numbers}),
    ):
        about, read = kept(mcp, table, **how)
        assert "10,000 rows of a: str, b: " in about
        assert read == {"rows": [{"a": "x"}], "matching": 1, "next": None}
    assert kept(mcp, [["x", number] for number in numbers], offset=9, limit=1)[1]["rows"] == [{"0": "x", "1": 9}]
    assert kept(mcp, [*numbers], offset=9_999)[1]["rows"] == [{"value": 9_999}]


def test_rows_too_long_for_a_page_are_read_as_text(mcp: Mcp) -> None:
    value = [{"page": '"' * 50_000}, {"page": ""}]
    text = json.dumps(value)

    about, read = kept(mcp, value, offset=9_900)

    assert about.startswith(f"[Too long to show in full: {len(text):,} characters.")
    assert read == {"text": text[9_900:19_800], "next": 19_800}


def test_later_pages_are_of_the_text_of_the_preview(mcp: Mcp) -> None:
    text = "".join(f"{number} " for number in range(10_000))
    answer = {"structuredContent": {"pages": {"a": text}}, "content": [{"type": "text", "text": "See there."}]}
    result = ToolResult(json.dumps(answer).encode(), server="own", tool="whole")

    _, read = kept(mcp, result, offset=2_000)

    assert read["text"] == json.dumps({"pages": {"a": text}})[2_000:11_900]


@pytest.mark.parametrize("wrong", [{"offset": -5}, {"limit": 0}, {"limit": -1}])
def test_invalid_offsets_and_limits_are_corrected(mcp: Mcp, wrong: dict[str, int]) -> None:
    read = kept(mcp, [{"n": number} for number in range(10_000)], **wrong)[1]

    assert read["rows"][0] == {"n": 0}
    assert read["next"] == len(read["rows"])


def test_text_has_no_columns(mcp: Mcp) -> None:
    tools, _, handle = stored(mcp, lambda: "word " * 10_000)

    assert contents(tools.run([call("read_result", handle=handle, columns=["a"])])) == [
        "Error: this result is text: it has no columns"
    ]
