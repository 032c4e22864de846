"""Lines in messages that a user is to type: each can be typed as it stands."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import ipymcp
from ipymcp.config.definition import ServerDefinition
from ipymcp.errors import AuthError, ConnectionLost
from ipymcp.notebook.magics.dispatch import MODULES
from ipymcp.runtime.failures import explain

OTHER_WORDS = ("lists", "shows", "line", "can", "needs", "are", "status", "works")
"""Words that follow `%mcp` in sentences about it."""
PACKAGE = Path(ipymcp.__file__).parent
WORD = re.compile(r"%mcp ([a-z]+)(?: ([^\s`.,;:]+))?")
FILLED = re.compile(r"%mcp(?: [a-z]+)+(?: [^\s,;·]+)* $")
"""A line to type, up to a word that is filled in."""
NOT_QUOTED = {
    "ask.py": {"options", "question"},  # as the user typed them
    "calls.py": {"shown", "path.raw"},  # a number, and the word as it was typed
    "call.py": {"self.number"},
    "dispatch.py": {"word.raw", "text.strip()"},  # as they were typed
    "pasted.py": {"rest"},  # a command line as it was given
    "load_request.py": {"name", "text", "program", "scheme"},  # a command line as it was given, and words of our own
    "config.py": {"names[0]", "'it' if one else 'them'"},
    "servers.py": {"alone"},
    "security.py": {"name"},  # as it was typed
    "config_edits.py": {"where"},
}
"""Expressions that need no quotes, by file: constant words, numbers, and text as the user typed it."""
NEED_NAMES = ("start", "restart", "enable", "disable", "unload", "read", "prompt", "subscribe")


@functools.cache
def modules() -> list[tuple[Path, ast.Module]]:
    """The modules of the package that mention `%mcp`."""
    sources = {file: file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py")}
    return [(file, ast.parse(source)) for file, source in sources.items() if "%mcp" in source]


def texts() -> Iterator[tuple[str, str]]:
    """Yield every line of text in these modules, with a mark where a value is filled in."""
    for file, tree in modules():
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


def is_line(node: ast.AST) -> TypeGuard[ast.JoinedStr]:
    """Whether a node is a text with `%mcp` and values."""
    return isinstance(node, ast.JoinedStr) and any(
        isinstance(part, ast.Constant) and "%mcp" in str(part.value) for part in node.values
    )


def filled(tree: ast.Module) -> Iterator[tuple[int, str, str, bool]]:
    """Yield every value that a function fills into a line: line number, text before it, expression, if it is quoted."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = [node for node in ast.walk(function) if is_line(node)]
        if not lines:
            continue
        quoted = {
            name.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and "quoted" in ast.unparse(node.value)
            for target in node.targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        for line in lines:
            before = ""
            for part in line.values:
                if isinstance(part, ast.FormattedValue):
                    value = ast.unparse(part.value)
                    yield line.lineno, before, value, "quoted(" in value or value in quoted
                before += str(part.value) if isinstance(part, ast.Constant) else "<FILLED>"


def test_every_name_filled_into_a_line_to_type_is_quoted() -> None:
    count = 0
    for file, tree in modules():
        for number, before, value, is_quoted in filled(tree):
            if FILLED.search(before):
                count += is_quoted
                assert is_quoted or value in NOT_QUOTED.get(file.name, ()), (file, number, before, value)
    assert count > 40


def test_a_hint_quotes_the_name_of_the_server() -> None:
    definition = ServerDefinition(name="my server", command="x")
    lost = explain(ConnectionLost("died"), definition, (), 1)
    assert lost.hint == "%mcp logs 'my server' · %mcp restart 'my server'"
    login = explain(AuthError("refused", hint="%mcp start NAME asks again"), definition, (), None)
    assert login.hint == "%mcp start 'my server' asks again"
