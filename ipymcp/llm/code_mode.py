"""Code mode: a model writes Python that calls the tools. With the user's consent it runs in this process, unsandboxed.

Data passes between tools without passing through the model, which receives only the printed output and the last value.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import contextvars
import sys
import threading
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ipymcp.errors import ArgumentError, PolicyError
from ipymcp.interaction.questions import ApprovalQuestion, WantedCall
from ipymcp.interaction.terminal import Printed
from ipymcp.llm.functions import NOTEBOOK
from ipymcp.llm.result_text import estimate_tokens
from ipymcp.llm.tool_definitions import BUDGET
from ipymcp.results.tool_result import ToolResult
from ipymcp.runtime.question_routing import CrossThreadTask
from ipymcp.security.untrusted import Actor, Conversation, acting, current_actor, source_of_value
from ipymcp.text import shortened, stripped

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, MutableMapping

    from ipymcp.interaction.questions import Card
    from ipymcp.llm.tool_selection import ToolSelection
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.security.rules import ToolRef


_FILE: Final = "<model's code>"
_MAX_DESCRIPTION: Final = 120
_WHY: Final = "it runs in this kernel with your rights, unsandboxed"
_MAX_PRINTED: Final = 1_000_000
"""Characters."""
_MAX_CODE: Final = 20_000
"""Characters of code in one question to the user."""
_ANSWERS: Final = ("once", "answer", "no")


class CodeRunner:
    """Runs a model's code in the notebook.

    Args:
        host: The host of the tools.
        selection: The tools that the code may call.
        names: The namespace in which the code runs.
        allowed: Whether the user has allowed all code of this answer in advance.
        conversation: The conversation of the answer; a new one by default.
        turn: The answer's name.
    """

    def __init__(
        self,
        host: Host,
        selection: ToolSelection,
        names: MutableMapping[str, Any],
        *,
        allowed: bool,
        conversation: Conversation | None = None,
        turn: str = "",
    ) -> None:
        self._conversation = conversation or Conversation()
        self._actor = Actor("model", self._conversation, turn, self._permits)
        self._host = host
        self._selection = selection
        self._names = names
        self._is_allowed = allowed
        self._agreed_at: str | None = None
        """The taint for which the user has allowed the rest of the answer's code; None if they have not."""
        self.card: Callable[[str, str], Card | None] = _no_card
        """Returns the card of the running call of a tool, by server and tool name."""

    def instructions(self) -> str:
        """The part of the system prompt that describes the tools."""
        is_there = getattr(self._names.get("mcp"), "_host", None) is self._host
        begin = "`mcp` is there already" if is_there else "begin with `from ipymcp import mcp`"
        intro = (
            f"You have one tool, run_python. Write Python for it that calls these functions; {begin}. They wait by"
            " themselves: do not await them. A result has .data (decoded), .text, .df (a DataFrame) and .images."
            " Variables stay between runs. Print, or end with an expression, for what you need to see; keep large data"
            " in variables."
        )
        entries = self._selection.entries("model")
        typed = self._host.aliases()
        lines = [self._line(entry, typed[entry.server]) for entry in entries]
        if estimate_tokens(sum(map(len, lines))) > BUDGET:
            intro += " End with a function, or print its repr(), to see what it takes."
            names: dict[str, list[str]] = {}
            for entry in entries:
                names.setdefault(typed[entry.server], []).append(entry.alias)
            lines = [f"mcp.{server}: {', '.join(tools)}" for server, tools in names.items()]
        return "\n".join([intro, *lines])

    def _line(self, entry: ToolEntry, server: str) -> str:
        about = shortened(stripped(entry.first_line), _MAX_DESCRIPTION)
        return f"mcp.{server}.{entry.alias}{self._selection.maker.signature(entry)}  # {about}"

    async def run_python(self, code: str) -> str:
        """Run Python in the user's notebook, with their consent. Returns the printed output and the last expression.

        Args:
            code: The program. Variables persist between runs.
        """
        return await self._host.loop.arun(self._run(code))

    async def _run(self, code: str) -> str:
        if len(code) > _MAX_CODE:
            hint = "write it in parts: only code that the user is shown in full is run"
            raise ArgumentError(f"this code has {len(code):,} characters, more than {_MAX_CODE:,}", hint=hint)
        try:
            code.encode()
        except UnicodeEncodeError:
            hint = "write it as an escape sequence"
            raise ArgumentError("this code holds half a character (a lone surrogate)", hint=hint) from None
        place = self._host.questions.caller()
        if place is None:
            raise PolicyError("there is nowhere to run it")
        if not (self._is_allowed or self._agreed_at == self._doubt):
            await self._ask(code)
        task = CrossThreadTask(lambda: self._execute(code), "Interrupted.")
        place.post(task.run, task.give_up)
        output = await task.outcome
        source = await asyncio.to_thread(self._host.guard.untrusted.source_of, output[:_MAX_PRINTED])
        if source:
            self._conversation.received(source)
        return output

    async def _ask(self, code: str) -> None:
        why = f"{_WHY}; {self._doubt}" if self._doubt else _WHY
        wanted = WantedCall(NOTEBOOK, "run_python", {"code": code}, "model", why, "", code)
        card = self.card(NOTEBOOK, "run_python")
        question = ApprovalQuestion((wanted,), _ANSWERS, card.key if card is not None else "")
        if card is not None:
            card.asks(card.key)
        answer = await self._host.questions.ask(question)
        if card is not None:
            card.answered(answer)
        if answer not in ("once", "answer"):
            raise PolicyError("you said no" if answer else "it needs your consent, and no one answered")
        if answer == "answer":
            self._agreed_at = self._doubt

    @property
    def _doubt(self) -> str:
        return self._conversation.taint if self._host.guard.policy.doubts else ""

    def _permits(self, entry: ToolRef) -> bool:
        return self._selection.selects(entry)

    def _execute(self, code: str) -> str:
        """Run the code where the user waits. Only the user's interrupt is raised."""
        printed = _Printed(sys.stdout)
        try:
            tree = ast.parse(code, _FILE)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            with (
                contextlib.redirect_stdout(printed),
                self._exit_replaced(),
                acting(self._actor),
                _inherited_by_threads(),
            ):
                exec(compile(tree, _FILE, "exec"), self._names)  # type: ignore[arg-type]
                shown = ""
                if isinstance(last, ast.Expr):
                    value = eval(compile(ast.Expression(last.value), _FILE, "eval"), self._names)  # type: ignore[arg-type]
                    if source := source_of_value(value):
                        self._conversation.received(source)
                    shown = "" if value is None else value.text if isinstance(value, ToolResult) else repr(value)
        except (Exception, SystemExit) as error:
            frames = traceback.extract_tb(error.__traceback__)
            line = next((f" in line {one.lineno}" for one in reversed(frames) if one.filename == _FILE), "")
            return f"{printed.getvalue()}{type(error).__name__}{line}: {error}".rstrip(": ")
        return printed.getvalue() + shown

    @contextlib.contextmanager
    def _exit_replaced(self) -> Generator[None]:
        """Have `exit()` and `quit()` end the model's code instead of the kernel."""
        own = {name: self._names[name] for name in ("exit", "quit") if name in self._names}
        self._names.update(dict.fromkeys(own, sys.exit))
        try:
            yield
        finally:
            self._names.update({name: value for name, value in own.items() if self._names.get(name) is sys.exit})


@contextlib.contextmanager
def _inherited_by_threads() -> Generator[None]:
    """Let threads that the model's code starts act for the model; threads otherwise start in an empty context."""
    start = threading.Thread.start

    def start_in_context(thread: threading.Thread) -> None:
        if current_actor() is not None:
            thread.run = partial(contextvars.copy_context().run, thread.run)  # type: ignore[method-assign]
        start(thread)

    threading.Thread.start = start_in_context  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


class _Printed(Printed):
    """The printed output, up to a limit."""

    def write(self, text: str, /) -> int:
        return super().write(text[: max(0, _MAX_PRINTED - self.tell())])


def _no_card(server: str, tool: str) -> None: ...
