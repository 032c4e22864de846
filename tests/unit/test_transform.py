"""The transformer that lets `%mcp …?` reach the magic, in a real IPython."""

import re
from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell

from ipymcp.notebook import transform


class Recorder:
    """The `%mcp` of these tests: keeps what reached it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []

    def __call__(self, line: str, cell: str | None = None) -> str:
        self.seen.append((line, cell))
        return f"<{line}>"


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell()
    transform.install(shell)
    yield shell
    shell.history_manager.end_session()


@pytest.fixture
def seen(shell: InteractiveShell) -> list[tuple[str, str | None]]:
    recorder = Recorder()
    shell.register_magic_function(recorder, "line_cell", "mcp")
    shell.register_magic_function(recorder, "line", "mcp_shown")
    return recorder.seen


@pytest.mark.parametrize(
    ("cell", "lines"),
    [
        ("%mcp tools fs.*?", ["tools fs.*?"]),
        ("%mcp call s.t q=what?", ["call s.t q=what?"]),
        ("%mcp load?", ["load?"]),
        ("%mcp load??", ["load??"]),
        ("x = %mcp call s.t q=what?", ["call s.t q=what?"]),
        ("x: str = %mcp call s.t q=what?", ["call s.t q=what?"]),
        ("d = {}\nd['a=b'] = %mcp tools a?", ["tools a?"]),
        ("%mcp  tools a? ; ", ["tools a? ;"]),
        ("%mcp call s.t q=it's (a {b?", ["call s.t q=it's (a {b?"]),
        ('%mcp call s.t q="""?', ['call s.t q="""?']),
        ("%mcp call s.t q=0x?", ["call s.t q=0x?"]),
        ("%mcp call s.t \\\n  a=1 \\\n  b=2?", ["call s.t    a=1    b=2?"]),
        ("y = 1\n%mcp tools a?\n\nx = %mcp tools b?\n%mcp tools c", ["tools a?", "tools b?", "tools c"]),
        ("for i in range(2):\n    %mcp tools a?\n    x = %mcp tools b?\n", ["tools a?", "tools b?"] * 2),
        ("def f():\n  if True:\n    r = %mcp tools a?\n    return r\nassert f() == '<tools a?>'", ["tools a?"]),
        ("    %mcp tools a?", ["tools a?"]),
        (">>> %mcp tools a?", ["tools a?"]),
        ("%mcp tools a  # why?", ["tools a  # why?"]),
    ],
)
def test_a_trailing_question_mark_reaches_the_magic(
    shell: InteractiveShell, seen: list[tuple[str, str | None]], cell: str, lines: list[str]
) -> None:
    shell.run_cell(cell).raise_error()
    assert seen == [(line, None) for line in lines]


@pytest.mark.parametrize("first", ["call s.t?", "call s.t q=what?"])
def test_a_cell_magics_first_line_keeps_its_question_mark(
    shell: InteractiveShell, seen: list[tuple[str, str | None]], first: str
) -> None:
    shell.run_cell(f"%%mcp {first}\n{{}}\n").raise_error()
    assert seen == [(first, "{}\n")]


def test_the_value_of_an_assigned_line_is_what_the_magic_returned(
    shell: InteractiveShell, seen: list[tuple[str, str | None]]
) -> None:
    shell.run_cell("x = %mcp call s.t q=what?").raise_error()
    assert shell.user_ns["x"] == "<call s.t q=what?>"
    assert len(seen) == 1


@pytest.mark.parametrize(
    "cell",
    [
        "%mcp?",
        "%mcp",
        "x = %mcp",
        "print?",
        "%time?",
        "%mcpx tools a?",
        "% mcp tools?",
        "a %mcp",
        "s = '''\n%mcp tools a?\n'''\n",
        "f(x=%mcp)",
        "x = 5 %mcp (1)",
        "x = (1,\n %mcp (2))",
        "!ls a?",
        "mcp tools?",
        "",
    ],
)
def test_other_cells_are_transformed_as_by_ipython(shell: InteractiveShell, cell: str) -> None:
    with_ours = shell.transform_cell(cell)
    transform.remove(shell)
    assert shell.transform_cell(cell) == with_ours


@pytest.mark.parametrize("cell", ["%mcp tools a", "x = %mcp tools a b=[1, 2]", "if 1:\n\tx = %mcp tools a\n"])
def test_a_line_without_a_question_mark_is_transformed_as_by_ipython(shell: InteractiveShell, cell: str) -> None:
    with_ours = shell.transform_cell(cell)
    transform.remove(shell)
    assert shell.transform_cell(cell) == with_ours


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("%mcp call a.b ;", "get_ipython().run_line_magic('mcp', 'call a.b ;');\n"),
        ("x = %mcp call a.b; # why", "x = get_ipython().run_line_magic('mcp', 'call a.b; # why');\n"),
        ("%mcp call a.b c='x;'", "get_ipython().run_line_magic('mcp', \"call a.b c='x;'\")\n"),
        ("%mcp call a.b c='x;", "get_ipython().run_line_magic('mcp', \"call a.b c='x;\")\n"),
    ],
)
def test_a_silent_line_becomes_a_silent_statement(shell: InteractiveShell, line: str, made: str) -> None:
    assert shell.transform_cell(line) == made


@pytest.mark.parametrize(
    ("cell", "magics"),
    [
        ("%mcp", ["mcp"]),
        ("%mcp\n\n# the end\n", ["mcp"]),
        ("%mcp\n%mcp tools\n", ["mcp_shown", "mcp"]),
        ("%mcp tools\nx = 1", ["mcp_shown"]),
        ("if 1:\n    %mcp\n", ["mcp_shown"]),
        ("for i in range(2):\n    %mcp tools;\n", ["mcp"]),
        ("x = %mcp tools\nx", ["mcp"]),
        ("%mcp tools \\\n  a\n1", ["mcp_shown"]),
    ],
)
def test_a_line_shows_its_value_where_ipython_would_not(shell: InteractiveShell, cell: str, magics: list[str]) -> None:
    assert re.findall(r"run_line_magic\('(\w+)'", shell.transform_cell(cell)) == magics


def test_ipython_alone_would_take_the_question_mark(shell: InteractiveShell) -> None:
    transform.remove(shell)
    assert shell.transform_cell("%mcp call s.t q=what?\n") == "get_ipython().run_line_magic('pinfo', 'what')\n"


def test_installing_twice_installs_once_and_removing_leaves_nothing(shell: InteractiveShell) -> None:
    transformers = shell.input_transformer_manager.token_transformers
    transform.install(shell)
    reloaded = type("McpLine", (transform.McpLine,), {"__module__": transform.__name__, "__qualname__": "McpLine"})
    transformers.append(reloaded)
    transform.install(shell)
    assert transformers.count(transform.McpLine) == 1
    assert reloaded not in transformers
    transform.remove(shell)
    transform.remove(shell)
    assert [kind.__name__ for kind in transformers] == ["MagicAssign", "SystemAssign", "EscapedCommand", "HelpEnd"]


def test_a_terminal_sees_a_question_as_a_complete_line(shell: InteractiveShell) -> None:
    assert shell.check_complete("%mcp tools fs.*?")[0] == "complete"
