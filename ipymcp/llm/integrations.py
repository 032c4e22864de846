"""Tools for model libraries, each of which is imported when it is needed.

The library runs the loop of requests and calls. Calls still pass through the host, with its policy and history.
"""

from __future__ import annotations

import importlib
import itertools
import json
import re
from collections import OrderedDict
from contextvars import ContextVar
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from ipymcp.errors import McpError
from ipymcp.llm.answer import IMAGE_TYPES
from ipymcp.llm.providers import PLAIN, Declaration
from ipymcp.llm.tool_calls import CallOrigin
from ipymcp.names import UniqueNames
from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object
from ipymcp.results.tool_result import ToolResult
from ipymcp.security.untrusted import CallingModel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from inspect import Signature

    from ipymcp.llm.answer import ToolCallOutcome
    from ipymcp.llm.tool_calls import ToolCaller


_NAME = "ipymcp"


def pydantic_ai_toolset(
    declared: Callable[[Any], Sequence[Declaration]],
    call: Callable[[str, dict[str, Any], Any], Awaitable[ToolCallOutcome]],
    searched: Callable[[], Sequence[Declaration]] = tuple,
) -> Any:
    """A toolset of pydantic-ai that reads the current tools at every step.

    Args:
        declared: Returns the tools for a pydantic-ai model, or for an unknown model (None).
        call: Calls a tool by name, including tools that were not declared, with the run context.
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
            about["strict"] = False  # by default the library chooses, by fewer rules than OpenAI has
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
            outcome = await call(name, getattr(tool_args, "given", tool_args), ctx)
            if outcome.is_error:
                raise ai.ToolFailed(outcome.text)
            text, shown = outcome.text_and_images()
            images = [ai.BinaryContent(image.data, media_type=kind) for kind, image in shown]
            return [text, *images] if images else text

    return McpToolset()


class _MalformedArguments(dict[str, Any]):
    """Arguments that are not a JSON object. The host reports the error; the library would end the answer after a few.

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
            return _MalformedArguments(given)
        return self.validate_python(value)

    def validate_python(self, given: Any, **_: object) -> dict[str, Any]:
        """Accept decoded arguments."""
        return given if is_object(given) else _MalformedArguments(given)


def langchain_tools(
    declared: Iterable[Declaration],
    called: ToolCaller,
    *,
    images: bool,
    hints: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> list[Any]:
    """Tools of LangChain.

    Args:
        declared: The tools.
        called: Runs the calls.
        images: Whether the model accepts images in tool results; else placeholders are sent. The model is not known
            here, and Chat Completions refuses requests with such images.
        hints: The annotations of tools by name, for `metadata`.
    """
    library: Any = _library("langchain_core.tools", "langchain-core")
    base: Any = library.BaseTool
    responses = _langchain_responses()
    calling: ContextVar[str] = ContextVar("ipymcp_langchain_call", default="")

    class LangchainTool(base):
        """A tool of the notebook's MCP servers. Its arguments may have the same names as parameters of the library."""

        def run(self, tool_input: Any, *args: Any, tool_call_id: str | None = None, **options: Any) -> Any:
            token = calling.set(tool_call_id or "")
            try:
                return base.run(self, tool_input, *args, tool_call_id=tool_call_id, **options)
            finally:
                calling.reset(token)

        async def arun(self, tool_input: Any, *args: Any, tool_call_id: str | None = None, **options: Any) -> Any:
            token = calling.set(tool_call_id or "")
            try:
                return await base.arun(self, tool_input, *args, tool_call_id=tool_call_id, **options)
            finally:
                calling.reset(token)

        def _run(self, /, **arguments: Any) -> Any:
            return self._output(called(self.name, arguments, responses.origin(calling.get())))

        async def _arun(self, /, **arguments: Any) -> Any:
            return self._output(await called.aio(self.name, arguments, responses.origin(calling.get())))

        def _output(self, outcome: ToolCallOutcome) -> Any:
            if outcome.is_error:
                raise library.ToolException(outcome.text)
            artifact = types.loads(outcome.value.json_bytes) if isinstance(outcome.value, ToolResult) else None
            text, shown = outcome.text_and_images(IMAGE_TYPES if images else ())
            blocks = [{"type": "image", "base64": image.base64, "mime_type": kind} for kind, image in shown]
            return [{"type": "text", "text": text}, *blocks] if blocks else text, artifact

    def made(one: Declaration) -> Any:
        schema = one.schema  # the library omits the description of the whole schema
        about = "\n".join(filter(None, (one.description, schema.pop("description", ""))))
        return LangchainTool(
            name=one.name,
            description=about,
            args_schema=schema,
            handle_tool_error=True,
            response_format="content_and_artifact",
            metadata={"server": one.server, "tool": one.tool, **hints.get(one.name, {})},
        )

    return [made(one) for one in declared]


_MAX_CALLS: Final = 10_000
"""Maximum number of requested calls whose response is remembered."""


class ObservedResponses(Protocol):
    """The responses of LangChain's models in this process."""

    def origin(self, call: str) -> CallOrigin:
        """The response that requested a call, and its model, by the call's id; empty if none was observed."""
        ...


@cache
def _langchain_responses() -> ObservedResponses:
    """Observe the responses of LangChain's models from now on."""
    callbacks: Any = importlib.import_module("langchain_core.callbacks")
    context: Any = importlib.import_module("langchain_core.tracers.context")
    base: Any = callbacks.BaseCallbackHandler

    class Responses(base):
        """Notes the calls that each response requests."""

        run_inline = True

        def __init__(self) -> None:
            self._models: dict[object, CallingModel] = {}
            self._calls: OrderedDict[str, CallOrigin] = OrderedDict()

        def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: object, **about: Any) -> None:
            metadata: dict[str, Any] = about.get("metadata") or {}
            name, provider = (str(metadata.get(key) or "") for key in ("ls_model_name", "ls_provider"))
            self._models[run_id] = CallingModel(name, provider)

        def on_llm_error(self, error: BaseException, *, run_id: object, **_: Any) -> None:
            self._models.pop(run_id, None)

        def on_llm_end(self, response: Any, *, run_id: object, **_: Any) -> None:
            origin = CallOrigin(model=self._models.pop(run_id, CallingModel()), response=str(run_id))
            for message in (getattr(one, "message", None) for listed in response.generations for one in listed):
                for call in getattr(message, "tool_calls", None) or ():
                    self._calls[str(call.get("id"))] = origin
            while len(self._calls) > _MAX_CALLS:
                self._calls.popitem(last=False)

        def origin(self, call: str) -> CallOrigin:
            return self._calls.get(call, CallOrigin())

    observer = Responses()
    context.register_configure_hook(ContextVar("ipymcp_langchain", default=observer), inheritable=True)
    return observer


def llm_tools(declared: Iterable[Declaration], called: ToolCaller) -> list[Any]:
    """Tools of `llm`."""
    llm: Any = _library("llm", "llm")

    def made(one: Declaration) -> Any:
        def run(**arguments: Any) -> Any:
            outcome = called(one.name, arguments)
            if outcome.is_error:
                raise _failure(outcome)
            text, shown = outcome.text_and_images()
            images = [llm.Attachment(type=kind, content=image.data) for kind, image in shown]
            return llm.ToolOutput(output=text, attachments=images) if images else text

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
            if outcome.is_error:  # raising the error would print a warning with a traceback
                return chatlas.ContentToolResult(value=None, error=_failure(outcome))
            return outcome.text_and_images(())[0]  # whether images are accepted depends on the provider

        # `strict` defaults to true, with which OpenAI refuses every optional argument.
        about = {"name": one.name, "description": one.description, "parameters": one.schema}
        return chatlas.Tool(func=run, **about, strict=False)

    return [made(one) for one in declared]


def openai_agents_tools(declared: Iterable[Declaration], called: ToolCaller, *, images: bool) -> list[Any]:
    """Tools of the OpenAI Agents SDK.

    Args:
        declared: The tools.
        called: Runs the calls.
        images: Whether the model accepts images in tool results, as for LangChain.
    """
    agents: Any = _library("agents", "openai-agents")
    requests = itertools.count(1)
    latest = 0

    def declares(*_: Any) -> bool:  # called for each request
        nonlocal latest
        latest = next(requests)
        return True

    def made(one: Declaration) -> Any:
        async def run(context: Any, arguments: str) -> Any:
            model = getattr(getattr(context, "agent", None), "model", None)
            name = model if isinstance(model, str) else str(getattr(model, "model", None) or "")
            outcome = await called.aio(one.name, arguments, CallOrigin(model=CallingModel(name), response=latest))
            text, shown = outcome.text_and_images(IMAGE_TYPES if images and not outcome.is_error else ())
            urls = [f"data:{kind};base64,{image.base64}" for kind, image in shown]
            parts = [agents.ToolOutputText(text=text), *(agents.ToolOutputImage(image_url=url) for url in urls)]
            return parts if urls else text

        return agents.FunctionTool(
            name=one.name,
            description=one.description,
            params_json_schema=one.schema,
            on_invoke_tool=run,
            strict_json_schema=False,
            is_enabled=declares,
        )

    return [made(one) for one in declared]


_SMOL_TYPES: Final = frozenset({"string", "boolean", "integer", "number", "array", "object", "null"})


def smolagents_tools(declared: Iterable[Declaration], called: ToolCaller) -> list[Any]:
    """Tools of smolagents, by names that are identifiers.

    Args:
        declared: The tools, with schemas without references.
        called: Runs the calls.
    """
    library: Any = _library("smolagents", "smolagents")
    base: Any = library.Tool
    names = UniqueNames()

    class SmolagentsTool(base):
        """A tool of the notebook's MCP servers."""

        output_type = "string"
        skip_forward_signature_validation = True

        def __init__(self, one: Declaration) -> None:
            schema = one.schema
            required = set(schema.get("required") or ())
            self.name = names.add(re.sub(r"\W", "_", one.name))
            self.description = "\n".join(filter(None, (one.description, str(schema.get("description") or ""))))
            self.inputs = {
                name: _smol_input(each, is_required=name in required)
                for name, each in schema.get("properties", {}).items()
            }
            self._declared = one.name
            base.__init__(self)

        def forward(self, *values: Any, **arguments: Any) -> str:
            """Run a call. Code of a model may pass arguments by position."""
            outcome = called(self._declared, {**dict(zip(self.inputs, values, strict=False)), **arguments})
            if outcome.is_error:
                raise _failure(outcome)
            return outcome.text_and_images(())[0]

    return [SmolagentsTool(one) for one in declared]


def _smol_input(schema: Any, *, is_required: bool) -> dict[str, Any]:
    """A property's schema with the keys that smolagents requires; several types are declared as a list."""
    own: dict[str, Any] = dict(schema) if is_object(schema) else {}
    forms: list[Any] = own.pop("anyOf", None) or own.pop("oneOf", None) or [own]
    listed = [form.get("type") if is_object(form) else None for form in forms]
    kinds = [*dict.fromkeys(kind for each in listed for kind in (each if is_array(each) else [each]))]
    known = all(kind in _SMOL_TYPES for kind in kinds)
    own["type"] = "any" if not known else kinds[0] if len(kinds) == 1 else kinds
    own["description"] = str(own.get("description") or "")
    return own if is_required else {**own, "nullable": True}


def llama_index_tools(declared: Iterable[Declaration], called: ToolCaller) -> list[Any]:
    """Tools of LlamaIndex."""
    library: Any = _library("llama_index.core.tools", "llama-index-core")
    kinds: Any = importlib.import_module("llama_index.core.tools.types")
    metadata: Any = library.ToolMetadata
    base: Any = kinds.AsyncBaseTool

    class LlamaIndexMetadata(metadata):
        """A declaration with its schema, which the library otherwise takes from a pydantic model."""

        def __init__(self, one: Declaration) -> None:
            metadata.__init__(self, one.description, one.name, None)
            self._schema = one.schema

        def get_parameters_dict(self) -> dict[str, Any]:
            return self._schema

        @property
        def fn_schema_str(self) -> str:
            return json.dumps(self._schema, ensure_ascii=False)

    class LlamaIndexTool(base):
        """A tool of the notebook's MCP servers."""

        def __init__(self, one: Declaration) -> None:
            self._about = LlamaIndexMetadata(one)

        @property
        def metadata(self) -> Any:
            return self._about

        def call(self, /, **arguments: Any) -> Any:
            return self._output(arguments, called(self._about.name, arguments))

        async def acall(self, /, **arguments: Any) -> Any:
            return self._output(arguments, await called.aio(self._about.name, arguments))

        def _output(self, arguments: dict[str, Any], outcome: ToolCallOutcome) -> Any:
            text = outcome.text_and_images(())[0]
            about = {"raw_input": arguments, "raw_output": outcome.value, "is_error": outcome.is_error}
            return library.ToolOutput(tool_name=self._about.name, content=text, **about)

    return [LlamaIndexTool(one) for one in declared]


def plain_functions(
    declared: Iterable[Declaration],
    called: ToolCaller,
    signatures: Mapping[str, Signature],
    *,
    coroutines: bool,
) -> list[Callable[..., Any]]:
    """Python functions that return the text for the model, also for a failure.

    Args:
        declared: The tools.
        called: Runs the calls.
        signatures: The signatures of the tools by their names for the model.
        coroutines: Whether to make coroutine functions.
    """

    def made(one: Declaration) -> Callable[..., Any]:
        own = signatures[one.name].replace(return_annotation=str)

        def call(*values: Any, **arguments: Any) -> str:
            return called(one.name, named(values, arguments)).text_and_images(())[0]

        async def acall(*values: Any, **arguments: Any) -> str:
            return (await called.aio(one.name, named(values, arguments))).text_and_images(())[0]

        def named(values: tuple[Any, ...], arguments: dict[str, Any]) -> dict[str, Any]:
            given = {**dict(zip(own.parameters, values, strict=False)), **arguments}
            return {name: value for name, value in given.items() if not is_omitted(name, value)}

        def is_omitted(name: str, value: Any) -> bool:
            return value is None and name in own.parameters and own.parameters[name].default is None

        function: Any = acall if coroutines else call
        function.__name__ = function.__qualname__ = re.sub(r"\W", "_", one.name)
        function.__module__ = _NAME
        function.__doc__ = _docstring(one)
        function.__signature__ = own
        function.__annotations__ = {name: each.annotation for name, each in own.parameters.items()} | {"return": str}
        return function

    return [made(one) for one in declared if one.name in signatures]


def _docstring(one: Declaration) -> str:
    """The description with the arguments, or without them if that would be too long for a provider."""
    properties: dict[str, Any] = one.schema.get("properties", {})
    notes = {
        name: each["description"] for name, each in properties.items() if is_object(each) and "description" in each
    }
    lines = [f"    {name}: {' '.join(str(note).split())}" for name, note in notes.items()]
    whole = "\n".join([one.description, "", "Args:", *lines]) if lines else one.description
    return whole if len(whole) <= PLAIN.description else one.description


def _failure(outcome: ToolCallOutcome) -> RuntimeError:
    """An error whose text the library sends to the model, with the library's own prefix."""
    return RuntimeError(outcome.text.removeprefix("Error: "))


def _library(module: str, distribution: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise McpError(f"{distribution} is not installed", hint=f"pip install {distribution}") from error
