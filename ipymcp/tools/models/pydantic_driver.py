"""The driver on pydantic-ai, which knows the providers. Imported at the first question, on the thread that asks."""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from ipymcp.errors import McpError
from ipymcp.protocol.jsontypes import is_object
from ipymcp.text import visible
from ipymcp.tools.models.answer import Usage
from ipymcp.tools.models.driving import Finished
from ipymcp.tools.models.frameworks import pydantic_ai_toolset

if TYPE_CHECKING:
    from ipymcp.runtime.responder import SamplingRequest
    from ipymcp.tools.models.driving import Limits, Question

__all__ = ["PydanticDriver"]

_INSTALL = "pip install 'ipymcp[llm]'"
_ATTEMPTS = 2
"""How often a model may try again to give what fits `returns`."""
_LONGEST = 400
_AGAIN = "ask again; what was said before is kept"
_KEY_HINT = "is the key right? It is in the provider's variable, such as OPENAI_API_KEY"
_HINTS = {
    400: "what was said before is kept",
    401: _KEY_HINT,
    403: _KEY_HINT,
    404: "is the model's name right, and the address?",
}
"""What to do about a provider's status, where asking again would do nothing."""


class PydanticDriver:
    """Makes answers with pydantic-ai.

    Raises:
        McpError: It is not installed.
    """

    def __init__(self) -> None:
        try:
            self._ai: Any = importlib.import_module("pydantic_ai")
            self._messages: Any = importlib.import_module("pydantic_ai.messages")
            self._usage: Any = importlib.import_module("pydantic_ai.usage")
        except ImportError as error:
            raise McpError("talking to models needs pydantic-ai, which is not installed", hint=_INSTALL) from error
        self._ai.BANNER_ENABLED = False  # of its own, printed into a terminal in the middle of the answer

    async def answer(self, question: Question) -> Finished:
        """As `Driver.answer`."""
        toolset = pydantic_ai_toolset(lambda _: question.declared(), question.call)
        agent = self._ai.Agent(
            self._model(question),
            output_type=self._output(question.returns),
            instructions=question.system,
            toolsets=[toolset],
            capabilities=[self._every_call_is_made(toolset)],
            retries=_ATTEMPTS,
        )
        try:
            async with agent.run_stream_events(
                question.prompt, message_history=list(question.history), usage_limits=self._limits(question.limits)
            ) as events:
                async for event in events:
                    self._tell(event, question)
                result = events.result
        except self._ai.UsageLimitExceeded as error:
            raise McpError(
                f"stopped: {error}", hint="the limits are --rounds, --calls, --tokens and --seconds"
            ) from error
        except (self._ai.AgentRunError, self._ai.UserError) as error:
            raise _problem(error) from error
        history = result.all_messages()
        if _is_cut(history[-1]):
            raise McpError("the answer broke off in the middle", hint="ask again; what was said before is kept")
        dumped = self._messages.ModelMessagesTypeAdapter.dump_python(history, mode="json")
        is_text = question.returns is None
        used = result.usage
        return Finished(
            text=result.output if is_text else "",
            data=None if is_text else result.output,
            history=history,
            messages=dumped,
            usage=Usage(used.requests, used.input_tokens, used.output_tokens),
        )

    async def sample(self, model: Any, request: SamplingRequest) -> tuple[dict[str, Any], int]:
        """As `Driver.sample`."""
        from ipymcp.tools.models.sampled import as_message, messages, parameters, settings

        direct: Any = importlib.import_module("pydantic_ai.direct")
        try:
            response = await direct.model_request(
                self._inferred(model),
                messages(self._messages, request),
                model_settings=settings(request.params),
                model_request_parameters=parameters(request.params),
            )
        except (self._ai.AgentRunError, self._ai.UserError) as error:
            raise _problem(error) from error
        return as_message(response), response.usage.input_tokens + response.usage.output_tokens

    def _every_call_is_made(self, toolset: Any) -> Any:
        """What hands calls of tools that were not declared to the host, too, which knows them or says what is meant.

        The library itself would answer that the tool is unknown, and soon end the whole answer.
        """
        base: type[Any] = importlib.import_module("pydantic_ai.capabilities").AbstractCapability
        accepted: dict[str, Any] = {}

        class EveryCall(base):
            async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
                tools = ctx.tool_manager.tools
                for call in response.tool_calls:
                    if call.tool_name not in tools:
                        tools[call.tool_name] = accepted[call.tool_name] = toolset.accept(call.tool_name)
                return response

            async def wrap_tool_execute(
                self, ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any], handler: Any
            ) -> Any:
                tool = accepted.get(call.tool_name)
                return await (handler(args) if tool is None else toolset.call_tool(call.tool_name, args, ctx, tool))

        return EveryCall()

    def _tell(self, event: Any, question: Question) -> None:
        parts = self._messages
        if isinstance(event, parts.PartStartEvent) and isinstance(event.part, parts.TextPart):
            question.said(event.part.content)  # the first words come with the part
        elif isinstance(event, parts.PartDeltaEvent) and isinstance(event.delta, parts.TextPartDelta):
            question.said(event.delta.content_delta)

    def _model(self, question: Question) -> Any:
        if question.base_url is None:
            return self._inferred(question.model)
        try:
            chat: Any = importlib.import_module("pydantic_ai.models.openai")
            providers: Any = importlib.import_module("pydantic_ai.providers.openai")
        except ImportError as error:
            raise McpError("an OpenAI-compatible address needs the library openai", hint=_INSTALL) from error
        provider = providers.OpenAIProvider(base_url=question.base_url, api_key=_key())
        return chat.OpenAIChatModel(str(question.model).removeprefix("openai:"), provider=provider)

    def _inferred(self, model: Any) -> Any:
        try:
            return importlib.import_module("pydantic_ai.models").infer_model(model)
        except self._ai.UserError as error:
            raise _problem(error) from error
        except ImportError as error:
            raise McpError(_first_line(error), hint=_INSTALL) from error

    def _output(self, returns: Any) -> Any:
        if returns is None:
            return str
        return self._ai.StructuredDict(returns) if isinstance(returns, dict) else returns

    def _limits(self, limits: Limits) -> Any:
        base: type[Any] = self._usage.UsageLimits
        ignored: type[Warning] = self._ai.UsageLimitUnavailableWarning

        class Quiet(base):
            def check_tokens(self, usage: Any) -> None:
                with warnings.catch_warnings():  # what an answer that broke off has cost cannot be known
                    warnings.simplefilter("ignore", ignored)
                    usual: Any = super()
                    usual.check_tokens(usage)

        return Quiet(request_limit=limits.rounds, tool_calls_limit=limits.calls, total_tokens_limit=limits.tokens)


def _is_cut(response: Any) -> bool:
    """Whether a stream of OpenAI's kind ended without saying why, which the library takes for an end like any other."""
    details = getattr(response, "provider_details", None)
    return getattr(response, "provider_name", None) == "openai" and "finish_reason" not in (details or {})


def _key() -> str:
    """What an address of one's own is given: the usual variable's value, or a word, for those that want any."""
    import os

    return os.environ.get("OPENAI_API_KEY") or "none"


def _problem(error: Exception) -> McpError:
    """A provider's or the library's error in our two lines."""
    text = _first_line(error)
    if "environment variable" in text:
        variable = next((word.strip("`") for word in text.split() if word.strip("`").endswith(("_KEY", "_TOKEN"))), "")
        if variable:
            return McpError(
                f"this model needs the variable {variable}", hint=f"%env {variable}=… · or set it before Jupyter"
            )
    if text.startswith("Unknown model"):
        return McpError(text.lower(), hint='write provider:name, such as "openai:gpt-5" or "anthropic:claude-opus-4-5"')
    status = getattr(error, "status_code", None)
    if status is not None:
        said = visible(_message(getattr(error, "body", None)))[:_LONGEST]
        return McpError(f"the provider answered {status}: {said}", hint=_HINTS.get(status, _AGAIN))
    return McpError(text, hint=_AGAIN)


def _message(body: object) -> str:
    """What a provider says is wrong, on one line: its message, where it has one in the usual place."""
    inner = body.get("error", body) if is_object(body) else body
    message = inner.get("message", inner) if is_object(inner) else inner
    return " ".join(str(message or "no more than that").split())


def _first_line(error: Exception) -> str:
    return visible(next(iter(str(error).splitlines()), "") or type(error).__name__)[:_LONGEST]
