"""Tools in other processes: the content of a pickle, and the servers of a worker process.

A pickle contains the server's definition with its variables, never the value of a variable or a secret: the process
that unpickles it uses its own values. That process opens one session per definition at the first call, shares it among
its threads, and closes it when it ends.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
from glob import escape
from multiprocessing import util
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ipymcp.config.redaction import masked, masked_args, wanted_secrets
from ipymcp.errors import McpError, PolicyError, SecretError, TrustError, UnknownName
from ipymcp.masking import looks_secret, mask
from ipymcp.names import expression
from ipymcp.runtime.call_options import CallOptions
from ipymcp.runtime.host import Host
from ipymcp.security.pins import canonical, fingerprint
from ipymcp.security.rules import Rule
from ipymcp.security.trust import Grant
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.interaction.questions import Caller
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.session import ServerSession
    from ipymcp.security.rules import CallBatch, Decision
    from ipymcp.storage.history import CallRecord


class PickledTool(msgspec.Struct, frozen=True):
    """The content of a tool's pickle.

    Attributes:
        definition: The server's definition, with variables not expanded and without secrets.
        digest: The digest of the definition in the process that pickled it.
        folder: The folder in which the server runs by default, if the worker has it.
        tool: The tool's exact name.
        fingerprint: The hash of the tool's definition.
        decision: The policy's decision in the process that pickled it: `allow` or `ask`.
        timeout: Seconds without progress after which a call fails.
        max_timeout: Seconds after which a call fails.
        as_task: Whether to run calls as tasks if the tool supports it.
        caller: The caller for the policy.
    """

    definition: ServerDefinition
    digest: str
    folder: str
    tool: str
    fingerprint: str
    decision: Decision
    timeout: float
    max_timeout: float
    as_task: bool
    caller: Caller

    @property
    def name(self) -> str:
        """The Python expression for the tool."""
        return expression(self.definition.name, self.tool)

    @property
    def options(self) -> CallOptions:
        """The options of its calls."""
        return CallOptions(self.timeout, self.max_timeout, as_task=self.as_task, caller=self.caller)


def pickled(host: Host, session: ServerSession, entry: ToolEntry, options: CallOptions) -> PickledTool:
    """Make the content of a tool's pickle. Waits for the loop, so it must be called from another thread.

    Raises:
        PolicyError: The tool is denied.
        SecretError: The server's definition contains a secret.
        TrustError: The server may not run here.
    """
    options = host.guard.on_behalf(entry, options)
    rights, policy = session.rights, host.guard.policy
    policy.check(entry, rights, options.caller, conversation=options.conversation)
    conversation = options.conversation
    is_doubted = conversation is not None and policy.is_doubted(entry, rights, conversation, options.caller)
    definition = session.definition.replace(extra={}, lazy=False, disabled=False)
    place = next(_secrets(definition), None)
    if place is not None:
        message = f"its definition contains a secret ({place}), which is not sent to other processes"
        hint = "write ${VARIABLE} or ${secret:NAME} there: each worker reads its own"
        raise SecretError(message, server=entry.server, tool=entry.name, hint=hint)
    if session.client is None and not host.guard.trusts(session.definition):
        raise TrustError("needs your trust", server=entry.server, hint=f"%mcp start {quoted(entry.server)} asks for it")
    decision = "ask" if is_doubted else policy.verdict(entry, rights, options.caller).decision
    return PickledTool(
        definition,
        session.digest,
        host.folder,
        entry.name,
        fingerprint(canonical(entry.definition)),
        decision,
        options.timeout,
        options.max_timeout,
        options.as_task,
        options.caller,
    )


def _secrets(definition: ServerDefinition) -> Iterator[str]:
    """Yield the places in a definition that contain a secret itself, not a variable."""
    tables = {"env": definition.env, "headers": definition.headers, "auth": definition.auth}
    for table, values in tables.items():
        for name, value in values.items():
            is_secret = looks_secret(name) or name.lower().endswith("authorization")
            if isinstance(value, str) and masked(value, "secret" if is_secret else name) != value:
                yield f"{table}.{name}"
    for place, (argument, shown) in enumerate(zip(definition.args, masked_args(definition.args), strict=True)):
        if argument != shown:
            yield f"args[{place}]"
    if masked(definition.url or "") != (definition.url or ""):
        yield "url"
    for name, described in definition.inputs.items():
        if definition.hides_input(name) and described.get("default"):
            yield f"inputs.{name}.default"
    for field in definition.__struct_fields__:
        text = msgspec.json.encode(getattr(definition, field)).decode()
        if mask(text) != text:
            yield field


# -- in a worker ------------------------------------------------------------------------------------------------------


class WorkerServer:
    """A server of a worker process, which received tools of it by pickle, with a host of its own.

    Args:
        sent: One of the tools.
    """

    def __init__(self, sent: PickledTool) -> None:
        self.host = Host(sent.folder if os.path.isdir(sent.folder) else None)
        self.host.history.divert = self._divert
        self.records: dict[int, list[CallRecord]] = {}
        """The lists to which records of calls are added instead of the history, by the call's number."""
        self._definition = sent.definition
        self._digest = sent.digest
        self._open_lock = threading.Lock()
        self._is_trusted = False
        self._map_locks: dict[str, threading.Lock] = {}

    def map_lock(self, tool: str) -> threading.Lock:
        """The lock that a map holds while it calls a tool."""
        return self._map_locks.setdefault(tool, threading.Lock())

    def session(self) -> ServerSession:
        """The session, which is opened at the first use.

        Raises:
            McpError: The server did not start; the message names the worker.
        """
        session = self.host.sessions.get(self._definition.name)
        if session is not None and session.client is not None:
            return session
        with self._open_lock:
            try:
                session = self.host.loop.run(self._open())
                session.require()
            except McpError as error:
                raise _named(error) from None
        return session

    async def _open(self) -> ServerSession:
        if not self._is_trusted:
            grant = Grant(frozenset(wanted_secrets(self._definition)), digest=self._digest)
            await self.host.guard.trust.try_out(grant, self._definition)
            self._is_trusted = True
        [session] = await self.host.load([self._definition])
        return session

    def entry(self, sent: PickledTool) -> ToolEntry:
        """The tool's catalog entry. The decision in the pickle becomes a rule of the policy here.

        Raises:
            McpError: The server did not start, or its tool differs from the one that was pickled.
        """
        session = self.session()
        entry = session.catalog.tools.get(sent.tool)
        if entry is None:
            raise _named(UnknownName(f"there is no tool {sent.tool!r}", server=session.name))
        if fingerprint(canonical(entry.definition)) != sent.fingerprint:
            message = "its definition is not the one that was sent"
            hint = "run the same version of the server everywhere"
            raise _named(PolicyError(message, server=session.name, tool=sent.tool, hint=hint))
        policy = self.host.guard.policy
        verdict = policy.verdict(entry, session.rights, sent.caller).decision
        if verdict not in ("deny", sent.decision):
            origin = "where it was pickled"
            rule = Rule(escape(entry.name), sent.decision, origin, session.rights.digest, sent.caller)
            policy.add_rule(rule)
        return entry

    def agreed_options(self, sent: PickledTool, entry: ToolEntry, batch: CallBatch) -> CallOptions:
        """The options of calls to which the user has agreed in the process that sent them."""
        self.host.guard.policy.agree(batch, self.session().rights, entry)
        return replace(sent.options, batch=batch)

    def _divert(self, record: CallRecord) -> bool:
        records = self.records.pop(record.number or 0, None)
        if records is not None:
            records.append(record)
        return records is not None


_servers: dict[tuple[str, str, str], WorkerServer] = {}
_lock = threading.Lock()
_workers: set[str] = set()
"""The addresses of the Dask workers in this process that use the servers."""


def worker_server(sent: PickledTool) -> WorkerServer:
    """The server of a tool in this process."""
    key = (sent.digest, sent.definition.name, sent.folder)
    with _lock:
        server = _servers.get(key)
        if server is None:
            server = _servers[key] = WorkerServer(sent)
            if multiprocessing.parent_process() is not None:
                # Child processes of multiprocessing skip atexit. If this one is killed, the reaper ends the server.
                util.Finalize(None, server.host.close_at_exit, exitpriority=0)
                _ignore_interrupts()
        _close_with_dask_workers()
    return server


def close_all() -> None:
    """Close all servers of this process that were started for pickled tools."""
    with _lock:
        servers = [*_servers.values()]
        _servers.clear()
    for server in servers:
        server.host.close()


def _ignore_interrupts() -> None:
    """Ignore SIGINT in a child process: an interrupt of the notebook also reaches it, and would end the worker."""
    if multiprocessing.parent_process() is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _close_with_dask_workers() -> None:
    """Close the servers when the last Dask worker of this process ends."""
    worker = dask_worker()
    if worker is None or worker.address in _workers:
        return
    _workers.add(worker.address)

    async def teardown(_: object, worker: Any) -> None:
        _workers.discard(worker.address)
        if not _workers:
            await asyncio.to_thread(close_all)

    plugin = type("CloseSessions", (importlib.import_module("distributed").WorkerPlugin,), {"teardown": teardown})
    worker.loop.add_callback(_ignore_interrupts)
    worker.loop.add_callback(worker.plugin_add, plugin=plugin(), name="ipymcp")


def dask_worker() -> Any:
    """The Dask worker that runs this thread's task; None in other threads."""
    module = sys.modules.get("distributed.worker")
    try:
        return module.get_worker() if module is not None else None
    except ValueError:
        return None


def worker_name() -> str:
    """The name of this worker for errors."""
    worker = dask_worker()
    where = f"{socket.gethostname()}, process {os.getpid()}"
    return where if worker is None else f"{worker.address} ({where})"


def _named(error: McpError) -> McpError:
    error.message = f"on the worker {worker_name()}: {error.message}"
    return error
