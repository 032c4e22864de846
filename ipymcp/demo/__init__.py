"""A small MCP server for demonstrations: `python -m ipymcp.demo`. Standard library only, both eras, stdio.

    query   rows of a small table of penguins, as structured content
    plot    a chart as a PNG image
    slow    waits, reports progress, can be cancelled
    fail    always returns an error
    echo    returns its argument

    demo://penguins.csv, demo://notes.md    resources
    demo://penguins/{species}               a resource template
    describe                                a prompt

It imports no other package of ipymcp, so its folder can be run by path, in isolation: `python -I -S …/ipymcp/demo`.
A module that only one tool needs is imported by that tool, so that the server starts in a few milliseconds.
"""


def __getattr__(name: str) -> object:
    """Name where the tools are, for `import ipymcp as mcp; mcp.demo.echo("hi")`."""
    elsewhere = "" if name.startswith("_") else "; its tools are attributes of mcp.demo: from ipymcp import mcp"
    raise AttributeError(f"module 'ipymcp.demo' has no attribute {name!r}{elsewhere}")
