"""Tab completion: servers, tools, argument names and values, in `%mcp` lines and in Python code.

Names come from servers, project files and folders, which are untrusted. Names with invisible characters or line breaks
are not offered. Other names are written inside the open quotes, or in the quotes that they need.

`context_at` determines from the text before the cursor which kind of name is being typed. Python code is lexed once
from the start, for strings, comments and brackets only, because an apostrophe in a comment looks like a string when
read backwards. The expression before the cursor is then read backwards with the paired brackets.

Candidates come from the current catalogs: nothing is started or evaluated. Only values of prompt and template arguments
are requested from the server, with a timeout of a second. IPython's own completers complete everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, structs

from ipymcp.api.catalogs import load_quickly
from ipymcp.api.namespace import Mcp
from ipymcp.api.parts import parts_of
from ipymcp.api.resources import Prompt, PromptResult, Resource, Resources, Template, prompt_schema, template_schema
from ipymcp.api.servers import Server, UnloadedServerTools
from ipymcp.api.sync_and_async import host_of
from ipymcp.api.tool import Tool
from ipymcp.errors import McpError
from ipymcp.masking import mask
from ipymcp.names import RESERVED_HOST, RESERVED_SERVER, identifier
from ipymcp.notebook.line_syntax import Kind, Option, Syntax, names_among, split_text, tokenize_partial
from ipymcp.results.resource_result import ResourceResult
from ipymcp.results.tool_result import ToolResult
from ipymcp.runtime.call import Call
from ipymcp.text import quoted, unmasked_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ipymcp.notebook.line_syntax import PartialLine, Word
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession
    from ipymcp.schema.tool_schema import Parameter


def line_word(value: object, quote: str, *, is_argument: bool = False, is_open: bool = False) -> str | None:
    """Write a name or value for a `%mcp` line; None if that is impossible.

    Args:
        value: A string, or another JSON value, which needs no quotes.
        quote: The quote that is open at the cursor; empty for none.
        is_argument: Whether this is an argument's value, in which double quotes allow `{expr}`.
        is_open: Whether the word continues after the completion.
    """
    text = value if isinstance(value, str) else json.dumps(value)
    if not _is_visible(text):
        return None
    if quote:
        if is_argument and quote == '"' and "$" in text:
            return None  # `$name` between double quotes is an error
        if is_argument and quote == '"' and "{" in text:
            text = text.replace("{", "{{").replace("}", "}}")
        return text.replace(quote, quote * 2)
    return quoted(text, is_open=is_open) if isinstance(value, str) else text


def line_argument(name: str) -> str | None:
    """Write `name=` for a `%mcp` line; None if that is impossible."""
    word = f"{name}="
    partial = tokenize_partial(word)
    is_key = partial is not None and not partial.words and partial.last.key == name
    return word if is_key and _is_visible(name) and not name.startswith("-") else None


def unquoted(partial: str, quote: str) -> str:
    """Decode the beginning of a quoted word of a `%mcp` line."""
    return partial.replace(quote * 2, quote) if quote else partial


def code_value(value: object, quote: str) -> str | None:
    """Write a key or value in Python code, inside the open quote if there is one; None if that is impossible."""
    if not isinstance(value, str):
        return None if quote else repr(value)
    if not _is_visible(value):
        return None
    return value.replace("\\", "\\\\").replace(quote, f"\\{quote}") if quote else repr(value)


def _is_visible(text: str) -> bool:
    """Whether a text is fully visible on one line."""
    return text.isprintable() and unmasked_line(text) == text


class Step(Struct, frozen=True):
    """One step of a path from the namespace: `.name`, or `["name"]` if `item` is set."""

    name: str
    item: bool = False
    called: bool = False
    """Whether the step is called, `.name(…)`; only the last step before an attribute may be called."""


class AttributeContext(Struct, frozen=True):
    """The context of a cursor in Python code, in an expression that begins with the namespace."""

    kind: Literal["attribute", "key", "argument", "value"]
    path: tuple[Step, ...]
    """The path before the cursor or of the called function: for `mcp.fs["x"].aio(` it is fs, ["x"], aio.

    `.options(…)` is omitted, because it returns the tool itself."""
    partial: str
    start: int
    argument: str = ""
    """The argument whose value is being typed; empty for a positional argument."""
    given: tuple[str, ...] = ()
    """The keyword arguments already given."""
    positional: int = 0
    """The number of positional arguments before the one at the cursor."""
    quote: str = ""
    """The quote that is open at the cursor."""
    literals: tuple[tuple[int | str, str], ...] = ()
    """String literals among the arguments before the one at the cursor, by position or keyword."""


def attribute_context(text: str, namespace: str) -> AttributeContext | None:
    """The context at the end of `text`; None if the expression does not belong to `namespace`."""
    return _CodeBeforeCursor(text, namespace).context() if namespace in text else None


_TAIL = 20_000
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_LEX = re.compile(
    r"""
      \( | \) | \[ | \] | \{ | \} | ,
    | \#[^\n]*
    | \"\"\"(?:\\.|[^\\])*?(?:\"\"\"|(?P<open_a>\\?\Z))
    | '''(?:\\.|[^\\])*?(?:'''|(?P<open_b>\\?\Z))
    | "(?:\\.|[^"\\\n])*(?:"|(?=\n)|(?P<open_c>\\?\Z))
    | '(?:\\.|[^'\\\n])*(?:'|(?=\n)|(?P<open_d>\\?\Z))
    """,
    re.DOTALL | re.VERBOSE,
)
_WORD_AT_END = re.compile(r"(?<!\w)\w*+\Z")
_LITERAL = re.compile(r"""\s*(['"])([^'"\\]*)\1\s*""")
_KEYWORD = re.compile(r"\s*([^\W\d]\w*)\s*=(?!=)")
_ARGUMENT = re.compile(r"\s*((?:[^\W\d]\w*)?)")
_VALUE = re.compile(r"\s*([^\W\d]\w*)\s*=\s*(\w*)")


class _CodeBeforeCursor:
    """Python code before the cursor, lexed for open brackets, strings and comments."""

    def __init__(self, text: str, namespace: str) -> None:
        self.offset = text.find("\n", len(text) - _TAIL) + 1 if len(text) > _TAIL else 0
        self.text = text[self.offset :]
        self.namespace = namespace
        self.opened: list[list[int]] = []
        """For each open bracket, outermost first, its position and the positions of the commas directly inside it."""
        self.pairs: dict[int, int] = {}
        """Positions of opening brackets, by position of their closing bracket."""
        self.string = -1
        """The start of the string that is open at the cursor; -1 if there is none."""
        self.comments: list[tuple[int, int]] = []
        self._lex()

    def _lex(self) -> None:
        """Lex in one pass, without a call per bracket: long cells have thousands, and this runs on every Tab."""
        text, opened, pairs = self.text, self.opened, self.pairs
        for match in _LEX.finditer(text):
            at = match.start()
            char = text[at]
            if char == ",":
                if opened:
                    opened[-1].append(at)
            elif char in "([{":
                opened.append([at])
            elif char in ")]}":
                if opened and text[opened[-1][0]] == _BRACKETS[char]:
                    pairs[at] = opened.pop()[0]
            elif char == "#":
                self.comments.append(match.span())
            elif match.lastgroup is not None:
                self.string = at

    def context(self) -> AttributeContext | None:
        if self.comments and self.comments[-1][1] == len(self.text):
            return None
        if self.string >= 0:
            is_long = self.text.startswith(('"""', "'''"), self.string)
            return None if is_long else self._key() or self._call()
        return self._attribute() or self._call()

    def _attribute(self) -> AttributeContext | None:
        match = _WORD_AT_END.search(self.text, max(0, len(self.text) - 200))
        assert match is not None  # the pattern also matches the empty string
        dot = self._skip_blanks(match.start()) - 1
        if dot < 0 or self.text[dot] != ".":
            return None
        path = self._path(dot, may_call=True)
        return None if path is None else self._context("attribute", path, match.group())

    def _key(self) -> AttributeContext | None:
        bracket = self._skip_blanks(self.string) - 1
        if not self.opened or bracket != self.opened[-1][0] or self.text[bracket] != "[":
            return None
        path = self._path(bracket)
        return None if path is None else self._context("key", path, self.text[self.string + 1 :])

    def _call(self) -> AttributeContext | None:
        if not self.opened or self.text[self.opened[-1][0]] != "(":
            return None
        opened, *commas = self.opened[-1]
        path = self._path(opened)
        if not path:
            return None
        edges = [opened, *commas]
        before = [self._code(start + 1, end) for start, end in zip(edges, commas, strict=False)]
        given = [match[1] if (match := _KEYWORD.match(part)) else None for part in before]
        unnamed = [part.strip() for part, name in zip(before, given, strict=True) if name is None]
        kind, argument, partial = self._at_cursor(edges[-1] + 1)
        return kind and structs.replace(
            self._context(kind, path, partial),
            argument=argument,
            given=tuple(name for name in given if name),
            positional=sum(1 for part in unnamed if part and not part.startswith("*")),
            literals=_literals(before),
        )

    def _at_cursor(self, start: int) -> tuple[Literal["argument", "value"] | None, str, str]:
        """The kind, argument and typed part of the argument that begins at `start`."""
        if self.string >= 0:
            head, partial = self._code(start, self.string), self.text[self.string + 1 :]
            match = _VALUE.fullmatch(head)
            if match and not match[2]:
                return "value", match[1], partial
            return ("value", "", partial) if not head.strip() else (None, "", "")
        code = self._code(start, len(self.text))
        if match := _ARGUMENT.fullmatch(code):
            return "argument", "", match[1]
        if match := _VALUE.fullmatch(code):
            return "value", match[1], match[2]
        return None, "", ""

    def _context(
        self, kind: Literal["attribute", "key", "argument", "value"], path: tuple[Step, ...], partial: str
    ) -> AttributeContext:
        start = self.offset + len(self.text) - len(partial)
        quote = self.text[self.string] if self.string >= 0 else ""
        return AttributeContext(kind, path, partial, start, quote=quote)

    def _code(self, start: int, end: int) -> str:
        """The text of a range without its comments."""
        parts: list[str] = []
        for opened, closed in self.comments:
            if start <= opened and closed <= end:
                parts.append(self.text[start:opened])
                start = closed
        return "".join(parts) + self.text[start:end]

    def _path(self, end: int, *, may_call: bool = False) -> tuple[Step, ...] | None:
        """The steps of the expression that ends at `end`, read backwards to the namespace; None for any other."""
        steps: list[Step] = []
        while end > 0:
            end = self._skip_blanks(end)
            is_call = self.text[end - 1 : end] == ")"
            if is_call:
                end = self._skip_blanks(self.pairs.get(end - 1, 0))
            if self.text[end - 1 : end] == "]":
                opened = self.pairs.get(end - 1, 0)
                key = _LITERAL.fullmatch(self.text, opened + 1, end - 1)
                if key is None or (is_call and (steps or not may_call)):
                    return None
                steps.append(Step(key[2], item=True, called=is_call))
                end = opened
                continue
            start = self._word_start(end)
            name, before = self.text[start:end], self._skip_blanks(start)
            is_options = is_call and name == "options"
            if not name.isidentifier() or (is_call and not is_options and (steps or not may_call)):
                return None
            if not self.text.endswith(".", 0, before):
                return tuple(reversed(steps)) if name == self.namespace and not is_call else None
            if not is_options:
                steps.append(Step(name, called=is_call))
            end = before - 1
        return None

    def _word_start(self, end: int) -> int:
        while end and (self.text[end - 1].isalnum() or self.text[end - 1] == "_"):
            end -= 1
        return end

    def _skip_blanks(self, end: int) -> int:
        while end and self.text[end - 1].isspace():
            end -= 1
        return end


def _literals(arguments: list[str]) -> tuple[tuple[int | str, str], ...]:
    found: list[tuple[int | str, str]] = []
    for at, argument in enumerate(arguments):
        keyword = _KEYWORD.match(argument)
        literal = _LITERAL.fullmatch(argument, keyword.end() if keyword else 0)
        if literal:
            found.append((keyword[1] if keyword else at, literal[2]))
    return tuple(found)


Typed: TypeAlias = Kind | Literal["argument", "value", "option", "option-value", "name", "owner"]
"""The kind of the word being typed: a `Kind`, an argument's name or value, an option or one of its choices, and in a
question a variable (`name`) or the server of a resource (`owner`)."""
_LINE = re.compile(r"[ \t]*(?:(%%)mcp[ \t]|(?:[^\W\d][^=%#\n]*=[ \t]*)?%mcp[ \t])")
_CONTINUED = re.compile(r"\\\n")


class LineContext(Struct, frozen=True):
    """The context of a cursor in a `%mcp`, `x = %mcp` or `%%mcp` line."""

    kind: Typed
    """The kind of the word. For `tool` and `prompt` the word may be incomplete, such as a server's name."""
    partial: str
    """The typed part of the word."""
    start: int
    """The position of `partial` in the text."""
    subcommand: str = ""
    tool: str = ""
    """The `server.tool`, `server.prompt` or resource of the line, as typed."""
    server: str = ""
    """The server before the resource, as typed."""
    argument: str = ""
    """The argument, or the option, whose value is being typed."""
    given: tuple[tuple[str, str], ...] = ()
    """The arguments already given, with their values as typed."""
    quote: str = ""
    actions: tuple[str, ...] = ()
    """The actions allowed at the cursor."""
    options: tuple[Option, ...] = ()
    """The options allowed on the line."""
    is_reference: bool = False
    """Whether it is a reference in a question, where a quoted name of a prompt means nothing."""


def context_at(text: str, *, namespace: str = "mcp") -> LineContext | AttributeContext | None:
    """Determine the context at the end of `text`.

    Args:
        text: The cell up to the cursor.
        namespace: The variable that `mcp` is bound to.
    """
    start = _line_start(text)
    if (asked := _ask_context(text, start)) is not None:
        return asked
    line = _LINE.match(text, start)
    if line and not (line[1] and text[:start].strip()):
        partial = tokenize_partial(
            _CONTINUED.sub("  ", text[line.end() :])
        )  # of the same length, so that positions stay valid
        return None if partial is None else _line_context(partial, len(text))
    if text.lstrip().startswith("%%mcp"):
        return None
    return attribute_context(text, namespace)


_ASK = re.compile(r"\s*(%%mcp|(?:[^\W\d][^=%#\n]*=[ \t]*)?%mcp)[ \t]+ask(?=\s)")
_VARIABLE = re.compile(r"(?<![\w$])\$((?:[^\W\d]\w*)?)\Z")
_SERVER = re.compile(r"(?<![\w@.$/-])@([^\s:@]*)\Z")
_RESOURCE = re.compile(r"""(?<![\w@.$/-])@([^\s:@]+):(["']?)([^\s"']*)\Z""")


def _ask_context(text: str, start: int) -> LineContext | None:
    """The context of a reference in a question: `$name`, `@server:resource` or `/server.prompt argument=value`."""
    cell = _ASK.match(text)
    is_cell = cell is not None and cell[1] == "%%mcp"
    line = cell if is_cell else _ASK.match(text, start)
    if line is None:
        return None
    if (found := _VARIABLE.search(text, start)) is not None:
        return LineContext("name", found[1], found.start(1), subcommand="ask")
    if (found := _RESOURCE.search(text, start)) is not None:
        return LineContext("resource", found[3], found.start(3), subcommand="ask", server=found[1], quote=found[2])
    if (found := _SERVER.search(text, start)) is not None:
        return LineContext("owner", found[1], found.start(1), subcommand="ask")
    question = text[start:].lstrip() if start >= line.end() else _question(text[line.end() :])
    if not question.startswith("/"):
        return None
    partial = tokenize_partial(f"prompt {question[1:]}")
    if partial is None or any(word.key is None for word in partial.words[2:]):
        return None
    context = _line_context(partial, len(text))
    return context and structs.replace(context, is_reference=True)


def _question(line: str) -> str:
    """The text after the options of an `ask` line."""
    from ipymcp.notebook.magics.dispatch import command

    return split_text(command("ask").syntax, line)[1]


def _line_start(text: str) -> int:
    """The start of the line at the cursor, including the lines that it continues."""
    start = text.rfind("\n") + 1
    while start > 1 and text[start - 2] == "\\":
        start = text.rfind("\n", 0, start - 1) + 1
    return start


def _syntax_of(words: Sequence[Word]) -> Syntax | None:
    """The syntax of the subcommand that a line begins with; None for an unknown one."""
    from ipymcp.notebook.magics.dispatch import MODULES, command

    if not words:
        return Syntax("", takes=("word",))
    return command(words[0].text).syntax if words[0].text in MODULES else None


def _line_context(line: PartialLine, end: int) -> LineContext | None:
    last = line.last
    raw = last.raw[len(last.key) + 1 :] if last.key is not None else last.raw
    typed = raw.removeprefix(last.quoted)
    if last.quoted and typed.endswith(last.quoted):
        return None  # the quote is closed: nothing is being typed
    command = _syntax_of(line.words)
    if command is None:
        return None
    names = names_among(line.words[1:], command.options_with_value)
    action = command.actions.get(names[0].text) if names else None
    syntax = action or command
    names = names[1:] if action else names
    target = len(syntax.takes) - 1
    owner = target - 1 if syntax.takes[1:] == ("variable",) else target  # in `map`, the rows follow the tool
    named = names[owner:] if syntax.arguments and len(names) > target else []
    context = LineContext(
        kind="",
        partial=typed,
        start=end - len(typed),
        subcommand=line.words[0].text if line.words else "",
        tool=named[0].text if named else "",
        server=names[0].text if owner > 0 and names else "",
        given=tuple((word.key, word.value) for word in named[1:] if word.key is not None),
        quote=last.quoted,
        options=syntax.options if action or names else tuple(syntax.all_options.values()),
    )
    option = _option_at(line, command.options_with_value)
    if line.in_command:
        return structs.replace(context, kind="file")
    if option is not None:
        return structs.replace(context, kind=option.takes or "option-value", argument=option.name)
    if last.raw.startswith("-"):
        return structs.replace(context, kind="option")
    if named and last.key is not None:
        return structs.replace(context, kind="value", argument=last.key)
    if named:
        return None if last.quoted or last.is_body else structs.replace(context, kind="argument")
    if last.key is not None:
        return None
    kind = syntax.takes[min(len(names), target)] if syntax.takes else ""
    actions = tuple(command.actions) if not action and not names else ()
    if kind in ("tool", "prompt") and typed.startswith("!"):
        context = structs.replace(context, partial=typed[1:], start=context.start + 1)
    return structs.replace(context, kind=kind, actions=actions) if kind or actions else None


def _option_at(line: PartialLine, options: Mapping[str, Option]) -> Option | None:
    """The option whose value is being typed."""
    if line.last.key is not None and line.last.key in options:
        return options[line.last.key]
    return options.get(line.words[-1].raw) if line.words else None


def candidates(text: str, mcp: Mcp, namespace: str, names: Iterable[str] = ()) -> tuple[str, list[str], str] | None:
    """Complete the end of a text.

    Args:
        text: The cell up to the cursor.
        mcp: The notebook's servers.
        namespace: The variable that `mcp` is bound to.
        names: The notebook's variables.

    Returns:
        The typed part, the candidates and their kind for IPython; None to leave the completion to IPython.
    """
    context = context_at(text, namespace=namespace)
    if context is None:
        return None
    if isinstance(context, LineContext):
        partial = unquoted(context.partial, context.quote)
        if context.kind == "name":
            words, kind = (name for name in names if name.startswith("_") <= partial.startswith("_")), "instance"
        else:
            words, kind = _on_line(structs.replace(context, partial=partial), mcp)
        # If there are no candidates, the typed part itself is offered, so that IPython adds no names and files.
        found = _matching(partial, [*context.actions, *_without_secrets(words, kind)])
        written = [_line_candidate(word, context) for word in found]
        return context.partial, [word for word in written if word is not None] or [context.partial], kind
    words, kind = _in_call(context, mcp) if context.kind in ("argument", "value") else _in_path(context, mcp)
    if context.kind in ("key", "value"):
        words = [code_value(word, context.quote) for word in _without_secrets(words, kind)]
    found = [word for word in _matching(context.partial, words) if isinstance(word, str)]
    return context.partial, found or ([context.partial] if context.kind == "key" else []), kind


def _without_secrets(words: Iterable[object], kind: str) -> Iterable[object]:
    """Drop values and URLs that contain a secret; names are never dropped."""
    return words if kind not in ("value", "path") else (word for word in words if mask(str(word)) == str(word))


def _matching(partial: str, words: Iterable[object]) -> list[object]:
    """The words that begin with the typed part; if there are none, ignoring case."""
    texts = {word if isinstance(word, str) else json.dumps(word): word for word in words if word is not None}
    return [word for text, word in texts.items() if text.startswith(partial)] or [
        word for text, word in texts.items() if text.casefold().startswith(partial.casefold())
    ]


_OWN_KINDS = frozenset({"word", "option", "option-value", "setting", "target-host", "call", "name"})
"""Kinds whose words come from ipymcp itself and need no quotes."""


def _line_candidate(word: object, context: LineContext) -> str | None:
    """Write a candidate for a `%mcp` line; None if that is impossible."""
    if isinstance(word, str) and (word in context.actions or context.kind in _OWN_KINDS):
        return word
    if context.kind == "argument":
        return line_argument(str(word))
    is_open = context.kind in ("tool", "prompt") and str(word).endswith(".")
    written = line_word(word, context.quote, is_argument=context.kind == "value", is_open=is_open)
    if context.is_reference and context.kind == "prompt" and (context.quote or written != word):
        return None
    return written


# -- Python code ------------------------------------------------------------------------------------------------------

_RESULTS: Mapping[tuple[object, str], type[object]] = {
    (Tool, ""): ToolResult,
    (Tool, "call"): ToolResult,
    (Tool, "submit"): Call,
    (Prompt, ""): PromptResult,
    (Template, ""): Resource,
    (Resource, "read"): ResourceResult,
}
"""The class that a call of an object, or of one of its methods, returns."""


def _in_path(context: AttributeContext, mcp: Mcp) -> tuple[Iterable[object], str]:
    """Attributes or keys after a path, and their kind for IPython; keys are not yet quoted."""
    found = _object_at(context.path, mcp)
    if context.kind == "key":
        return _keys(found), "path" if isinstance(found, Resources) else "function"
    words = [] if found is None else [word for word in dir(found) if not word.startswith("_")]
    if found is mcp:
        words += _startable(host_of(mcp))
    return words, "module" if found is mcp else "property" if isinstance(found, type) else "function"


def _startable(host: Host) -> list[str]:
    """The identifiers of the configured servers that start at their first use."""
    found = host.discovery.peek().definitions if host.starts_on_use else {}
    return [identifier(name) for name, one in found.items() if not one.disabled and name not in host.sessions]


def _keys(found: object) -> Iterable[object]:
    """The keys that an object offers to IPython, if any."""
    return getattr(found, "_ipython_key_completions_", list[object])()


def _object_at(path: Sequence[Step], mcp: Mcp) -> object:
    """The object at the end of a path, or its class; None if it is unknown. Nothing is started or called."""
    if not path:
        return mcp
    first, *rest = path
    found: object = None
    if not _is_mcp_attribute(first):
        session = _session(first.name, mcp)
        found = mcp[session.name] if session is not None else parts_of(mcp).unloaded(first.name)
        if isinstance(found, UnloadedServerTools) and rest:
            found = Tool if rest.pop(0).name in dir(found) else None
        if session is not None and rest:
            step = rest.pop(0)
            if not _is_server_attribute(step):
                found = Tool if session.catalog.find(step.name) is not None else None
            elif rest:
                name = rest.pop(0).name
                found = Prompt if step.name == "prompts" else Template if "{" in name else Resource
            else:
                found = getattr(found, step.name)
    elif first.name == "servers" and rest and rest[0].item:
        found, rest = Server, rest[1:]
    elif hasattr(Mcp, first.name):
        found = getattr(mcp, first.name)
    if path[-1].called:
        return _RESULTS.get((found, "".join(step.name for step in rest))) if isinstance(found, type) else None
    return None if rest else found


def _is_mcp_attribute(step: Step) -> bool:
    """Whether a step is an attribute of `mcp` itself, not a server."""
    return step.name in RESERVED_HOST and not step.item


def _is_server_attribute(step: Step) -> bool:
    """Whether a step is an attribute of a server itself, not a tool."""
    return step.name in RESERVED_SERVER and not step.item


def _session(name: str, mcp: Mcp) -> ServerSession | None:
    """The loaded server with this name or identifier."""
    host = host_of(mcp)
    exact = next((exact for exact, alias in host.aliases().items() if alias == name), name)
    return host.sessions.get(name) or host.sessions.get(exact)


def _in_call(context: AttributeContext, mcp: Mcp) -> tuple[Iterable[object], str]:
    """Names or values of arguments in a call, and their kind for IPython; values are not yet quoted."""
    first, *rest = context.path
    session = _session(first.name, mcp) if rest and not _is_mcp_attribute(first) else None
    kind = rest.pop(0).name if rest and _is_server_attribute(rest[0]) else "tools"
    if rest and rest[-1].name in ("aio", "submit") and not rest[-1].item and len(rest) > 1:
        rest.pop()
    callee = _callee(kind, session, rest[0].name, mcp) if session is not None and len(rest) == 1 else None
    if callee is None:
        return (), "param"
    required = [each.alias for each in callee.parameters if each.required]
    if context.kind == "argument":
        taken = {*context.given, *required[: context.positional]}
        return (f"{each.alias}=" for each in callee.parameters if each.alias not in taken), "param"
    argument = context.argument or "".join(required[context.positional : context.positional + 1])
    others = {
        key if isinstance(key, str) else required[key]: text
        for key, text in context.literals
        if isinstance(key, str) or key < len(required)
    }
    return callee.values(argument, context.partial if context.quote else "", others, mcp), "value"


_SUGGESTION_TIMEOUT = 1.0


class _Callee(Struct, frozen=True):
    """A tool, prompt or template that is being called."""

    session: ServerSession
    parameters: Sequence[Parameter]
    reference: Mapping[str, str] | None = None
    """The reference for suggestions of the server; None for a tool."""

    def values(self, argument: str, typed: str, others: Mapping[str, str], mcp: Mcp) -> Sequence[object]:
        """Known values of an argument, or values that the server suggests.

        Args:
            argument: The argument's name or alias.
            typed: The typed part of the value.
            others: The values of the other arguments, by name or alias.
            mcp: The notebook's servers.
        """
        parameter = self._parameter(argument)
        if parameter is None:
            return ()
        if self.reference is None:
            return parameter.enum or ((True, False) if parameter.annotation is bool else ())
        if self.session.client is None:
            return ()
        exact = {found.name: value for name, value in others.items() if (found := self._parameter(name))}
        return host_of(mcp).loop.run(self._suggestions(self.reference, parameter.name, typed, exact))

    def _parameter(self, name: str) -> Parameter | None:
        return next((each for each in self.parameters if name in (each.name, each.alias)), None)

    async def _suggestions(
        self, reference: Mapping[str, str], argument: str, typed: str, others: Mapping[str, str]
    ) -> list[str]:
        ask, timeout = self.session.resources.suggestions, _SUGGESTION_TIMEOUT
        with contextlib.suppress(McpError, TimeoutError):
            async with asyncio.timeout(timeout):  # also limits the sending, because a server may be slow to read
                return await ask(reference, argument, typed, others, timeout=timeout)
        return []


def _callee(kind: str, session: ServerSession, name: str, mcp: Mcp) -> _Callee | None:
    """The tool, prompt or template of a name; `kind` is `tools`, `prompts` or `resources`."""
    host, catalog = host_of(mcp), session.catalog
    if kind == "prompts":
        prompt = catalog.find_prompt(name) or load_quickly(host, session, "prompts").find_prompt(name)
        reference = {"type": "ref/prompt", "name": prompt.name if prompt else ""}
        return prompt and _Callee(session, prompt_schema(prompt).parameters, reference)
    if kind == "resources":
        template = catalog.templates.get(name) or load_quickly(host, session, "templates").templates.get(name)
        reference = {"type": "ref/resource", "uri": name}
        return template and _Callee(session, template_schema(session.name, template).parameters, reference)
    tool = catalog.find(name)
    return tool and _Callee(session, parts_of(mcp).factory.schema(tool).parameters)


# -- %mcp lines -------------------------------------------------------------------------------------------------------

_DOCUMENTS = (".json", ".json5", ".jsonc", ".toml")


def _on_line(context: LineContext, mcp: Mcp) -> tuple[Iterable[object], str]:
    """Candidates on a `%mcp` line, and their kind for IPython."""
    host, partial = host_of(mcp), context.partial
    match context.kind:
        case "argument" | "value":
            callee = _callee_on_line(context, mcp)
            if callee is None:
                return (), "param"
            if context.kind == "value":
                return callee.values(context.argument, partial, dict(context.given), mcp), "value"
            given = dict(context.given)
            return (each.name for each in callee.parameters if each.name not in given), "param"
        case "option":
            return (option.name for option in context.options), "keyword"
        case "option-value":
            choices = (option.choices for option in context.options if option.name == context.argument)
            return next(choices, ()), "value"
        case "word":
            from ipymcp.notebook.magics.dispatch import MODULES

            return (f"{word} " if context.subcommand == "" else word for word in sorted(MODULES)), "keyword"
        case "server":
            return mcp, "module"
        case "owner":
            return (f"{name}:" for name in mcp), "module"
        case "configured":
            return [*mcp, *host.discovery.peek().servers], "module"
        case "loadable":
            files = _paths(partial, host.folder, _DOCUMENTS)
            return [*mcp, *host.discovery.peek().servers, "demo", *files], "module"
        case "tool" | "prompt":
            return _dotted(context.kind, partial, mcp), "function"
        case "tool-name":
            return (one.name for session in host.sessions.values() for one in session.catalog.for_people()), "function"
        case "resource":
            session = _session(context.server, mcp)
            keys = _keys(mcp[session.name].resources) if session else ()
            return (key for key in keys if context.subcommand != "ask" or "{" not in str(key)), "path"
        case "source-host":
            from ipymcp.config.hosts import IMPORTED

            return [*IMPORTED, *_paths(partial, host.folder, _DOCUMENTS)], "path"
        case "folder":
            return _paths(partial, host.folder, ()), "path"
        case "file":
            return _paths(partial, host.folder), "path"
        case "secret":
            return _secrets(mcp), "value"
        case "trusted":
            return (str(one[key]) for one in mcp.trust.table for key in ("server", "file")), "value"
        case "target-host":
            from ipymcp.config.hosts import EXPORTED

            return EXPORTED, "value"
        case "setting":
            from ipymcp.config.hosts import SETTINGS

            return (f"{key}{'.' if is_table else '='}" for key, is_table in SETTINGS.items()), "value"
        case "call":
            return (str(call.number) for call in mcp.calls), "value"
        case _:
            return (), "value"


def _callee_on_line(context: LineContext, mcp: Mcp) -> _Callee | None:
    """The tool, prompt or template of a line."""
    if context.server:
        session = _session(context.server, mcp)
        return session and _callee("resources", session, context.tool, mcp)
    try:
        session, name = host_of(mcp).resolve(context.tool)
    except McpError:
        return None
    return _callee("prompts" if context.subcommand == "prompt" else "tools", session, name, mcp)


def _dotted(kind: Literal["tool", "prompt"], partial: str, mcp: Mcp) -> Iterator[str]:
    """The servers as `server.`; after a typed server, its tools or prompts as `server.name`."""
    for name, session in host_of(mcp).sessions.items():
        if not partial.startswith(f"{name}."):
            yield f"{name}."
        elif kind == "tool":
            yield from (f"{name}.{one.name}" for one in session.catalog.for_people())
        else:
            yield from (f"{name}.{prompt}" for prompt in load_quickly(host_of(mcp), session, "prompts").prompts)


def _secrets(mcp: Mcp) -> Iterator[str]:
    """The names of saved secrets, and of secrets that definitions refer to."""
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.variables import references

    try:
        yield from (one.name for one in host_of(mcp).store.secrets.kept())
    except McpError:
        return
    for definition in host_of(mcp).discovery.peek().servers.values():
        if isinstance(definition, ServerDefinition):
            yield from (one.name for one in references(definition) if one.kind == "secret")


def _paths(partial: str, folder: str, endings: tuple[str, ...] = ("",)) -> Iterator[str]:
    """Folders, and files with these endings, relative to the notebook's folder."""
    parent, slash, start = partial.rpartition("/")
    path = os.path.join(folder, os.path.expanduser(parent + slash))
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(start) or (entry.name.startswith(".") and not start):
            continue
        if entry.is_dir() or entry.name.endswith(endings):
            yield f"{parent}{slash}{entry.name}{'/' if entry.is_dir() else ''}"
