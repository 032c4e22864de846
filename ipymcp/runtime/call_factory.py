"""The factory of a host's calls: access control, numbers, and the calls in progress."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ipymcp.errors import CallError, PolicyError
from ipymcp.runtime.call import Call
from ipymcp.runtime.call_hooks import CallHooks, Permission
from ipymcp.security.untrusted import current_actor

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from ipymcp.protocol.client import Client
    from ipymcp.runtime.access import AccessControl
    from ipymcp.runtime.call_options import CallOptions, CallServices, Presenter
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.server_status import CallTarget


T = TypeVar("T")


class TaskCall(Call[T]):
    """A call that follows an existing task by its id.

    Args:
        task: The task id.
        arguments: The arguments of `Call`.
    """

    __slots__ = ("_task",)

    def __init__(self, task: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._task = task

    def _send(self, client: Client) -> None:
        client.tasks.resume(self._pending, self._task)


class CallFactory:
    """Makes the calls of a host.

    Args:
        services: The services of the calls.
        guard: Decides which calls may be made.
    """

    def __init__(self, services: CallServices, guard: AccessControl) -> None:
        self.running = services.running
        """The calls in progress by number."""
        self._services = services
        self._guard = guard
        self._numbers = itertools.count(1)

    @property
    def presenter(self) -> Presenter | None:
        """Shows the user calls that take long."""
        return self._services.presenter

    @presenter.setter
    def presenter(self, presenter: Presenter | None) -> None:
        self._services.presenter = presenter

    def next_number(self) -> int:
        """Reserve a number that no call has, for a value that is stored together with the results of calls."""
        return next(self._numbers)

    def new(
        self,
        session: CallTarget,
        entry: ToolEntry,
        arguments: bytes,
        options: CallOptions,
        convert: Callable[[Raw], T],
        *,
        is_untrusted: bool,
    ) -> Call[T]:
        """Make a call that is not sent yet.

        Args:
            session: The server.
            entry: The tool.
            arguments: JSON object of the arguments.
            options: The call's options.
            convert: Converts the JSON of the result, or raises the error that the caller sees.
            is_untrusted: Whether the result may contain untrusted content, which access control then records.

        Raises:
            PolicyError: The call is not allowed.
        """
        try:
            options = self._guard.on_behalf(entry, options)
            consent = self._guard.permit(session, entry, options, arguments)
        except PolicyError as error:
            self._services.history.add_refused(session.name, entry.name, arguments, options, error)
            raise
        source = f"{session.name}.{entry.name}"
        receiver = partial(self._guard.received, source, options.conversation) if is_untrusted else None
        hooks = CallHooks.of(
            self._services.client_handlers, entry, partial(self._guard.permit, session, entry, options)
        )
        permission = None if consent is None and hooks is None else Permission(consent, hooks)
        return Call(
            next(self._numbers),
            session,
            entry.name,
            arguments,
            options,
            convert,
            self._services,
            permission,
            receiver,
            hooks if hooks is not None and hooks.has_after else None,
        )

    def resume_task(
        self, session: CallTarget, options: CallOptions, task: str, tool: str, convert: Callable[[Raw], T]
    ) -> TaskCall[T]:
        """Follow an existing task.

        Args:
            session: The server.
            options: The options of the call.
            task: The task id.
            tool: The name of the tool that created it.
            convert: As for `new`.

        Raises:
            CallError: The server has no tasks.
        """
        client = session.require()
        if not client.tasks.are_supported:
            raise CallError("has no tasks", server=session.name, hint="its calls return their results directly")
        actor = current_actor()
        conversation = actor.conversation if actor is not None else None
        receiver = partial(self._guard.received, f"{session.name}.{tool}", conversation)
        number = next(self._numbers)
        call = TaskCall[T](task, number, session, tool, b"", options, convert, self._services, None, receiver)
        call.submit()
        return call

    def end_late(self) -> bool:
        """Fail the calls whose deadline has passed; False if no call is in progress. Called at every beat of the loop.

        A caller that blocks a thread watches the deadline itself as well.
        """
        calls = list(self.running.values())
        for call in calls:
            call.end_if_late()
        return bool(calls)
