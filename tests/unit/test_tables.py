"""Listings."""

import pytest

from ipymcp.results.tables import Table

SERVERS = Table(
    ["server", "state", "tools"], [["fs", "ready", 14], ["git", "error", None]], title="Servers", note="2 in all"
)


def test_a_listing_is_aligned_text_in_a_terminal() -> None:
    assert repr(SERVERS) == "Servers\nserver  state  tools\nfs      ready     14\ngit     error\n2 in all"


def test_a_listing_is_a_table_in_a_notebook() -> None:
    left = 'style="text-align:left;vertical-align:top"'
    right = 'style="text-align:right;vertical-align:top"'
    at_left = 'style="margin-left:0"'
    no_math = 'class="tex2jax_ignore mathjax_ignore"'
    assert SERVERS.html == (
        f"<div {no_math}><div><b>Servers</b></div><table {no_math} {at_left}><thead><tr>"
        f"<th {left}>server</th><th {left}>state</th>"
        f"<th {right}>tools</th></tr></thead><tbody><tr><td {left}>fs</td><td {left}>ready</td><td {right}>14</td></tr>"
        f"<tr><td {left}>git</td><td {left}>error</td><td {right}></td></tr></tbody></table><div>2 in all</div></div>"
    )
    assert SERVERS._repr_mimebundle_() == {"text/plain": repr(SERVERS), "text/html": SERVERS.html}


def test_cells_names_title_and_note_are_escaped() -> None:
    html = Table(["<b>"], [["<script>\u202e"]], title="<i>", note="<u>").html
    assert not any(tag in html for tag in ("<b></th>", "<script", "<i>", "<u>"))
    assert "&lt;script&gt;⟨U+202E⟩" in html


def test_a_browser_breaks_no_date_and_no_short_name() -> None:
    html = Table(["protocol", "name", "about"], [["2026-07-28", "my-server", "many words - " * 10]]).html
    style = "text-align:left;vertical-align:top"
    for cell in ("2026-07-28", "my-server"):
        assert f'<td style="{style};white-space:nowrap">{cell}</td>' in html
    assert f'<td style="{style}">many words' in html


def test_rows_are_dicts_and_there_is_a_frame() -> None:
    assert list(SERVERS) == [
        {"server": "fs", "state": "ready", "tools": 14},
        {"server": "git", "state": "error", "tools": None},
    ]
    assert len(SERVERS) == 2
    assert SERVERS.df["server"].tolist() == ["fs", "git"]
    assert list(Table(["a"], []).df.columns) == ["a"]


def test_an_empty_listing_is_true_and_shows_its_columns() -> None:
    empty = Table(["server"], [])
    assert empty
    assert repr(empty) == "server"


def test_long_cells_are_cut_so_that_a_row_fits_a_terminal() -> None:
    lines = repr(Table(["name", "description"], [["a", "word " * 100], ["b", "日本" * 100]])).split("\n")
    assert [len(line) for line in lines[:2]] == [17, 100]
    assert lines[1].endswith("…")
    assert "\n" not in lines[2] and len(lines[2]) < 60


def test_a_cell_is_one_line_and_bounded() -> None:
    html = Table(["a"], [["x\n  y"], ["z" * 10_000]]).html
    assert ">x y<" in html
    assert len(html) < 2_000


def test_a_listing_of_thousands_shows_the_first_and_says_how_many_more() -> None:
    many = Table(["n"], [[n] for n in range(1_250)])
    assert "<div>… 1,050 more rows</div>" in many.html
    assert repr(many).endswith("\n199\n… 1,050 more rows")
    assert len(many) == 1_250


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="every row needs 2 cells"):
        Table(["a", "b"], [["1"]])
