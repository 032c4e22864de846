"""Lines in messages that a user is to type: each can be typed as it stands."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ipymcp
from ipymcp.config.definition import ServerDefinition
from ipymcp.errors import AuthError, ConnectionLost
from ipymcp.notebook.magics.dispatch import MODULES
from ipymcp.runtime.failures import explain

OTHER_WORDS = ("lists", "shows", "line", "can", "needs", "are", "status")
"""Words that follow `%mcp` in sentences about it."""
PACKAGE = Path(ipymcp.__file__).parent
WORD = re.compile(r"%mcp ([a-z]+)(?: ([^\s`.,;:]+))?")
FILLED = re.compile(r"%mcp(?: [a-z]+)+(?: [^\s,;·]+)* $")
"""A line to type, up to a word that is filled in."""
NOT_QUOTED = {
    "calls.py": {"shown", "path.raw"},  # a number, and the word as it was typed
    "call.py": {"self.number"},
    "dispatch.py": {"word.raw", "text.strip()"},  # as they were typed
    "load_request.py": {"name", "text", "program", "scheme"},  # a command line as it was given, and words of our own
    "config.py": {"names[0]", "'it' if one else 'them'"},
    "servers.py": {"alone"},
    "config_edits.py": {"where"},
}
"""Expressions that need no quotes, by file: constant words, numbers, and text as the user typed it."""
NEED_NAMES = ("start", "restart", "enable", "disable", "unload", "read", "prompt", "subscribe")


def texts() -> Iterator[tuple[str, str]]:
    """Yield every line of text in the package's code, with a mark where a value is filled in."""
    for file in PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text())
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else "<FILLED>" for part in node.values)
                text = "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside | documents:
                text = node.value
            else:
                continue
            if "\n" not in text.strip():  # those with several are help
                yield f"{file.relative_to(PACKAGE)}:{node.lineno}", text


def test_every_line_in_a_message_has_a_known_subcommand_and_the_names_it_needs() -> None:
    count = 0
    for where, text in texts():
        for word, following in WORD.findall(text):
            if word not in MODULES:
                assert word in OTHER_WORDS, (where, text)
                continue
            count += 1
            if word in NEED_NAMES:
                assert following.startswith(("<", "--", "…")) or following.isupper(), (where, text)
    assert count > 40


def filled(file: Path) -> Iterator[tuple[str, str, str, bool]]:
    """Yield every value that a function fills into a text: place, text before it, expression, whether it is quoted."""
    tree = ast.parse(file.read_text())
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        quoted = {
            name.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and "quoted" in ast.unparse(node.value)
            for target in node.targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        for node in ast.walk(function):
            if not isinstance(node, ast.JoinedStr):
                continue
            before = ""
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    value = ast.unparse(part.value)
                    yield f"{file.name}:{node.lineno}", before, value, "quoted(" in value or value in quoted
                before += str(part.value) if isinstance(part, ast.Constant) else "<FILLED>"


def test_every_name_filled_into_a_line_to_type_is_quoted() -> None:
    count = 0
    for file in PACKAGE.rglob("*.py"):
        for where, before, value, is_quoted in filled(file):
            if FILLED.search(before):
                count += is_quoted
                assert is_quoted or value in NOT_QUOTED.get(file.name, ()), (where, before, value)
    assert count > 40


def test_a_hint_quotes_the_name_of_the_server() -> None:
    definition = ServerDefinition(name="my server", command="x")
    lost = explain(ConnectionLost("died"), definition, (), 1)
    assert lost.hint == "%mcp logs 'my server' · %mcp restart 'my server'"
    login = explain(AuthError("refused", hint="%mcp start NAME asks again"), definition, (), None)
    assert login.hint == "%mcp start 'my server' asks again"
