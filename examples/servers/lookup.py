"""A server with a tool that describes one island and a tool that takes notes."""

from minimal import Server, ToolFailure

BIRDS = {"Biscoe": 168, "Dream": 124, "Torgersen": 52}
"""Penguins by island, of the data set palmerpenguins."""
NOTES: list[str] = []

server = Server("lookup")


@server.tool("Describe an island.", {"island": {"type": "string"}}, readOnlyHint=True, openWorldHint=False)
def describe(island):
    if island not in BIRDS:
        raise ToolFailure(f"there is no island {island}")
    return {"birds": BIRDS[island], "share": {"percent": round(100 * BIRDS[island] / sum(BIRDS.values()))}}


@server.tool("Keep a note.", {"text": {"type": "string"}}, readOnlyHint=False, openWorldHint=False)
def note(text):
    NOTES.append(text)
    return {"notes": len(NOTES)}


server.run()
