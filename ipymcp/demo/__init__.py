"""A small MCP server to try things on: `python -m ipymcp.demo`. Standard library only, both eras, stdio.

    query   rows of a little table of penguins, as structured content
    plot    a chart as a PNG image
    slow    takes its time, reports progress, can be cancelled
    fail    always answers with an error
    echo    gives back what it was given

    demo://penguins.csv, demo://notes.md    resources; demo://penguins/{species} is a template of more
    describe                                a prompt

It imports nothing of the rest of ipymcp, so its folder also runs by path, in isolation: `python -I -S …/ipymcp/demo`.
What only one tool needs is imported by that tool: the server is up in a few milliseconds.
"""
