"""Tab completion: servers, tools, argument names and values, in `%mcp` lines and in Python code.

Names come from servers, project files and folders, which are untrusted. A name with invisible characters or line breaks
is not offered; any other name is written in the open quotes, or in those it needs.

`context_at` determines from the text before the cursor which kind of name is typed there. Python code is lexed forwards
once, for strings, comments and brackets only, because an apostrophe in a comment looks like a string when read
backwards. The expression before the cursor is then read backwards with the brackets paired.

Candidates come from the catalogs as they are: nothing is started or evaluated. Only values of prompt and template
arguments are requested from the server, for at most a second. Elsewhere IPython's own completers apply.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, structs

from ipymcp.api.catalogs import look_quickly
from ipymcp.api.namespace import Mcp, factory_of
from ipymcp.api.prompts import Prompt, PromptResult, Prompts, prompt_schema
from ipymcp.api.resources import Resource, Resources, Template, template_schema
from ipymcp.api.servers import Server, Servers
from ipymcp.api.sync_and_async import host_of, sync_and_async
from ipymcp.api.tool import Tool
from ipymcp.api.toolset import Toolset
from ipymcp.errors import McpError
from ipymcp.masking import mask
from ipymcp.names import RESERVED_HOST, RESERVED_SERVER
from ipymcp.notebook.line_syntax import Kind, Option, Syntax, names_among, tokenize_partial
from ipymcp.results.resource_result import ResourceResult
from ipymcp.results.tool_result import ToolResult
from ipymcp.runtime.call import Call
from ipymcp.text import quoted, unmasked_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ipymcp.notebook.line_syntax import PartialLine
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.session import ServerSession
    from ipymcp.schema.tool_schema import Parameter, ToolSchema


def line_word(value: object, quote: str, *, is_argument: bool = False, is_open: bool = False) -> str | None:
    """Write a name or value for a `%mcp` line; None if that is impossible.

    Args:
        value: A string, or another JSON value, which needs no quotes.
        quote: The quote that is open at the cursor; empty for none.
        is_argument: Whether this is an argument's value, in which double quotes allow `{expr}`.
        is_open: Whether the word continues after the completion.
    """
    text = value if isinstance(value, str) else json.dumps(value)
    if not _is_seen(text):
        return None
    if quote:
        if is_argument and quote == '"' and "$" in text:
            return None  # a `$name` between double quotes is refused
        if is_argument and quote == '"' and "{" in text:
            text = text.replace("{", "{{").replace("}", "}}")
        return text.replace(quote, quote * 2)
    return quoted(text, is_open=is_open) if isinstance(value, str) else text


def line_argument(name: str) -> str | None:
    """Write `name=` for a `%mcp` line; None if that is impossible."""
    word = f"{name}="
    partial = tokenize_partial(word)
    is_key = partial is not None and not partial.words and partial.last.key == name
    return word if is_key and _is_seen(name) and not name.startswith("-") else None


def unquoted(partial: str, quote: str) -> str:
    """Decode the beginning of a quoted word of a `%mcp` line."""
    return partial.replace(quote * 2, quote) if quote else partial


def code_value(value: object, quote: str) -> str | None:
    """Write a key or value in Python code, after the open quote; None if that is impossible."""
    if not isinstance(value, str):
        return None if quote else repr(value)
    if not _is_seen(value):
        return None
    return value.replace("\\", "\\\\").replace(quote, f"\\{quote}") if quote else repr(value)


def _is_seen(text: str) -> bool:
    """Whether a text is fully visible on one line."""
    return text.isprintable() and unmasked_line(text) == text


class Step(Struct, frozen=True):
    """One step of a path from the namespace: `.name`, or `["name"]` if `item` is set."""

    name: str
    item: bool = False
    called: bool = False
    """Whether the step is called, `.name(…)`; only the last step before an attribute may be."""


class AttributeContext(Struct, frozen=True):
    """A cursor in Python code, in an expression of the namespace."""

    kind: Literal["attribute", "key", "argument", "value"]
    path: tuple[Step, ...]
    """The path before the cursor or of the called function: `mcp.fs["x"].aio(` is fs, ["x"], aio.

    `.options(…)` returns the tool itself and is omitted."""
    partial: str
    start: int
    argument: str = ""
    """The argument whose value is typed; empty for a positional one."""
    given: tuple[str, ...] = ()
    """The keyword arguments already given."""
    positional: int = 0
    """Number of positional arguments before the cursor's."""
    quote: str = ""
    """The quote that is open at the cursor."""
    literals: tuple[tuple[int | str, str], ...] = ()
    """String literals among the arguments before the cursor's, by position or keyword."""


def attribute_context(text: str, namespace: str) -> AttributeContext | None:
    """The context at the end of `text`; None if the expression does not belong to `namespace`."""
    return _Python(text, namespace).context() if namespace in text else None


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
_WORD_AT_END = re.compile(r"\w*\Z")
_LITERAL = re.compile(r"""\s*(['"])([^'"\\]*)\1\s*""")
_KEYWORD = re.compile(r"\s*([^\W\d]\w*)\s*=(?!=)")
_ARGUMENT = re.compile(r"\s*((?:[^\W\d]\w*)?)")
_VALUE = re.compile(r"\s*([^\W\d]\w*)\s*=\s*(\w*)")


class _Python:
    """Python code before the cursor, lexed for open brackets, strings and comments."""

    def __init__(self, text: str, namespace: str) -> None:
        self.offset = text.find("\n", len(text) - _TAIL) + 1 if len(text) > _TAIL else 0
        self.text = text[self.offset :]
        self.namespace = namespace
        self.opened: list[list[int]] = []
        """Open brackets, outermost first: the position of each, then those of the commas directly inside it."""
        self.pairs: dict[int, int] = {}
        """Positions of opening brackets, by position of their closing bracket."""
        self.string = -1
        """The start of the string that is open at the cursor; -1 for none."""
        self.comments: list[tuple[int, int]] = []
        self._lex()

    def _lex(self) -> None:
        """Lex in one pass without a call per bracket: a long cell has thousands, and this runs on every Tab."""
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
        return None if path is None else self._found("attribute", path, match.group())

    def _key(self) -> AttributeContext | None:
        bracket = self._skip_blanks(self.string) - 1
        if not self.opened or bracket != self.opened[-1][0] or self.text[bracket] != "[":
            return None
        path = self._path(bracket)
        return None if path is None else self._found("key", path, self.text[self.string + 1 :])

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
        names = tuple(name for name in given if name)
        positional = sum(
            1
            for part, name in zip(before, given, strict=True)
            if name is None and part.strip() and not part.lstrip().startswith("*")
        )
        kind, argument, partial = self._at_cursor(edges[-1] + 1)
        return kind and self._found(kind, path, partial, argument, names, positional, _literals(before))

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

    def _found(
        self,
        kind: Literal["attribute", "key", "argument", "value"],
        path: tuple[Step, ...],
        partial: str,
        argument: str = "",
        given: tuple[str, ...] = (),
        positional: int = 0,
        literals: tuple[tuple[int | str, str], ...] = (),
    ) -> AttributeContext:
        start = self.offset + len(self.text) - len(partial)
        quote = self.text[self.string] if self.string >= 0 else ""
        return AttributeContext(kind, path, partial, start, argument, given, positional, quote, literals)

    def _code(self, start: int, end: int) -> str:
        """The text of a range without its comments."""
        parts: list[str] = []
        for opened, closed in self.comments:
            if start <= opened and closed <= end:
                parts.append(self.text[start:opened])
                start = closed
        return "".join(parts) + self.text[start:end]

    def _path(self, end: int, *, may_call: bool = False) -> tuple[Step, ...] | None:
        """The steps of the expression that ends here, read backwards to the namespace; None for other expressions."""
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


Typed: TypeAlias = Kind | Literal["argument", "value", "option", "option-value"]
"""The kind of the typed word: a `Kind`, an argument's name or value, an option or one of its choices."""
_LINE = re.compile(r"[ \t]*(?:(%%)mcp[ \t]|(?:[^\W\d][^=%#\n]*=[ \t]*)?%mcp[ \t])")
_CONTINUED = re.compile(r"\\\n")


class LineContext(Struct, frozen=True):
    """A cursor in a `%mcp`, `x = %mcp` or `%%mcp` line."""

    kind: Typed
    """The kind of the word; for `tool` and `prompt` the word may still be the server's name."""
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
    """The argument, or the option, whose value is typed."""
    given: tuple[str, ...] = ()
    """The arguments already given."""
    values: tuple[tuple[str, str], ...] = ()
    """The arguments already given, with their values as typed."""
    quote: str = ""
    in_cell: bool = False
    """Whether this is a `%%mcp` line."""
    actions: tuple[str, ...] = ()
    """The actions allowed at the cursor."""
    options: tuple[Option, ...] = ()
    """The options allowed on the line."""


def context_at(
    text: str, *, namespace: str = "mcp", syntax_of: Callable[[str], Syntax | None] | None = None
) -> LineContext | AttributeContext | None:
    """Determine the context at the end of `text`.

    Args:
        text: The cell up to the cursor.
        namespace: The name that the notebook's host is bound to.
        syntax_of: Returns the syntax of a subcommand, None for other words; by default that of the real ones.
    """
    start = _line_start(text)
    line = _LINE.match(text, start)
    if line and not (line[1] and text[:start].strip()):
        partial = tokenize_partial(_CONTINUED.sub("  ", text[line.end() :]))  # the same length: places stay right
        return None if partial is None else _line_context(partial, len(text), bool(line[1]), syntax_of or _real_syntax)
    if text.lstrip().startswith("%%mcp"):
        return None
    return attribute_context(text, namespace)


def _real_syntax(word: str) -> Syntax | None:
    from ipymcp.notebook.magics.dispatch import MODULES, command

    return command(word).syntax if word in MODULES else None


def _line_start(text: str) -> int:
    """The start of the line at the cursor, including the lines that it continues."""
    start = text.rfind("\n") + 1
    while start > 1 and text[start - 2] == "\\":
        start = text.rfind("\n", 0, start - 1) + 1
    return start


def _line_context(
    line: PartialLine, end: int, in_cell: bool, syntax_of: Callable[[str], Syntax | None]
) -> LineContext | None:
    last = line.last
    raw = last.raw[len(last.key) + 1 :] if last.key is not None else last.raw
    value = raw.removeprefix(last.quoted)
    if last.quoted and value.endswith(last.quoted):
        return None  # the quote is closed: nothing is being typed
    words = line.words
    subcommand = words[0].text if words else ""
    whole = syntax_of(subcommand) if words else Syntax("", takes=("word",))
    if whole is None:
        return None
    names = names_among(words[1:], whole.valued)
    action = whole.actions.get(names[0].text) if names else None
    syntax = action or whole
    names = names[1:] if action else names
    target = len(syntax.takes) - 1
    named = names[target:] if syntax.arguments else []
    given = [(word.key, word.value) for word in named[1:] if word.key is not None]

    def found(kind: Typed, *, argument: str = "", actions: tuple[str, ...] = ()) -> LineContext:
        return LineContext(
            kind=kind,
            partial=typed,
            start=end - len(typed),
            subcommand=subcommand,
            tool=named[0].text if named else "",
            server=names[0].text if target > 0 and names else "",
            argument=argument,
            given=tuple(name for name, _ in given),
            values=tuple(given),
            quote=last.quoted,
            in_cell=in_cell,
            actions=actions,
            options=syntax.options if action or names else tuple(syntax.every.values()),
        )

    typed = value
    if line.in_command:
        return found("file")
    option = _option_at(line, whole.valued)
    if option is not None:
        return found(option.takes or "option-value", argument=option.name)
    if last.raw.startswith("-"):
        return found("option")
    if named:
        if last.key is not None:
            return found("value", argument=last.key)
        return None if last.quoted or last.is_body else found("argument")
    if last.key is not None:
        return None
    kind = syntax.takes[min(len(names), target)] if syntax.takes else ""
    actions = tuple(whole.actions) if not action and not names else ()
    if kind in ("tool", "prompt"):
        typed = value.removeprefix("!")
    return found(kind, actions=actions) if kind or actions else None


def _option_at(line: PartialLine, valued: Mapping[str, Option]) -> Option | None:
    """The option whose value is typed."""
    if line.last.key is not None and line.last.key in valued:
        return valued[line.last.key]
    return valued.get(line.words[-1].raw) if line.words else None


def _own_words(context: LineContext, mcp: Mcp) -> Iterable[str]:
    """Candidates that do not come from servers."""
    match context.kind:
        case "secret":
            return _secrets(mcp)
        case "trusted":
            return _trusted(mcp)
        case "target-host":
            from ipymcp.config.export import TARGETS

            return TARGETS
        case "setting":
            from ipymcp.config.export import SETTINGS

            return (f"{key}{'.' if is_table else '='}" for key, is_table in SETTINGS.items())
        case "call":
            return (str(call.number) for call in mcp.calls)
        case _:
            return ()


def _secrets(mcp: Mcp) -> Iterator[str]:
    """Saved secrets and those that definitions refer to."""
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.variables import references

    try:
        yield from (one.name for one in host_of(mcp).state.secrets.kept())
    except McpError:
        return
    for definition in host_of(mcp).discovery.peek().servers.values():
        if isinstance(definition, ServerDefinition):
            yield from (one.name for one in references(definition) if one.kind == "secret")


def _trusted(mcp: Mcp) -> Iterator[str]:
    for one in mcp.trust.table:
        yield str(one["server"])
        yield str(one["file"])


_TIMEOUT = 1.0


def _of_offers(context: LineContext, mcp: Mcp) -> tuple[Iterable[str], str]:
    """Candidates of `%mcp read|subscribe|prompt`, and their kind for IPython."""
    if context.kind == "prompt":
        return _prompt_paths(context.partial, mcp), "function"
    if context.subcommand == "prompt":
        try:
            session, name = host_of(mcp).resolve(context.tool)
        except McpError:
            return (), "param"
        named = _Named.prompt(mcp, session, name)
    else:
        session = _session(context.server, mcp)
        if session is None:
            return (), "param"
        if context.kind == "resource":
            return Resources(host_of(mcp), session.name)._ipython_key_completions_(), "path"  # pyright: ignore[reportPrivateUsage]
        named = _Named.template(mcp, session, context.tool)
    if named is None:
        return (), "param"
    if context.kind == "argument":
        return (each.name for each in named.schema.parameters if each.name not in context.given), "param"
    return named.suggestions(context.argument, context.partial, dict(context.values)), "value"


def _in_resource_code(context: AttributeContext, mcp: Mcp, session: ServerSession) -> tuple[Iterable[str], str]:
    """Candidates after `mcp.SERVER.resources` and `mcp.SERVER.prompts`, and their kind for IPython."""
    word, *steps = context.path[1:]
    if context.kind in ("argument", "value"):
        return _in_resource_call(context, steps, mcp, session, is_prompt=word.name == "prompts")
    if context.kind == "key":
        of: type[Resources | Prompts] = Prompts if word.name == "prompts" else Resources
        keys = of(host_of(mcp), session.name)._ipython_key_completions_() if not steps else []  # pyright: ignore[reportPrivateUsage]
        return keys, "function" if of is Prompts else "path"
    if word.name == "prompts":
        if not steps:
            return dir(Prompts(host_of(mcp), session.name)), "function"
        return _words_of(PromptResult if steps[-1].called else Prompt), "property"
    return _words_of(_kind_after(steps)), "property"


def _kind_after(steps: Sequence[Step]) -> type[object]:
    if not steps:
        return Resources
    if steps[-1].called:
        return Resource if steps[-1].item else ResourceResult
    return Template if "{" in steps[0].name else Resource


def _in_resource_call(
    context: AttributeContext, steps: Sequence[Step], mcp: Mcp, session: ServerSession, *, is_prompt: bool
) -> tuple[Iterable[str], str]:
    is_aio = len(steps) == 2 and is_prompt and steps[1].name == "aio" and not steps[1].item
    if len(steps) != 1 and not is_aio:
        return (), "param"
    named = (_Named.prompt if is_prompt else _Named.template)(mcp, session, steps[0].name)
    if named is None:
        return (), "param"
    parameters = named.schema.parameters
    required = [each.alias for each in parameters if each.required]
    filled = set(required[: context.positional])
    if context.kind == "argument":
        free = [each.alias for each in parameters if each.alias not in context.given and each.alias not in filled]
        return (f"{name}=" for name in free), "param"
    argument = context.argument or (required[context.positional] if context.positional < len(required) else "")
    others = {
        key if isinstance(key, str) else required[key]: text
        for key, text in context.literals
        if isinstance(key, str) or key < len(required)
    }
    found = named.suggestions(argument, context.partial if context.quote else "", others)
    return found, "value"


class _Named:
    """A prompt or template that is being called."""

    def __init__(self, mcp: Mcp, session: ServerSession, schema: ToolSchema, reference: Mapping[str, str]) -> None:
        self._mcp = mcp
        self._session = session
        self._reference = reference
        self.schema = schema

    @classmethod
    def prompt(cls, mcp: Mcp, session: ServerSession, name: str) -> _Named | None:
        entry = session.catalog.find_prompt(name) or look_quickly(host_of(mcp), session, "prompts").find_prompt(name)
        return entry and cls(mcp, session, prompt_schema(entry), {"type": "ref/prompt", "name": entry.name})

    @classmethod
    def template(cls, mcp: Mcp, session: ServerSession, uri: str) -> _Named | None:
        found = session.catalog.templates.get(uri) or look_quickly(host_of(mcp), session, "templates").templates.get(
            uri
        )
        if found is None:
            return None
        return cls(mcp, session, template_schema(session.name, found), {"type": "ref/resource", "uri": uri})

    def suggestions(self, argument: str, typed: str, others: Mapping[str, str]) -> list[str]:
        """The server's suggestions for an argument, by name or alias."""
        parameter = self._parameter(argument)
        if parameter is None or self._session.client is None:
            return []
        exact = {found.name: value for name, value in others.items() if (found := self._parameter(name))}
        return host_of(self._mcp).loop.run(self._ask(parameter.name, typed, exact))

    def _parameter(self, name: str) -> Parameter | None:
        return next((each for each in self.schema.parameters if name in (each.name, each.alias)), None)

    async def _ask(self, argument: str, typed: str, others: Mapping[str, str]) -> list[str]:
        with contextlib.suppress(McpError, TimeoutError):
            async with asyncio.timeout(_TIMEOUT):  # includes sending: a server may be slow to read
                return await self._session.offers.suggestions(
                    self._reference, argument, typed, others, timeout=_TIMEOUT
                )
        return []


def _prompt_paths(partial: str, mcp: Mcp) -> Iterable[str]:
    for name, session in host_of(mcp).sessions.items():
        if not partial.startswith(f"{name}."):
            yield f"{name}."
        else:
            yield from (f"{name}.{prompt}" for prompt in look_quickly(host_of(mcp), session, "prompts").prompts)


def _session(name: str, mcp: Mcp) -> ServerSession | None:
    try:
        return host_of(mcp).find(name)
    except McpError:
        return None


def _words_of(kind: type[object]) -> list[str]:
    return [word for word in dir(kind) if not word.startswith("_")]


_CALLERS = ("aio", "submit")
"""Methods of a tool that take its arguments."""


def _in_code(context: AttributeContext, mcp: Mcp) -> tuple[Iterable[object], str]:
    """Candidates in Python code, and their kind for IPython; keys and values are not yet quoted."""
    path, is_key = context.path, context.kind == "key"
    session = _session_of(path[0], mcp) if path and not _is_own_word(path[0]) else None
    if session is not None and len(path) > 1 and path[1].name in RESERVED_SERVER and not path[1].item:
        return _in_resource_code(context, mcp, session)
    if context.kind in ("argument", "value"):
        return _in_call(context, mcp)
    if not path:
        return (mcp if is_key else dir(mcp)), "module"
    if _is_own_word(path[0]):
        return _of_own_word(context, mcp), "module" if is_key else "function"
    if path[-1].called:
        return _of_called(path, mcp), "property"
    if session is None or len(path) > 2 or (is_key and len(path) == 2):
        return (), "function"
    if len(path) == 2:
        return _words_of(Tool), "function"
    if is_key:
        return session.catalog.tools, "function"
    return [*sorted(session.catalog.aliases), *_offered(session)], "function"


def _offered(session: ServerSession) -> list[str]:
    """Reserved attributes of a server that it supports."""
    client = session.client
    return [word for word in sorted(RESERVED_SERVER) if client is not None and word in client.capabilities]


def _is_own_word(step: Step) -> bool:
    """Whether a step is an attribute of `mcp` itself, not a server."""
    return step.name in RESERVED_HOST and not step.item


def _of_own_word(context: AttributeContext, mcp: Mcp) -> Iterable[str]:
    """Candidates after `mcp.servers`, `mcp.tools` or a function such as `mcp.load`."""
    first, *rest = context.path
    if first.called or len(rest) > 1:
        return ()
    if first.name == "servers":
        if rest:
            return _words_of(Server) if rest[0].item and context.kind == "attribute" else ()
        return mcp if context.kind == "key" else _words_of(Servers)
    if rest or context.kind == "key":
        return ()
    if first.name == "tools":
        return _words_of(Toolset)
    if first.name in RESERVED_SERVER:
        return ("df", "table")
    return ("aio",) if isinstance(getattr(Mcp, first.name, None), sync_and_async) else ()


def _of_called(path: Sequence[Step], mcp: Mcp) -> Iterable[str]:
    """Candidates after the call of a tool."""
    *steps, last = path
    if _entry([*steps, last], mcp) is not None or (last.name == "call" and _entry(steps, mcp) is not None):
        return _words_of(ToolResult)
    return _words_of(Call) if last.name == "submit" and _entry(steps, mcp) is not None else ()


def _entry(steps: Sequence[Step], mcp: Mcp) -> ToolEntry | None:
    """The tool of a path, if any."""
    if len(steps) != 2 or _is_own_word(steps[0]):
        return None
    session = _session_of(steps[0], mcp)
    return session.catalog.find(steps[1].name) if session is not None else None


def _in_call(context: AttributeContext, mcp: Mcp) -> tuple[Iterable[object], str]:
    path = context.path
    is_caller = len(path) == 3 and path[2].name in _CALLERS and not path[2].item
    entry = _entry(path[:2] if is_caller else path, mcp)
    if entry is None:
        return (), "param"
    parameters = factory_of(mcp).schema(entry).parameters
    if context.kind == "value":
        name = context.argument or _positional(parameters, context.positional)
        return values(parameters, name), "value"
    filled = {parameter.alias for parameter in [p for p in parameters if p.required][: context.positional]}
    names = [p.alias for p in parameters if p.alias not in context.given and p.alias not in filled]
    return (f"{name}=" for name in names), "param"


def _session_of(step: Step, mcp: Mcp) -> ServerSession | None:
    try:
        return host_of(mcp).find(step.name)
    except McpError:
        return None


def _positional(parameters: Sequence[Parameter], position: int) -> str:
    required = [parameter for parameter in parameters if parameter.required]
    return required[position].alias if position < len(required) else ""


def values(parameters: Sequence[Parameter], name: str) -> Sequence[object]:
    """Known values of an argument, by name or alias."""
    found = next((parameter for parameter in parameters if name in (parameter.name, parameter.alias)), None)
    if found is None:
        return ()
    return found.enum or ((True, False) if found.annotation is bool else ())


_DOCUMENTS = (".json", ".json5", ".jsonc")


def candidates(text: str, mcp: Mcp, namespace: str) -> tuple[str, list[str], str] | None:
    """Complete the end of a text.

    Args:
        text: The cell up to the cursor.
        mcp: The notebook's servers.
        namespace: The name that `mcp` is bound to.

    Returns:
        The typed part, the candidates and their kind for IPython; None if IPython's own completers apply.
    """
    context = context_at(text, namespace=namespace)
    if context is None:
        return None
    if isinstance(context, LineContext):
        partial = unquoted(context.partial, context.quote)
        words, kind = _on_line(structs.replace(context, partial=partial), mcp)
        # Without candidates the typed part itself is offered, so that IPython adds no names and files.
        whole = [context.partial]
        found = _beginning(partial, [*context.actions, *_without_secrets(words, kind)])
        spelled = [_spelled(word, context) for word in found]
        return context.partial, [word for word in spelled if word is not None] or whole, kind
    words, kind = _in_code(context, mcp)
    if context.kind in ("key", "value"):
        words = [code_value(word, context.quote) for word in _without_secrets(words, kind)]
    found = [word for word in _beginning(context.partial, words) if isinstance(word, str)]
    return context.partial, found or ([context.partial] if context.kind == "key" else []), kind


def _without_secrets(words: Iterable[object], kind: str) -> Iterable[object]:
    """Drop values and URLs that contain a secret; names are never dropped."""
    return words if kind not in ("value", "path") else (word for word in words if mask(str(word)) == str(word))


def _beginning(partial: str, words: Iterable[object]) -> list[object]:
    typed = {word if isinstance(word, str) else json.dumps(word): word for word in words if word is not None}
    return [word for text, word in typed.items() if text.startswith(partial)] or [
        word for text, word in typed.items() if text.casefold().startswith(partial.casefold())
    ]


def _spelled(word: object, context: LineContext) -> str | None:
    """Write a candidate for a `%mcp` line; None if that is impossible."""
    if isinstance(word, str) and (word in context.actions or context.kind in _OWN_KINDS):
        return word
    if context.kind == "argument":
        return line_argument(str(word))
    is_open = context.kind in ("tool", "prompt") and str(word).endswith(".")
    return line_word(word, context.quote, is_argument=context.kind == "value", is_open=is_open)


# -- %mcp lines -------------------------------------------------------------------------------------------------------

_OWN_KINDS = frozenset({"word", "option", "option-value", "setting", "target-host", "call"})
"""Kinds whose words come from ipymcp itself and need no quotes."""


def _on_line(context: LineContext, mcp: Mcp) -> tuple[Iterable[object], str]:
    host = host_of(mcp)
    match context.kind:
        case "resource" | "prompt":
            return _of_offers(context, mcp)
        case "argument" | "value" if context.subcommand != "call":
            return _of_offers(context, mcp)
        case "argument":
            parameters = _parameters(context.tool, mcp)
            return (parameter.name for parameter in parameters if parameter.name not in context.given), "param"
        case "value":
            return values(_parameters(context.tool, mcp), context.argument), "value"
        case "option":
            return (option.name for option in context.options), "keyword"
        case "option-value":
            return (
                choice for one in context.options if one.name == context.argument for choice in one.choices
            ), "value"
        case "word":
            from ipymcp.notebook.magics.dispatch import MODULES

            return (f"{word} " if context.subcommand == "" else word for word in sorted(MODULES)), "keyword"
        case "server":
            return mcp, "module"
        case "configured":
            return [*mcp, *host.discovery.peek().servers], "module"
        case "loadable":
            return [
                *mcp,
                *host.discovery.peek().servers,
                "demo",
                *_paths(context.partial, host.folder, _DOCUMENTS),
            ], "module"
        case "tool":
            return _tool_paths(context.partial, mcp), "function"
        case "tool-name":
            return (tool for session in host.sessions.values() for tool in session.catalog.tools), "function"
        case "source-host":
            from ipymcp.config.hosts import HOSTS

            return [*HOSTS, *_paths(context.partial, host.folder, _DOCUMENTS)], "path"
        case "folder":
            return _paths(context.partial, host.folder, ()), "path"
        case "file":
            return _paths(context.partial, host.folder), "path"
        case _:
            return _own_words(context, mcp), "value"


def _tool_paths(partial: str, mcp: Mcp) -> Iterator[str]:
    for name, session in host_of(mcp).sessions.items():
        if not partial.startswith(f"{name}."):
            yield f"{name}."
        else:
            yield from (f"{name}.{tool}" for tool in session.catalog.tools)


def _paths(partial: str, folder: str, endings: tuple[str, ...] = ("",)) -> Iterator[str]:
    """Folders, and files with these endings, relative to the notebook's folder."""
    above, slash, start = partial.rpartition("/")
    where = os.path.join(folder, os.path.expanduser(above + slash))
    try:
        entries = sorted(os.scandir(where), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(start) or (entry.name.startswith(".") and not start):
            continue
        if entry.is_dir() or entry.name.endswith(endings):
            yield f"{above}{slash}{entry.name}{'/' if entry.is_dir() else ''}"


def _parameters(path: str, mcp: Mcp) -> Sequence[Parameter]:
    try:
        session, tool = host_of(mcp).resolve(path)
    except McpError:
        return ()
    entry = session.catalog.find(tool)
    return factory_of(mcp).schema(entry).parameters if entry is not None else ()
