"""The model backend on pydantic-ai, which talks to the providers; imported at the first question.

Source: MCP 2025-11-25 and 2026-07-28, schema.ts, CreateMessageRequest and CreateMessageResult.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import importlib
import itertools
import os
import pkgutil
import warnings
from typing import TYPE_CHECKING, Any, Final

from ipymcp.errors import McpError
from ipymcp.llm.answer import ToolCallRequest, Usage
from ipymcp.llm.backend import (
    ModelResponse,
    as_mcp_error,
    blocked,
    first_line,
    limit_reached,
    silent,
    too_long,
    truncated,
)
from ipymcp.llm.integrations import pydantic_ai_toolset
from ipymcp.llm.model_settings import provider_settings
from ipymcp.llm.prices import response_price
from ipymcp.llm.tool_search import MAX_FOUND, QUERIES
from ipymcp.protocol.types import is_array, is_object
from ipymcp.runtime.tracing import is_configured
from ipymcp.version import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipymcp.llm.backend import AnswerRequest
    from ipymcp.runtime.client_handlers import SamplingRequest


_REASONS: Final = {"stop": "endTurn", "length": "maxTokens", "tool_call": "toolUse"}
_FILES: Final = ("image", "audio")
_WITH_CONTENT: Final = ("user-prompt", "tool-return", "builtin-tool-return")
_PARTS: Final = frozenset({"user-prompt", "tool-return", "retry-feedback", "text", "thinking", "tool-call", "file"})
"""Kinds of parts in a conversation of ipymcp, besides those of a provider's search for tools."""
_RESPONSE_FACTS: Final = ("usage", "model_name", "timestamp", "provider_name", "provider_url", "finish_reason")
_SETTINGS: Final = {"maxTokens": "max_tokens", "temperature": "temperature", "stopSequences": "stop_sequences"}


def messages(parts: Any, request: SamplingRequest) -> list[Any]:
    """Convert a sampling request's conversation to pydantic-ai's messages.

    Args:
        parts: The module `pydantic_ai.messages`.
        request: The server's request.
    """
    names: dict[str, str] = {}
    result: list[Any] = []
    if request.system_prompt:
        result.append(parts.ModelRequest(parts=[parts.SystemPromptPart(request.system_prompt)]))
    for message in request.messages:
        content = message.get("content")
        blocks = [block for block in (content if is_array(content) else [content]) if is_object(block)]
        if message.get("role") == "assistant":
            names |= {
                str(block.get("id")): str(block.get("name")) for block in blocks if block.get("type") == "tool_use"
            }
            result.append(parts.ModelResponse(parts=[_response_part(parts, block) for block in blocks]))
        else:
            result.append(parts.ModelRequest(parts=[_request_part(parts, block, names) for block in blocks]))
    return result


def _response_part(parts: Any, block: dict[str, Any]) -> Any:
    if block.get("type") == "tool_use":
        return parts.ToolCallPart(str(block.get("name")), block.get("input") or {}, tool_call_id=str(block.get("id")))
    return parts.TextPart(str(block.get("text") or ""))


def _request_part(parts: Any, block: dict[str, Any], names: dict[str, str]) -> Any:
    kind = block.get("type")
    if kind == "tool_result":
        call = str(block.get("toolUseId"))
        content = block.get("content")
        blocks = [each for each in content if is_object(each)] if is_array(content) else []
        text = block.get("structuredContent") or "\n".join(filter(None, map(_text, blocks)))
        files = [_file(parts, each) for each in blocks if each.get("type") in _FILES]
        return parts.ToolReturnPart(names.get(call, "tool"), [text, *files] if files else text, tool_call_id=call)
    if kind in _FILES:
        return parts.UserPromptPart([_file(parts, block)])
    return parts.UserPromptPart(_text(block))


def _file(parts: Any, block: dict[str, Any]) -> Any:
    return parts.BinaryContent(base64.b64decode(str(block.get("data") or "")), media_type=str(block.get("mimeType")))


def _text(block: dict[str, Any]) -> str:
    """The text of a block; for a resource without text, its URI."""
    resource = block.get("resource")
    inner = resource if is_object(resource) else block
    uri = inner.get("uri")
    return str(inner.get("text") or (f"[resource {uri}]" if uri else ""))


def settings(params: dict[str, Any]) -> dict[str, Any]:
    """Convert a sampling request's parameters to model settings."""
    found = {setting: params[name] for name, setting in _SETTINGS.items() if params.get(name) is not None}
    choice = params.get("toolChoice")
    mode = choice.get("mode") if is_object(choice) else None
    return {**found, "tool_choice": mode} if mode in ("auto", "required", "none") and params.get("tools") else found


def parameters(params: dict[str, Any]) -> Any:
    """Convert the tools in a sampling request, which the server runs itself."""
    models: Any = importlib.import_module("pydantic_ai.models")
    tools: Any = importlib.import_module("pydantic_ai.tools")
    given = params.get("tools")
    definitions = [
        tools.ToolDefinition(
            name=str(one.get("name")),
            description=str(one.get("description") or ""),
            parameters_json_schema=one.get("inputSchema") or {"type": "object"},
        )
        for one in (given if is_array(given) else ())
        if is_object(one)
    ]
    return models.ModelRequestParameters(function_tools=definitions)


def as_message(response: Any) -> dict[str, Any]:
    """Convert a response to a `CreateMessageResult`: one block, or a list of several."""
    blocks: list[dict[str, Any]] = []
    for part in response.parts:
        if part.part_kind == "text" and part.content:
            blocks.append({"type": "text", "text": part.content})
        elif part.part_kind == "tool-call":
            call = {"id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
            blocks.append({"type": "tool_use", **call})
    has_calls = any(block["type"] == "tool_use" for block in blocks)
    reason = "toolUse" if has_calls else _REASONS.get(str(response.finish_reason), "endTurn")
    content: Any = blocks[0] if len(blocks) == 1 and not has_calls else blocks
    return {
        "role": "assistant",
        "model": response.model_name or "unknown",
        "stopReason": reason,
        "content": content or {"type": "text", "text": ""},
    }


_INSTALL = install_command("llm")
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_RETRIES = 2
"""Retries if the output is empty, or does not match `returns`."""


class PydanticBackend:
    """The `ModelBackend` on pydantic-ai.

    Raises:
        McpError: pydantic-ai is not installed.
    """

    def __init__(self) -> None:
        try:
            self._ai: Any = importlib.import_module("pydantic_ai")
            self._messages: Any = importlib.import_module("pydantic_ai.messages")
            self._usage: Any = importlib.import_module("pydantic_ai.usage")
        except ImportError as error:
            raise McpError("talking to models needs pydantic-ai, which is not installed", hint=_INSTALL) from error
        for ignored in (self._ai.UsageLimitUnavailableWarning, self._ai.UsageExtractionFailedWarning):
            warnings.simplefilter("ignore", ignored)  # the answer's last line says which tokens are unknown
        self._ai.BANNER_ENABLED = False  # the banner would be printed within the answer
        providers: Any = importlib.import_module("pydantic_ai.providers")
        self._providers = frozenset(one.name for one in pkgutil.iter_modules(providers.__path__))

    async def answer(self, question: AnswerRequest) -> ModelResponse:
        """Implement `ModelBackend.answer`."""
        search = question.search
        searched = search.declared if search is not None else tuple
        toolset = pydantic_ai_toolset(
            lambda _: question.declared(),
            lambda name, arguments, run: question.call(name, arguments, str(run.tool_call_id)),
            searched,
        )
        model = self._model(question)
        received: list[Any] = []
        checks = self._response_checks(toolset, question, received)
        agent = self._ai.Agent(
            model,
            model_settings=provider_settings(model, question.settings, is_known=question.base_url is None),
            output_type=self._output(question.returns),
            instructions=question.system,
            toolsets=[toolset],
            capabilities=[checks, *self._tool_search(question), *self._instrumentation()],
            retries=_RETRIES,
        )
        earlier = self._loaded(question.history)
        with self._ai.capture_run_messages() as messages:

            def new() -> list[Any]:
                """The messages of this answer: with a response that was refused, without one that never came."""
                known = {id(one.parts) for one in received}
                added = [one for one in messages[len(earlier) :] if one.parts or id(one.parts) in known]
                present = {id(one.parts) for one in added}
                return [*added, *(one for one in received if id(one.parts) not in present)]

            def spent() -> Usage:
                return question.spent + self._usage_of(new(), question)

            try:
                async with agent.run_stream_events(
                    self._prompt(question),
                    message_history=earlier,
                    usage_limits=self._limits(question, spent),
                ) as events:
                    async for event in events:
                        self._forward(event, question)
                    result = events.result
            except self._ai.UsageLimitExceeded as error:
                self._report_partial(new(), earlier, question, "a limit was reached")
                raise limit_reached(_limit_name(error), question.limits, spent()) from error
            except (self._ai.AgentRunError, self._ai.UserError) as error:
                self._report_partial(new(), earlier, question, "the provider failed")
                if isinstance(error, self._ai.IncompleteToolCall):
                    raise too_long(question.settings, has_begun=True) from error
                raise as_mcp_error(error) from error
            except asyncio.CancelledError:
                self._report_partial(new(), earlier, question, "the user interrupted it, or its time was over")
                raise
            except McpError as error:
                self._report_partial(new(), earlier, question, error.message)
                raise
            except Exception as error:  # raised by the provider's library or by a model of the user's
                self._report_partial(new(), earlier, question, "it broke off")
                raise as_mcp_error(error) from error
        history = result.all_messages()
        is_text = question.returns is None
        return ModelResponse(
            text=result.output if is_text else "",
            data=None if is_text else result.output,
            messages=self._dumped(history),
            usage=self._usage_of(new(), question),
            reason=self._responses(history)[-1].finish_reason or "",
            thinking=self._thinking(history[len(earlier) :]),
        )

    def _responses(self, messages: list[Any]) -> list[Any]:
        return [one for one in messages if isinstance(one, self._messages.ModelResponse)]

    def _is_empty(self, response: Any) -> bool:
        """Whether a response has neither text nor calls nor files, but at most reasoning."""
        words = (self._messages.TextPart, self._messages.ThinkingPart)
        return all(
            isinstance(part, words) and not (part.content and isinstance(part, words[0])) for part in response.parts
        )

    def _instrumentation(self) -> list[Any]:
        """The capability that records spans, if OpenTelemetry is configured, but not pydantic-ai's own instrumentation.

        Spans contain prompts, texts and results only if OpenTelemetry's environment variable for that is set.
        """
        if not is_configured() or getattr(self._ai.Agent, "_instrument_default", False):
            return []
        capabilities: Any = importlib.import_module("pydantic_ai.capabilities")
        instrumented: Any = importlib.import_module("pydantic_ai.models.instrumented")
        include_content = os.environ.get(_CAPTURE, "").lower() not in ("", "false", "no_content")
        settings = instrumented.InstrumentationSettings(include_content=include_content)
        return [capabilities.Instrumentation(settings=settings)]

    def _usage_of(self, new: list[Any], question: AnswerRequest) -> Usage:
        """The cost of the responses in a list of messages."""
        return sum((_usage(one, question.model, question.base_url) for one in self._responses(new)), Usage())

    def _thinking(self, new: list[Any]) -> str:
        """The reasoning in a list of messages."""
        parts = (part for one in new for part in one.parts if isinstance(part, self._messages.ThinkingPart))
        return "\n\n".join(part.content for part in parts if part.content)

    def _prompt(self, question: AnswerRequest) -> Any:
        """The prompt after its images, each with its name."""
        if not question.images:
            return question.prompt
        parts: list[Any] = []
        for one in question.images:
            parts += [f"{one.name}:", self._messages.BinaryContent(one.image.data, media_type=one.kind)]
        return [*parts, question.prompt]

    def _dumped(self, history: list[Any]) -> list[Any]:
        return self._messages.ModelMessagesTypeAdapter.dump_python(history, mode="json")

    def _loaded(self, history: Sequence[Any]) -> list[Any]:
        try:
            return self._conversation(self._messages.ModelMessagesTypeAdapter.validate_python([*history]))
        except (ValueError, RecursionError) as error:  # raised by pydantic
            raise McpError(
                "the history is not a conversation of ipymcp", hint="history takes answer.messages, or a saved chat"
            ) from error

    def _conversation(self, history: Sequence[Any]) -> list[Any]:
        """Reduce messages to what a conversation of ipymcp has, since a file with them may be from anyone.

        Instructions would be followed as ipymcp's own, and addresses be fetched by the kernel or the provider.
        """
        reduced: list[Any] = []
        for message in history:
            parts = [self._without_addresses(part) for part in message.parts if _is_kept(part)]
            if isinstance(message, self._messages.ModelResponse):
                facts = {name: getattr(message, name) for name in _RESPONSE_FACTS}
                reduced.append(self._messages.ModelResponse(parts=parts, **facts))
            elif parts:
                reduced.append(self._messages.ModelRequest(parts=parts, timestamp=message.timestamp))
        return reduced

    def _without_addresses(self, value: Any) -> Any:
        """A part, or content of one, with texts in place of files that are not in it."""
        if getattr(value, "part_kind", None) in _WITH_CONTENT:
            return dataclasses.replace(value, content=self._without_addresses(value.content))
        if isinstance(value, (self._messages.FileUrl, self._messages.UploadedFile)):
            return "[a file that is not in this conversation]"
        if is_array(value):
            return [self._without_addresses(one) for one in value]
        return {name: self._without_addresses(one) for name, one in value.items()} if is_object(value) else value

    def _is_cut(self, response: Any) -> bool:
        """Whether the stream of the response broke off, which pydantic-ai does not distinguish from its end.

        All of its providers send a reason for the end. A model of a class of the user's need not.
        """
        provider = str(getattr(response, "provider_name", None)).partition("-")[0]
        return provider in self._providers and not _has_reason(response)

    def _report_partial(self, new: list[Any], earlier: list[Any], question: AnswerRequest, reason: str) -> None:
        """Report the partial answer to `on_partial`, with messages added so that the conversation can continue.

        Args:
            new: The messages of this answer.
            earlier: The messages before it.
            question: The question.
            reason: The reason why the answer ended early.
        """
        parts = self._messages
        responses = self._responses(new)
        if not responses:
            return  # there is no partial answer
        stopped = f"the answer was stopped ({reason})"
        texts = ["".join(part.content for part in one.parts if isinstance(part, parts.TextPart)) for one in responses]
        history = [*earlier, *new]
        last = responses[-1]
        if history[-1] is last and not _has_reason(last):  # its calls may be truncated, too
            kept = [part for part in last.parts if not isinstance(part, parts.ToolCallPart)]
            last = history[-1] = dataclasses.replace(last, parts=kept)
        after = history[next(number for number, one in enumerate(history) if one is last) + 1 :]
        ends = (parts.ToolReturnPart, parts.RetryPromptPart)
        answered = {part.tool_call_id for one in after for part in one.parts if isinstance(part, ends)}
        calls = [part for part in last.parts if isinstance(part, parts.ToolCallPart)]
        unanswered = [call for call in calls if call.tool_call_id not in answered]
        if unanswered:  # providers refuse a conversation with unanswered calls
            returns = [
                parts.ToolReturnPart(
                    call.tool_name,
                    f"{'Unknown result' if question.was_made(call.tool_call_id) else 'Not made'}: {stopped}.",
                    tool_call_id=call.tool_call_id,
                )
                for call in unanswered
            ]
            if after:
                history[-1] = dataclasses.replace(history[-1], parts=[*history[-1].parts, *returns])
            else:
                history.append(parts.ModelRequest(parts=returns))
        if not isinstance(history[-1], parts.ModelResponse):
            history.append(parts.ModelResponse(parts=[]))
        if self._is_empty(history[-1]):
            note = parts.TextPart(f"[{stopped}]")
            history[-1] = dataclasses.replace(history[-1], parts=[*history[-1].parts, note])
        question.on_partial(
            ModelResponse(
                text=next(filter(None, reversed(texts)), ""),
                data=None,
                messages=self._dumped(history),
                usage=self._usage_of(new, question),
                reason=(last.finish_reason or "") if _has_reason(last) else "",
                thinking=self._thinking(new),
            )
        )

    async def sample(self, model: Any, request: SamplingRequest) -> tuple[dict[str, Any], Usage]:
        """Implement `ModelBackend.sample`."""
        direct: Any = importlib.import_module("pydantic_ai.direct")
        try:
            response = await direct.model_request(
                self._infer_model(model),
                messages(self._messages, request),
                model_settings=settings(request.params),
                model_request_parameters=parameters(request.params),
            )
        except (self._ai.AgentRunError, self._ai.UserError) as error:
            raise as_mcp_error(error) from error
        return as_message(response), _usage(response, model)

    def _tool_search(self, question: AnswerRequest) -> list[Any]:
        """The capability that searches tools. Requests of a provider's own search are answered by it, too."""
        search, find = question.search, question.find
        if search is None or find is None:
            return []

        async def found(ctx: Any, queries: Sequence[str], tools: Sequence[Any]) -> list[str]:
            known: set[str] = set(ctx.discovered_tool_names)
            room = search.max_tools - len(known)
            names: list[str] = []
            for name in await find(queries):
                room -= name not in known
                if name in known or room >= 0:
                    names.append(name)
            return names

        capabilities: Any = importlib.import_module("pydantic_ai.capabilities")
        about = {"tool_description": search.description(), "parameter_description": QUERIES}
        return [capabilities.ToolSearch(strategy=found, max_results=MAX_FOUND, **about)]

    def _response_checks(self, toolset: Any, question: AnswerRequest, received: list[Any]) -> Any:
        """A capability that judges each response before any of its calls is made.

        A response that broke off or has no content ends the answer. Calls of undeclared tools are passed to the host,
        which may know the tool or suggest a name.

        Without it, the library makes the calls of a response that broke off. It treats duplicate ids, unknown tools,
        tools that were not searched for, and malformed searches as errors, a few of which end the answer.

        Args:
            toolset: The tools.
            question: The question.
            received: The list to which each response is added.
        """
        base: type[Any] = importlib.import_module("pydantic_ai.capabilities").AbstractCapability
        accepted: dict[str, Any] = {}
        refuse, repair, search = self._refuse, self._repair_calls, question.search

        class ResponseChecks(base):
            async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
                received.append(response)
                refuse(received, question)
                repair(response, ctx.messages)
                tools = ctx.tool_manager.tools
                for call in response.tool_calls:
                    if not ctx.is_tool_available(call.tool_name):
                        tools[call.tool_name] = accepted[call.tool_name] = toolset.accept(call.tool_name)
                    elif tools[call.tool_name].tool_def.tool_kind == "tool-search":
                        call.args = {"queries": _queries(call)}
                return response

            async def wrap_tool_execute(
                self, ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any], handler: Any
            ) -> Any:
                tool = accepted.get(call.tool_name)
                return await (handler(args) if tool is None else toolset.call_tool(call.tool_name, args, ctx, tool))

            async def after_tool_execute(self, ctx: Any, *, tool_def: Any, result: Any, **about: Any) -> Any:
                if search is None or tool_def.tool_kind != "tool-search" or result.get("discovered_tools"):
                    return result
                return {**result, "message": search.no_match()}

        return ResponseChecks()

    def _refuse(self, received: Sequence[Any], question: AnswerRequest) -> None:
        """Refuse the last response if it cannot be used.

        Raises:
            McpError: It broke off; or it has no content because of its length or the provider's filter, or like those
                before it.
        """
        response = received[-1]
        if self._is_cut(response):
            raise truncated()
        if self._is_empty(response):
            if response.finish_reason == "length":
                raise too_long(question.settings, has_begun=False)
            if response.finish_reason == "content_filter":
                raise blocked(response.provider_details or {})
            if len(received) > _RETRIES and all(map(self._is_empty, received[-_RETRIES - 1 :])):
                raise silent()

    def _repair_calls(self, response: Any, before: Sequence[Any]) -> None:
        """Give calls with duplicate ids new ones, and make a call that the response's length cut off malformed.

        Args:
            response: The response.
            before: The conversation before it.
        """
        kind = self._messages.ToolCallPart
        known = {part.tool_call_id for one in before for part in one.parts if isinstance(part, kind)}
        for call in response.tool_calls:
            own = call.tool_call_id
            numbers = itertools.count(2)
            while call.tool_call_id in known:
                call.tool_call_id = f"{own}-{next(numbers)}"
            known.add(call.tool_call_id)
        last: Any = response.parts[-1] if response.parts else None
        if response.finish_reason == "length" and isinstance(last, kind) and not last.args:
            last.args = "{"  # without arguments it would be a valid call

    def _forward(self, event: Any, question: AnswerRequest) -> None:
        parts = self._messages
        if isinstance(event, parts.PartStartEvent):  # a part may start with text
            if isinstance(event.part, parts.TextPart):
                question.on_text(event.part.content)
            elif isinstance(event.part, parts.ThinkingPart):
                question.on_thinking(event.part.content)
            elif isinstance(event.part, parts.ToolCallPart):
                call, text = event.part, event.part.args_as_json_str() if event.part.has_content() else ""
                question.on_call(event.index, ToolCallRequest(call.tool_call_id, call.tool_name, text))
        elif isinstance(event, parts.PartDeltaEvent):
            if isinstance(event.delta, parts.TextPartDelta):
                question.on_text(event.delta.content_delta)
            elif isinstance(event.delta, parts.ThinkingPartDelta):
                question.on_thinking(event.delta.content_delta or "")
            elif isinstance(event.delta, parts.ToolCallPartDelta) and isinstance(event.delta.args_delta, str):
                question.on_arguments(event.index, event.delta.args_delta)

    def _model(self, question: AnswerRequest) -> Any:
        if question.base_url is None:
            return self._infer_model(question.model)
        try:
            chat: Any = importlib.import_module("pydantic_ai.models.openai")
            providers: Any = importlib.import_module("pydantic_ai.providers.openai")
        except ImportError as error:
            raise McpError("an OpenAI-compatible URL needs the library openai", hint=_INSTALL) from error
        provider = providers.OpenAIProvider(base_url=question.base_url, api_key=_key())
        name = str(question.model).removeprefix("openai:").removeprefix("ollama:")
        return chat.OpenAIChatModel(name, provider=provider)

    def _infer_model(self, model: Any) -> Any:
        try:
            return importlib.import_module("pydantic_ai.models").infer_model(model)
        except self._ai.UserError as error:
            raise as_mcp_error(error) from error
        except ImportError as error:
            raise McpError(first_line(error), hint=_INSTALL) from error

    def _output(self, returns: Any) -> Any:
        if returns is None:
            return str
        return self._ai.StructuredDict(returns) if isinstance(returns, dict) else returns

    def _limits(self, question: AnswerRequest, spent: Callable[[], Usage]) -> Any:
        """The limits of an answer, including its cost and what earlier attempts at it used."""
        limits, earlier = question.limits, question.spent
        exceeded: type[Exception] = self._ai.UsageLimitExceeded
        base: type[Any] = self._usage.UsageLimits

        class AnswerLimits(base):
            def check_before_request(self, usage: Any) -> None:
                if earlier.requests + usage.requests >= limits.rounds:
                    raise exceeded("request_limit")

            def check_tokens(self, usage: Any) -> None:
                if earlier.tokens + usage.total_tokens > limits.tokens:
                    raise exceeded("total_tokens_limit")
                cost = spent() if limits.dollars is not None else None
                if cost is not None and (cost.unpriced or cost.dollars > (limits.dollars or 0)):
                    raise exceeded("dollars")

        return AnswerLimits(
            request_limit=limits.rounds, tool_calls_limit=limits.calls, total_tokens_limit=limits.tokens
        )


_LIMIT_NAMES: Final = {
    "request_limit": "rounds",
    "tool_calls_limit": "calls",
    "total_tokens_limit": "tokens",
    "dollars": "dollars",
}
"""The fields of `Limits` by words in the library's errors."""


def _limit_name(error: Exception) -> str:
    text = str(error)
    return next(name for word, name in _LIMIT_NAMES.items() if word in text)


def _queries(call: Any) -> list[str]:
    """The queries of a search, in any form that the model has used; at least one."""
    given: dict[str, Any] = call.args_as_dict()  # malformed JSON becomes a single value
    values = [each for value in given.values() for each in (value if is_array(value) else [value])]
    return [each for each in values if isinstance(each, str) and each.strip()] or ["?"]


_ASSUMED = (None, "stop", "tool_call", "error")
"""Finish reasons that pydantic-ai assumes if a stream has none."""


def _is_kept(part: Any) -> bool:
    """Whether a part may be in a conversation of ipymcp."""
    return part.part_kind in _PARTS or (
        part.part_kind in ("builtin-tool-call", "builtin-tool-return") and part.tool_kind == "tool-search"
    )


def _has_reason(response: Any) -> bool:
    details: Any = response.provider_details or ()
    assumed = _ASSUMED if response.provider_name != "xai" else _ASSUMED[:1]
    return "finish_reason" in details or response.finish_reason not in assumed


def _usage(response: Any, model: Any, base_url: str | None = None) -> Usage:
    """The cost of a response."""
    used = response.usage
    if not used.total_tokens:  # a provider reports none, or invalid ones
        return Usage(requests=1, unpriced=1, unreported=1)
    cost = response_price(response, model, base_url)
    return Usage(1, used.input_tokens, used.output_tokens, used.cache_read_tokens, cost or 0.0, int(cost is None))


def _key() -> str:
    """The API key for a `base_url`: `OPENAI_API_KEY`, or a placeholder for servers that require any key."""
    return os.environ.get("OPENAI_API_KEY") or "none"
