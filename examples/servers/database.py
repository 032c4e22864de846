"""A server for one SQLite database: `python database.py FILE`. The file is made if it does not exist."""

from __future__ import annotations

import sqlite3
import sys
from typing import Any

from minimal import Server, ToolFailure

SQL = {"type": "string", "description": "One statement; values stand in it as ? and are given in `values`."}
VALUES = {"type": "array", "description": "The values of the ?", "default": []}
server = Server("database", "An SQLite database: query reads, execute changes.")
connection = sqlite3.connect(sys.argv[1], isolation_level=None)


def run(sql: str, values: list[Any], *, writes: bool) -> sqlite3.Cursor:
    """Run a statement; a reading one cannot write."""
    try:
        connection.execute(f"PRAGMA query_only = {'OFF' if writes else 'ON'}")
        return connection.execute(sql, values)
    except sqlite3.Error as error:
        raise ToolFailure(str(error)) from error


@server.tool("List the tables with their columns.", readOnlyHint=True, openWorldHint=False)
def tables() -> dict[str, Any]:
    """The schema."""
    found = run("SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name", [], writes=False)
    return {"tables": [{"name": name, "sql": sql} for name, sql in found]}


@server.tool("Read rows with a SELECT.", {"sql": SQL, "values": VALUES}, readOnlyHint=True, openWorldHint=False)
def query(sql: str, values: list[Any] | None = None) -> dict[str, Any]:
    """The rows as records."""
    cursor = run(sql, values or [], writes=False)
    names = [column[0] for column in cursor.description or ()]
    return {"rows": [dict(zip(names, row, strict=True)) for row in cursor]}


@server.tool(
    "Change the database: CREATE, INSERT, UPDATE, DELETE. With several rows of values it runs once for each.",
    {"sql": SQL, "rows": {"type": "array", "items": {"type": "array"}, "default": []}},
    readOnlyHint=False,
    destructiveHint=True,
    openWorldHint=False,
)
def execute(sql: str, rows: list[list[Any]] | None = None) -> str:
    """Run it, all rows or none."""
    run("BEGIN", [], writes=True)
    try:
        changed = sum(max(run(sql, row, writes=True).rowcount, 0) for row in (rows or [[]]))
    except BaseException:
        run("ROLLBACK", [], writes=True)
        raise
    run("COMMIT", [], writes=True)
    return f"{changed:,} rows changed"


server.run()
