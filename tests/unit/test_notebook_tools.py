"""The notebook's cells as models read and change them."""

import pytest

from ipymcp.llm.notebook_tools import difference


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"])
def test_a_line_break_in_place_of_another_separator_is_a_change(separator: str) -> None:
    before, after = f"x = 1  # keep:{separator}print(x)", "x = 1  # keep:\nprint(x)"
    assert difference(before, after).split("\n")[3:] == [f"-{before}", "+x = 1  # keep:", "+print(x)"]


def test_equal_sources_have_no_change() -> None:
    assert difference("x", "x") == "no change"
    assert difference("x", "x\n") == "--- before\n+++ after\n@@ -1 +1,2 @@\n x\n+"
