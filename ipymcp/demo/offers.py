"""The demo server's lists, its resources and prompt, and the completion of their arguments."""

from __future__ import annotations

import json

from .server import INVALID_PARAMS, ONE_HOUR_MS, Refusal, as_object
from .tools import COLUMNS, SPECIES, TOOLS, penguins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .server import DemoRequest

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
