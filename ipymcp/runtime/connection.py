"""From a definition to a live connection: transport, era, tools, and the notifications that follow."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Protocol

from ipymcp.errors import ArgumentError, ConnectionLost, HttpError, ProtocolError, RpcError, StartError
from ipymcp.interaction.questions import (
    CANCELLED,
    UNANSWERED,
    ElicitationAnswer,
    FormQuestion,
    UrlQuestion,
    is_web_address,
)
from ipymcp.protocol.client import Client
from ipymcp.protocol.subscriptions import announces, changing_lists
from ipymcp.protocol.types import is_array, is_object
from ipymcp.runtime.interfaces import CallTarget, LoginOwner
from ipymcp.runtime.oauth_redirects import SessionUser
from ipymcp.runtime.process_env import folder_of
from ipymcp.runtime.resources import ResourceCache, ResourceOwner
from ipymcp.runtime.server_requests import SamplingRequest
from ipymcp.runtime.transport_factory import authorizer, login_extension, transport, transport_kinds
from ipymcp.runtime.variables import expanded_now

if TYPE_CHECKING:
    import itertools
    from collections.abc import AsyncGenerator, Callable

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.interaction.questions import UserInterface
    from ipymcp.protocol.jsonrpc import PendingRequest
    from ipymcp.protocol.negotiation import EraChoice
    from ipymcp.protocol.oauth.provider import OAuth
    from ipymcp.protocol.subscriptions import ListenStream
    from ipymcp.protocol.transports.base import Transport
    from ipymcp.protocol.types import ToolDefinition
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.context import RuntimeContext
    from ipymcp.runtime.resources import Subscriptions
    from ipymcp.runtime.transport_factory import TransportKind


class ConnectionOwner(ResourceOwner, LoginOwner, CallTarget, Protocol):
    """The session of a connection: it is told of everything that changes its state."""

    expanded: ServerDefinition
    """The definition with the values that its variables had at the last start."""
    subscriptions: Subscriptions
    numbers: itertools.count[int]
    """The numbers of its connections."""

    @property
    def is_moving(self) -> bool:
        """Whether its state will change soon."""
        ...

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last lines of standard error since its last connection began."""
        ...

    def is_hopeless(self) -> bool:
        """Whether its program ended in a way that another start would not change."""
        ...

    def use(self, link: Connection) -> None:
        """Make this the session's connection; it is still to be opened."""
        ...

    async def set_tools(self, definitions: list[ToolDefinition]) -> None:
        """Set the server's tools.

        Raises:
            PolicyError: The server is starting, and is not as the lock file says.
        """
        ...

    def mark_unreachable(self, reason: str) -> None:
        """Take note that the server cannot be reached now."""
        ...

    def disconnected(self, client: Client, reason: str) -> None:
        """Take note that the connection has ended."""
        ...

    def reopen(self, link: Connection, reason: str) -> None:
        """Open the session again, by the handshake."""
        ...

    def tell(self, detail: str) -> None:
        """Announce news about the current state."""
        ...


class Connection:
    """One connection of a session: the client, its transport, and the listener of both.

    Args:
        session: Whose it is.
        transport: Not yet opened.
        number: Tells it from the session's other connections, in logs.
        services: The host's.
    """

    def __init__(self, session: ConnectionOwner, transport: Transport, number: int, services: RuntimeContext) -> None:
        self.transport = transport
        responder = SessionResponder(session, services)
        self.client = Client(transport, self, services.identity, responder, tag=f"{session.name}#{number}")
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done when the connection is over; the reason."""
        self.tools_dirty = asyncio.Event()
        self.tools_wanted = asyncio.Event()
        """Somebody waits for them: no pause before they are listed."""
        self.tools_waiters: list[asyncio.Future[None]] = []
        """Done when they have been listed the next time, or could not be."""
        self.tools_stale_at = float("inf")
        self.check_soon = asyncio.Event()
        """Something happened that makes the next look at the server due sooner."""
        self.is_checked = False
        """Whether somebody is asking the server just now if it is there."""
        self.subscription: ListenStream | None = None
        """Stateless era: what announces changes of lists."""
        self.offers = ResourceCache(session, self.client, services.store.known)
        self._session = session
        self._log = session.log

    def tools_changed(self) -> None:
        """The tools are to be listed again."""
        self.tools_dirty.set()

    def list_tools_again(self) -> asyncio.Future[None]:
        """Have them listed now; done when that is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tools_waiters.append(waiter)
        self.tools_wanted.set()
        self.tools_dirty.set()
        return waiter

    def tools_listed(self) -> None:
        """Note that the tools were listed: they are fresh for the server's `ttl`, or until it announces a change."""
        ttl = self.client.tools_ttl
        says = announces(self.client.capabilities, "tools")
        self.tools_stale_at = time.monotonic() + ttl if ttl and not says else float("inf")

    def resources_changed(self) -> None:
        """The resources and templates are stale."""
        self.offers.changed("resources")

    def prompts_changed(self) -> None:
        """The prompts are stale."""
        self.offers.changed("prompts")

    def resource_updated(self, uri: str) -> None:
        """Mark what was read of a resource as stale."""
        self.offers.updated(uri)
        self._session.subscriptions.updated(uri)

    def subscriptions_lost(self) -> None:
        """The resources are to be subscribed to again."""
        self._session.subscriptions.lost()

    def log(self, level: str, text: str) -> None:
        """The server logs."""
        self._log.add("server", level, text)

    def protocol_warning(self, text: str) -> None:
        """The server said what it should not."""
        self._log.add("host", "warning", text)

    def stderr(self, lines: list[str]) -> None:
        """The server wrote to its standard error."""
        self._log.add_stderr(lines)

    def unreachable(self, reason: str) -> None:
        """No connection could be made just now."""
        if self._session.client is self.client:
            self._session.mark_unreachable(reason)
        else:
            self._log.add("host", "warning", reason)

    def wants_handshake(self, reason: str) -> None:
        """The session is to be opened anew, by the handshake."""
        self._session.reopen(self, reason)

    def lost(self, reason: str) -> None:
        """The connection is over."""
        self._session.disconnected(self.client, reason)
        if not self.ended.done():
            self.ended.set_result(reason)


_DOWNLOADERS = frozenset({"npx", "uvx", "uv", "bunx", "pnpm", "docker", "podman", "pipx"})
_NO_SUCH_TRANSPORT = frozenset({400, 404, 405})
"""How a server that knows legacy SSE alone answers a POST (2025-11-25 transports, backwards compatibility)."""


class Connector:
    """Opens the connections of one session, from one `start` to its `stop`.

    Args:
        session: Whose.
        services: The host's.
    """

    def __init__(self, session: ConnectionOwner, services: RuntimeContext) -> None:
        self._session = session
        self._definition = session.definition
        self._services = services
        self._ways = transport_kinds(self._definition)
        self._login: OAuth | None = None

    async def connect(self, start: Start) -> Connection:
        """One start: the process or the address, the protocol, the tools."""
        await self._expand(start)
        first, *others = self._ways
        try:
            link = await self._settle_era(first, start)
            self._ways = (first,)
        except HttpError as error:
            if not others or error.status not in _NO_SUCH_TRANSPORT:
                raise
            self._say(f"it does not speak Streamable HTTP (HTTP {error.status}); trying the older HTTP with SSE")
            try:
                link = await self._settle_era(others[0], start)
            except (HttpError, ProtocolError):
                raise error from None
            self._ways = (others[0],)
        return link

    async def _expand(self, start: Start) -> None:
        expanded = await expanded_now(self._session, start.paused, self._services)
        if self._login is None or expanded != self._session.expanded:
            user = SessionUser(self._session, self._services.desk)
            self._login = authorizer(expanded, self._session.digest, user, self._services)
        self._session.expanded = expanded

    async def _settle_era(self, way: TransportKind, start: Start) -> Connection:
        era = self._definition.era
        if way == "sse":
            return await self._open(way, "legacy", start)
        if era != "auto":
            return await self._open(way, era, start)
        digest = self._session.digest
        link = None
        known = self._services.store.known
        remembered = await known.era(digest)
        if remembered is not None:
            known.forget_era(digest)
            try:
                link = await self._open(way, remembered, start)
            except (ConnectionLost, HttpError, ProtocolError, RpcError) as error:
                if way != "stdio" and isinstance(error, ConnectionLost):
                    known.keep_era(digest, remembered)  # it is not there: that says nothing of its era
                    raise
                self._say(f"it does not answer as it did before ({error.message}); asking anew")
        if link is None:
            link = await self._find_out(way, start)
        if link.client.era_was_answered:
            known.keep_era(digest, "modern" if link.client.era.kind == "stateless" else "legacy")
        return link

    async def _find_out(self, way: TransportKind, start: Start) -> Connection:
        """Ask which era it speaks; one that does not survive the question is started once more without it.

        That may be an end, or a handshake refused after it: there are bridges that take any first message for the
        opening of their session.
        """
        try:
            return await self._open(way, "auto", start)
        except (ConnectionLost, RpcError) as error:
            if way != "stdio" or self._session.is_hopeless():
                raise
            self._say(f"the question which era it speaks ended it ({error.message}); asking for the handshake only")
            return await self._open(way, "legacy", start)

    async def _open(self, way: TransportKind, era: EraChoice, start: Start) -> Connection:
        seconds = self._definition.start_timeout
        reached = transport(self._session.expanded, way, self._services, self._login)
        link = Connection(self._session, reached, next(self._session.numbers), self._services)
        self._session.use(link)
        hint = asyncio.get_running_loop().call_later(
            self._services.timing.download_hint, self._tell_what_it_waits_for, link
        )
        try:
            async with start.limited(seconds):
                await link.client.open(era, is_fixed=self._definition.era != "auto")
                changing = changing_lists(link.client.capabilities)
                if link.client.era.kind == "stateless" and changing:
                    link.subscription = link.client.listen(changing)  # before they are read: no change falls between
                await self._session.set_tools(await link.client.list_tools(timeout=None))
        except TimeoutError as error:
            await link.client.aclose("the start failed")
            raise StartError(f"did not answer within {seconds:g} s") from error
        except BaseException:
            await link.client.aclose("the start failed")
            raise
        finally:
            hint.cancel()
        return link

    def _say(self, text: str) -> None:
        self._session.log.add("host", "info", text)

    def _tell_what_it_waits_for(self, link: Connection) -> None:
        program = (self._definition.command or "").rpartition("/")[2]
        if not self._session.is_moving:
            return
        if link.client.era.version:
            waits = "it has answered, and is listing its tools"
        else:
            waits = "downloading?" if program in _DOWNLOADERS else "it has not answered yet"
        last = self._session.last_words[-1:]
        said = f"; it last wrote: {last[0]}" if last else ""
        self._session.tell(f"still starting; {waits}{said}")


class Start:
    """Entered for as long as a start takes.

    Args:
        places: How many may start at once.
    """

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._has_place = False
        self._clock: asyncio.Timeout | None = None

    async def __aenter__(self) -> Start:
        await self._places.acquire()
        self._has_place = True
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._has_place:
            self._places.release()

    @contextlib.asynccontextmanager
    async def limited(self, seconds: float) -> AsyncGenerator[None]:
        """Raise `TimeoutError` when these seconds have passed, those of a login not counted."""
        async with asyncio.timeout(seconds) as self._clock:
            yield
        self._clock = None

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncGenerator[None]:
        """While the user logs in: others may start, and no time passes."""
        loop, clock = asyncio.get_running_loop(), self._clock
        end = clock.when() if clock is not None else None
        left = end - loop.time() if end is not None else None
        if clock is not None and left is not None:
            clock.reschedule(None)
        self._has_place = False
        self._places.release()
        yield
        await self._places.acquire()
        self._has_place = True
        if clock is not None and left is not None:
            clock.reschedule(loop.time() + left)


_REJECTED = -1


_ANSWER_IN_CODE = "answer in code with mcp.on_elicitation(function)"


_INTERNAL = -32603


_METHOD_NOT_FOUND = -32601


class SessionResponder:
    """Answers one session's server.

    Args:
        session: Whose.
        services: The host's.
    """

    def __init__(self, session: ConnectionOwner, services: RuntimeContext) -> None:
        self._session = session
        self._services = services

    def capabilities(self) -> dict[str, Any]:
        """The capabilities to declare, with the MCP extension used to log in to this server."""
        declared = self._services.answers.capabilities()
        extension = login_extension(self._session.definition)
        return declared | ({"extensions": {extension: {}}} if extension else {})

    async def answer(self, method: str, params: dict[str, Any], slot: PendingRequest | None) -> dict[str, Any]:
        """The result for one request of the server; the clocks of the calls that wait for it stand still meanwhile."""
        call, owed = self._concerned(slot)
        with contextlib.ExitStack() as clocks:
            for waiting in owed:
                clocks.enter_context(waiting.pause_timeout())
            if method == "roots/list":
                definition = self._session.expanded
                folder = folder_of(definition, self._services.folder)
                return {"roots": self._services.answers.roots_for(definition, folder)}
            if method == "elicitation/create":
                return _as_result(await self._elicit(params, call))
            if method == "sampling/createMessage":
                return await self._sample(params, call)
        raise RpcError(f"{method} is not supported by this host", code=_METHOD_NOT_FOUND)

    def _concerned(self, slot: PendingRequest | None) -> tuple[Call[Any] | None, list[Call[Any]]]:
        """The call that asks, where that is known, and those that cannot go on before there is an answer."""
        running = [call for call in list(self._services.running.values()) if call.session is self._session]
        asking = next((call for call in running if slot is not None and call.is_at(slot)), None)
        if asking is None and slot is None and len(running) == 1:
            asking = running[0]
        return asking, running if asking is None else [asking]

    async def _elicit(self, params: dict[str, Any], call: Call[Any] | None) -> ElicitationAnswer:
        message, tool = str(params.get("message") or ""), call.tool if call else None
        if params.get("mode") == "url":
            visited = UrlQuestion(self._session.name, tool, message, str(params.get("url") or ""))
            if not is_web_address(visited.url):
                return self._noted(
                    ElicitationAnswer("decline", note=f"asked to visit what is no web address: {visited.url!r}")
                )
            return await self._ask(visited, lambda desk: desk.visit(visited), call)
        schema = params.get("requestedSchema")
        filled = FormQuestion(self._session.name, tool, message, schema if is_object(schema) else {})
        return await self._ask(filled, lambda desk: desk.fill(filled), call)

    async def _ask(
        self,
        question: FormQuestion | UrlQuestion,
        ask: Callable[[UserInterface], ElicitationAnswer],
        call: Call[Any] | None,
    ) -> ElicitationAnswer:
        handler = self._services.answers.elicitation
        if handler is None:
            answer = self._noted(await self._services.desk.ask("form", ask, CANCELLED, call, unanswered=UNANSWERED))
            if answer is UNANSWERED:
                self._tell(call, "asked a question, nobody could be asked here, and it was cancelled", _ANSWER_IN_CODE)
            return answer
        try:
            return await self._services.answers.run(handler, question, call)
        except Exception as error:
            what = str(error) if isinstance(error, ArgumentError) else f"on_elicitation raised {error!r}"
            self._tell(call, "asked a question that was cancelled", what)
            return self._noted(ElicitationAnswer("cancel", note=what))

    async def _sample(self, params: dict[str, Any], call: Call[Any] | None) -> dict[str, Any]:
        handler = self._services.answers.sampling
        if handler is None:
            raise RpcError("sampling/createMessage is not supported by this host", code=_METHOD_NOT_FOUND)
        messages, limit, prompt = params.get("messages"), params.get("maxTokens"), params.get("systemPrompt")
        request = SamplingRequest(
            self._session.name,
            call.tool if call else None,
            [message for message in messages if is_object(message)] if is_array(messages) else [],
            prompt if isinstance(prompt, str) else None,
            limit if isinstance(limit, int) else None,
            params,
        )
        try:
            given = await self._services.answers.run(handler, request, call)
        except RpcError:
            raise
        except Exception as error:
            self._session.log.add("host", "error", f"on_sampling raised {error!r}")
            self._tell(call, "asked for a model's words and got none", f"on_sampling raised {error!r}")
            raise RpcError("the host's handler failed", code=_INTERNAL) from error
        if given is None:
            raise RpcError("the user rejected the request", code=_REJECTED)
        return _as_message(given)

    def _tell(self, call: Call[Any] | None, what: str, why: str) -> None:
        """Say below the cell what the server's own answer need not say."""
        asker = f"{self._session.name}.{call.tool}" if call else self._session.name
        self._services.notices.add(f"{asker} {what}: {why}")

    def _noted(self, answer: ElicitationAnswer) -> ElicitationAnswer:
        if answer.note:
            self._session.log.add("host", "warning", f"its question was answered {answer.action!r}: {answer.note}")
        return answer


def _as_result(answer: ElicitationAnswer) -> dict[str, Any]:
    result: dict[str, Any] = {"action": answer.action}
    if answer.action == "accept" and answer.content is not None:
        result["content"] = answer.content
    return result


def _as_message(given: object) -> dict[str, Any]:
    """A handler's return value as a `CreateMessageResult`: from text, a content block, or the result itself."""
    message: dict[str, Any] = {"role": "assistant", "model": "unknown", "stopReason": "endTurn"}
    if is_object(given) and "content" in given:
        return {**message, **given}
    if is_object(given) and "type" in given:
        return {**message, "content": given}
    return {**message, "content": {"type": "text", "text": str(given)}}
