"""What stands between a question and a library that talks to models: a driver makes one answer, call by call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ipymcp.runtime.responder import SamplingRequest
    from ipymcp.tools.models.answer import Usage
    from ipymcp.tools.models.declaring import Declaration
    from ipymcp.tools.models.outcome import Outcome

__all__ = ["Driver", "Finished", "Limits", "Question"]


class Limits(Struct, frozen=True):
    """How far one answer may go."""

    rounds: int = 25
    """Requests to the model."""
    calls: int = 100
    tokens: int = 1_000_000
    """In and out, all requests together."""
    seconds: float = 900.0


class Question(Struct, frozen=True):
    """All that a driver needs.

    Attributes:
        model: `provider:name`, or what the driver's library takes as a model.
        base_url: An address that speaks Chat Completions, where that is the provider.
        prompt: The user's, filled.
        system: What the model is told before it.
        history: The conversation so far, as this driver left it.
        returns: A type or a JSON Schema that the answer has to fit; None for text.
        limits: How far it may go.
        declared: Gives the tools, read anew at each round.
        call: Makes a call; whatever goes wrong is in the outcome.
        said: Hears the text as it comes.
    """

    model: Any
    base_url: str | None
    prompt: str
    system: str
    history: Sequence[Any]
    returns: Any
    limits: Limits
    declared: Callable[[], Sequence[Declaration]]
    call: Callable[[str, dict[str, Any]], Awaitable[Outcome]]
    said: Callable[[str], None]


class Finished(Struct, frozen=True):
    """How it ended."""

    text: str
    data: Any
    history: list[Any]
    """The conversation with this answer, for the next question."""
    messages: list[Any]
    """The same as JSON."""
    usage: Usage


class Driver(Protocol):
    """Makes answers."""

    async def answer(self, question: Question) -> Finished:
        """Have a model answer. Cancelling stops it.

        Raises:
            McpError: It cannot: no such model, no key, a limit, the provider is down.
        """
        ...

    async def sample(self, model: Any, request: SamplingRequest) -> tuple[dict[str, Any], int]:
        """Have a model answer a server: one request, without tools of ours.

        Returns:
            The result of `sampling/createMessage`, and the tokens it cost.

        Raises:
            McpError: As `answer`.
        """
        ...
