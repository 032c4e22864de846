"""The model backend on pydantic-ai, which talks to the providers; imported at the first question.

Source: MCP 2025-11-25 and 2026-07-28, schema.ts, CreateMessageRequest and CreateMessageResult.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import importlib
import os
import pkgutil
import warnings
from typing import TYPE_CHECKING, Any, Final

from ipymcp.errors import McpError
from ipymcp.llm.answer import Usage
from ipymcp.llm.backend import ModelResponse
from ipymcp.llm.integrations import pydantic_ai_toolset
from ipymcp.llm.prices import dollars, response_price
from ipymcp.llm.tool_search import MAX_FOUND, QUERIES
from ipymcp.protocol.types import is_array, is_object
from ipymcp.runtime.tracing import is_configured
from ipymcp.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ipymcp.llm.backend import AnswerRequest, Limits
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


_INSTALL = "pip install 'ipymcp[llm]'"
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_RETRIES = 2
"""Retries if the output does not match `returns`."""
_MAX_LENGTH = 400
_AGAIN = "ask again"
_KEY_HINT = "is the key right? It is in the provider's variable, such as OPENAI_API_KEY"
_HINTS: dict[int, str | None] = {
    400: None,
    401: _KEY_HINT,
    403: _KEY_HINT,
    404: "are the model's name and the URL right?",
}
"""Hints for HTTP statuses for which asking again would not help."""


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
        warnings.simplefilter("ignore", self._ai.UsageLimitUnavailableWarning)
        self._ai.BANNER_ENABLED = False  # the banner would be printed within the answer
        providers: Any = importlib.import_module("pydantic_ai.providers")
        self._providers = frozenset(one.name for one in pkgutil.iter_modules(providers.__path__))

    async def answer(self, question: AnswerRequest) -> ModelResponse:
        """Implement `ModelBackend.answer`."""
        search = question.search
        searched = search.declared if search is not None else tuple
        toolset = pydantic_ai_toolset(
            lambda _: question.declared(), lambda name, arguments, _: question.call(name, arguments), searched
        )
        model = self._model(question)
        agent = self._ai.Agent(
            model,
            model_settings=self._settings(model, question),
            output_type=self._output(question.returns),
            instructions=question.system,
            toolsets=[toolset],
            capabilities=[self._undeclared_calls(toolset), *self._tool_search(question), *self._instrumentation()],
            retries=_RETRIES,
        )
        earlier = self._loaded(question.history)
        with self._ai.capture_run_messages() as messages:

            def spent() -> Usage:
                return self._usage_of(messages[len(earlier) :], question)

            try:
                async with agent.run_stream_events(
                    self._prompt(question),
                    message_history=earlier,
                    usage_limits=self._limits(question.limits, spent),
                ) as events:
                    async for event in events:
                        self._forward(event, question)
                    result = events.result
                history = result.all_messages()
                response = next(one for one in reversed(history) if isinstance(one, self._messages.ModelResponse))
                if self._is_cut(response):
                    raise _truncated()
            except self._ai.UsageLimitExceeded as error:
                self._report_partial(messages[len(earlier) :], earlier, question, "a limit was reached")
                raise _limit(error, question.limits, spent()) from error
            except (self._ai.AgentRunError, self._ai.UserError) as error:
                self._report_partial(messages[len(earlier) :], earlier, question, "the provider failed")
                raise as_mcp_error(error) from error
            except BaseException as error:
                self._report_partial(messages[len(earlier) :], earlier, question, "the answer broke off")
                if isinstance(error, Exception) and not isinstance(error, McpError):
                    raise as_mcp_error(error) from error  # raised by the provider's library or by a model of the user's
                raise
        is_text = question.returns is None
        new = history[len(earlier) :]
        return ModelResponse(
            text=result.output if is_text else "",
            data=None if is_text else result.output,
            messages=self._dumped(history),
            usage=self._usage_of(new, question),
            reason=response.finish_reason or "",
            thinking=self._thinking(new),
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
        responses = [one for one in new if isinstance(one, self._messages.ModelResponse)]
        return sum((_usage(one, question.model, question.base_url) for one in responses), Usage())

    def _thinking(self, new: list[Any]) -> str:
        """The reasoning in a list of messages."""
        parts = (part for one in new for part in one.parts if isinstance(part, self._messages.ThinkingPart))
        return "\n\n".join(part.content for part in parts if part.content)

    def _settings(self, model: Any, question: AnswerRequest) -> dict[str, Any]:
        """The settings of a request.

        Raises:
            McpError: The model does not accept one of them.
        """
        given = question.settings
        profile: dict[str, Any] = {}
        with contextlib.suppress(NotImplementedError):  # a model that delegates to others
            profile = getattr(model, "profile", None) or {}
        unsupported = ""
        own: dict[str, Any] = getattr(model, "settings", None) or {}
        found: dict[str, Any] = {} if "cache" in own else {"cache": True}
        thinks = given.effort not in (None, "none") or profile.get("thinking_enabled_by_default")
        if given.effort is not None:
            if question.base_url is not None:  # only the user knows what an unknown server supports
                found["openai_reasoning_effort"] = given.effort
            else:
                found["thinking"] = given.effort if given.effort != "none" else False
                if profile and not (profile.get("supports_thinking") or profile.get("thinking_always_enabled")):
                    unsupported = "effort"
        if given.temperature is not None:
            found["temperature"] = given.temperature
            if "temperature" in getattr(model, "unsupported_settings", ()) or (
                profile.get("anthropic_disallows_sampling_settings")
                or (profile.get("openai_supports_reasoning") and thinks)
            ):
                unsupported = "temperature with an effort" if given.effort else "temperature"
        if given.max_tokens is not None:
            found["max_tokens"] = given.max_tokens
        if unsupported:
            name = getattr(model, "model_name", "the model")
            raise McpError(f"{name} accepts no {unsupported}", hint=f"omit the {unsupported.partition(' ')[0]}")
        return found

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
        responses = [one for one in new if isinstance(one, parts.ModelResponse) and one.parts]
        if not responses:
            return  # there is no partial answer
        texts = ["".join(part.content for part in one.parts if isinstance(part, parts.TextPart)) for one in responses]
        history = [*earlier, *new]
        if history[-1] is responses[-1] and not _has_reason(responses[-1]):  # its calls may be truncated, too
            kept = [part for part in responses[-1].parts if not isinstance(part, parts.ToolCallPart)]
            responses[-1] = history[-1] = dataclasses.replace(responses[-1], parts=kept)
        ends = (parts.ToolReturnPart, parts.RetryPromptPart)
        answered = {part.tool_call_id for one in new for part in one.parts if isinstance(part, ends)}
        calls = [part for one in responses for part in one.parts if isinstance(part, parts.ToolCallPart)]
        unanswered = [call for call in calls if call.tool_call_id not in answered]
        if unanswered:  # providers refuse a conversation with unanswered calls
            text = f"Unknown result: the answer was stopped because {reason}."
            returns = [
                parts.ToolReturnPart(call.tool_name, text, tool_call_id=call.tool_call_id) for call in unanswered
            ]
            if isinstance(history[-1], parts.ModelRequest):
                history[-1] = dataclasses.replace(history[-1], parts=[*history[-1].parts, *returns])
            else:
                history.append(parts.ModelRequest(parts=returns))
        if not isinstance(history[-1], parts.ModelResponse):
            history.append(parts.ModelResponse(parts=[]))
        if not history[-1].parts:
            history[-1] = dataclasses.replace(history[-1], parts=[parts.TextPart(f"(It was stopped: {reason}.)")])
        last = next(filter(None, reversed(texts)), "")
        question.on_partial(
            ModelResponse(
                text=last,
                data=None,
                messages=self._dumped(history),
                usage=self._usage_of(responses, question),
                reason=responses[-1].finish_reason or "",
                thinking=self._thinking(responses),
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

    def _undeclared_calls(self, toolset: Any) -> Any:
        """A capability that passes calls of undeclared tools to the host, which may know the tool or suggest a name.

        Without it, the library treats unknown tools, tools that were not searched for, and malformed searches as
        errors, and ends the answer after a few of them.
        """
        base: type[Any] = importlib.import_module("pydantic_ai.capabilities").AbstractCapability
        accepted: dict[str, Any] = {}

        class UndeclaredCalls(base):
            async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
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

        return UndeclaredCalls()

    def _forward(self, event: Any, question: AnswerRequest) -> None:
        parts = self._messages
        if isinstance(event, parts.PartStartEvent):  # a part may start with text
            if isinstance(event.part, parts.TextPart):
                question.on_text(event.part.content)
            elif isinstance(event.part, parts.ThinkingPart):
                question.on_thinking(event.part.content)
        elif isinstance(event, parts.PartDeltaEvent):
            if isinstance(event.delta, parts.TextPartDelta):
                question.on_text(event.delta.content_delta)
            elif isinstance(event.delta, parts.ThinkingPartDelta):
                question.on_thinking(event.delta.content_delta or "")

    def _model(self, question: AnswerRequest) -> Any:
        if question.base_url is None:
            return self._infer_model(question.model)
        try:
            chat: Any = importlib.import_module("pydantic_ai.models.openai")
            providers: Any = importlib.import_module("pydantic_ai.providers.openai")
        except ImportError as error:
            raise McpError("an OpenAI-compatible URL needs the library openai", hint=_INSTALL) from error
        provider = providers.OpenAIProvider(base_url=question.base_url, api_key=_key())
        return chat.OpenAIChatModel(str(question.model).removeprefix("openai:"), provider=provider)

    def _infer_model(self, model: Any) -> Any:
        try:
            return importlib.import_module("pydantic_ai.models").infer_model(model)
        except self._ai.UserError as error:
            raise as_mcp_error(error) from error
        except ImportError as error:
            raise McpError(_first_line(error), hint=_INSTALL) from error

    def _output(self, returns: Any) -> Any:
        if returns is None:
            return str
        return self._ai.StructuredDict(returns) if isinstance(returns, dict) else returns

    def _limits(self, limits: Limits, spent: Callable[[], Usage]) -> Any:
        exceeded: type[Exception] = self._ai.UsageLimitExceeded
        base: type[Any] = self._usage.UsageLimits
        ignored: type[Warning] = self._ai.UsageLimitUnavailableWarning

        class CostLimits(base):
            def check_tokens(self, usage: Any) -> None:
                with warnings.catch_warnings():  # the usage of an answer that broke off is unknown
                    warnings.simplefilter("ignore", ignored)
                    usual: Any = super()
                    usual.check_tokens(usage)
                cost = spent() if limits.dollars is not None else None
                if cost is not None and (cost.unpriced or cost.dollars > (limits.dollars or 0)):
                    raise exceeded("dollars")

        return CostLimits(request_limit=limits.rounds, tool_calls_limit=limits.calls, total_tokens_limit=limits.tokens)


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
    used, cost = response.usage, response_price(response, model, base_url)
    return Usage(1, used.input_tokens, used.output_tokens, used.cache_read_tokens, cost or 0.0, int(cost is None))


def _limit(error: Exception, limits: Limits, spent: Usage) -> McpError:
    """An error that names the limit that was reached."""
    reason = str(error)
    name, text = "tokens", f"it took more than {limits.tokens:,} tokens"
    if "dollars" in reason:
        if spent.unpriced:
            return McpError("stopped: the price of a response is unknown", hint="limit tokens instead of dollars")
        limit = dollars(limits.dollars or 0)
        name, text = "dollars", f"it cost about {dollars(spent.dollars)}, more than {limit}"
    if "request_limit" in reason:
        name, text = "rounds", f"{limits.rounds} rounds were not enough"
    elif "tool_calls_limit" in reason:
        name, text = "calls", f"it wanted more than {limits.calls} calls"
    return McpError(f"stopped: {text}", hint=f"{limits.twice(name)} allows more")


def _key() -> str:
    """The API key for a `base_url`: `OPENAI_API_KEY`, or a placeholder for servers that require any key."""
    return os.environ.get("OPENAI_API_KEY") or "none"


def as_mcp_error(error: Exception) -> McpError:
    """Convert an error of the provider or the library."""
    text = _first_line(error)
    if "environment variable" in text:
        variable = next((word.strip("`") for word in text.split() if word.strip("`").endswith(("_KEY", "_TOKEN"))), "")
        if variable:
            return McpError(
                f"this model needs the variable {variable}", hint=f"%env {variable}=… · or set it before Jupyter"
            )
    if text.startswith("Unknown model"):
        return McpError(text.lower(), hint='write provider:name, such as "openai:gpt-5" or "anthropic:claude-opus-4-5"')
    if "maximum output retries" in text or "exceeded max retries" in text.lower():
        return McpError("the model's output does not match the requested type, even after retries", hint=_AGAIN)
    causes = [*_causes(error)]
    if any("incomplete" in str(cause) or type(cause).__name__ == "ReadError" for cause in causes):
        return _truncated()
    address = _address(causes)
    if address and (text.startswith("Connection error") or type(causes[-1]).__name__ == "ConnectionRefusedError"):
        return McpError(f"{address} cannot be reached", hint="is it running, and is the URL right?")
    status = getattr(error, "status_code", None)
    if status is not None:
        message = visible(_message(getattr(error, "body", None)))[:_MAX_LENGTH]
        return McpError(f"the provider answered {status}: {message}", hint=_HINTS.get(status, _AGAIN))
    return McpError(text, hint=_AGAIN)


def _truncated() -> McpError:
    return McpError("the answer broke off in the middle", hint=_AGAIN)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes, down to the first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _address(causes: list[BaseException]) -> str:
    """The URL of the failed request; empty if no error has it."""
    for error in causes:
        request = getattr(error, "_request", None) or getattr(error, "request", None)
        url = getattr(request, "url", None)
        if url is not None:
            return f"{url.scheme}://{url.netloc.decode()}" if hasattr(url, "netloc") else str(url)
    return ""


def _message(body: object) -> str:
    """The message in a provider's error body, on one line."""
    inner = body.get("error", body) if is_object(body) else body
    message = inner.get("message", inner) if is_object(inner) else inner
    return " ".join(str(message or "no message").split())


def _first_line(error: Exception) -> str:
    return visible(next(iter(str(error).splitlines()), "") or type(error).__name__)[:_MAX_LENGTH]
