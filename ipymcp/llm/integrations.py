"""Tools for other libraries, each imported when it is needed.

The library runs the loop of requests and calls; calls still pass through the host, with its policy and history.
"""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

from ipymcp.errors import McpError
from ipymcp.llm.answer import SHOWN
from ipymcp.llm.providers import Declaration
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ipymcp.llm.answer import ToolCallOutcome
    from ipymcp.llm.tool_calls import ToolCaller


_NAME = "ipymcp"


def pydantic_ai_toolset(
    declared: Callable[[Any], Sequence[Declaration]],
    call: Callable[[str, dict[str, Any]], Awaitable[ToolCallOutcome]],
    searched: Callable[[], Sequence[Declaration]] = tuple,
) -> Any:
    """A toolset of pydantic-ai that reads the current tools at every step.

    Args:
        declared: Returns the tools for a pydantic-ai model; None stands for an unknown model.
        call: Calls a tool by name, including tools that were not declared.
        searched: Returns the tools that a model has to search for.
    """
    ai: Any = _library("pydantic_ai", "pydantic-ai-slim")
    toolsets: Any = importlib.import_module("pydantic_ai.toolsets")
    base: type[Any] = toolsets.AbstractToolset

    class McpToolset(base):
        """The tools of the notebook's MCP servers."""

        @property
        def id(self) -> str:
            return _NAME

        async def get_tools(self, ctx: Any) -> dict[str, Any]:
            tools = {one.name: self._tool(one, defer_loading=True) for one in searched()}
            return {**tools, **{one.name: self._tool(one) for one in declared(getattr(ctx, "model", None))}}

        def _tool(self, one: Declaration, **more: Any) -> Any:
            about = {"name": one.name, "description": one.description, "parameters_json_schema": one.schema, **more}
            return toolsets.ToolsetTool(
                toolset=self,
                tool_def=ai.ToolDefinition(**about),
                max_retries=1,
                args_validator=_AnyArguments(),  # the host validates
            )

        def accept(self, name: str) -> Any:
            """A tool for calls of a name that was not declared."""
            return self._tool(Declaration(name, "", name, "", b'{"type":"object"}'))

        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
            outcome = await call(name, getattr(tool_args, "given", tool_args))
            if outcome.is_error:
                raise ai.ToolFailed(outcome.text)
            images = [ai.BinaryContent(image.data, media_type=kind) for kind, image in outcome.shown]
            return [outcome.named, *images] if images else outcome.named

    return McpToolset()


class _Malformed(dict[str, Any]):
    """Arguments that are not a JSON object. The host reports them; the library would end the answer after a few.

    Args:
        given: The arguments as the model wrote them.
    """

    def __init__(self, given: object) -> None:
        super().__init__()
        self.given = given


class _AnyArguments:
    """A validator for pydantic-ai that accepts anything."""

    def validate_json(self, given: str | bytes, **_: object) -> dict[str, Any]:
        """Accept arguments as JSON text."""
        try:
            value = json.loads(given)
        except (ValueError, RecursionError):
            return _Malformed(given)
        return self.validate_python(value)

    def validate_python(self, given: Any, **_: object) -> dict[str, Any]:
        """Accept decoded arguments."""
        return given if is_object(given) else _Malformed(given)


def langchain_tools(declared: Iterable[Declaration], called: ToolCaller, *, images: bool) -> list[Any]:
    """Tools of LangChain.

    Args:
        declared: The tools.
        called: Runs the calls.
        images: Whether the model accepts images in tool results; else only their names are sent. The library does not
            know the model here, and Chat Completions refuses requests with such images.
    """
    library: Any = _library("langchain_core.tools", "langchain-core")
    base: type[Any] = library.BaseTool

    class McpTool(base):
        """A tool of the notebook's MCP servers. Argument names may be the same as the library's own."""

        def _run(self, /, **arguments: Any) -> Any:
            return self._output(called(self.name, arguments))

        async def _arun(self, /, **arguments: Any) -> Any:
            return self._output(await called.aio(self.name, arguments))

        def _output(self, outcome: ToolCallOutcome) -> Any:
            if outcome.is_error:
                raise library.ToolException(outcome.text)
            text, shown = outcome.parted(SHOWN if images else ())
            blocks = [{"type": "image", "base64": image.base64, "mime_type": kind} for kind, image in shown]
            return [{"type": "text", "text": text}, *blocks] if blocks else text

    def made(one: Declaration) -> Any:
        schema = one.schema  # the library omits the description of the whole schema
        about = "\n".join(filter(None, (one.description, schema.pop("description", ""))))
        return McpTool(name=one.name, description=about, args_schema=schema, handle_tool_error=True)

    return [made(one) for one in declared]


def llm_tools(declared: Iterable[Declaration], called: ToolCaller) -> list[Any]:
    """Tools of `llm`."""
    llm: Any = _library("llm", "llm")

    def made(one: Declaration) -> Any:
        def run(**arguments: Any) -> Any:
            outcome = called(one.name, arguments)
            if outcome.is_error:
                raise _failure(outcome)
            images = [llm.Attachment(type=kind, content=image.data) for kind, image in outcome.shown]
            return llm.ToolOutput(output=outcome.named, attachments=images) if images else outcome.named

        return llm.Tool(
            name=one.name, description=one.description, input_schema=one.schema, implementation=run, plugin=_NAME
        )

    return [made(one) for one in declared]


def chatlas_tools(declared: Iterable[Declaration], called: ToolCaller) -> list[Any]:
    """Tools of chatlas."""
    chatlas: Any = _library("chatlas", "chatlas")

    def made(one: Declaration) -> Any:
        def run(**arguments: Any) -> Any:
            outcome = called(one.name, arguments)
            if outcome.is_error:  # a raised error would print a warning with a traceback
                return chatlas.ContentToolResult(value=None, error=_failure(outcome))
            return outcome.parted(())[0]  # images in results depend on the provider

        # `strict` defaults to true, with which OpenAI refuses every optional argument.
        about = {"name": one.name, "description": one.description, "parameters": one.schema}
        return chatlas.Tool(func=run, **about, strict=False)

    return [made(one) for one in declared]


def _failure(outcome: ToolCallOutcome) -> RuntimeError:
    """An error whose text the library sends to the model, with a prefix of its own."""
    return RuntimeError(outcome.text.removeprefix("Error: "))


def _library(module: str, distribution: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise McpError(f"{distribution} is not installed", hint=f"pip install {distribution}") from error
