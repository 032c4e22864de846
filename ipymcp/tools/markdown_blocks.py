"""Markdown told from plain text, and cut into code blocks and the prose between them.

The cut is made once, here, and written back in a form that every parser cuts in the same place: what this module takes
for code is the only thing a renderer can take for code.

Source: CommonMark 0.31, 4.4 (indented code blocks) and 4.5 (fenced code blocks).
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass

__all__ = ["Code", "is_clearly_markdown", "split_blocks"]

_FENCE = re.compile(r"(?P<prefix>[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]*)*)(?P<run>`{3,}|~{3,})(?P<info>[^`]*)$")
_QUOTE = re.compile(r"[ \t]*(?:>[ \t]?)+")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_INDENTED = re.compile(r"(?: {4}| {0,3}\t)")
# Signs that plain text, logs and source code do not have: a second-level heading or a first line that is a heading, a
# table, a link to an address or a path, and (by `_FENCE_LINE`) a code fence that is closed.
_STRONG_SIGN = re.compile(
    r"\A\s*# \S.*(?:\n(?!#)|\Z)|^#{2,6} \S"
    r"|^\|.*\|[ \t]*\n\|[ \t]*:?-|(?<![\w\]])\[[^\[\]\n]{1,300}\]\((?:https?://|mailto:|#|\.{0,2}/)[^)\s]*\)",
    re.MULTILINE,
)
_FENCE_LINE = re.compile(r"^ {0,3}(?:```|~~~)[^`\n]*$", re.MULTILINE)
_WEAK_SIGN = re.compile(
    r"(?<![\w*])\*\*(?=[\w\"'(\[`$])[^*\n]*[^\s*]\*\*(?![\w*])|(?<![`\w])`[^`\n]+`(?![`\w])|\$\$[^$]+\$\$"
)
_STANDS_ALONE = re.compile(r"[ \t]*(?:#{1,6} |[-*+] |\d{1,9}[.)] |>|\||(?:[-*_][ \t]*){3,}$|={3,}[ \t]*$)")
_HARD_BREAK = re.compile(r"  $|\\$|^#{1,6} |^[ \t]*\|")
_WRAPPED_LINE = 60
"""Characters that a line of wrapped prose has at least."""
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,30}")
# JupyterLab draws these, and a diagram may name remote images.
_DRAWN = {"mermaid"}


@dataclass(frozen=True)
class Code:
    """A block of code, without its fences and its indentation."""

    language: str
    lines: tuple[str, ...]

    def fenced(self) -> str:
        """The block as a fence at column 0 that nothing inside can close."""
        longest = max((len(run) for line in self.lines for run in re.findall("`+", line)), default=0)
        fence = "`" * max(3, longest + 1)
        language = self.language if _LANGUAGE.fullmatch(self.language) else ""
        if language.lower() in _DRAWN:
            language = ""
        return "\n".join([fence + language, *self.lines, fence])


def is_clearly_markdown(text: str) -> bool:
    """Whether a text must be Markdown, and drawing it as that joins no lines that were meant to stay apart."""
    if _STRONG_SIGN.search(text) or len(_FENCE_LINE.findall(text)) > 1:
        return not _joins_lines(text, wrapped=_WRAPPED_LINE)
    return _WEAK_SIGN.search(text) is not None and not _joins_lines(text)


def _joins_lines(text: str, *, wrapped: float = math.inf) -> bool:
    """Whether a line break would be lost, other than one that wraps prose after so many characters."""
    for block in split_blocks(text):
        lines = [] if isinstance(block, Code) else block.split("\n")
        for line, following in itertools.pairwise(lines):
            if not line.strip() or not following.strip():
                continue
            if _STANDS_ALONE.match(following) or _HARD_BREAK.search(line):
                continue
            if len(line) < wrapped:
                return True
    return False


def split_blocks(source: str) -> list[str | Code]:
    """The blocks of a document in order: prose as text, code as `Code`. Lines end with a newline alone."""
    blocks: list[str | Code] = []
    prose: list[str] = []
    lines = source.split("\n")
    position, in_list = 0, False
    while position < len(lines):
        line = lines[position]
        code: Code | None = None
        if opening := _FENCE.match(line):
            code, position = _read_fence(lines, position + 1, opening)
        elif _INDENTED.match(line) and line.strip() and not in_list and not (prose and prose[-1].strip()):
            code, position = _read_indented(lines, position)
        if code is not None:
            _end_prose(prose, blocks)
            blocks.append(code)
            continue
        in_list = bool(_LIST_ITEM.match(line)) or (in_list and _stays_in_list(line, prose))
        prose.append(line)
        position += 1
    _end_prose(prose, blocks)
    return blocks


def _end_prose(prose: list[str], blocks: list[str | Code]) -> None:
    paragraph = "\n".join(prose).strip("\n")
    if paragraph.strip():
        blocks.append(paragraph)
    prose.clear()


def _stays_in_list(line: str, before: list[str]) -> bool:
    """Whether the line after a list item belongs to it: indented, blank, or lazily continuing a paragraph."""
    return not line.strip() or line[0] in " \t" or bool(before and before[-1].strip())


def _read_fence(lines: list[str], position: int, opening: re.Match[str]) -> tuple[Code, int]:
    """The code up to the closing fence, or to the end of the document or quotation, and the position after it."""
    quoted, run = ">" in opening["prefix"], opening["run"]
    indentation = len(opening["prefix"].expandtabs(4))
    code: list[str] = []
    while position < len(lines):
        line = lines[position]
        if quoted:
            marker = _QUOTE.match(line)
            if marker is None:
                break
            line = line[marker.end() :]
        position += 1
        stripped = line.strip()
        if len(stripped) >= len(run) and not stripped.strip(run[0]):
            break
        code.append(line if quoted else _dedent(line, indentation))
    words = opening["info"].split()
    return Code(words[0] if words else "", tuple(code)), position


def _dedent(line: str, columns: int) -> str:
    """The line without up to that many leading blanks."""
    blanks = len(line) - len(line.lstrip(" \t"))
    return line[min(columns, blanks) :]


def _read_indented(lines: list[str], position: int) -> tuple[Code, int]:
    """The indented code that begins here, and the position after it."""
    code: list[str] = []
    while position < len(lines) and (not lines[position].strip() or _INDENTED.match(lines[position])):
        line = lines[position]
        indentation = _INDENTED.match(line)
        code.append(line[indentation.end() :] if indentation else "")
        position += 1
    while not code[-1].strip():
        code.pop()
    return Code("", tuple(code)), position
