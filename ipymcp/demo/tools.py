"""The demo server's tools, resources and prompt: schemas, implementations, and the completion of arguments."""

from __future__ import annotations

import json
import time

from .server import INVALID_PARAMS, ONE_HOUR_MS, Refusal, as_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .server import DemoRequest

NUMBER, WHOLE, TEXT = "number", "integer", "string"
COLUMNS = {
    **{"species": TEXT, "island": TEXT, "bill_length_mm": NUMBER, "bill_depth_mm": NUMBER},
    **{"flipper_length_mm": WHOLE, "body_mass_g": WHOLE, "sex": TEXT, "year": WHOLE},
}
MEASURES = list(COLUMNS)[2:6]
LABELS = {
    **{"bill_length_mm": "Bill length (mm)", "bill_depth_mm": "Bill depth (mm)"},
    **{"flipper_length_mm": "Flipper length (mm)", "body_mass_g": "Body mass (g)"},
}
PENGUINS = """\
Adelie Torgersen 38.6,19.0,185,4350,m,7 39.9,19.0,184,3350,f,8 39.5,16.9,198,3900,m,9 38.5,18.5,186,3550,f,7 ,,,,,8
Adelie Torgersen 38.6,18.1,184,3075,f,9
Adelie Biscoe 41.0,19.1,193,4325,m,7 40.0,17.6,193,3500,f,8 40.6,19.9,193,4100,m,9 36.8,17.8,188,3475,,7
Adelie Biscoe 38.9,19.5,196,3925,m,8 36.6,18.4,192,3150,f,9
Adelie Dream 39.4,19.6,199,3800,m,7 35.8,18.7,187,3600,f,8 40.6,18.1,190,3975,m,9 39.6,18.0,186,2675,f,7
Adelie Dream 39.9,18.4,190,4050,m,8 33.7,16.6,186,3300,f,9
Chinstrap Dream 51.0,19.4,201,4250,m,7 48.1,17.9,192,3475,f,8 50.9,18.6,196,3925,m,9 47.6,18.1,198,3575,f,7
Chinstrap Dream 50.1,18.5,195,4000,m,8 48.7,18.3,195,3650,f,9 50.9,19.0,201,3825,m,7 49.7,18.6,190,3450,f,8
Chinstrap Dream 50.1,19.2,203,3925,m,9 49.5,18.4,192,3175,f,7
Gentoo Biscoe 49.7,15.3,218,5350,m,8 49.6,13.6,221,4600,f,9 50.5,15.2,220,5125,m,7 45.7,15.4,212,4550,f,8
Gentoo Biscoe 47.9,14.0,217,4975,m,9 45.2,14.3,221,4650,f,7 51.4,16.3,221,6000,m,8 45.0,14.0,212,4500,,9
Gentoo Biscoe 49.7,16.2,221,5350,m,7 45.1,15.0,212,4850,f,8 51.6,15.6,219,5475,m,9 45.1,14.7,212,4825,f,7
Gentoo Biscoe 48.5,15.4,221,5700,m,8 46.8,14.6,214,4750,f,9
"""
"""Invented data of the three penguin species of the Palmer archipelago: species, island, then for each bird the
measurements, the sex and the last digit of the year, separated by commas."""


class Failure(Exception):
    """A tool failed; the result has `isError`."""


def run_tool(name: str, arguments: dict[str, Any], request: DemoRequest) -> dict[str, Any]:
    """Run a tool; a failure becomes a result with `isError`."""
    schema = next(tool["inputSchema"] for tool in TOOLS if tool["name"] == name)
    try:
        return RUN[name](request, **read_arguments(schema, arguments))
    except Failure as failure:
        return {**text_result(str(failure)), "isError": True}


def read_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Add defaults and validate arguments against the subset of JSON Schema used here."""
    properties = schema["properties"]
    if surplus := [name for name in arguments if name not in properties]:
        raise Failure(f"unknown argument: {surplus[0]} (there are: {', '.join(properties)})")
    if missing := [name for name in schema.get("required", ()) if name not in arguments]:
        raise Failure(f"missing argument: {missing[0]}")
    defaults = {name: part["default"] for name, part in properties.items() if "default" in part}
    return defaults | {name: read_value(name, properties[name], value) for name, value in arguments.items()}


def read_value(name: str, schema: dict[str, Any], value: Any) -> Any:
    """Validate a value."""
    kind: str = schema["type"]
    if kind == "array":
        return read_array(name, schema, value)
    if kind == "integer" and isinstance(value, float) and value % 1 == 0:
        value = int(value)
    types = {"string": str, "integer": int, "number": (int, float)}[kind]
    if not isinstance(value, types) or isinstance(value, bool):
        raise Failure(f"{name} must be of type {kind}")
    if "enum" in schema and value not in schema["enum"]:
        raise Failure(f"{name} must be one of {', '.join(schema['enum'])}")
    if "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        raise Failure(f"{name} must be between {schema['minimum']:g} and {schema['maximum']:g}")
    return value


def read_array(name: str, schema: dict[str, Any], value: Any) -> list[Any]:
    """Validate the items of an array."""
    items: list[Any] = [*value] if isinstance(value, list) else []
    if not schema["minItems"] <= len(items) <= schema["maxItems"]:
        raise Failure(f"{name} must be an array of {schema['minItems']} to {schema['maxItems']} items")
    return [read_value(f"{name}[{i}]", schema["items"], item) for i, item in enumerate(items)]


def text_result(text: str) -> dict[str, Any]:
    """Create a result with one text."""
    return {"content": [{"type": "text", "text": text}]}


def echo(request: DemoRequest, text: str) -> dict[str, Any]:
    """Return the text."""
    request.log("debug", f"echo of {len(text)} characters")
    return text_result(text)


def fail(request: DemoRequest, message: str) -> dict[str, Any]:
    """Fail with the message."""
    request.log("error", message)
    raise Failure(message)


def slow(request: DemoRequest, seconds: float, steps: int) -> dict[str, Any]:
    """Wait for `seconds`, and report progress `steps` times."""
    request.log("info", f"taking {seconds:g} s in {steps} steps")
    start = time.monotonic()
    for step in range(1, steps + 1):
        if request.cancelled.wait(max(0.0, start + seconds * step / steps - time.monotonic())):
            break
        request.progress(step, steps, f"step {step} of {steps}")
    return text_result(f"Done: {steps} steps in {seconds:g} s.")


def penguins() -> list[dict[str, Any]]:
    """The table as one dict per bird; None for missing values."""
    rows: list[dict[str, Any]] = []
    for line in PENGUINS.splitlines():
        species, island, *birds = line.split()
        for *measures, sex, year in (bird.split(",") for bird in birds):
            values = [json.loads(measure or "null") for measure in measures]
            names = {"m": "male", "f": "female"}
            row = [species, island, *values, names.get(sex), 2000 + int(year)]
            rows.append(dict(zip(COLUMNS, row, strict=True)))
    return rows


def query(request: DemoRequest, table: str, limit: int, where: str = "") -> dict[str, Any]:
    """Select rows by a condition that SQLite evaluates."""
    import sqlite3

    # The newline ends a comment in the condition, which would otherwise hide the bracket and the limit.
    sql = f"SELECT * FROM {table}" + (f" WHERE ({where}\n)" if where.strip() else "") + f" LIMIT {limit}"
    request.log("info", sql.replace("\n)", ")"))
    database = sqlite3.connect(":memory:")
    try:
        database.execute(f"CREATE TABLE {table} ({', '.join(COLUMNS)})")
        birds = [tuple(bird.values()) for bird in penguins()]
        database.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(COLUMNS))})", birds)
        database.set_authorizer(one_plain_select())
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in database.execute(sql)]
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise Failure(f"where: {error}. The columns are {', '.join(COLUMNS)}.") from error
    finally:
        database.close()
    answer: dict[str, Any] = {"rows": rows, "count": len(rows)}
    return {**text_result(json.dumps(answer)), "structuredContent": answer}


def one_plain_select() -> Callable[..., int]:
    """An SQLite authorizer for a single SELECT with harmless functions: no subquery, no recursion, nothing written."""
    import sqlite3

    selects = iter([sqlite3.SQLITE_OK])
    functions = {"abs", "glob", "instr", "length", "like", "lower", "round", "upper"}

    def authorize(action: int, _first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_SELECT:
            return next(selects, sqlite3.SQLITE_DENY)
        allowed = action == sqlite3.SQLITE_READ or (action == sqlite3.SQLITE_FUNCTION and second in functions)
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    return authorize


def plot(request: DemoRequest, kind: str, width: int, height: int, **data: Any) -> dict[str, Any]:
    """Draw a chart of numbers or of a column of the penguins."""
    import base64

    from .chart import draw

    if "values" in data and "column" in data:
        raise Failure("give values or column, not both")
    request.log("info", f"drawing a {kind} chart, {width} by {height}")
    column = data.get("column", "body_mass_g")
    labels: dict[str, Any] = {} if "values" in data else {"names": SPECIES, "up": LABELS[column]}
    birds = [bird for bird in penguins() if bird[column] is not None]
    if "values" in data:
        points = [(float(i), float(value), 4) for i, value in enumerate(data["values"], 1)]
        about = f"{len(points)} value{'s' if len(points) > 1 else ''}"
    elif kind == "scatter":
        points = [(bird["bill_length_mm"], bird[column], SPECIES.index(bird["species"])) for bird in birds]
        labels["across"] = LABELS["bill_length_mm"]
        about = f"{column} over bill_length_mm, {len(points)} penguins"
    else:
        groups = [[bird[column] for bird in birds if bird["species"] == species] for species in SPECIES]
        points = [(float(i), sum(group) / len(group), i) for i, group in enumerate(groups)]
        labels["up"] = f"Mean {LABELS[column][0].lower()}{LABELS[column][1:]}"
        about = f"mean {column}: " + ", ".join(f"{SPECIES[i]} {mean:.1f}" for _, mean, i in points)
    chart = base64.b64encode(draw(kind, points, width, height, **labels)).decode()
    image = {"type": "image", "mimeType": "image/png", "data": chart}
    return {"content": [image, *text_result(f"A {kind} chart of {about}.")["content"]]}


SPECIES = ("Adelie", "Chinstrap", "Gentoo")


def describe(name: str, title: str, description: str, required: list[str], **properties: Any) -> dict[str, Any]:
    """Define a tool; all tools are read-only and idempotent."""
    hints = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    about = {"name": name, "title": title, "description": description, "inputSchema": schema}
    return about | {"annotations": {"title": title, **hints}}


def number(kind: str, description: str, low: float, high: float, default: float) -> dict[str, Any]:
    """The schema of a number with bounds and a default."""
    return {"type": kind, "description": description, "minimum": low, "maximum": high, "default": default}


ROW: dict[str, Any] = {
    "type": "object",
    "properties": {c: {"type": [kind, "null"] if c in (*MEASURES, "sex") else kind} for c, kind in COLUMNS.items()},
    "required": list(COLUMNS),
}
TOOLS: list[dict[str, Any]] = [
    describe(
        "query",
        "Query a table",
        "Rows of a small table that match a condition. The table `penguins` has one row for each bird: species "
        "(Adelie, Chinstrap, Gentoo), island (Biscoe, Dream, Torgersen), bill_length_mm, bill_depth_mm, "
        "flipper_length_mm, body_mass_g, sex (male, female), year. Values that were not recorded are null.",
        ["table"],
        table={"type": "string", "enum": ["penguins"], "description": "The table to query."},
        where={
            "type": "string",
            "description": "A condition in SQL, such as island = 'Dream' AND body_mass_g > 4000. All rows if left out.",
        },
        limit=number("integer", "The maximum number of rows.", 1, 1000, 10),
    )
    | {
        "outputSchema": {
            "type": "object",
            "properties": {
                "rows": {"type": "array", "items": ROW, "description": "The matching rows."},
                "count": {"type": "integer", "description": "The number of these rows."},
            },
            "required": ["rows", "count"],
        }
    },
    describe(
        "plot",
        "Draw a chart",
        "A chart as a PNG image, of the numbers in `values` or of a column of the penguins: bars show the mean of each "
        "species, a scatter chart each bird over its bill_length_mm.",
        [],
        kind={"type": "string", "enum": ["bar", "scatter"], "default": "bar", "description": "The kind of chart."},
        values={
            "type": "array",
            "items": {"type": "number", "minimum": -1e15, "maximum": 1e15},
            "minItems": 1,
            "maxItems": 1000,
            "description": "The numbers to draw, instead of a column.",
        },
        column={"type": "string", "enum": MEASURES, "description": "The column to draw; body_mass_g if left out."},
        width=number("integer", "Width in pixels.", 160, 2000, 480),
        height=number("integer", "Height in pixels.", 120, 2000, 320),
    ),
    describe(
        "slow",
        "Take some time",
        "Waits, reports progress at every step, and can be cancelled.",
        [],
        seconds=number("number", "How long to take, in seconds.", 0, 3600, 3),
        steps=number("integer", "How many times to report progress.", 1, 10_000, 10),
    ),
    describe(
        "fail",
        "Fail",
        "Always answers with an error, to see what that looks like.",
        [],
        message={"type": "string", "default": "This tool always fails.", "description": "The message of the error."},
    ),
    describe(
        "echo",
        "Echo a text",
        "Returns the text unchanged.",
        ["text"],
        text={"type": "string", "description": "The text to return."},
    ),
]
RUN: dict[str, Callable[..., dict[str, Any]]] = {"query": query, "plot": plot, "slow": slow, "fail": fail, "echo": echo}


# -- resources, prompt and completions ---------------------------------------------------------------------------------


NOT_FOUND_BEFORE_2026 = -32002
"""Error code for unknown resources, up to 2025-11-25."""
CSV = "demo://penguins.csv"
NOTES = "demo://notes.md"
TEMPLATE = "demo://penguins/{species}"
TONES = ("plain", "playful")
RESOURCES = [
    {
        "uri": CSV,
        "name": "penguins.csv",
        "title": "The penguins as CSV",
        "description": "All rows of the table that the tool `query` reads.",
        "mimeType": "text/csv",
    },
    {
        "uri": NOTES,
        "name": "notes.md",
        "title": "About the penguins",
        "description": "The columns of the table.",
        "mimeType": "text/markdown",
    },
]
TEMPLATES = [
    {
        "uriTemplate": TEMPLATE,
        "name": "penguins",
        "title": "The penguins of a species",
        "description": "The rows of one species, as JSON.",
        "mimeType": "application/json",
    }
]
PROMPTS = [
    {
        "name": "describe",
        "title": "Describe a species",
        "description": "Asks a model to describe a species of penguins, given its rows of the table.",
        "arguments": [
            {"name": "species", "description": f"One of {', '.join(SPECIES)}.", "required": True},
            {"name": "tone", "description": f"The tone: {' or '.join(TONES)}."},
        ],
    }
]


def cache_fields(request: DemoRequest) -> dict[str, Any]:
    """Cache fields of lists and reads in 2026-07-28: nothing here ever changes."""
    return {"ttlMs": ONE_HOUR_MS, "cacheScope": "public"} if request.stateless else {}


def listing(key: str, items: list[dict[str, Any]]) -> Callable[[DemoRequest], dict[str, Any]]:
    """Create a handler that lists items on one page, in the format of the request's revision."""

    def answer(request: DemoRequest) -> dict[str, Any]:
        if "cursor" in request.params:
            raise Refusal(INVALID_PARAMS, "unknown cursor: the list fits on one page")
        unknown = {"annotations"} if request.version < "2025-03-26" else set[str]()
        unknown |= {"title", "outputSchema"} if request.version < "2025-06-18" else set[str]()
        shown = [{key: value for key, value in item.items() if key not in unknown} for item in items]
        return {key: shown, **cache_fields(request)}

    return answer


def read(request: DemoRequest) -> dict[str, Any]:
    """Read a resource."""
    uri = request.params.get("uri")
    if not isinstance(uri, str):
        raise Refusal(INVALID_PARAMS, "uri is missing")
    species = uri.removeprefix(TEMPLATE.partition("{")[0])
    if uri == CSV:
        content = {"mimeType": "text/csv", "text": csv()}
    elif uri == NOTES:
        content = {"mimeType": "text/markdown", "text": notes()}
    elif species != uri and species in SPECIES:
        content = {"mimeType": "application/json", "text": json.dumps(rows_of(species))}
    else:
        code = INVALID_PARAMS if request.stateless else NOT_FOUND_BEFORE_2026
        raise Refusal(code, f"Resource not found: {uri}", {"uri": uri})
    return {"contents": [{"uri": uri, **content}], **cache_fields(request)}


def get_prompt(request: DemoRequest) -> dict[str, Any]:
    """Render the prompt."""
    if request.params.get("name") != "describe":
        raise Refusal(INVALID_PARAMS, f"Unknown prompt: {request.params.get('name')}")
    arguments = as_object(request.params.get("arguments", {})) or {}
    species, tone = arguments.get("species"), arguments.get("tone", TONES[0])
    if species not in SPECIES:
        raise Refusal(INVALID_PARAMS, f"species must be one of {', '.join(SPECIES)}")
    if tone not in TONES:
        raise Refusal(INVALID_PARAMS, f"tone must be one of {', '.join(TONES)}")
    uri = TEMPLATE.replace("{species}", species)
    rows = {"uri": uri, "mimeType": "application/json", "text": json.dumps(rows_of(species))}
    words = f"Describe the {species} penguins in a {tone} tone, in three sentences, from these rows."
    contents: list[dict[str, Any]] = [{"type": "text", "text": words}, {"type": "resource", "resource": rows}]
    return {"description": str(PROMPTS[0]["title"]), "messages": [{"role": "user", "content": c} for c in contents]}


def complete(request: DemoRequest) -> dict[str, Any]:
    """Complete an argument of the prompt or the template."""
    reference, argument = as_object(request.params.get("ref")), as_object(request.params.get("argument"))
    if reference is None or argument is None:
        raise Refusal(INVALID_PARAMS, "ref or argument is missing")
    known = {"ref/prompt": ("name", "describe"), "ref/resource": ("uri", TEMPLATE)}
    key, expected = known.get(str(reference.get("type")), ("", None))
    if reference.get(key) != expected:
        raise Refusal(INVALID_PARAMS, f"Unknown ref: {json.dumps(reference)}")
    values = {"species": SPECIES, "tone": TONES if key == "name" else ()}.get(str(argument.get("name")), ())
    typed = str(argument.get("value", "")).lower()
    found = [value for value in values if value.lower().startswith(typed)]
    return {"completion": {"values": found, "total": len(found), "hasMore": False}}


def rows_of(species: str) -> list[dict[str, Any]]:
    """The rows of one species."""
    return [bird for bird in penguins() if bird["species"] == species]


def csv() -> str:
    """The table as CSV; missing values are empty."""
    rows = [["" if value is None else str(value) for value in bird.values()] for bird in penguins()]
    return "".join(",".join(row) + "\n" for row in [list(COLUMNS), *rows])


def notes() -> str:
    """A page about the table, in Markdown."""
    columns = "".join(f"- `{name}`: {kind}\n" for name, kind in COLUMNS.items())
    return f"# Penguins\n\n**Invented** birds of three species: {', '.join(SPECIES)}.\n\n{columns}"


METHODS: dict[str, Callable[[DemoRequest], dict[str, Any]]] = {
    "tools/list": listing("tools", TOOLS),
    "resources/list": listing("resources", RESOURCES),
    "resources/templates/list": listing("resourceTemplates", TEMPLATES),
    "resources/read": read,
    "prompts/list": listing("prompts", PROMPTS),
    "prompts/get": get_prompt,
    "completion/complete": complete,
}
"""Request handlers by method, for both eras."""
