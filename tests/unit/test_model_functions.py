"""Plain functions as tools: what a model gets of them, and the arguments that it may give them."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pandas as pd
import pytest

from ipymcp.errors import ArgumentError
from ipymcp.llm.tool_definitions import FunctionTool, declare_function
from ipymcp.masking import masks
from tests.errors import refused


@dataclass
class Place:
    """Where."""

    x: float
    y: float = 0.0


class Window(TypedDict):
    start: str


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def price(symbol: str, days: int = 7, *, kind: Literal["open", "close"] = "open") -> float:
    """What a share costs.

    Of all exchanges.

    Args:
        symbol: The share's.
        days: How long ago,
            in days.

    Returns:
        The price.
    """
    return len(symbol) * days + len(kind)


def test_a_model_gets_the_signature_and_the_docstring() -> None:
    tool = FunctionTool(price)
    assert (tool.name, tool.description) == ("price", "What a share costs.\n\nOf all exchanges.")
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "symbol": {"type": "string", "description": "The share's."},
            "days": {"type": "integer", "description": "How long ago,", "default": 7},
            "kind": {"enum": ["close", "open"], "default": "open"},
        },
        "required": ["symbol"],
        "additionalProperties": False,
    }


def test_arguments_become_values_of_the_annotated_types() -> None:
    def draw(place: Place, window: Window, colour: Colour, many: list[Place], maybe: int | None = None) -> None: ...

    bound = FunctionTool(draw).bind(
        {"place": {"x": 1}, "window": {"start": "now"}, "colour": "blue", "many": [{"x": 2, "y": 3}]}
    )
    assert bound == {"place": Place(1.0), "window": {"start": "now"}, "colour": Colour.BLUE, "many": [Place(2.0, 3.0)]}
    assert set(FunctionTool(draw).input_schema["$defs"]) == {"Place", "Window", "Colour"}


def test_numbers_in_text_become_numbers() -> None:
    assert FunctionTool(price).bind({"symbol": "A", "days": "3"}) == {"symbol": "A", "days": 3}


def test_a_type_that_json_cannot_say_takes_anything() -> None:
    def show(frame: Callable[[], int], other: NotThere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    tool = FunctionTool(show)
    assert tool.input_schema["properties"] == {"frame": {}, "other": {}}
    assert tool.bind({"frame": [1], "other": "x"}) == {"frame": [1], "other": "x"}


class Trip:
    """An object like a pydantic model, with its schema and validation."""

    def __init__(self, city: str) -> None:
        self.city = city

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        members = {"city": {"$ref": "#/$defs/City"}}
        return {"type": "object", "properties": members, "$defs": {"City": {"type": "string"}}}

    @classmethod
    def model_validate(cls, value: dict[str, Any]) -> Trip:
        if "city" not in value:
            raise ValueError("city: Field required")
        return cls(value["city"])


def test_models_paths_and_frames_are_made_of_the_arguments() -> None:
    def go(trip: Trip, more: list[Trip], to: Path, rows: pd.DataFrame) -> None: ...

    tool = FunctionTool(go)
    trip = {"type": "object", "properties": {"city": {"$ref": "#/$defs/City"}}}
    assert tool.input_schema["properties"] == {
        "trip": trip, "more": {"type": "array", "items": trip}, "to": {"type": "string"}, "rows": {},
    }  # fmt: skip
    assert tool.input_schema["$defs"] == {"City": {"type": "string"}}
    bound = tool.bind({"trip": {"city": "Oslo"}, "more": [{"city": "Bergen"}], "to": "/x", "rows": [{"a": 1}]})
    assert (bound["trip"].city, bound["more"][0].city, bound["to"]) == ("Oslo", "Bergen", Path("/x"))
    assert list(bound["rows"]["a"]) == [1]
    with pytest.raises(ArgumentError, match="city: Field required"):
        tool.bind({"trip": {}, "more": [], "to": "", "rows": []})


def test_an_annotation_may_describe_its_parameter() -> None:
    def take(count: Annotated[int, "How many."]) -> None: ...

    assert FunctionTool(take).input_schema["properties"] == {"count": {"type": "integer", "description": "How many."}}


@pytest.mark.parametrize(
    ("arguments", "problem", "hint"),
    [
        ({}, "'symbol' is missing", None),
        ({"symbol": 3, "days": 1}, "symbol: Expected `str`, got `int`", None),
        ({"symbol": "A", "day": 1}, "takes no argument 'day'", "did you mean 'days'?"),
        ({"symbol": "A", "zzz": 1}, "takes no argument 'zzz'", "it takes symbol, days, kind"),
        ({"symbol": "A", "kind": "high"}, "kind: Invalid enum value 'high'", None),
    ],
)
def test_wrong_arguments_are_refused_in_words_for_a_model(arguments: Any, problem: str, hint: str | None) -> None:
    assert refused(ArgumentError, FunctionTool(price).bind, arguments) == (f"price: {problem}", hint)


def test_a_function_of_any_keywords_takes_them() -> None:
    def note(title: str, **more: object) -> None: ...

    tool = FunctionTool(note)
    assert "additionalProperties" not in tool.input_schema
    assert tool.bind({"title": "a", "b": 1}) == {"title": "a", "b": 1}


def test_a_function_that_a_model_cannot_call_is_refused() -> None:
    def half(x: int, /) -> None: ...

    for function, message in {
        half: "takes 'x' by position only",
        (lambda: None): "a function for a model needs a name",
        int: r"the signature of int\(\) is unknown",
    }.items():
        with pytest.raises(ArgumentError, match=message):
            FunctionTool(function)
    message, hint = refused(ArgumentError, FunctionTool, "demo.echo")
    assert "'demo.echo' is not a function" in message
    assert hint == 'patterns select: mcp.tools("fs.*")'


def test_a_secret_among_the_values_that_a_parameter_takes_is_masked() -> None:
    masks.add("s3cret-among-values")

    def pick(it: Literal["s3cret-among-values", "plain"] = "s3cret-among-values") -> None:
        """Pick one."""

    declared = json.dumps(declare_function(FunctionTool(pick)).schema)
    assert "s3cret-among-values" not in declared
    assert "plain" in declared
