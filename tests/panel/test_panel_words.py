"""The words for states in the page are those of the kernel."""

import re
from pathlib import Path

from ipymcp.runtime.server_status import State

PARTS = Path(__file__).parents[2] / "labextension" / "src" / "views" / "parts.tsx"


def test_the_page_and_the_kernel_have_one_word_for_each_state() -> None:
    shown = re.findall(r'^  (\w+): \{ label: \(\) => trans\.__\("([^"]+)"\), tone:', PARTS.read_text(), re.MULTILINE)
    assert dict(shown) == {state.value: state.record.label for state in State}
