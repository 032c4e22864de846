"""Code mode: a model writes Python that calls the tools. With the user's consent it runs in this process, unsandboxed.

Data passes from tool to tool without passing through the model, which receives only the output of the code.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import sys
import threading
import traceback
from base64 import b64encode
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, cast

from ipymcp.errors import ArgumentError, PolicyError
from ipymcp.interaction.questions import ApprovalQuestion, WantedCall
from ipymcp.interaction.terminal import CapturedStdout
from ipymcp.llm.prompt_values import ValueDescription, describe
from ipymcp.llm.result_text import estimate_tokens
from ipymcp.llm.tool_definitions import BUDGET, CODE, MAX_CODE, NOTEBOOK, FunctionTool
from ipymcp.protocol import types
from ipymcp.protocol.types import is_object
from ipymcp.results.content import Image
from ipymcp.results.tool_result import ToolResult
from ipymcp.runtime.question_routing import CrossThreadTask
from ipymcp.schema.annotations import annotate, printable
from ipymcp.schema.tree import SchemaTree, properties, required_names
from ipymcp.security.untrusted import (
    UNKNOWN,
    Actor,
    CallingModel,
    Conversation,
    acting_in_thread,
    current_actor,
    mark_cells,
    models_code,
    source_of_value,
)
from ipymcp.text import shortened, stripped

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterable, Mapping, MutableMapping
    from types import CodeType

    from ipymcp.interaction.questions import Card
    from ipymcp.llm.tool_selection import ToolSelection
    from ipymcp.runtime.call_options import CallOptions
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.waiting import WaitingCaller
    from ipymcp.schema.tree import Schema
    from ipymcp.security.rules import ToolRef


_FILE: Final = "<model's code>"
_MAX_DESCRIPTION: Final = 120
_REASON: Final = "it runs in this kernel with your rights, unsandboxed"
_MAX_PRINTED: Final = 1_000_000
"""Characters of printed output."""
_ANSWERS: Final = ("once", "answer", "no")
_MAX_RESULT_TYPE: Final = 400
"""Characters of a result's type."""
_MAX_MEMBERS: Final = 30
_MAX_IMAGES: Final = 8
"""Maximum images in one result."""
_IMAGES: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")
_CANCEL_TIMEOUT: Final = 2.0
"""Seconds that interrupted asynchronous code has to end."""


class CodeRunner:
    """Runs a model's code in the notebook.

    Args:
        host: The host of the tools.
        selection: The tools that the code may call.
        names: The namespace in which the code runs.
        allowed: Whether the user has allowed all code of this answer in advance.
        conversation: The conversation of the answer; a new one by default.
        turn: The answer's name.
        sees_images: Whether the model accepts images.
        model: The model.
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
        sees_images: bool = True,
        model: CallingModel = UNKNOWN,
    ) -> None:
        self._sees_images = sees_images
        self._conversation = conversation or Conversation()
        self._actor = Actor("model", self._conversation, turn, model, self._permits)
        self._host = host
        self._selection = selection
        self._names = names
        self._is_allowed = allowed
        self._agreed_taint: str | None = None
        """The taint with which the user has allowed the rest of the answer's code; None if they have not allowed it."""

    def instructions(self) -> str:
        """The part of the system prompt that describes the tools."""
        is_defined = getattr(self._names.get("mcp"), "_host", None) is self._host
        begin = "`mcp` is there already" if is_defined else "begin with `from ipymcp import mcp`"
        intro = (
            f"You have one tool, run_python. Write Python for it that calls these functions; {begin}. They wait by"
            " themselves: do not await them. A result has .data (decoded), .text, .df (a DataFrame) and .images."
            " The code runs as a cell of the notebook: variables stay between runs, and await and magics work."
            " Print, display, plot, or end with an expression, for what you need to see; keep large data in variables."
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
        raw = entry.definition.outputSchema
        data = result_type(types.loads(raw)) if len(raw) else ""
        signature = str(self._selection.maker.signature(entry))
        return f"mcp.{server}.{entry.alias}{signature}  # {about}" + (f" .data: {data}" if data else "")

    async def run_python(self, code: str) -> ValueDescription:
        """Run Python in the user's notebook, with their consent, as a cell would.

        Returns what is printed or displayed, warnings, the last expression, and new figures.

        Args:
            code: The program. Variables persist between runs.
        """
        return await self._host.loop.arun(self._run(code))

    async def consent(self, code: str, card: Card | None) -> None:
        """Check whether code may be run, and ask the user if necessary. Runs on the background loop.

        Args:
            code: The code.
            card: The card of the call.

        Raises:
            ArgumentError: The code cannot be run.
            PolicyError: The user has not agreed.
        """
        if len(code) > MAX_CODE:
            hint = "write it in parts: only code that the user is shown in full is run"
            raise ArgumentError(f"this code has {len(code):,} characters, more than {MAX_CODE:,}", hint=hint)
        try:
            code.encode()
        except UnicodeEncodeError:
            hint = "write it as an escape sequence"
            raise ArgumentError("this code holds half a character (a lone surrogate)", hint=hint) from None
        self._place()
        if not (self._is_allowed or self._agreed_taint == self._taint):
            await self._ask(code, card)

    def _place(self) -> WaitingCaller:
        """The thread or task in which the user waits, and the code runs."""
        caller = self._host.questions.caller()
        if caller is None:
            raise PolicyError("no cell is waiting in which it could run")
        return caller

    async def _run(self, code: str) -> ValueDescription:
        caller = self._place()
        task = CrossThreadTask(lambda: self._execute(code), ValueDescription("", "Interrupted."))
        caller.post(task.run, task.give_up)
        output = await task.outcome
        source_of = self._host.guard.untrusted.source_of
        source = await asyncio.to_thread(source_of, output.text[:_MAX_PRINTED], has_images=bool(output.images))
        if source:
            self._conversation.received(source)
        return output

    async def _ask(self, code: str, card: Card | None) -> None:
        reason = f"{_REASON}; {self._taint}" if self._taint else _REASON
        wanted = WantedCall(NOTEBOOK, CODE, {"code": code}, "model", reason, "", code)
        question = ApprovalQuestion((wanted,), _ANSWERS, card.key if card is not None else "")
        if card is not None:
            card.show_question(card.key)
        answer = await self._host.questions.ask(question)
        if card is not None:
            card.show_answer(answer)
        if answer not in ("once", "answer"):
            raise PolicyError("you said no" if answer else "it needs your consent, and no one answered")
        if answer == "answer":
            self._agreed_taint = self._taint

    @property
    def _taint(self) -> str:
        """The untrusted content that the model has read, if the policy regards it; else empty."""
        return self._conversation.taint if self._host.guard.policy.doubts else ""

    def _permits(self, entry: ToolRef) -> bool:
        return self._selection.selects(entry)

    def _execute(self, code: str) -> ValueDescription:
        """Run the code in the thread where the user waits. Errors become output; only an interrupt is raised."""
        shell = _shell()
        if shell is not None:
            mark_cells(shell)
        models_code.begin(self._actor)
        if getattr(shell, "user_ns", None) is not self._names:
            shell = None
        output = _Output(sys.stdout)
        before = {id(figure) for figure in _figures()}
        try:
            source = code if shell is None else str(shell.transform_cell(code))
            with (
                contextlib.redirect_stdout(output.printed),
                contextlib.redirect_stderr(output.printed),
                _capture_displays(shell, output),
                self._replace_exit(),
                acting_in_thread(self._actor),
            ):
                if shell is not None:
                    _keep_in_history(shell, code, source)
                value = self._value_of(source)
                if source := source_of_value(value):
                    self._conversation.received(source)
                output.finish(value, (figure for figure in _figures() if id(figure) not in before))
        except (Exception, SystemExit) as error:
            frames = traceback.extract_tb(error.__traceback__)
            line = next((f" in line {one.lineno}" for one in reversed(frames) if one.filename == _FILE), "")
            output.write(f"{type(error).__name__}{line}: {error}".rstrip(": "))
        return output.described(sees_images=self._sees_images)

    def _value_of(self, source: str) -> Any:
        """Run code, and return the value of its last expression."""
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = cast("ast.Module", compile(source, _FILE, "exec", flags | ast.PyCF_ONLY_AST))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        parts: list[CodeType] = [compile(tree, _FILE, "exec", flags)]
        if isinstance(last, ast.Expr):
            parts.append(compile(ast.Expression(last.value), _FILE, "eval", flags))
        if any(part.co_flags & inspect.CO_COROUTINE for part in parts):
            return _run_coroutine(self._run_parts(parts))
        values = [eval(part, self._names) for part in parts]  # type: ignore[arg-type]
        return values[-1]

    async def _run_parts(self, parts: Iterable[CodeType]) -> Any:
        value: Any = None
        for part in parts:
            value = eval(part, self._names)  # type: ignore[arg-type]
            if part.co_flags & inspect.CO_COROUTINE:
                value = await value
        return value

    @contextlib.contextmanager
    def _replace_exit(self) -> Generator[None]:
        """Make `exit()` and `quit()` end the model's code instead of the kernel."""
        own = {name: self._names[name] for name in ("exit", "quit") if name in self._names}
        self._names.update(dict.fromkeys(own, sys.exit))
        try:
            yield
        finally:
            self._names.update({name: value for name, value in own.items() if self._names.get(name) is sys.exit})


def _run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on a loop in another thread, because this thread's loop is blocked. An interrupt cancels it."""
    done: Future[Any] = Future()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []

    async def run() -> Any:
        running.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await coroutine

    actor = current_actor()

    def work() -> None:
        try:
            with acting_in_thread(actor):
                done.set_result(asyncio.run(run()))
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=work, name="ipymcp-code", daemon=True)
    thread.start()
    try:
        return done.result()
    except KeyboardInterrupt:
        for loop, task in running:
            if task is not None and not done.done():
                loop.call_soon_threadsafe(task.cancel)
        thread.join(_CANCEL_TIMEOUT)
        raise


# -- the output for the model ------------------------------------------------------------------------------------------


class _PrintedOutput(CapturedStdout):
    """Captured printed output, up to a limit."""

    def write(self, text: str, /) -> int:
        return super().write(text[: max(0, _MAX_PRINTED - self.tell())])


class _Output:
    """The output of one run, in its order.

    Args:
        stdout: The user's standard output.
    """

    def __init__(self, stdout: Any) -> None:
        self.printed = _PrintedOutput(stdout)
        self._images: list[Image] = []
        self._last_text = ""

    def write(self, text: str) -> None:
        """Append text after the printed output."""
        self._last_text += text

    def add_display(self, data: dict[str, Any]) -> None:
        """Add a display of the code, which the user sees, too, by its MIME bundle."""
        kind = next((kind for kind in _IMAGES if kind in data), None)
        plain = str(data.get("text/markdown") or data.get("text/plain") or f"a display of {', '.join(data)}")
        if kind is None:
            self.printed.write(f"{plain}\n")
        else:
            content = data[kind]
            encoded = b64encode(content).decode() if isinstance(content, bytes) else str(content).replace("\n", "")
            self._add_image(Image(encoded, kind), plain)

    def finish(self, value: Any, figures: Iterable[Any]) -> None:
        """Add the last value, and new figures that were not shown yet."""
        shown = [figure for figure in figures if figure is not value]
        if value is not None:
            known = None if isinstance(value, (type, ToolResult)) or callable(value) else _image_of(value)
            if known is not None:
                self._add(known)
            elif isinstance(value, ToolResult):
                self.write(value.text)
                for image in value.images:
                    self._add_image(image, str(image))
            else:
                self.write(repr(value))
        for figure in shown:
            self._add(describe(figure))

    def _add(self, described: ValueDescription) -> None:
        for image in described.images:
            self._add_image(image, described.what)
        if not described.images:
            self.printed.write(f"{described.text}\n")

    def _add_image(self, image: Image, what: str) -> None:
        self._images.append(image)
        self.printed.write(f"[{what}]\n")

    def described(self, *, sees_images: bool) -> ValueDescription:
        """The whole output for the model."""
        text = self.printed.getvalue() + self._last_text
        left_out = ""
        if self._images and not sees_images:
            left_out = "the model accepts no images"
        elif len(self._images) > _MAX_IMAGES:
            left_out = f"only the first {_MAX_IMAGES} images are attached"
        images = tuple(self._images[:_MAX_IMAGES]) if sees_images else ()
        return ValueDescription(
            "", "\n".join(filter(None, [text.rstrip("\n") if left_out else text, left_out])), images
        )


def _image_of(value: Any) -> ValueDescription | None:
    """An image or a figure; None for anything else."""
    module = type(value).__module__.partition(".")[0]
    if module not in ("matplotlib", "PIL", "plotly", "IPython", "ipymcp"):
        return None
    described = describe(value)
    return described if described.images else None


def _figures() -> list[Any]:
    """The open figures of pyplot."""
    helpers: Any = sys.modules.get("matplotlib._pylab_helpers")
    return [] if helpers is None else [each.canvas.figure for each in helpers.Gcf.get_all_fig_managers()]


# -- as a cell ---------------------------------------------------------------------------------------------------------


def _shell() -> Any:
    """The IPython shell; None in a program."""
    module: Any = sys.modules.get("IPython.core.getipython")
    return module.get_ipython() if module is not None else None


@contextlib.contextmanager
def _capture_displays(shell: Any, output: _Output) -> Generator[None]:
    """Add the displays that the user sees to the output for the model."""
    if shell is None:
        yield
        return
    publisher: Any = shell.display_pub
    own, publish = publisher.__dict__.get("publish"), publisher.publish

    def publish_and_capture(data: dict[str, Any], *arguments: Any, **options: Any) -> None:
        if not options.get("update"):  # updates are those of ipymcp's own cards
            output.add_display(data)
        publish(data, *arguments, **options)

    publisher.publish = publish_and_capture
    try:
        yield
    finally:
        if own is None:
            del publisher.publish
        else:
            publisher.publish = own


def _keep_in_history(shell: Any, code: str, source: str) -> None:
    """Add the code to `In`, after the cell that asked the model."""

    def add() -> None:
        shell.history_manager.store_inputs(shell.execution_count, source, code)
        shell.execution_count += 1

    def cell_is_over(*_: object) -> None:
        shell.events.unregister("post_run_cell", cell_is_over)
        try:  # later, because the kernel's reply has the number of the cell
            asyncio.get_running_loop().call_soon(add)
        except RuntimeError:
            add()

    shell.events.register("post_run_cell", cell_is_over)


def result_type(schema: Any) -> str:
    """The type of a result's `.data` in Python notation: `{'total': float, 'unit'?: str}`; empty if it is unknown.

    Args:
        schema: The output schema of a tool.
    """
    if not is_object(schema):
        return ""
    tree = SchemaTree(schema)
    open_forms: set[int] = set()

    def name_object(form: Schema) -> str | None:
        members = properties(form)
        if not members or id(members) in open_forms:
            return None
        open_forms.add(id(members))
        required = required_names(form)
        words = [
            f"{name!r}{'' if name in required else '?'}: {annotate(tree, part, name_object=name_object)}"
            for name, part in [*members.items()][:_MAX_MEMBERS]
        ]
        open_forms.discard(id(members))
        return f"{{{', '.join([*words, '…'] if len(members) > _MAX_MEMBERS else words)}}}"

    words = printable(str(annotate(tree, schema, name_object=name_object)))
    return "" if words in ("Any", "dict[str, Any]") else shortened(stripped(words), _MAX_RESULT_TYPE)


class CodeTool(FunctionTool):
    """The tool `run_python` of a model.

    Args:
        runner: Runs the code.
    """

    def __init__(self, runner: CodeRunner) -> None:
        super().__init__(runner.run_python)
        self._runner = runner

    async def consent(self, arguments: Mapping[str, Any], options: CallOptions) -> None:
        """Ask the user about the code. Runs on the background loop."""
        await self._runner.consent(arguments["code"], options.card)
