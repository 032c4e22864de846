"""Markdown that strangers wrote, against the parsers that front ends use."""

import html
import re
import time
from collections.abc import Callable
from html.parser import HTMLParser

import mistune
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ipymcp.results import markdown

TAGS = {
    "p", "a", "em", "strong", "del", "s", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "br", "section", "div",
    "table", "thead", "tbody", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6", "sup", "span", "input", "mark",
    "dl", "dt", "dd", "sub", "ins",
}  # fmt: skip
ATTRIBUTES = {"href", "class", "style", "start", "align", "id", "type", "disabled", "checked"}
CLASSES = r"(language-[A-Za-z0-9_+#.-]+|math|footnotes|task-list-item(-checkbox)?|footnote(-ref)?)"


def markdown_it(preset: str) -> Callable[[str], str]:
    """A parser that runs HTML and follows any link, as a front end's may."""
    parser = MarkdownIt(preset, {"html": True, "linkify": False})
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    return parser.render


def mistune_with(*plugins: str) -> Callable[[str], object]:
    renderer = mistune.HTMLRenderer(escape=False, allow_harmful_protocols=True)
    return mistune.create_markdown(renderer=renderer, plugins=plugins)


RENDERERS = {
    "markdown-it": markdown_it("commonmark"),
    "markdown-it with tables": markdown_it("gfm-like"),
    "mistune": mistune_with(),
    "mistune with everything": mistune_with(
        "table", "strikethrough", "url", "task_lists", "def_list", "abbr", "mark", "math", "superscript"
    ),
}

TRICKS = [
    "<script>alert(1)</script>",
    "<ScRiPt\n>alert(1)</ScRiPt >",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<b onmouseover=alert(1)>bold</b>",
    "</p><iframe src=https://evil.example>",
    "<!-- --><script>alert(1)</script>",
    "<!DOCTYPE html><script>1</script>",
    "<?php <script>1</script> ?>",
    "<![CDATA[<script>1</script>]]>",
    "<a href='javascript:alert(1)'>x</a>",
    "\\<script>alert(1)</script>",
    "\\\\<script>alert(1)</script>",
    "<<script>script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x]( javascript:alert(1) )",
    "[x](<javascript:alert(1)>)",
    "[x](<java\nscript:alert(1)>)",
    "[x](java\tscript:alert(1))",
    "[x](\x01javascript:alert(1))",
    "[x](java\u200bscript:alert(1))",
    "[x](java&#115;cript:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](&#x6A;&#x61;vascript:alert(1))",
    "[x](&#0000106avascript:alert(1))",
    "[x](java\\script:alert(1))",
    "[x](javascript\\:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](vbscript:msgbox(1))",
    "[x](file:///etc/passwd)",
    "[x](//evil.example)",
    "[x](/lab?reset)",
    "[x](https:javascript:alert(1))",
    "[x][y]\n\n[y]: javascript:alert(1)",
    "[x][]\n\n[x]: javascript:alert(1) 'title'",
    "[x]\n\n[x]: <javascript:alert(1)>",
    "[x]\n\n[x]:\njavascript:alert(1)",
    "[x]\n\n> [x]: javascript:alert(1)",
    "- [x]: javascript:alert(1)\n\n[x]",
    "[X  y]\n\n[x\ty]: javascript:alert(1)",
    "[x\\]y]\n\n[x\\]y]: javascript:alert(1)",
    "[^1]\n\n[^1]: <script>alert(1)</script>",
    "*[HTML]: <script>alert(1)</script>\n\nHTML",
    "<javascript:alert(1)>",
    "<JAVASCRIPT:alert(1)>",
    "<data:text/html,<script>alert(1)</script>>",
    "![x](https://evil.example/a.png)",
    "![x][y]\n\n[y]: https://evil.example/a.png",
    "![x]\n\n[x]: https://evil.example/a.png",
    "!\\[x](https://evil.example/a.png)",
    "\\![x](https://evil.example/a.png)",
    "!<https://evil.example/a.png>",
    "!https://evil.example/a.png",
    "!&#91;x](https://evil.example/a.png)",
    "[![x](https://evil.example/a.png)](javascript:alert(1))",
    "![![x](https://evil.example/a.png)](https://evil.example/b.png)",
    "![x](data:image/svg+xml,<svg onload=alert(1)>)",
    "![x](//evil.example/a.png)",
    '[x](https://e.example "onmouseover=alert(1)")',
    '[x](https://e.example/"onmouseover="alert(1))',
    "[x](https://e.example/'onmouseover='alert(1))",
    '[x](https://e.example/$" onmouseover="alert(1)$)',
    '![$" onerror="alert(1)$](https://e.example/a.png)',
    'https://e.example/$" onmouseover=alert(1) x="$',
    "https://e.example/`<img src=x onerror=alert(1)>`",
    "www.e.example/`<img src=x onerror=alert(1)>`",
    "ftp://e.example/`<img src=x onerror=alert(1)>`",
    "| a | b |\n|---|---|\n| `x | <img src=x onerror=alert(1)> | y` |",
    "| a | b |\n|---|---|\n| `x | [y](javascript:alert(1)) | z` |",
    "| a | b |\n|---|---|\n| [t `x | ![a` b](https://evil.example/a.png) |",
    "`a`` <script>alert(1)</script> ``b`",
    "`a\n<script>alert(1)</script>`",
    "`a\n\n<script>alert(1)</script>`",
    "\\`<script>alert(1)</script>`",
    "\\\\`x`<script>alert(1)</script>`",
    "``` <script>alert(1)</script>",
    "``` x\n<b>\n```\n<script>alert(1)</script>",
    "```\n<b>\n``` x\n<script>alert(1)</script>",
    "~~~\n<b>\n```\n~~~\n<script>alert(1)</script>",
    "````\n```\n````\n<script>alert(1)</script>",
    "```a`b\n<script>alert(1)</script>\n```",
    "- ```\n<script>alert(1)</script>\n- ```",
    "> ```\n<script>alert(1)</script>\n> ```",
    "1. ```\n   x\n<script>alert(1)</script>\n```",
    "x\n```\ny\n```<script>alert(1)</script>",
    "    ```\n<script>alert(1)</script>\n    ```",
    '```" onmouseover=alert(1)\nx\n```',
    "```{raw} html\n<script>alert(1)</script>\n```",
    "{raw}`<script>alert(1)</script>`",
    ":::{raw} html\n<script>alert(1)</script>\n:::",
    "$<script>alert(1)</script>$",
    "$$\n<script>alert(1)</script>\n$$",
    "$$\n[x]: javascript:alert(1)\n$$\n[x]",
    "$[x](javascript:alert(1))$",
    "$![x](https://evil.example/a.png)$",
    "\\begin{a}<script>alert(1)</script>\\end{a}",
    "\\begin{a}![x](https://evil.example/a.png)\\end{a}",
    "# <script>alert(1)</script>\n===",
    "- <script>alert(1)</script>",
    "> > <script>alert(1)</script>",
    "\t<script>alert(1)</script>",
    "a\n    <script>alert(1)</script>",
    "- a\n\n      <script>alert(1)</script>\n\n<script>alert(1)</script>",
    "a\r<script>alert(1)</script>",
    "a\u2028<script>alert(1)</script>",
    "```\u2028```\n<script>alert(1)</script>",
    "```\x0b\n```\x0c<script>alert(1)</script>",
    "\ufeff<script>alert(1)</script>",
    "<scr\x00ipt>alert(1)</scr\x00ipt>",
    "\uff1cscript\uff1ealert(1)",
]


class Finder(HTMLParser):
    """Collects what must not be in rendered HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            if name not in ATTRIBUTES:
                self.found.append(f"{tag} {name}={value}")
            if name == "href" and not re.match(r"https?://[^/]|mailto:|#fn", value or ""):
                self.found.append(f"href={value}")
            if name == "class" and not all(re.fullmatch(CLASSES, word) for word in (value or "").split()):
                self.found.append(f"class={value}")
            if name == "style" and not re.fullmatch(r"text-align:\s?(left|right|center);?", value or ""):
                self.found.append(f"style={value}")

    def add(self, data: str) -> None:
        self.found.append(f"<!{data}")

    handle_comment = handle_decl = handle_pi = unknown_decl = add


def active_html(rendered: str) -> list[str]:
    finder = Finder()
    finder.feed(rendered)
    finder.close()
    return finder.found


def violations(markdown: str) -> list[str]:
    """Violations of the module's promises in the text outside fences."""
    outside = re.sub(r"(?ms)^(`{3,})[A-Za-z0-9_+#.-]*\n(?:.*?\n)??\1$", "", markdown)
    pattern = (
        r"<[A-Za-z/!?]|!\[|\]:|(?<!`)`{3}|~{3}|:{3}"
        r"|\]\((?!https?://[A-Za-z0-9._~:/?#!&+,;=%@-]+\)|mailto:[A-Za-z0-9._~:/?#!&+,;=%@-]+\))"
    )
    return [outside[max(0, found.start() - 20) : found.end() + 20] for found in re.finditer(pattern, outside, re.I)]


@pytest.mark.parametrize("renderer", ["markdown-it", "mistune"])
def test_the_check_itself_finds_active_html_in_unsanitized_text(renderer: str) -> None:
    for trick in ("<script>alert(1)</script>", "[x](javascript:1)", "![x](https://evil.example/a.png)"):
        assert active_html(str(RENDERERS[renderer](trick))), trick


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_gets_through_any_renderer(trick: str, renderer: str) -> None:
    for place in ("TRICK", "before TRICK after", "- a\n\n  TRICK", "```py\nx\n```\nTRICK", "> TRICK\n\nTRICK"):
        safe = markdown.markdown(place.replace("TRICK", trick))
        assert active_html(str(RENDERERS[renderer](safe))) == [], place
        assert violations(safe) == [], place


MIXTURE = r"""<script> <img/src=x/onerror=a> </p> < > [ ] ( ) ]( ][ ]: ! ![ ` `` ``` ~~~ \ $ $$ " ' - 1. | |---| &#60;
&lt; javascript:a https://e.example/ www.e.example x &colon; \begin{a} \end{a} [a]: # * {raw} ::: @@0@@
<https://e.example> _ ~~ ^ == %"""
PIECES = st.sampled_from([*MIXTURE.split(), "\n", "\n\n", " ", "    ", "\t", "- ", "> ", "1. ", "\r", "\u2028"])


@settings(max_examples=400)
@given(st.lists(PIECES, max_size=30).map("".join))
def test_no_mixture_of_markup_becomes_active_html(source: str) -> None:
    safe = markdown.markdown(source)
    assert violations(safe) == []
    for render in RENDERERS.values():
        assert active_html(str(render(safe))) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# Title\n\n*a* **b** ~~c~~", "# Title\n\n*a* **b** ~~c~~"),
        ("- a\n- [ ] b\n- [x] c", "- a\n- [ ] b\n- [x] c"),
        ("| a | b |\n|---|---|\n| 1 | `x` |", "| a | b |\n|---|---|\n| 1 | `x` |"),
        ("if a < b and c > d & e", "if a &#60; b and c > d & e"),
        ("a <b>bold</b>", "a &#60;b>bold&#60;/b>"),
        ("use `a < b` and `x[0]`", "use `a < b` and `x[0]`"),
        ("use `List<T>`", "use &#96;List&#60;T&#62;&#96;"),
        ("```html\n<b>`x`</b>\n```", "```html\n<b>`x`</b>\n```"),
        ("~~~\n```\n~~~", "````\n```\n````"),
        ("text\n```c++\n#include <a>\n```\ntext", "text\n\n```c++\n#include <a>\n```\n\ntext"),
        ("  ```\n  a\n    b\n  ```", "```\na\n  b\n```"),
        ("> ```\n> a <b>\n> ```", "```\na <b>\n```"),
        ("```mermaid\nflowchart\n```", "```\nflowchart\n```"),
        ("para\n\n    a <b>\n\npara", "para\n\n```\na <b>\n```\n\npara"),
        ("[a](https://e.example/x 'title')", "[a](https://e.example/x)"),
        ("[a](<https://e.example/x y>)", "[a](https://e.example/xy)"),
        ("[a](https://e.example/?a=1&b=(2))", "[a](https://e.example/?a=1&amp;b=%282%29)"),
        ("[a](mailto:me@e.example)", "[a](mailto:me@e.example)"),
        ("[a](javascript:x) b", "a b"),
        ("[a](docs/readme.md)", "a"),
        ("[a][r] [r] [n]\n\n[r]: https://e.example 'T'", "[a](https://e.example) [r](https://e.example) &#91;n&#93;"),
        ("![a](https://e.example/x.png)", "[image: a](https://e.example/x.png)"),
        ("![a](x.png)", "(image: a)"),
        ("[![a](https://e.example/x.svg)](https://e.example)", "[(image: a)](https://e.example)"),
        ("<https://e.example>", "[https&#58;//e.example](https://e.example)"),
        ("see https://e.example/a_b.", "see [https&#58;//e.example/a&#95;b](https://e.example/a_b)."),
        ("(https://e.example/x)", "([https&#58;//e.example/x](https://e.example/x))"),
        ("$a<b$ costs $5 and $6", "$a\\lt b$ costs $5 and $6"),
        ("$x_i \\leq \\frac{1}{2}$", "$x_i \\leq \\frac{1}{2}$"),
        ("$$\n\\sum_i x_i\n$$", "$$\n\\sum_i x_i\n$$"),
        ("\\begin{align}a &= b\\\\ c &= d\\end{align}", "\\begin{align}a &= b\\\\ c &= d\\end{align}"),
    ],
)
def test_harmless_markdown_looks_the_same(source: str, expected: str) -> None:
    assert markdown.markdown(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "$\\href{javascript:alert(1)}{x}$",
        "&#36;\\href{javascript:alert(1)}{x}&#36;",
        "$&#92;href{javascript:alert(1)}{x}$",
        "$\\&#104;ref{javascript:alert(1)}{x}$",
        "$&bsol;h&#x72;ef{javascript:alert(1)}{x}$",
        "$\\csname href\\endcsname{javascript:alert(1)}{x}$",
        "$$\\require{html} \\style{position:fixed}{x}$$",
    ],
)
def test_tex_that_links_or_styles_loses_its_backslashes(source: str) -> None:
    assert "\\" not in html.unescape(markdown.markdown(source))


def test_tex_in_a_fence_and_paths_without_math_stay() -> None:
    assert markdown.markdown("$x$\n\n```\n\\url{a}\n```") == "$x$\n\n```\n\\url{a}\n```"
    assert markdown.markdown("C:\\data\\x") == "C:\\data\\x"


def test_no_quote_and_no_dollar_of_a_stranger_reaches_an_attribute() -> None:
    for source in TRICKS:
        prose = re.sub(r"(?ms)^(`{3,})[^\n]*\n.*?^\1$", "", markdown.markdown(source))
        for address in re.findall(r"\]\(([^)]*)\)", prose):
            assert not set(address) & set("\"'$\\{}`<>") and "@@" not in address
        assert '"' not in re.sub(r"`[^`\n]*`", "", prose)


FLOODS = [
    "[", "[a", "`", "``a`", "$a", "$$", "\\begin{a}", "[a](b '", "[a](b (", "<a:", "![", "[a]: ", "(", "~", "> ", "- ",
    "&#", "[x [a] ", "[a][b", "https://", "\\", "*", "".join("`" * length + " " for length in range(1, 200)),
]  # fmt: skip


@pytest.mark.parametrize("evil", FLOODS)
def test_the_time_taken_grows_no_faster_than_the_text(evil: str) -> None:
    started = time.process_time()
    markdown.markdown(evil * (50_000 // len(evil)))
    assert time.process_time() - started < 5
