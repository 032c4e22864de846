"""The demo server's tools in both eras, over raw pipes."""

import base64
import json
import struct
import zlib

import jsonschema_rs
import pytest

from tests.demo_peer import HANDSHAKE_VERSIONS, META, STATELESS, both_eras, newest_of_each_era


@pytest.mark.parametrize(("asked", "answered"), [*((v, v) for v in HANDSHAKE_VERSIONS), (STATELESS, "2025-11-25")])
def test_a_handshake_is_answered_with_the_revision_asked_for_or_the_newest(connect, asked, answered):
    result = connect(answered, ask_for=asked).handshake_result
    assert result["protocolVersion"] == answered
    words = ("tools", "resources", "prompts", "completions", "logging")
    assert result["capabilities"] == {word: {} for word in words}
    assert result["serverInfo"]["name"] == "ipymcp-demo"


def test_discover_names_the_stateless_revision_and_the_server(connect):
    result = connect(STATELESS).ask("server/discover")["result"]
    assert result["supportedVersions"] == [STATELESS]
    assert result["resultType"] == "complete"
    assert result["_meta"][META + "serverInfo"]["name"] == "ipymcp-demo"
    assert result["ttlMs"] > 0
    assert result["cacheScope"] == "public"


@both_eras
def test_tools_are_listed_in_the_words_of_the_revision(connect, version):
    tools = connect(version).ask("tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["query", "plot", "slow", "fail", "echo"]
    assert all(tool["description"] and tool["inputSchema"]["additionalProperties"] is False for tool in tools)
    assert all(("annotations" in tool) == (version >= "2025-03-26") for tool in tools)
    assert all(("title" in tool) == (version >= "2025-06-18") for tool in tools)
    assert ("outputSchema" in tools[0]) == (version >= "2025-06-18")


@both_eras
def test_query_answers_rows_that_fit_its_output_schema(connect, version):
    peer = connect(version)
    result = peer.call("query", table="penguins", where="island = 'Dream' AND body_mass_g > 3900", limit=3)
    rows = json.loads(result["content"][0]["text"])["rows"]
    assert [row["island"] for row in rows] == ["Dream"] * 3
    assert all(row["body_mass_g"] > 3900 for row in rows)
    if version < "2025-06-18":
        assert "structuredContent" not in result
    else:
        schema = peer.ask("tools/list")["result"]["tools"][0]["outputSchema"]
        jsonschema_rs.validator_for(schema).validate(result["structuredContent"])
        assert result["structuredContent"] == {"rows": rows, "count": 3}


def test_query_gives_ten_rows_unless_told_otherwise_and_forty_two_at_most(connect):
    peer = connect()
    assert peer.call("query", table="penguins")["structuredContent"]["count"] == 10
    rows = peer.call("query", table="penguins", limit=1000)["structuredContent"]["rows"]
    assert len(rows) == 42
    assert {row["species"] for row in rows} == {"Adelie", "Chinstrap", "Gentoo"}
    assert sum(row["body_mass_g"] is None for row in rows) == 1


def test_a_comment_in_a_condition_does_not_swallow_the_limit(connect):
    assert connect().call("query", table="penguins", where="1 -- all", limit=2)["structuredContent"]["count"] == 2


@pytest.mark.parametrize(
    "where",
    [
        "1) UNION SELECT 1, 2, 3, 4, 5, 6, 7, 8 WHERE (1",
        "year IN (SELECT 2007)",
        "1); DROP TABLE penguins; --",
        "length(randomblob(1000000000))",
        "load_extension('x')",
        "nonsense >",
        "nul\0",
    ],
)
def test_a_condition_can_only_be_a_condition(connect, where):
    peer = connect()
    result = peer.call("query", table="penguins", where=where)
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith("where: ")
    assert peer.call("query", table="penguins")["structuredContent"]["count"] == 10


def test_the_columns_are_named_where_a_condition_is_wrong(connect):
    text = connect().call("query", table="penguins", where="wings = 2")["content"][0]["text"]
    assert text == (
        "where: no such column: wings. The columns are species, island, bill_length_mm, bill_depth_mm, "
        "flipper_length_mm, body_mass_g, sex, year."
    )


def read_png(data: str | bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and the rows of RGB pixels, every checksum checked."""
    png = base64.b64decode(data, validate=True) if isinstance(data, str) else data
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour) == (8, 2)
    pixels = zlib.decompress(chunks[b"IDAT"])
    line = 3 * width + 1
    assert len(pixels) == height * line
    assert b"IEND" in chunks
    return width, height, [pixels[y * line + 1 : (y + 1) * line] for y in range(height)]


def colours_of(rows: list[bytes]) -> set[tuple[int, ...]]:
    return {tuple(row[x : x + 3]) for row in rows for x in range(0, len(row), 3)}


@pytest.mark.parametrize(
    ("arguments", "caption", "colours"),
    [
        ({}, "A bar chart of mean body_mass_g: Adelie 3652.9, Chinstrap 3725.0, Gentoo 5050.0.", {0, 1, 2}),
        (
            {"kind": "scatter", "column": "bill_depth_mm"},
            "A scatter chart of bill_depth_mm over bill_length_mm, 41 penguins.",
            {0, 1, 2},
        ),
        ({"values": [3, -2, 5.5]}, "A bar chart of 3 values.", {4}),
        ({"values": [-1e15, 1e15], "kind": "scatter"}, "A scatter chart of 2 values.", {4}),
        ({"values": [0], "width": 160, "height": 120}, "A bar chart of 1 value.", set()),
        ({"values": [7] * 1000}, "A bar chart of 1000 values.", {4}),
        ({"values": [5], "kind": "scatter", "width": 2000, "height": 120}, "A scatter chart of 1 value.", {4}),
    ],
)
def test_plot_draws_a_png_in_the_colours_of_what_it_shows(connect, arguments, caption, colours):
    from ipymcp.demo.chart import INK, PALETTE

    image, text = connect().call("plot", **arguments)["content"]
    width, height, rows = read_png(image["data"])
    drawn = colours_of(rows)
    assert image["mimeType"] == "image/png"
    assert (width, height) == (arguments.get("width", 480), arguments.get("height", 320))
    assert {PALETTE[colour] for colour in (3, *colours)} | {INK} <= drawn
    assert not {PALETTE[colour] for colour in {0, 1, 2, 4} - colours} & drawn
    assert text["text"] == caption


@pytest.mark.parametrize("kind", ["bar", "scatter"])
def test_a_chart_names_what_its_axes_and_colours_are(kind):
    from ipymcp.demo.chart import draw

    points = [(0.0, 1.0, 0), (1.0, 2.0, 1)]
    plain = draw(kind, points, 480, 300)
    labels = {"names": ("Adelie", "Gentoo"), "up": "Body mass (g)", "across": "Bill length (mm)"}
    pictures = [draw(kind, points, 480, 300, **{name: label}) for name, label in labels.items()]
    assert len({plain, *pictures}) == 1 + len(labels)
    assert draw(kind, points, 480, 300, up="a<\u00e9") == draw(kind, points, 480, 300, up="a  ")


def test_the_font_has_all_characters_of_the_labels_and_smooth_edges():
    from ipymcp.demo.chart import GLYPHS, INK, PALETTE, Canvas
    from ipymcp.demo.tools import LABELS, SPECIES

    assert {*"".join((*LABELS.values(), *SPECIES, "Mean 0123456789.-e+"))} <= GLYPHS.keys()
    canvas = Canvas(200, 40, 2)
    canvas.write(5, 25, "Body mass")
    shades = colours_of(read_png(canvas.png())[2])
    assert {INK, PALETTE[3]} < shades, "the edges are between the two"
    assert 40 < canvas.length("Body mass") < 120


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [
        (0, 5050, 5, [0, 2000, 4000]),
        (33.7, 51.6, 6, [35, 40, 45, 50]),
        (-2, 5.5, 5, [-2, 0, 2, 4]),
        (0, 0, 4, [0]),
        (7, 7, 4, [7]),
    ],
)
def test_the_marks_of_an_axis_are_round_numbers(low, high, most, expected):
    from ipymcp.demo.chart import ticks

    assert ticks(low, high, most) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("fail", {}, "This tool always fails."),
        ("fail", {"message": "out of fish"}, "out of fish"),
        ("echo", {}, "missing argument: text"),
        ("echo", {"text": 1}, "text must be of type string"),
        ("echo", {"text": "a", "loud": True}, "unknown argument: loud (there are: text)"),
        ("query", {"table": "whales"}, "table must be one of penguins"),
        ("query", {"table": "penguins", "limit": True}, "limit must be of type integer"),
        ("query", {"table": "penguins", "limit": 0}, "limit must be between 1 and 1000"),
        ("plot", {"kind": "pie"}, "kind must be one of bar, scatter"),
        ("plot", {"values": []}, "values must be an array of 1 to 1000 items"),
        ("plot", {"values": [1, 1e300]}, "values[1] must be between -1e+15 and 1e+15"),
        ("plot", {"values": [1], "column": "body_mass_g"}, "give values or column, not both"),
        ("slow", {"steps": 1.5}, "steps must be of type integer"),
    ],
)
def test_an_unsupported_operation_is_an_error_with_the_reason(connect, tool, arguments, text):
    assert connect().call(tool, **arguments) == {"content": [{"type": "text", "text": text}], "isError": True}


def test_a_whole_number_may_be_written_as_a_float(connect):
    assert connect().call("query", table="penguins", limit=2.0)["structuredContent"]["count"] == 2


@both_eras
def test_slow_reports_progress_and_does_not_hold_up_an_echo(connect, version):
    peer = connect(version)
    slow = peer.request("tools/call", meta={"progressToken": "t"}, name="slow", arguments={"seconds": 0.5, "steps": 5})
    echo = peer.request("tools/call", name="echo", arguments={"text": "meanwhile"})
    answers, progress = [], []
    while slow not in answers:
        frame = peer.next()
        if "id" in frame:
            answers.append(frame["id"])
        elif frame["method"] == "notifications/progress":
            progress.append(frame["params"])
    assert answers == [echo, slow]
    assert [step["progress"] for step in progress] == [1, 2, 3, 4, 5]
    assert all(step["progressToken"] == "t" and step["total"] == 5 for step in progress)
    assert progress[0].get("message") == (None if version == "2024-11-05" else "step 1 of 5")


@newest_of_each_era
def test_without_a_token_there_is_no_progress(connect, version):
    peer = connect(version)
    peer.request("tools/call", name="slow", arguments={"seconds": 0, "steps": 3})
    rest, _ = peer.close()
    assert not [frame for frame in rest if frame.get("method") == "notifications/progress"]


@both_eras
def test_a_cancelled_call_stops_at_once_and_nothing_more_comes(connect, version):
    peer = connect(version)
    slow = peer.request("tools/call", meta={"progressToken": 1}, name="slow", arguments={"seconds": 300, "steps": 3000})
    while peer.next().get("method") != "notifications/progress":
        pass
    peer.notify("notifications/cancelled", requestId=slow)
    echo = peer.request("tools/call", name="echo", arguments={"text": "still here"})
    while peer.next().get("id") != echo:
        pass
    assert peer.close()[0] == []


def test_a_cancellation_of_nothing_is_ignored(connect):
    peer = connect()
    for request_id in (99, "99", None, [1]):
        peer.notify("notifications/cancelled", requestId=request_id)
    assert peer.call("echo", text="fine")["content"][0]["text"] == "fine"


@pytest.mark.parametrize("text", ["", "ÅÖ 🐧\n\t\0", "\ud800 alone", "x" * 300_000])
@newest_of_each_era
def test_echo_gives_back_any_text(connect, version, text):
    assert connect(version).call("echo", text=text)["content"] == [{"type": "text", "text": text}]
