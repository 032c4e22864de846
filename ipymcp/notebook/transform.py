"""Input transformer that protects `%mcp` lines from IPython's help syntax.

IPython treats any line that ends in `?` as a request for help about its last word, before it looks for magics:
`%mcp tools fs.*?` would print nothing and `%mcp call s.t q=what?` would describe `what`. With this transformer the
magic receives every `%mcp …` and `x = %mcp …` line unchanged. `%mcp?` without a blank after the name is left to
IPython. `%%mcp …?` needs no transformation, because IPython removes cell magics before it looks for help.

A line that ends in `;` shows no result. The call then also ends in `;`, where IPython looks for it.

IPython only displays the value of a cell's last line. A line in the middle of a cell, or in a block, becomes a call of
the magic `mcp_shown`, which displays the value itself and returns None.
"""

from __future__ import annotations

import tokenize
from typing import TYPE_CHECKING, Any, cast

from IPython.core.inputtransformer2 import (
    TokenTransformBase,
    assemble_continued_line,  # pyright: ignore[reportUnknownVariableType]
    find_end_of_continued_line,  # pyright: ignore[reportUnknownVariableType]
)

from ipymcp.notebook.line_syntax import is_silent

if TYPE_CHECKING:
    from collections.abc import Sequence
    from tokenize import TokenInfo

    from IPython.core.interactiveshell import InteractiveShell


_INDENTS = (tokenize.INDENT, tokenize.DEDENT)


class McpLine(TokenTransformBase):
    """Replaces a `%mcp …` or `name = %mcp …` line by its call, as IPython's own transformers would without the `?`."""

    priority = 4  # before IPython's help, whose priority is 5

    def __init__(self, start: tuple[int, int], percent: tuple[int, int]) -> None:
        super().__init__(start)
        self.first_line = start[0] - 1
        self.percent_col = percent[1]

    @classmethod
    def find(cls, tokens_by_line: Sequence[Sequence[TokenInfo]]) -> McpLine | None:
        """The first `%mcp` line of the cell, if any."""
        for line in tokens_by_line:
            tokens = [token for token in line if token.type not in _INDENTS]
            at = _percent(tokens)
            # An assignment target of several lines is left to IPython's own transformers.
            if at is not None and tokens[0].start[0] == tokens[at].start[0]:
                return cls(tokens[0].start, tokens[at].start)
        return None

    def transform(self, lines: list[str]) -> list[str]:
        """The lines of the cell with the `%mcp` line replaced."""
        first, column = self.first_line, self.percent_col
        last = find_end_of_continued_line(lines, first)
        line = assemble_continued_line(lines, (first, column), last)
        arguments = line[len("%mcp") :].lstrip(" \t")
        end = ";\n" if is_silent(arguments) else "\n"
        is_assigned = bool(lines[first][:column].strip())
        is_last = not column and not any(_is_code(line) for line in lines[last + 1 :])
        word = "mcp" if is_assigned or is_last or end != "\n" else "mcp_shown"
        call = f"{lines[first][:column]}get_ipython().run_line_magic({word!r}, {arguments!r}){end}"
        return [*lines[:first], call, *lines[last + 1 :]]


def _is_code(line: str) -> bool:
    text = line.strip()
    return bool(text) and not text.startswith("#")


def install(ip: InteractiveShell) -> None:
    """Add the transformer to a shell, in place of that of an earlier load."""
    remove(ip)
    _transformers(ip).append(McpLine)


def remove(ip: InteractiveShell) -> None:
    """Remove the transformer from a shell."""
    transformers = _transformers(ip)
    # Compared by name, because after %reload_ext the installed class is not this module's class object.
    transformers[:] = [kind for kind in transformers if (kind.__module__, kind.__qualname__) != _NAME]


_NAME = (McpLine.__module__, McpLine.__qualname__)


def _transformers(ip: InteractiveShell) -> list[type[Any]]:
    return cast("list[type[Any]]", ip.input_transformer_manager.token_transformers)


def _percent(tokens: Sequence[TokenInfo]) -> int | None:
    """The index of the token `%` of `%mcp `: the first token, or the one after the first `=` outside brackets."""
    at = 0
    if tokens and tokens[0].string != "%":
        at = _after_assignment(tokens)
    if at is None or at + 2 >= len(tokens):
        return None
    percent, name, following = tokens[at : at + 3]
    is_ours = percent.string == "%" and name.string == "mcp" and name.start == percent.end
    is_word = following.start != name.end or following.type in (tokenize.NEWLINE, tokenize.NL)
    return at if is_ours and is_word else None


def _after_assignment(tokens: Sequence[TokenInfo]) -> int | None:
    depth = 0
    for index, token in enumerate(tokens):
        if token.string == "=" and depth == 0:
            return index + 1
        if token.string in {"(", "[", "{"}:
            depth += 1
        elif token.string in {")", "]", "}"}:
            depth -= 1
    return None
