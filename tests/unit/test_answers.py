"""The frames of answers that real servers gave: `tests/data/answers.jsonl` has one answer a line.

Each was judged from its content, before `.df` read it: `expected` is a frame (`columns`, the number of `rows`, the
`first` row; the `path` of the list that holds it; `optional` columns, such as an index without a name), `ambiguous`
with the paths that the error must name, or "no table". Text is read like data: a number is a number, an id with a
leading zero is text. The folder that the servers worked in is called `/data`. Of the servers, `git-mcp-server` is
@cyanheads/git-mcp-server, `excel-go` @negokaz/excel-mcp-server, `alchemy` mcp-alchemy; `tables` and `fastmcp` are one
server of 17 tools that return what is usual, on the official SDK 1.x and on fastmcp 4.
"""

import functools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from ipymcp.errors import McpError
from ipymcp.results.tool_result import ToolResult

FILE = Path(__file__).parent.parent / "data" / "answers.jsonl"
ANSWERS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
NAMES = [f"{number}-{answer['server']}.{answer['tool']}" for number, answer in enumerate(ANSWERS, 1)]
EXACT_FLOATS = 2**53


def result_of(answer: dict[str, Any]) -> ToolResult:
    schema = answer.get("output_schema")
    return ToolResult(
        json.dumps(answer["result"]).encode(),
        server=answer["server"],
        tool=answer["tool"],
        output_schema=json.dumps(schema).encode() if schema is not None else None,
    )


def plain(cell: Any) -> Any:
    """A cell as JSON has it: null for a missing value, lists and numbers of Python for those of NumPy."""
    value = cell.tolist() if hasattr(cell, "tolist") else cell
    is_missing = type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and math.isnan(value))
    return None if is_missing else value


def is_same(cell: Any, expected: Any) -> bool:
    """Whether a cell has the expected value: 3 and 3.0 are the same, 3 and "3" are not."""
    if isinstance(expected, int) and abs(expected) > EXACT_FLOATS:  # a float would have lost digits
        return type(cell) in (int, str) and str(cell) == str(expected)
    if isinstance(expected, float):
        return not isinstance(cell, (str, bool, type(None))) and math.isclose(cell, expected)
    return cell == expected and isinstance(cell, str | bool) == isinstance(expected, str | bool)


def frame_fault(frame: Any, expected: dict[str, Any]) -> str | None:
    """What is wrong with a frame."""
    frame = frame.reset_index() if frame.index.name else frame
    columns = [str(name) for name in frame.columns]
    frame.columns = columns
    if [name for name in columns if name not in expected.get("optional", [])] != expected["columns"]:
        return f"columns {columns} instead of {expected['columns']}"
    if len(frame) != expected["rows"]:
        return f"{len(frame)} rows instead of {expected['rows']}"
    for name, value in expected.get("first", {}).items():
        cell = plain(frame[name].iloc[0])
        if not is_same(cell, value):
            return f"{name} is {cell!r} instead of {value!r}"
    return None


def has_table(result: ToolResult, path: str) -> bool:
    """Whether there is a table at a path."""
    return any(table.path == path for table in result.tables)


@functools.cache
def fault(number: int) -> str | None:
    """What is wrong with the reading of an answer; None if it is right."""
    outcome = ANSWERS[number]["expected"]
    expected: dict[str, Any] = {} if outcome == "no table" else outcome
    result = result_of(ANSWERS[number])
    try:
        frame = result.df
    except McpError as error:
        if "columns" in expected:
            return f"an error instead of a frame: {error}"
        paths: list[str] = expected.get("ambiguous", [])
        unnamed = [path for path in paths if path not in f"{error.args[0]} {error.hint}" or not has_table(result, path)]
        return f"the error does not name {unnamed}: {error}" if unnamed else None
    if "columns" not in expected:
        return f"a frame with the columns {list(frame.columns)} instead of an error"
    if "path" in expected and not has_table(result, expected["path"]):
        return f"no table at {expected['path']}, but at {[table.path for table in result.tables]}"
    return frame_fault(frame, expected)


@pytest.mark.parametrize("number", range(len(ANSWERS)), ids=NAMES)
def test_the_frame_of_an_answer_is_right_or_there_is_an_error(number: int) -> None:
    assert fault(number) is None


def test_the_share_that_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    right = sum(fault(number) is None for number in range(len(ANSWERS)))
    servers = len({answer["server"] for answer in ANSWERS})
    with capsys.disabled():
        print(f"\n{right} of {len(ANSWERS)} answers of {servers} servers are read right ({right / len(ANSWERS):.1%})")
    assert len(ANSWERS) >= 200
