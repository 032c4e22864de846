"""Questions to models that may use the notebook's tools."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from ipymcp.errors import McpError
from ipymcp.llm.answer import Usage
from ipymcp.llm.attempt import AnswerServices, Attempt
from ipymcp.llm.backend import Clock, Limits
from ipymcp.llm.chats import Chats
from ipymcp.llm.planning import Planner, estimate
from ipymcp.llm.prices import PricedTokens, price
from ipymcp.llm.providers import model_name
from ipymcp.protocol.types import is_array
from ipymcp.security.untrusted import UNKNOWN, current_actor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipymcp.interaction.questions import CallApp
    from ipymcp.llm.answer import Answer
    from ipymcp.llm.backend import ModelBackend, RequestPreview
    from ipymcp.llm.live_output import OutputListener
    from ipymcp.llm.planning import AskRequest
    from ipymcp.llm.prompting import AppState
    from ipymcp.llm.recording import Replay
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.client_handlers import SamplingRequest
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession
    from ipymcp.storage.chats import SavedChats


_NO_MODEL: Final = 'model="openai:gpt-5", or for every question %config IPyMCP.model = "openai:gpt-5"'


class ModelChat:
    """Answers questions with the tools of one host.

    Args:
        host: The host.
        default_model: Returns the configured model, or None.
        default_replay: Returns the configured mode of the recording.
        states: Returns the states of the open apps.
        begin_app: Makes the app of a call that a model begins to write; None if apps cannot be shown.
    """

    def __init__(
        self,
        host: Host,
        default_model: Callable[[], Any],
        default_replay: Callable[[], Replay],
        states: Callable[[], Sequence[AppState]],
        begin_app: Callable[[ServerSession, ToolEntry], CallApp | None],
    ) -> None:
        self._default_model = default_model
        self._host = host
        self._chats = Chats(host)
        self._planner = Planner(host, states)
        self._services = AnswerServices(
            host, self._chats, self._planner, self._backend, default_replay, begin_app, self._count
        )
        self._loaded_backend: ModelBackend | None = None
        self.usage = Usage()
        """The cost of all answers of models in this kernel."""

    @property
    def saved(self) -> SavedChats:
        """The named chats of all kernels of this notebook."""
        return self._chats.saved

    @property
    def name(self) -> str:
        """The name of the configured model."""
        return model_name(next(iter(_model_list(self._default_model())), None))

    def price(self, tokens: int, max_output: int) -> float | None:
        """The highest price of a request to the configured model in dollars; None if it is unknown.

        Args:
            tokens: Estimated input tokens.
            max_output: Maximum output tokens.
        """
        return price(PricedTokens(tokens, max_output), _model_list(self._default_model())[0])

    async def sample(self, request: SamplingRequest) -> tuple[dict[str, Any], Usage]:
        """Answer a sampling request on the background loop.

        Returns:
            The result of `sampling/createMessage`, and its cost.

        Raises:
            McpError: No model can answer.
        """
        backend = await self._backend()
        clock = Clock(self._host.handler_loop, Limits().seconds)
        *others, last = _model_list(self._default_model())
        for model in others:
            with contextlib.suppress(McpError):
                return self._add_usage(*await clock.run(backend.sample(model, request)))
        return self._add_usage(*await clock.run(backend.sample(last, request)))

    def _add_usage(self, message: dict[str, Any], usage: Usage) -> tuple[dict[str, Any], Usage]:
        self._count(usage)
        return message, usage

    def _count(self, usage: Usage) -> None:
        """Add a cost to the notebook's usage."""
        self.usage += usage

    async def _backend(self) -> ModelBackend:
        if self._loaded_backend is None:
            self._loaded_backend = await asyncio.to_thread(_load_backend)
        return self._loaded_backend

    def preview(self, wanted: AskRequest) -> RequestPreview:
        """Preview a question's request.

        Raises:
            McpError: No model is configured.
        """
        chat = self._chats.current(wanted.chat)
        wanted = replace(wanted, model=self._models(wanted)[0])
        plan, request = self._planner.prepare(wanted, chat, "", UNKNOWN)
        return replace(request, estimate=estimate(wanted, request, plan, chat.messages))

    async def ask(self, wanted: AskRequest, listener: OutputListener | None = None) -> Answer:
        """Answer a question: ask one model after the other until one answers. Runs on the background loop.

        Raises:
            McpError: The model cannot answer. The error's `.answer` has the partial answer, which is also in the chat.
        """
        models = self._models(wanted)
        chat = await self._chats.find(wanted.chat, continues=wanted.continues, history=wanted.history)
        actor = current_actor()
        if actor is not None and actor.caller == "model":  # only the user may allow tools
            wanted = replace(wanted, allow=())
        more_time = f"{wanted.limits.more('seconds')} gives it longer"
        clock = Clock(self._host.handler_loop, wanted.limits.seconds, more_time)
        failed: list[str] = []
        spent = Usage()
        for number, model in enumerate(models, start=1):
            attempt = Attempt(
                self._services,
                replace(wanted, model=model),
                chat,
                clock,
                listener,
                reason=failed[-1] if failed else "",
                earlier=spent,
                is_last=number == len(models),
            )
            try:
                return await attempt.run()
            except McpError as error:
                if not attempt.may_go_on:
                    error.hint = " · ".join(filter(None, [error.hint, *failed])) or None
                    raise
                failed.append(f"{model_name(model)} failed: {error.message}")
                spent = attempt.spent
        raise AssertionError("there is a model")

    def _models(self, wanted: AskRequest) -> list[Any]:
        """The models to ask, one after the other.

        Raises:
            McpError: No model is configured.
        """
        models = _model_list(wanted.model if wanted.model is not None else self._default_model())
        if not models:
            raise McpError("no model is set", hint=_NO_MODEL)
        return models


def _model_list(model: Any) -> list[Any]:
    """The models of a setting: one, several separated by commas, or a list."""
    if isinstance(model, str):
        return [name for part in model.split(",") if (name := part.strip())]
    if is_array(model):
        return [*model]
    return [] if model is None else [model]


def _load_backend() -> ModelBackend:
    from ipymcp.llm.pydantic_ai import PydanticBackend

    return PydanticBackend()
