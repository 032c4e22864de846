"""Markdown from servers: detection, and conversion to a form that is safe in a notebook.

Code blocks are detected here, and written in a form that every parser recognizes in the same way, so that no renderer
takes other text for code.

A front end trusts the output of its cells: raw HTML in Markdown runs, a `javascript:` link runs on a click, and a
remote image leaks data. The parser is unknown (marked in JupyterLab, markdown-it in VS Code, mistune in nbconvert, with
or without math), so the output has properties that make it safe in any of them. Outside a code fence there is never

- `<` before a letter, `/`, `!` or `?`: no HTML and no autolink,
- `](` unless a percent-encoded http, https or mailto address and `)` follow: no other link,
- `![`, `]:` or a run of three backticks, `~` or `:`: no image, no definition, no fence or directive,
- and outside code neither a bare URL (parsers disagree about its end) nor `"` (JupyterLab inserts math into finished
  HTML, where a quote would end an attribute).

A code span that would violate one of these rules is written as text between visible backticks. Every fence is
rewritten: at column 0, between blank lines, longer than any run inside, its language one plain word, and always closed.

Source: CommonMark 0.31, 4.4 (indented code blocks) and 4.5 (fenced code blocks).
"""

from __future__ import annotations

import html
import itertools
import math
import re
from dataclasses import dataclass
from urllib.parse import quote

from ipymcp.text import visible

_FENCE = re.compile(r"(?P<prefix>[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]*)*)(?P<run>`{3,}|~{3,})(?P<info>[^`]*)$")
_QUOTE = re.compile(r"[ \t]*+(?:>[ \t]?)++")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_INDENTED = re.compile(r"(?: {4}| {0,3}\t)")
# Markup that does not occur in plain text, logs and source code: a second-level heading, a heading as the first line, a
# table, a link to a URL or a path, and (by `_FENCE_LINE`) a closed code fence.
_STRONG_SIGN = re.compile(
    r"\A\s*# \S.*(?:\n(?!#)|\Z)|^#{2,6} \S"
    r"|^\|.*\|[ \t]*\n\|[ \t]*:?-|(?<![\w\]])\[[^\[\]\n]{1,300}\]\((?:https?://|mailto:|#|\.{0,2}/)[^)\s]*\)",
    re.MULTILINE,
)
_FENCE_LINE = re.compile(r"^ {0,3}(?:```|~~~)[^`\n]*$", re.MULTILINE)
_WEAK_SIGN = re.compile(
    r"(?<![\w*])\*\*(?=[\w\"'(\[`$])[^*\n]*[^\s*]\*\*(?![\w*])|(?<![`\w])`[^`\n]+`(?![`\w])|\$\$[^$]+\$\$"
)
_BLOCK_START = re.compile(r"[ \t]*(?:#{1,6} |[-*+] |\d{1,9}[.)] |>|\||(?:[-*_][ \t]*){3,}+$|={3,}[ \t]*$)")
_HARD_BREAK = re.compile(r"  $|\\$|^#{1,6} |^[ \t]*\|")
_WRAPPED_LINE = 60
"""Minimum characters of a line of wrapped prose."""
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,30}")
# JupyterLab renders these as diagrams, which may refer to remote images.
_RENDERED_LANGUAGES = {"mermaid"}


@dataclass(frozen=True)
class Code:
    """A code block without its fences and indentation."""

    language: str
    lines: tuple[str, ...]

    def fenced(self) -> str:
        """The block between fences at column 0 that nothing inside can close."""
        longest = max((len(run) for line in self.lines for run in re.findall("`+", line)), default=0)
        fence = "`" * max(3, longest + 1)
        language = self.language if _LANGUAGE.fullmatch(self.language) else ""
        if language.lower() in _RENDERED_LANGUAGES:
            language = ""
        return "\n".join([fence + language, *self.lines, fence])


def is_clearly_markdown(text: str) -> bool:
    """Whether a text is certainly Markdown, and rendering it would not join lines that should stay separate."""
    if _STRONG_SIGN.search(text) or len(_FENCE_LINE.findall(text)) > 1:
        return not _joins_lines(text, wrapped=_WRAPPED_LINE)
    return _WEAK_SIGN.search(text) is not None and not _joins_lines(text)


def _joins_lines(text: str, *, wrapped: float = math.inf) -> bool:
    """Whether rendering would lose a line break, except those after lines of at least `wrapped` characters."""
    for block in split_blocks(text):
        lines = [] if isinstance(block, Code) else block.split("\n")
        for line, following in itertools.pairwise(lines):
            if not line.strip() or not following.strip():
                continue
            if _BLOCK_START.match(following) or _HARD_BREAK.search(line):
                continue
            if len(line) < wrapped:
                return True
    return False


def split_blocks(source: str) -> list[str | Code]:
    """Split a document with LF line ends into blocks: prose as strings, code as `Code`."""
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
        # A line after a list item belongs to it if it is indented, blank, or continues its paragraph.
        continues = not line.strip() or line[0] in " \t" or bool(prose and prose[-1].strip())
        in_list = bool(_LIST_ITEM.match(line)) or (in_list and continues)
        prose.append(line)
        position += 1
    _end_prose(prose, blocks)
    return blocks


def _end_prose(prose: list[str], blocks: list[str | Code]) -> None:
    paragraph = "\n".join(prose).strip("\n")
    if paragraph.strip():
        blocks.append(paragraph)
    prose.clear()


def _read_fence(lines: list[str], position: int, opening: re.Match[str]) -> tuple[Code, int]:
    """The code up to the closing fence or the end of the document or quotation, and the position after it."""
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
        blanks = len(line) - len(line.lstrip(" \t"))
        code.append(line if quoted else line[min(indentation, blanks) :])
    words = opening["info"].split()
    return Code(words[0] if words else "", tuple(code)), position


def _read_indented(lines: list[str], position: int) -> tuple[Code, int]:
    """The indented code at this position, and the position after it."""
    code: list[str] = []
    while position < len(lines) and (not lines[position].strip() or _INDENTED.match(lines[position])):
        line = lines[position]
        indentation = _INDENTED.match(line)
        code.append(line[indentation.end() :] if indentation else "")
        position += 1
    while not code[-1].strip():
        code.pop()
    return Code("", tuple(code)), position


_DANGEROUS = re.compile(r"<[A-Za-z/!?]|!\[|\]\(|\]:|`{3}|~{3}|:{3}")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 /.,\n\x80-\U0010ffff]")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_ADDRESS = re.compile(r"https?://[^\s/?#]|mailto:[^\s?]", re.IGNORECASE)
# TeX commands that link, style, load or build command names; MathJax and KaTeX each refuse only some of them.
_TEX_COMMAND = re.compile(
    r"\\\s*(?:href|url|style|class|cssId|data|require|mmlToken|csname|includegraphics|html[A-Za-z]*|unicode|special"
    r"|texttip|tooltip)"
)
_MATH_DELIMITER = re.compile(r"\$|\\[(\[]|\\begin")
_BACKSLASH = re.compile(r"\\|&(?:#0*92|#[xX]0*5[cC]|bsol);?")
_DEFINITION = re.compile(
    r"^ {0,3}\[(?!\^)(?P<name>(?:[^\[\]\\\n]|\\.){1,300})\]:[ \t]*(?:<(?P<angle>[^<>\n]*)>|(?P<bare>\S+))"
    r"(?:[ \t]+(?:\"[^\"\n]*\"|'[^'\n]*'|\([^()\n]*\)))?[ \t]*$\n?",
    re.MULTILINE,
)
_TOKEN = re.compile(
    r"""
      (?P<math>
          \$\$(?:(?!\$\$|\n[ \t]*\n)[^`]){1,2000}\$\$
        | \$(?![\s$])[^$`\n]{1,2000}(?<![\s\\])\$(?![\d$])
        | \\begin\{(?P<environment>[a-z]{1,20}\*?)\}(?:(?!\n[ \t]*\n)[^`]){1,2000}?\\end\{(?P=environment)\}
      )
    | \\(?P<escaped>[<\[\]`"!~:])
    | (?P<kept>\\.)
    | (?<!`)(?P<ticks>``?)(?!`)(?P<span>[^\n]+?)(?<!`)(?P=ticks)(?!`)
    | (?<=[-*+][ ])(?P<task>\[[ xX]\])(?=[ ])
    | (?P<image>!?)\[(?P<label>(?:[^\[\]\\]|\\.|\[(?:[^\[\]\\]|\\.)*+\](?:\([^()\s]*\))?)*+)\]
      (?:
        \(\s*+(?:<(?P<angle>[^<>\n]*)>|(?P<bare>(?:[^\s()\\<]|\\.|\((?:[^\s()\\]|\\.)*+\))*+))
          (?:\s++(?:"[^"]*"|'[^']*'|\([^()]*\)))?\s*+\)
      | \[(?P<reference>[^\[\]]{0,300})\]
      )?
    | <(?P<auto>[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*)>
    | (?P<url>https?://[^\s<>"'`\[\]|\\^{}$*]+)
    | (?P<special>`{3,}|[<\[\]`"]|~{3,}|:{3,}|:(?=//)|(?<=www)\.|\}(?=`))
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def safe_url(address: str) -> str | None:
    """The address percent-encoded for Markdown and (escaped) HTML; None for all but http, https and mailto."""
    address = re.sub(r"[\x00-\x20\x7f-\xa0]+", "", address)
    if not _ADDRESS.match(address):
        return None
    # JupyterLab marks math by @@0@@, which must not occur in an attribute.
    return quote(address, safe="-._~:/?#!&*+,;=%@").replace("@@", "%40%40")


def markdown(source: str) -> str:
    """Convert Markdown to an equivalent without active content.

    Raw HTML becomes visible text; links go only to http, https and mailto; images become links; math, code, tables,
    lists and emphasis stay. The result is safe in any Markdown renderer that runs raw HTML.
    """
    blocks = split_blocks(visible(source))
    definitions: dict[str, str] = {}
    prose = [block if isinstance(block, Code) else _take_definitions(block, definitions) for block in blocks]
    writer = _Writer(definitions)
    written = (block.fenced() if isinstance(block, Code) else writer.write(_neutralize_tex(block)) for block in prose)
    return "\n\n".join(block for block in written if block)


def _take_definitions(block: str, definitions: dict[str, str]) -> str:
    """The block without its link definitions, which are added to `definitions`; the first of a name wins."""

    def take(match: re.Match[str]) -> str:
        destination = match["angle"] if match["angle"] is not None else match["bare"]
        definitions.setdefault(_fold(match["name"]), destination)
        return ""

    return _DEFINITION.sub(take, block).strip("\n")


def _fold(name: str) -> str:
    return " ".join(name.split()).casefold()


def _neutralize_tex(prose: str) -> str:
    """If prose has TeX commands that do more than typeset, replace every backslash in it."""
    decoded = html.unescape(prose)
    if _TEX_COMMAND.search(decoded) and _MATH_DELIMITER.search(decoded):
        return _BACKSLASH.sub("\u29f5", prose)
    return prose


def _literal(value: str) -> str:
    """Text without characters that are special in Markdown."""
    return _NOT_PLAIN.sub(lambda match: _references(match[0]), value)


def _references(value: str) -> str:
    """All characters as character references."""
    return "".join(f"&#{ord(character)};" for character in value)


@dataclass(frozen=True)
class _Writer:
    """Rewrites prose token by token, with the document's link definitions."""

    definitions: dict[str, str]

    def write(self, prose: str, *, links: bool = True) -> str:
        out: list[str] = []
        position = 0
        while token := _TOKEN.search(prose, position):
            out.append(prose[position : token.start()])
            written, position = self._token(token, links)
            out.append(written)
        out.append(prose[position:])
        return "".join(out).replace("![", "&#33;[")

    def _token(self, token: re.Match[str], links: bool) -> tuple[str, int]:
        """The replacement for a token, and the position to continue from."""
        end = token.end()
        if token["label"] is not None:
            return self._bracket(token, links)
        if token["span"] is not None:
            ticks, content = token["ticks"], token["span"]
            is_dangerous = _DANGEROUS.search(content)
            return _literal(ticks) + _literal(content) + _literal(ticks) if is_dangerous else token[0], end
        if token["math"] is not None:
            return _math(token["math"]), end
        if token["auto"] is not None:
            address = safe_url(token["auto"])
            if address is None or not links:
                return _literal(token[0]), end
            return f"[{_literal(token['auto'])}]({_in_markdown(address)})", end
        if token["url"] is not None:
            return self._bare_url(token, links)
        if token["special"] is not None:
            return _references(token["special"]), end
        if token["escaped"] is not None:
            return _references(token["escaped"]), end
        return token["kept"] or token["task"], end

    def _bracket(self, token: re.Match[str], links: bool) -> tuple[str, int]:
        """Rewrite a link or an image; if it is neither, write its `[` as text."""
        destination = token["angle"] if token["angle"] is not None else token["bare"]
        if destination is None:
            destination = self.definitions.get(_fold(token["reference"] or token["label"]))
        if destination is None:
            return ("&#33;" if token["image"] else "") + "&#91;", token.start("label")
        label = self.write(token["label"], links=False)
        if token["image"]:
            label = f"image: {label}" if label else "image"
        address = safe_url(html.unescape(_ESCAPED.sub(r"\1", destination)))
        if address is None or not links:
            return f"({label})" if token["image"] else label, token.end()
        return f"[{label or _literal(address)}]({_in_markdown(address)})", token.end()

    def _bare_url(self, token: re.Match[str], links: bool) -> tuple[str, int]:
        shown = token["url"].rstrip(".,:;!?*_~")
        while shown.endswith(")") and shown.count(")") > shown.count("("):
            shown = shown[:-1].rstrip(".,:;!?*_~")
        address = safe_url(shown)
        end = token.start() + len(shown)
        if address is None:
            return _literal(token["url"]), token.end()
        return (f"[{_literal(shown)}]({_in_markdown(address)})" if links else _literal(shown)), end


def _in_markdown(address: str) -> str:
    """The address as a link destination, in which Markdown decodes character references."""
    address = re.sub(r":{3,}|~{3,}|\*+", lambda run: "".join(f"%{ord(each):02X}" for each in run[0]), address)
    return address.replace("&", "&amp;")


def _math(source: str) -> str:
    """The formula without sequences that a parser without math would read as Markdown or HTML."""
    source = re.sub(r"<(?=[A-Za-z/!?])", r"\\lt ", source).replace('"', "''")
    source = source.replace("![", "! [").replace("](", "] (").replace("]:", "] :")
    return re.sub(r"(?<=[A-Za-z])://", ": //", re.sub(r"~{3,}|:{3,}", " ", source))
