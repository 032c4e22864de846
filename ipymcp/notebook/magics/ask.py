"""`%mcp ask` and `%%mcp ask`: a question to a model that may use the notebook's tools."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from ipymcp.api.namespace import chat_of
from ipymcp.errors import McpError
from ipymcp.notebook.line_syntax import Command, LineError, Option, Syntax
from ipymcp.notebook.line_values import evaluate, parse_expression

if TYPE_CHECKING:
    from ipymcp.api.toolset import Toolset
    from ipymcp.llm.answer import Answer
    from ipymcp.llm.backend import Limits
    from ipymcp.llm.chat import AskRequest, ModelChat
    from ipymcp.llm.tool_search import Discover
    from ipymcp.notebook.line_syntax import MagicRequest, Parsed


_HELP = """Ask a model, which may use the tools; needs pip install 'ipymcp[llm]'.

    %mcp ask Which penguins are the heaviest?
    answer = %mcp ask --tools demo What is in $df?        $df is the notebook's; $$ is a $; formulas stay as they are

    %%mcp ask --model anthropic:claude-opus-4-5 --tools fs.* !*.write_* --out answer
    Which files in this folder are the largest?

Options come before the question. %mcp policy decides which calls need your approval.

    -m, --model M     provider:name, such as openai:gpt-5; by default %config IPyMCP.model
    --base-url URL    the URL of a Chat Completions API: Ollama, vLLM, LM Studio
    --tools PATTERN   tools it may use: comma-separated globs over server.tool, ! denies; - for none
    --chat NAME       continue this conversation; without it each question begins a new one
    --system TEXT     the system prompt
    --returns EXPR    a dataclass, TypedDict or JSON Schema for the answer: answer.data
    --allow PATTERN   tools it may call without approval, for this answer
    --discover WHEN   auto, always, never: give it a search for tools instead of all tools
    --code            let it write Python that calls the tools; it is shown, and runs in your kernel if you approve
    --out VAR         bind the answer to this name
    --dry-run         show the request without sending it
    -f FORMAT         markdown, text or json
    --rounds N --calls N --tokens N --seconds S    limits of the answer"""

_OPTIONS = (
    Option("--model", "M"),
    Option("-m", "M"),
    Option("--base-url", "URL"),
    Option("--tools", "PATTERN", repeats=True, takes="tool"),
    Option("--chat", "NAME"),
    Option("--system", "TEXT"),
    Option("--returns", "EXPR"),
    Option("--allow", "PATTERN", repeats=True, takes="tool"),
    Option("--discover", "WHEN", choices=("auto", "always", "never")),
    Option("--code"),
    Option("--out", "VAR"),
    Option("--dry-run"),
    Option("-f", "FORMAT", choices=("markdown", "text", "json")),
    Option("--rounds", "N", number=True),
    Option("--calls", "N", number=True),
    Option("--tokens", "N", number=True),
    Option("--seconds", "S", number=True),
)
_SYNTAX = Syntax("ask [-m MODEL] [--tools PATTERN] TEXT", _OPTIONS, takes=("tool",))

_LIMIT = re.compile(r"\blimits=ipymcp\.Limits\((\w+)=([^)]+)\)")
_MODEL = re.compile(r'\bmodel="([^"]+)"')


def _ask(request: MagicRequest) -> Any:
    try:
        return _asked(request)
    except McpError as error:
        error.hint = _as_options(error.hint)
        raise


def _asked(request: MagicRequest) -> Any:
    ask_request = _ask_request(request)
    asker = chat_of(request.mcp)
    parsed, out = request.parsed, request.parsed.text("--out")
    if out is not None and not out.isidentifier():
        raise LineError(f"--out needs a Python name, not {out!r}", 0)
    if parsed.has("--dry-run"):
        return asker.preview(ask_request).table
    shape = parsed.text("-f") or "markdown"
    try:
        answer = _answered(request, asker, ask_request, shape)
    except McpError as error:
        if out is not None and error.answer is not None:
            request.ip.user_ns[out] = error.answer
            error.hint = " · ".join(filter(None, [error.hint, f"{out} has what there is"]))
        raise
    if out is not None:
        request.ip.user_ns[out] = answer
        return None
    return answer.json() if shape == "json" else answer


def _as_options(hint: str | None) -> str | None:
    """Replace arguments of `mcp.ask` in a hint with options of a line."""
    return hint and _LIMIT.sub(r"--\1 \2", _MODEL.sub(r"--model \1", hint))


def _answered(request: MagicRequest, asker: ModelChat, ask_request: AskRequest, shape: str) -> Answer:
    """Ask the model and show the answer as it arrives, unless the request is quiet."""
    if request.is_quiet or shape == "json":
        return request.host.loop.run(asker.ask(ask_request))
    from ipymcp.notebook.live_answer import CellOutput

    audience = CellOutput(request.display if hasattr(request.ip, "kernel") else None, as_markdown=shape == "markdown")
    try:
        answer = request.host.loop.run(asker.ask(ask_request, audience))
    except BaseException as error:
        audience.broke_off()
        if isinstance(error, KeyboardInterrupt) and not McpError.full_tracebacks:
            error._render_traceback_ = _stopped  # type: ignore[attr-defined]
        raise
    audience.ended(answer)
    if answer.data is None:  # typed data is the cell's value, and not shown yet
        answer.is_shown = True
        events = request.ip.events

        def cell_is_over(*_: object) -> None:
            events.unregister("post_run_cell", cell_is_over)
            answer.is_shown = False

        events.register("post_run_cell", cell_is_over)
    return answer


def _stopped() -> list[str]:
    return [
        "KeyboardInterrupt: the model was stopped, and its calls with it",
        "  completed calls stay in effect; the conversation is as it was before this question",
    ]


def _ask_request(request: MagicRequest) -> AskRequest:
    from ipymcp.llm.chat import AskRequest

    parsed = request.parsed
    prompt = request.cell if request.cell is not None else request.text
    if not prompt or not prompt.strip():
        where = "in the cell below it" if request.cell is not None else "after it"
        raise LineError(f"the question is missing: write it {where}", 0)
    model = parsed.text("--model") or parsed.text("-m")
    return AskRequest(
        prompt=prompt.strip(),
        model=model,
        tools=_tools(request, parsed).selection,
        base_url=parsed.text("--base-url"),
        chat=parsed.text("--chat") or "",
        system=parsed.text("--system") or "",
        returns=_returns(request, parsed),
        allow=tuple(_patterns(parsed.texts("--allow"))),
        limits=_limits(parsed),
        code=request.ip.user_ns if parsed.has("--code") else None,
        discover=cast("Discover", parsed.text("--discover") or "auto"),
        names={name: value for space in reversed(request.namespaces) for name, value in space.items()},
    )


def _tools(request: MagicRequest, parsed: Parsed) -> Toolset:
    patterns = _patterns([*parsed.texts("--tools"), *request.names])
    if not patterns:
        return request.mcp.tools
    chosen = request.mcp.tools("!*") if patterns == ["-"] else request.mcp.tools(*patterns)
    if not len(chosen) and patterns != ["-"]:
        known = ", ".join(request.mcp) or "none"
        raise McpError(f"no tool matches {' '.join(patterns)}", hint=f"servers: {known} · %mcp tools lists theirs")
    return chosen


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

    usual = Limits()
    given = {name: parsed.number(f"--{name}") for name in ("rounds", "calls", "tokens", "seconds")}
    return Limits(
        rounds=int(given["rounds"] or usual.rounds),
        calls=int(given["calls"] or usual.calls),
        tokens=int(given["tokens"] or usual.tokens),
        seconds=given["seconds"] or usual.seconds,
    )


COMMANDS = {"ask": Command(_SYNTAX, _HELP, _ask, takes_cell=True, takes_text=True)}
