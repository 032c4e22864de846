"""`%mcp ask` and `%%mcp ask`: a question to a model that may use the notebook's tools."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from ipymcp.api.apps import apps_of
from ipymcp.api.parts import parts_of
from ipymcp.api.resources import Template
from ipymcp.api.toolset import require_matches
from ipymcp.errors import ArgumentError, McpError
from ipymcp.llm.answer import insertable, insertable_blocks
from ipymcp.notebook.call_code import of_model
from ipymcp.notebook.line_syntax import Command, LineError, Option, Syntax, tokenize
from ipymcp.notebook.line_values import evaluate, parse_arguments, parse_expression
from ipymcp.results import markdown
from ipymcp.text import escaped, visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.api.resources import PromptResult
    from ipymcp.api.toolset import Toolset
    from ipymcp.interaction.questions import CallApp
    from ipymcp.llm.answer import Answer, ModelCall
    from ipymcp.llm.backend import Effort, Limits, ModelSettings, RequestPreview
    from ipymcp.llm.chat import ModelChat
    from ipymcp.llm.planning import AskRequest
    from ipymcp.llm.recording import Replay
    from ipymcp.llm.tool_definitions import Discover
    from ipymcp.notebook.display import PanelDisplay
    from ipymcp.notebook.line_syntax import MagicRequest, Parsed
    from ipymcp.results.resource_result import ResourceResult


_OPTION_OF = {
    re.compile(r"\blimits=ipymcp\.Limits\((\w+)=([^()]+)\)"): r"--\1 \2",
    re.compile(r'\bmodel="([^"]+)"'): r"--model \1",
    re.compile(r'\breplay="(\w+)"'): r"--replay \1",
    re.compile(r"\bmax_tokens=(\d+)"): r"--max-tokens \1",
}
"""The options of a line in place of arguments of `mcp.ask`."""
_FIX = "My code failed with this error. Why did it, and what is the corrected cell?"


def _ask(request: MagicRequest) -> Any:
    """Ask a model, which may use the tools; needs the extra `llm`.

        %mcp ask Which penguins are the heaviest?
        answer = %mcp ask --tools demo What is in $df?
        %mcp ask --fix                             explain the last error, and correct its cell
        %mcp ask What does $fig show that @fs:notes.md does not say?
        %mcp ask /demo.describe species=Gentoo     ask with the prompt of a server

        %%mcp ask --model anthropic:claude-opus-4-5 --tools fs.* !*.write_* --out answer
        Which files in this folder are the largest?

    Options come before the question. $name is a variable of the notebook: data, a figure or an image, a function, which
    is sent as its source, or an exception; $err is the last exception. $$ is a $; formulas are not changed.
    @server:resource is a resource, and /server.prompt name=value at the start of a line a prompt.
    %mcp policy decides which calls need your approval.
    """
    before = getattr(sys, "last_value", None)
    try:
        return _run(request)
    except McpError as error:
        _errors_before[error] = before
        hint = error.hint or ""
        for pattern, option in _OPTION_OF.items():
            hint = pattern.sub(option, hint)
        error.hint = hint or None
        raise


_errors_before: WeakKeyDictionary[BaseException, BaseException | None] = WeakKeyDictionary()
"""For each exception that `%mcp ask` raised, the last exception before it."""


def _last_error() -> BaseException | None:
    """The last exception of a cell that the user saw, except those of `%mcp ask`."""
    error: BaseException | None = getattr(sys, "last_value", None)
    while error is not None and error in _errors_before:
        error = _errors_before[error]
    return error


class _Offers:
    """The resources and prompts of the notebook's servers."""

    def __init__(self, request: MagicRequest) -> None:
        self._request = request

    @property
    def servers(self) -> list[str]:
        aliases = self._request.host.aliases()
        return [*aliases, *aliases.values()]

    def resource(self, server: str, name: str) -> ResourceResult:
        found = self._request.mcp[server].resources[name]
        if isinstance(found, Template):
            raise McpError(f"{name} is a template", server=server, hint=f"write the whole URI: @{server}:URI")
        return found.read()

    def prompt(self, server: str, name: str, arguments: str) -> PromptResult:
        try:
            given = parse_arguments(tokenize(arguments).words, self._request.namespaces)
        except LineError as error:  # without the position, which is not that in the question
            raise McpError(error.message, server=server, tool=name) from None
        return self._request.mcp[server].prompts[name](**given)


def _run(request: MagicRequest) -> Any:
    ask_request = _ask_request(request)
    chat = parts_of(request.mcp).chat
    parsed, out = request.parsed, request.parsed.text("--out")
    if parsed.has("--dry-run"):
        return chat.preview(ask_request).table
    form = parsed.text("-f") or "markdown"
    try:
        answer = _show_answer(request, chat, ask_request, form)
    except McpError as error:
        if error.answer is not None:
            more_hints = ["--continue continues it"] if ask_request.chat else []
            if out is not None:
                request.ip.user_ns[out] = error.answer
                more_hints.append(f"{out} has the partial answer")
            error.hint = " · ".join(filter(None, [error.hint, *more_hints]))
        raise
    if parsed.has("--cell"):
        if answer.code:
            request.ip.set_next_input(visible(answer.code), replace=False)
        else:
            request.host.notices.add("the answer has no Python block, so --cell added no cell")
    if out is not None:
        request.ip.user_ns[out] = answer
        return None
    return answer.json() if form == "json" else answer


def _show_answer(request: MagicRequest, chat: ModelChat, ask_request: AskRequest, form: str) -> Answer:
    """Ask the model and show the answer as it arrives, unless the request is quiet."""
    if request.is_quiet or form == "json":
        return request.host.loop.run(chat.ask(ask_request))
    output = CellOutput(
        request.display if hasattr(request.ip, "kernel") else None,
        as_markdown=form == "markdown",
        code_of=partial(of_model, request.mcp, names=request.ip.user_ns),
        can_show_apps=apps_of(request.host).can_show,
    )
    try:
        answer = request.host.loop.run(chat.ask(ask_request, output))
    except BaseException as error:
        output.mark_cancelled()
        if isinstance(error, KeyboardInterrupt) and not McpError.full_tracebacks:
            error._render_traceback_ = _interrupted  # type: ignore[attr-defined]
        raise
    output.finish(answer)
    if answer.data is None:  # typed data was not shown yet, and is the cell's value
        answer.is_shown = True
        events = request.ip.events

        def cell_is_over(*_: object) -> None:
            events.unregister("post_run_cell", cell_is_over)
            answer.is_shown = False

        events.register("post_run_cell", cell_is_over)
    return answer


def _interrupted() -> list[str]:
    return [
        "KeyboardInterrupt: the model was stopped, and its calls with it",
        "  completed calls stay in effect; --continue continues a --chat",
    ]


def _ask_request(request: MagicRequest) -> AskRequest:
    from ipymcp.llm.planning import AskRequest

    parsed = request.parsed
    prompt = request.cell if request.cell is not None else request.text
    if request.cell is None and (options := _options_behind(request.text)):
        question = request.text.removesuffix(options).strip()
        message = f"{options.split()[0]} is behind the question, and options come before it"
        raise LineError(f"{message}: %mcp ask {options} {question}", 0)
    if parsed.has("--continue"):
        if not parsed.text("--chat"):
            raise LineError("--continue needs --chat NAME: the conversation to continue", 0)
        prompt = prompt if prompt and prompt.strip() else "Go on."
    names = {name: value for space in reversed(request.namespaces) for name, value in space.items()}
    if (error := _last_error()) is not None:
        names.setdefault("err", error)
    if parsed.has("--fix"):
        if error is None:
            raise McpError("there is no error to fix", hint="run the cell that fails first")
        names["err"] = error
        prompt = f"{(prompt or '').strip() or _FIX}\n\n$err"
    if not prompt or not prompt.strip():
        where = "below the first line" if request.cell is not None else "after %mcp ask"
        raise LineError(f"the question is missing: write it {where}", 0)
    model = parsed.text("--model") or parsed.text("-m")
    return AskRequest(
        prompt=prompt.strip(),
        model=model,
        tools=_tools(request, parsed).selection,
        base_url=parsed.text("--base-url"),
        chat=parsed.text("--chat") or "",
        continues=parsed.has("--continue"),
        system=parsed.text("--system") or "",
        returns=_returns(request, parsed),
        allow=tuple(_patterns(parsed.texts("--allow"))),
        limits=_limits(parsed),
        settings=_settings(parsed),
        code=request.ip.user_ns if parsed.has("--code") else None,
        replay=cast("Replay | None", parsed.text("--replay")),
        discover=cast("Discover", parsed.text("--discover") or "auto"),
        names=names,
        offers=_Offers(request),
    )


def _options_behind(text: str) -> str:
    """The options at the end of a question on a line; `-m` only with a provider, because of `python -m venv`."""
    for found in _OPTION.finditer(text, max(0, len(text) - _MAX_OPTIONS)):
        options = text[found.end() :]
        try:
            parsed = COMMANDS["ask"].syntax.parse(tokenize(options).words)
        except LineError:
            continue
        if not parsed.names and ":" in (parsed.text("-m") or ":"):
            return options
    return ""


def _tools(request: MagicRequest, parsed: Parsed) -> Toolset:
    patterns = _patterns([*parsed.texts("--tools"), *request.names])
    if not patterns:
        return request.mcp.tools
    if patterns == ["-"]:
        return request.mcp.tools("!*")
    require_matches(request.host, request.mcp.tools, patterns)
    return request.mcp.tools(*patterns)


def _patterns(texts: list[str]) -> list[str]:
    return [pattern for text in texts for pattern in text.split(",") if pattern]


def _returns(request: MagicRequest, parsed: Parsed) -> Any:
    source = parsed.text("--returns")
    if source is None:
        return None
    try:
        tree = parse_expression(source)
    except (SyntaxError, ValueError) as error:
        raise LineError(f"--returns is not an expression: {error}", 0) from error
    return evaluate(tree, f"--returns {source}", request.namespaces)


def _limits(parsed: Parsed) -> Limits:
    from ipymcp.llm.backend import Limits

    given: dict[str, Any] = {}
    for name in Limits.__struct_fields__:
        value = parsed.number(f"--{name}")
        if value is not None:
            given[name] = int(value) if value.is_integer() else value
    try:
        return Limits(**given)
    except ArgumentError as error:
        raise LineError(error.message.replace("Limits(): ", "--"), 0) from None


def _settings(parsed: Parsed) -> ModelSettings:
    from ipymcp.llm.backend import ModelSettings

    max_tokens = parsed.number("--max-tokens")
    return ModelSettings(
        cast("Effort | None", parsed.text("--effort")),
        parsed.number("--temperature"),
        None if max_tokens is None else int(max_tokens),
    )


_ENDS = {
    "length": "cut off: the model may not write longer answers",
    "content_filter": "cut off by the provider's content filter",
}
"""Notes for the user about reasons for which an answer ended."""


def _small(line: str) -> dict[str, Any]:
    return {"text/plain": line, "text/html": f"<small>{escaped(line)}</small>"}


class CellOutput:
    """The output of an answer in a cell or a terminal.

    Args:
        display: Renders the questions of calls; None in a terminal.
        as_markdown: Whether to render the text as Markdown.
        code_of: Returns the code of a call for a cell; empty if there is none.
        can_show_apps: Returns whether apps can be displayed.
    """

    def __init__(
        self,
        display: PanelDisplay | None,
        *,
        as_markdown: bool,
        code_of: Callable[[ModelCall], str] = lambda _: "",
        can_show_apps: Callable[[], bool] = lambda: False,
    ) -> None:
        self._display = display
        self._code_of = code_of
        self._can_show_apps = can_show_apps
        self._is_notebook = display is not None
        self._as_markdown = as_markdown
        self._request = ""
        self._request_display: Any = None
        """The display of the line about the request."""
        self._text = ""
        self._text_display: Any = None
        """The display of the current text; after each call a new one begins."""
        self._thinking = ""
        self._thinking_display: Any = None
        """The display of the current reasoning."""
        self._cards: dict[str, Any] = {}
        """The displays of calls, by card."""
        self._open: dict[str, ModelCall] = {}
        """Unfinished calls, by card."""
        self._with_app = set[str]()
        """The cards of the calls whose apps are shown."""

    def show_request(self, request: RequestPreview) -> None:
        """Show a line about the request."""
        line = visible(str(request))
        self._request = line
        self._request_display = self._show(_small(line))

    def show_waiting(self, seconds: int | None) -> None:
        """Show behind the request for how long the model has been thinking; None when it no longer is."""
        waiting = "" if seconds is None else f" · Thinking… {f'{seconds} s' if seconds else ''}".rstrip()
        if self._request_display is not None:
            self._request_display.update(_small(f"{self._request}{waiting}"), raw=True)

    def show_text(self, text: str) -> None:
        """Append text."""
        if self._thinking:
            self._end_text()
        self._text += text
        if not self._is_notebook:
            print(visible(text), end="", flush=True)  # noqa: T201 - the answer itself
            return
        bundle = self._text_bundle()
        if self._text_display is None:
            self._text_display = self._show(bundle)
        else:
            self._text_display.update(bundle, raw=True)

    def _text_bundle(self) -> dict[str, Any]:
        bundle = {"text/plain": visible(self._text)}
        return {**bundle, "text/markdown": markdown.markdown(self._text)} if self._as_markdown else bundle

    def show_thinking(self, text: str) -> None:
        """Append reasoning, which is folded in a notebook."""
        from ipymcp.llm.answer import text_html

        if not self._thinking:
            self._end_line()
            self._end_text()
        self._thinking += text
        if not self._is_notebook:
            return
        line, folded = self._thinking_summary(), text_html(self._thinking)
        bundle = {
            "text/plain": line,
            "text/html": f"<details><summary><small>{line}</small></summary>{folded}</details>",
        }
        if self._thinking_display is None:
            self._thinking_display = self._show(bundle)
        else:
            self._thinking_display.update(bundle, raw=True)

    def _thinking_summary(self) -> str:
        count = len(self._thinking.split())
        return f"Thought: {count:,} word{'' if count == 1 else 's'}"

    def _end_line(self) -> None:
        if not self._is_notebook and self._text and not self._text.endswith("\n"):
            print(flush=True)  # noqa: T201

    def show_call(self, call: ModelCall) -> None:
        """Show or update the card of a call, and below it the app of its result. Later text follows below both."""
        if call.is_draft and not self._is_notebook:
            return  # a line cannot be taken back
        if call.card in self._cards and call.card not in self._open:
            return  # the call finished before its first event was shown, so that its outcome is already shown
        self._end_line()
        self._end_text()
        is_done = call.is_done  # read once: the call may end meanwhile, which is another event
        if is_done:
            self._open.pop(call.card, None)
        else:
            self._open[call.card] = call
        if call.card not in self._cards:
            self._cards[call.card] = handle = self._new_display()  # stored first, because an interrupt may follow
            self._show(self._card(call), handle)
        elif self._is_notebook:
            self._cards[call.card].update(self._card(call), raw=True)
        elif is_done:
            self._show(self._card(call))
        app = getattr(call.result, "app", None) if is_done else None
        if app is not None and call.card not in self._with_app and self._can_show_apps():
            app.show()

    def remove_call(self, call: ModelCall) -> None:
        """Remove the card of a call that the model has begun to write, and that is not made."""
        self._open.pop(call.card, None)
        handle = self._cards.pop(call.card, None)
        if handle is not None:
            handle.update({}, raw=True)

    def show_app(self, call: ModelCall, app: CallApp) -> None:
        """Show the app of a call that has no result yet, below its card."""
        if not call.is_done and call.card in self._open and self._can_show_apps():
            self._with_app.add(call.card)
            app.show()

    def _end_text(self) -> None:
        """End the current text, whose code blocks are now complete, and the current reasoning."""
        if not self._is_notebook and self._thinking:
            print(visible(self._thinking_summary()), flush=True)  # noqa: T201
        if self._text_display is not None and self._as_markdown and (offer := insertable_blocks(self._text)):
            self._text_display.update(self._text_bundle() | offer, raw=True)
        self._text, self._text_display = "", None
        self._thinking, self._thinking_display = "", None

    def mark_cancelled(self) -> None:
        """Mark unfinished calls as cancelled, and the model as no longer thinking."""
        self.show_waiting(None)
        changes = {"text": "cancelled", "is_error": True, "is_done": True, "is_cancelled": True}
        for call in [*self._open.values()]:
            if call.is_draft and call.card not in self._with_app:
                self.remove_call(call)
            else:
                self.show_call(replace(call, **changes, is_draft=False))

    def _card(self, call: ModelCall) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": visible(call.summary), "text/html": call.html()}
        if call.asked_at and not call.is_done and self._display is not None:
            bundle |= self._display.question(call.asked_at, is_here=call.asked_at == call.card)
        elif call.is_done and self._display is not None:
            bundle |= insertable(self._code_of(call))
        return bundle

    def finish(self, answer: Answer) -> None:
        """Show the usage of the answer."""
        self._end_text()
        line = answer.note if answer.is_replayed else " · ".join(filter(None, [str(answer.usage), answer.note]))
        if answer.reason in _ENDS:
            line = f"{line} · {_ENDS[answer.reason]}"
        if not self._is_notebook:
            line = f"\n{line}"
        self._show(_small(line))

    def _show(self, bundle: dict[str, Any], handle: Any = None) -> Any:
        if not self._is_notebook:
            print(visible(bundle["text/plain"]), flush=True)  # noqa: T201
            return None
        handle = handle or self._new_display()
        handle.display(bundle, raw=True)
        return handle

    def _new_display(self) -> Any:
        """A display handle for a display that is not shown yet; None in a terminal."""
        if not self._is_notebook:
            return None
        from IPython.display import DisplayHandle

        return DisplayHandle()


_EFFORTS = (
    "none",
    "minimal",
    "low",
    "medium",
    "high",
    "xhigh",
    "max",
)  # the same as in llm.backend, which is imported later
_OPTION = re.compile(r"\s(?=--?[A-Za-z])")
_MAX_OPTIONS = 500
"""Characters at the end of a question that may be options."""
_OPTIONS = (
    Option(
        "--model",
        "M",
        "provider:name, such as openai:gpt-5; by default %config IPyMCP.model; M,M asks the next if one fails; also -m",
    ),
    Option("-m", "M"),
    Option("--base-url", "URL", "the URL of a Chat Completions API: Ollama, vLLM, LM Studio"),
    Option(
        "--tools",
        "PATTERN",
        "tools it may use: comma-separated globs over server.tool, ! denies; - for none",
        repeats=True,
        takes="tool",
    ),
    Option("--chat", "NAME", "continue this conversation; without it each question begins a new one"),
    Option("--continue", help="continue that chat after a limit, or in a new kernel; needs no question"),
    Option("--system", "TEXT", "the system prompt"),
    Option("--returns", "EXPR", "a dataclass, TypedDict or JSON Schema for the answer: answer.data"),
    Option("--allow", "PATTERN", "tools it may call without approval, for this answer", repeats=True, takes="tool"),
    Option(
        "--discover",
        "WHEN",
        "auto, always, never: give it a search for tools instead of all tools",
        choices=("auto", "always", "never"),
    ),
    Option(
        "--code", help="let it write Python that calls the tools; it is shown, and runs in your kernel if you approve"
    ),
    Option("--fix", help="send the last error with its traceback and cell; the question may be omitted"),
    Option("--out", "VAR", "bind the answer to this name", takes="variable"),
    Option(
        "--replay",
        "WHEN",
        "auto: from mcp-answers.json beside the notebook if nothing changed, else ask and record; only, new, off",
        choices=("auto", "only", "new", "off"),
    ),
    Option("--cell", help="put the answer's Python into the next cell, which is not run"),
    Option("--dry-run", help="show the request and its cost without sending it"),
    Option("-f", "FORMAT", "markdown, text or json", choices=("markdown", "text", "json")),
    Option("--rounds", "N", "maximum requests to the model", number=True),
    Option("--calls", "N", "maximum calls of tools", number=True),
    Option("--tokens", "N", "maximum tokens", number=True),
    Option("--seconds", "S", "maximum duration", number=True),
    Option("--dollars", "D", "maximum cost by the list price", number=True),
    Option("--effort", "LEVEL", "how much it reasons: none, minimal, low, medium, high, xhigh, max", choices=_EFFORTS),
    Option("--temperature", "T", "the randomness of the model's choices, from 0", number=True),
    Option("--max-tokens", "N", "maximum tokens of each response", number=True),
)

COMMANDS = {
    "ask": Command(
        Syntax("ask [-m MODEL] [--tools PATTERN] TEXT", _OPTIONS, takes=("tool",)),
        _ask,
        takes_cell=True,
        takes_text=True,
    )
}
