"""The display of answers in a cell."""

import base64
import json
import re
from typing import Any

import pytest

from ipymcp.panel.results import preview
from ipymcp.results.rendering import bundle, html
from ipymcp.results.tool_result import ToolResult

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
PRE = '<pre style="white-space:pre-wrap;overflow-wrap:anywhere;word-break:normal;margin:0">'
SVG = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg'/>").decode()


LINES = "line one\n  line two\n"


def show(*content: Any, schema: bytes | None = None, **fields: Any) -> dict[str, Any]:
    raw = json.dumps({"content": list(content), **fields}).encode()
    result = ToolResult(raw, server="fs", tool="read", output_schema=schema)
    shown = bundle(result, result._head)
    assert shown == bundle(result, result._head) == result._repr_mimebundle_()
    return shown


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(data: str, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": kind}


def test_plain_text_stays_plain_and_breaks_between_words() -> None:
    assert show(text("hello")) == {
        "text/html": f'<div class="tex2jax_ignore mathjax_ignore">{PRE}hello</pre></div>',
        "text/plain": "ToolResult fs.read: hello",
    }
    assert show(text("a\nb * c"))["text/plain"] == "ToolResult fs.read:\na\nb * c"
    assert show(text(""))["text/plain"] == "ToolResult fs.read: (empty)"
    assert "word-break:normal" in PRE
    assert PRE in show(text("Gentoo 5050.0 " * 20))["text/html"]


@pytest.mark.parametrize("depth", [100, 400, 700, 900])
@pytest.mark.parametrize("is_error", [False, True])
def test_a_deep_result_is_shown_or_its_display_says_that_it_is_too_deep(depth: int, is_error: bool) -> None:
    raw = b'{"content":[],"isError":%s,"structuredContent":{"a":%s1%s}}'
    result = ToolResult(raw % (b"true" if is_error else b"false", b"[" * depth, b"]" * depth), server="fs", tool="read")
    shown = result._repr_mimebundle_()["text/plain"]
    assert shown == "ToolResult fs.read: it is nested too deeply to be shown; .data has it" or "[[[" in shown.replace(
        "\n", ""
    ).replace(" ", "")
    assert repr(result) and isinstance(html(result), str)
    assert result.data is not None


@pytest.mark.parametrize(
    "plain",
    [
        "- a\n- b", "1. a\n2. b", "Items:\n- a\n- b", '{\n  "a": [\n    1\n  ],\n  "b": "`x`"\n}\nand more',
        "# a comment\nimport os\nx = 1", "# one comment\n# another\nx = 1", "name: `x`\nsize: 3",
        "**Name**: Ada\n**Born**: 1815", "## targets\nall:\n\tmake x", "x = a[i](y) ** 2 ** 3",
        "src/**/*.py and lib/**/*.py", "[INFO](main) started", "```\nnever closed",
    ],
)  # fmt: skip
def test_text_that_markdown_would_reflow_or_misread_stays_plain(plain: str) -> None:
    shown = show(text(plain))
    assert set(shown) == {"text/html", "text/plain"}
    assert shown["text/plain"].endswith(plain)


@pytest.mark.parametrize(
    "markdown",
    [
        "# Title", "a **bold** word", "```py\nx\n```", "[a](https://e.example)", "|a|\n|--|", "`x`",
        "## Title\n\n- **a**: x\n- b\n\nwords that are wrapped after some sixty characters, as is done\nin editors",
    ],
)  # fmt: skip
def test_text_that_looks_like_markdown_is_shown_as_markdown(markdown: str) -> None:
    assert set(show(text(markdown))) == {"text/markdown", "text/plain"}


def test_markdown_is_sanitized() -> None:
    assert show(text("# a <script>"))["text/markdown"] == "# a &#60;script>"


def test_long_text_is_cut_and_says_how_much_is_left() -> None:
    plain = show(text("x" * 50_000))["text/plain"]
    assert plain.endswith("x\n… 30,000 more characters · all in .text")
    lines = show(text("line\n" * 1_000))["text/plain"]
    assert lines.count("line") == 200


def test_terminal_escapes_and_bidi_controls_are_shown_not_sent() -> None:
    assert show(text("\x1b]52;c;eA==\x07\u202e"))["text/plain"] == "ToolResult fs.read: ␛]52;c;eA==␇⟨U+202E⟩"


@pytest.mark.parametrize(
    ("data", "shown"),
    [([0, 1], "[0, 1]"), ({}, "{}"), ([["x" * 80]], f'[\n  [\n    "{"x" * 80}"\n  ]\n]')],
)
def test_small_data_without_names_is_json_that_is_open(data: Any, shown: str) -> None:
    body = shown.replace('"', "&quot;")
    assert show(structuredContent=data)["text/html"].endswith(f"{PRE}{body}</pre></div>")


ISSUE = {
    "number": 42,
    "title": "Crash on load",
    "user": {"login": "ann", "site_admin": False},
    "body": "It crashes.\n" * 20,
    "labels": [{"name": "bug", "color": "f00"}, {"name": "ui", "color": "0f0"}, {"name": "p1", "color": "00f"}],
}


@pytest.mark.parametrize("is_text", [True, False])
def test_an_object_that_holds_a_small_list_is_shown_as_an_object_with_the_list_below(is_text: bool) -> None:
    shown = show(text(json.dumps(ISSUE))) if is_text else show(structuredContent=ISSUE)
    html = re.sub(r' (style|class)="[^"]*"', "", shown["text/html"])
    assert html == (
        "<div><table><tbody><tr><th>number</th><td>42</td></tr><tr><th>title</th><td>Crash on load</td></tr>"
        "<tr><th>user</th><td><table><tbody><tr><th>login</th><td>ann</td></tr><tr><th>site_admin</th><td>false</td></tr>"
        f"</tbody></table></td></tr><tr><th>body</th><td>{ISSUE['body']}</td></tr><tr><th>labels</th><td>"
        "<table><thead><tr><th>name</th><th>color</th></tr></thead><tbody><tr><td>bug</td><td>f00</td></tr>"
        "<tr><td>ui</td><td>0f0</td></tr><tr><td>p1</td><td>00f</td></tr></tbody></table></td></tr></tbody></table></div>"
    )
    raw = json.dumps({"content": [text(json.dumps(ISSUE))], **({} if is_text else {"structuredContent": ISSUE})})
    seen = preview(ToolResult(raw.encode(), server="fs", tool="read"), None, 1)
    assert (seen.table, seen.html, seen.json) == (None, shown["text/html"], ISSUE)


COMMENTS = [{"id": each, "text": "A comment of some words."} for each in range(12)]


@pytest.mark.parametrize(
    ("data", "is_table"),
    [
        ({"rows": [{"a": 1}], "count": 1}, True),
        ({"total": 2, "tasks": [{"id": 1, "name": "first of them"}, {"id": 2, "name": "second of them"}]}, True),
        ({"comments": COMMENTS, "page": {"next": "abc", "size": 12}}, True),
        ({"data": {"issues": {"nodes": [{"a": 1}], "total": 1}}}, True),
        ({"id": 7, "customer": "Ann Smith", "state": "paid", "lines": [{"sku": "a"}, {"sku": "b"}]}, False),
        ({"items": [{"a": 1}], "query": {"words": "a"}}, False),
        ({"data": {"issue": {"title": "Crash", "body": "x" * 300, "comments": COMMENTS[:4]}}}, False),
    ],
)
def test_a_list_is_shown_as_a_table_if_the_data_is_about_it(data: Any, is_table: bool) -> None:
    result = ToolResult(json.dumps({"structuredContent": data}).encode(), server="fs", tool="read")
    assert (preview(result, None, 1).table is not None) is is_table
    assert result.tables.main is not None


def test_a_long_list_in_an_object_shows_ten_rows_and_names_the_rest() -> None:
    html = show(structuredContent={"title": "x" * 800, "labels": COMMENTS})["text/html"]
    assert html.count("<td") == 2 + 20
    assert "<div>… 2 more rows · all in .table(&#x27;labels&#x27;)</div>" in html


def test_a_flat_object_is_a_table_with_two_columns() -> None:
    data = {"<b>": "one\n  two <i>", "mean": 4207.433734939759, "count": 3, "tags": ["x", 1], "ok": True, "none": None}
    shown = show(structuredContent=data)
    assert set(shown) == {"text/html", "text/plain"}
    cells = re.findall(r"<th[^>]*>(.*?)</th><td[^>]*>(.*?)</td>", shown["text/html"], re.DOTALL)
    assert cells == [
        ("&lt;b&gt;", "one\n  two &lt;i&gt;"),
        *(("mean", "4207.433735"), ("count", "3"), ("tags", "[&quot;x&quot;, 1]"), ("ok", "true"), ("none", "")),
    ]
    assert "white-space:pre-wrap" in shown["text/html"]


@pytest.mark.parametrize("data", [dict.fromkeys(map(str, range(101))), [["x" * 300] * 20]])
def test_data_that_two_columns_cannot_show_is_a_tree(data: Any) -> None:
    assert show(structuredContent=data)["application/json"] == data


def test_the_table_of_an_object_is_bounded() -> None:
    html = show(structuredContent={str(number): "x" * 50_000 for number in range(100)})["text/html"]
    assert "… 30,000 more characters · all in .data" in html and "… 49,000 more characters · all in .data" in html
    assert len(html) < 200_000


def test_a_long_cell_is_folded_and_whole_when_opened() -> None:
    long = "word " * 100 + "\nend"
    html = show(structuredContent=[{"a": long, "b": "short", "c": "x" * 5_000}])["text/html"]
    summaries = re.findall(r"<summary[^>]*>(.*?)</summary>", html)
    assert [len(summary) for summary in summaries] == [60, 60]
    assert summaries[0].startswith("word word") and summaries[0].endswith("…")
    assert f">{long}</div></details></td>" in html
    assert f">{'x' * 1_000}…</div></details></td>" in html
    assert ">short</td>" in html


@pytest.mark.parametrize(
    "wrapped",
    [{"content": LINES}, {"result": {"content": [LINES]}}, [LINES.rstrip()]],
)
def test_data_that_only_repeats_the_text_is_shown_as_the_text(wrapped: Any) -> None:
    shown = show(text(LINES), structuredContent=wrapped)
    assert shown == show(text(LINES))
    assert "application/json" not in shown
    assert shown["text/plain"] == f"ToolResult fs.read:\n{LINES}"


def test_the_panel_shows_as_text_what_a_cell_shows_as_text() -> None:
    def in_panel(structured: Any) -> Any:
        raw = json.dumps({"content": [text("one\n  two")], "structuredContent": structured}).encode()
        return preview(ToolResult(raw, server="fs", tool="read"), None)

    repeated = in_panel({"content": "one\n  two"})
    assert (repeated.text, repeated.html, repeated.json, repeated.truncated) == ("one\n  two", None, None, False)
    assert in_panel({"content": "another"}).json == {"content": "another"}
    assert in_panel([{"a": 1}]).html is not None


@pytest.mark.parametrize(
    "data", [{"content": "another"}, {"content": "text", "size": 4}, {"a": "text", "b": "text"}, {"content": None}]
)
def test_data_that_says_more_than_the_text_is_shown_as_data(data: Any) -> None:
    html = show(text("text"), structuredContent=data)["text/html"]
    assert html.count("<tr>") == len(data)


def test_numbers_are_right_aligned_and_fractions_as_short_as_pandas_shows_them() -> None:
    rows = [
        {"n": 1, "mean": 4207.433734939759, "tiny": 1.23456789e-9, "name": "a", "mixed": 1 / 3},
        {"n": None, "mean": 2, "tiny": 1.0, "name": 2, "mixed": "x"},
    ]
    html = show(structuredContent=rows)["text/html"]
    right = '<th style="text-align:right;vertical-align:top">'
    assert [name for name in rows[0] if f"{right}{name}</th>" in html] == ["n", "mean", "tiny"]
    for shown in ("4207.433735", "2.000000", "1.23457e-09", "0.333333"):
        assert f">{shown}</td>" in html
    assert "4207.433735  1.23457e-09" in show(structuredContent=rows)["text/plain"]
    html = show(structuredContent=[{"a": 2.0}, {"a": 3.0}])["text/html"]
    assert ">2.0</td>" in html and ">3.0</td>" in html, "whole fractions keep one decimal"


def test_larger_data_is_json_with_an_indent() -> None:
    plain = show(structuredContent={"a": ["x" * 80]})["text/plain"]
    assert plain == f'ToolResult fs.read:\n{{\n  "a": [\n    "{"x" * 80}"\n  ]\n}}'


def test_big_data_shows_its_head_and_says_how_much_there_is() -> None:
    shown = show(structuredContent=list(range(100_000)))
    assert "application/json" not in shown
    assert shown["text/plain"].endswith("\n… 100,000 items in all")
    assert shown["text/plain"].count("\n") == 201


def test_data_that_is_not_strict_json_is_left_to_the_text() -> None:
    result = ToolResult(b'{"structuredContent":[NaN]}', server="fs", tool="read")
    assert bundle(result, result._head) == {"text/plain": "ToolResult fs.read: [NaN]"}


def test_records_are_an_escaped_table() -> None:
    shown = show(structuredContent={"rows": [{"a": "<b>", "c": None}, {"a": True, "d": {"x": 1}}], "total": 9})
    html = shown["text/html"]
    assert set(shown) == {"text/html", "text/plain"}
    assert "&lt;b&gt;" in html and "<b>" not in html
    assert ">true<" in html and ">{&quot;x&quot;: 1}<" in html
    assert [html.count(f">{name}</th>") for name in "acd"] == [1, 1, 1]
    assert "<div>total: 9</div>" in html


def test_records_are_an_aligned_table_in_plain_text() -> None:
    rows = [{"name": "Ada\nL", "born": 1815}, {"name": "Charles", "born": None, "likes": ["tea"]}]
    assert show(structuredContent={"rows": rows, "total": 9})["text/plain"] == (
        'ToolResult fs.read:\nname     born  likes\nAda L    1815\nCharles        ["tea"]\ntotal: 9'
    )


@pytest.mark.parametrize(
    ("beside", "below"), [({"count": 2}, ""), ({"totalCount": 40}, "\ntotalCount: 40"), ({"page": 2}, "\npage: 2")]
)
def test_a_member_that_only_repeats_the_number_of_rows_is_not_shown_below_the_table(
    beside: dict[str, int], below: str
) -> None:
    rows = [{"a": 1}, {"a": 2}]
    shown = show(structuredContent={"rows": rows, **beside})["text/plain"]
    assert shown == f"ToolResult fs.read:\na\n1\n2{below}"


def test_a_table_shows_twenty_rows_and_columns_and_counts_the_rest() -> None:
    rows = [{f"c{place}": place for place in range(30)}] * 1_020
    html = show(structuredContent=rows)["text/html"]
    assert (html.count("<tr>"), html.count("<th ")) == (21, 21)
    assert "… 10 more columns" in html and "<div>… 1,000 more rows · all in .df</div>" in html
    assert "… 1,000 more rows · all in .df\n" in show(structuredContent=rows)["text/plain"]


def test_one_image_is_an_image() -> None:
    assert show(image(PNG)) == {"image/png": PNG, "text/plain": "ToolResult fs.read: [image: image/png, 28 bytes]"}
    assert set(show(image(SVG, "image/svg+xml"))) == {"text/html", "text/plain"}
    embedded = {"type": "resource", "resource": {"uri": "a:b", "mimeType": "image/png", "blob": PNG}}
    assert show(embedded)["image/png"] == PNG


def test_the_first_image_beside_other_parts_is_in_the_bundle_itself() -> None:
    jpeg = base64.b64encode(b"\xff\xd8\xff").decode()
    captioned = show(text("Body mass"), image(SVG, "image/svg+xml"), image(PNG), image(jpeg, "image/jpeg"))
    assert list(captioned) == ["text/html", "image/png", "text/plain"]
    assert captioned["image/png"] == PNG and "Body mass" in captioned["text/html"]
    assert show(image(jpeg), text("a"))["image/jpeg"] == jpeg
    half = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(4_000_000)).decode()
    assert set(show(text("a"), image(half))) == {"text/html", "text/plain"}


def test_rows_as_python_literals_are_shown_as_the_table_that_df_reads() -> None:
    shown = show(text("[{'name': 'Ada', 'age': 36}, {'name': 'Bob', 'age': None}]"))["text/html"]
    assert re.findall(r"<th[^>]*>(\w+)</th>", shown)[:2] == ["name", "age"]
    assert "{" not in re.sub(r"<style>.*?</style>", "", shown) and "Bob" in shown


def test_the_rest_of_a_long_text_is_folded() -> None:
    words, lines = show(text("word " * 4_000))["text/html"], show(text("x\n" * 100))["text/html"]
    assert words.count("<details>") == lines.count("<details>") == 1
    head, _, rest = words.partition("<details>")
    assert head.endswith("word </pre>") and len(head) < 4_200
    assert rest.startswith("<summary>16,000 more characters</summary>") and rest.count("word ") == 3_200
    assert lines.partition("<details>")[0].count("x\n") == 39
    assert lines.partition("<details>")[2].startswith(f"<summary>121 more characters</summary>{PRE}x\n")
    assert "<details>" not in show(text("x\n" * 45))["text/html"]


@pytest.mark.parametrize("schema", [b'{"properties":{"result":{}}}', b'{"x-fastmcp-wrap-result":true}'])
def test_a_value_that_is_only_wrapped_is_shown_without_the_wrapping(schema: bytes) -> None:
    assert show(structuredContent={"result": None}, schema=schema) == {"text/plain": "ToolResult fs.read: (empty)"}
    assert show(structuredContent={"result": 5}, schema=schema)["text/plain"] == "ToolResult fs.read: 5"
    assert show(text("")) == {"text/plain": "ToolResult fs.read: (empty)"}


def test_several_parts_are_one_html() -> None:
    html = show(
        text("<b>"),
        image(PNG),
        image(base64.b64encode(b"<script>").decode()),
        image("!!"),
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "a:<i>", "mimeType": "text/html", "text": "<script>"}},
        {"type": "resource", "resource": {"uri": "a:c", "blob": "AAAA"}},
        {"type": "new"},
    )["text/html"]
    assert html == (
        f'<div class="tex2jax_ignore mathjax_ignore">{PRE}&lt;b&gt;</pre>'
        f'<img src="data:image/png;base64,{PNG}" style="max-width:100%">'
        f"{PRE}[image: image/png, 8 bytes]</pre>{PRE}[image: image/png, 1 bytes]</pre>"
        '<audio controls src="data:audio/wav;base64,AAAA"></audio>'
        f"<div>a:&lt;i&gt;</div>{PRE}&lt;script&gt;</pre><div>a:c</div>"
        f"{PRE}[blob: a:c, 3 bytes]</pre>{PRE}[new]</pre></div>"
    )


def test_links_are_clickable_only_on_the_web() -> None:
    html = show(
        {"type": "resource_link", "uri": 'https://e.example/"x', "name": "<web>", "mimeType": "text/html"},
        {"type": "resource_link", "uri": "javascript:alert(1)", "name": "js"},
        {"type": "resource_link", "uri": "file:///etc/passwd"},
    )["text/html"]
    assert html == (
        '<div class="tex2jax_ignore mathjax_ignore">'
        '<div><a href="https://e.example/%22x" target="_blank" rel="noopener noreferrer">&lt;web&gt;</a>'
        " · text/html</div>"
        "<div>js (javascript:alert(1))</div><div>file:///etc/passwd</div></div>"
    )


def test_media_over_the_bound_are_named_instead() -> None:
    big = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(6_000_000)).decode()
    html = show(image(big), image(big), image(PNG))["text/html"]
    assert html.count("<img ") == 2
    assert "[image: image/png, 6,000,008 bytes]" in html
    assert "image/png" not in show(image(big + big[:4] * 2_000_000))


def test_an_error_has_a_red_border_and_says_so_in_plain_text() -> None:
    shown = show(text("# <b>no"), isError=True)
    assert shown["text/plain"] == "ToolResult fs.read (error): # <b>no"
    assert "border:1px solid #d32f2f" in shown["text/html"] and "# &lt;b&gt;no</pre>" in shown["text/html"]
    assert set(shown) == {"text/plain", "text/html"}


def test_warnings_are_shown() -> None:
    shown = show(structuredContent=[{"a": 1}], schema=b'{"type":"object"}')
    warning = "the structured content does not match the output schema: "
    assert f"\nwarning: {warning}" in shown["text/plain"] and f"<div>⚠ {warning}" in shown["text/html"]


def test_a_repr_is_a_few_lines() -> None:
    result = ToolResult(json.dumps({"content": [text("line\n" * 500)]}).encode(), server="fs", tool="read")
    assert repr(result) == "ToolResult fs.read:\n" + "line\n" * 10 + "… 2,451 more characters · all in .text"
