"""The IPython extension (`%load_ext ipymcp`): the magic, the completer, the settings and the name `mcp`.

A page that cannot use the relay opens a comm (see `ipymcp.panel.channels`). The kernel sends its messages at once from
the background loop, but the page's messages would have to wait on the shell channel for the running cell. The page may
therefore send them as requests on the control channel, which the kernel handles in a separate thread.
"""

from __future__ import annotations

import dis
import inspect
import os
import re
import sys
import threading
import uuid
from functools import partial
from types import CoroutineType, ModuleType
from typing import TYPE_CHECKING, Any

import ipymcp
from ipymcp.api.apps import apps_of
from ipymcp.api.parts import parts_of
from ipymcp.api.sync_and_async import host_of
from ipymcp.errors import McpError
from ipymcp.notebook import transform
from ipymcp.notebook.apps import CellApps
from ipymcp.notebook.display import PanelDisplay
from ipymcp.notebook.line_syntax import is_silent
from ipymcp.notebook.progress import print_notice
from ipymcp.notebook.settings import IPyMCP, is_voila
from ipymcp.panel.cell_forms import CellForms
from ipymcp.protocol.types import is_object
from ipymcp.runtime.loop import is_harmfully_patched
from ipymcp.security.untrusted import mark_cells
from ipymcp.text import one_line, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipymcp.panel.channels import Relay
    from ipymcp.panel.panel import Panel


_REQUEST = "ipymcp_request"
_LOADS = re.compile(r"load_ext\s+ipymcp")


def _serve_control_requests(kernel: Any, comms: Any) -> bool:
    """Handle comm messages on the control channel. Returns False if the kernel does not support that."""
    handlers = getattr(kernel, "control_handlers", None)
    if handlers is None or getattr(kernel, "control_thread", None) is None:
        return False

    async def handle(stream: Any, ident: Any, message: dict[str, Any]) -> None:
        content: Any = message.get("content")
        comm = content.get("comm_id") if is_object(content) else None
        if not isinstance(comm, str) or not is_object(content.get("data")):
            return
        known = comms.comms.get(comm)
        if known is not None and known.target_name != _TARGET:
            return  # the owner of that comm expects messages on the main thread
        if known is None:
            comms.comm_open(stream, ident, _shell_message(message, comm, {}, target_name=_TARGET))
        comms.comm_msg(stream, ident, _shell_message(message, comm, content["data"]))

    handlers[_REQUEST] = handle
    return True


def _shell_message(message: dict[str, Any], comm: str, data: Any, **more: str) -> dict[str, Any]:
    """Convert a control request to a message of the shell channel."""
    return {**message, "content": {"comm_id": comm, "data": data, **more}}


def _matcher(settings: IPyMCP) -> Callable[[Any], Any]:
    """The matcher for IPython's completer (version 2 of its API, since IPython 8.6)."""
    from IPython.core import completer

    api: Any = completer

    @api.context_matcher()
    def ipymcp_matcher(context: Any) -> Any:
        lines = context.full_text.split("\n")[: context.cursor_line + 1]
        lines[-1] = lines[-1][: context.cursor_position]
        try:
            from ipymcp.notebook.completion import candidates

            found = candidates("\n".join(lines), ipymcp.host(), settings.namespace or "mcp", _variables())
        except Exception:  # an exception would disable all completers
            found = None
        if found is None:
            return {"completions": [], "suppress": False}
        partial, words, kind = found
        return {
            # IPython would process all words before it limits their number.
            "completions": [api.SimpleCompletion(text=word, type=kind) for word in words[: api.MATCHES_LIMIT]],
            "matched_fragment": partial,
            "suppress": True,
            "ordered": True,
        }

    return ipymcp_matcher


def _variables() -> list[str]:
    """The names of the user's variables."""
    from IPython import get_ipython

    shell: Any = get_ipython()
    return [name for name in shell.user_ns if name not in shell.user_ns_hidden]


_ATTRIBUTE = "_ipymcp_extension"
_SERVER = ("ipymcp.api.servers", "Server")
_RESULT = ("ipymcp.results.tool_result", "ToolResult")
_TARGET = "ipymcp"
"""The comm target for pages."""


class Extension:
    """The extension of one shell.

    Args:
        ip: The IPython shell.
    """

    def __init__(self, ip: Any) -> None:
        self.ip = ip
        self._bound: str | None = None
        self._reported: object = None
        """The user's object with our name that was last pointed out."""
        self._matcher: Any = None
        self._panel: Panel | None = None
        self._panel_lock = threading.Lock()
        self._relay: Relay | None = None
        self._has_control = False
        self.is_loading_cell = True
        """Whether the cell that loaded the extension still runs, which was not transformed by `transform`."""
        self._run_id = uuid.uuid4().hex
        self.display = PanelDisplay(ip, self._run_id, lambda: self.panel)
        self.settings = IPyMCP(parent=ip)
        self.apps = CellApps(ip, self._run_id, lambda: self.panel, host_of(ipymcp.host()))
        self._apply_settings()
        if self.settings.model or self.settings.replay != "off":
            self._set_model()
        self.settings.observe(self._setting_changed)

    def install(self) -> None:
        """Register everything in the shell."""
        ip = self.ip
        ip.register_magic_function(_magic, magic_kind="line_cell", magic_name="mcp")
        ip.register_magic_function(_shown, magic_kind="line", magic_name="mcp_shown")
        transform.install(self.ip)
        ip.configurables.append(self.settings)
        if hasattr(sys.modules["IPython.core.completer"], "context_matcher"):  # IPython 8.6 or later
            self._matcher = _matcher(self.settings)
            ip.Completer.custom_matchers.append(self._matcher)
        mark_cells(ip)
        ip.events.register("pre_run_cell", self._before_cell)
        ip.events.register("post_run_cell", self._after_cell)
        ip.display_formatter.mimebundle_formatter.for_type_by_name(*_SERVER, self.display.card)
        ip.display_formatter.mimebundle_formatter.for_type_by_name(*_RESULT, self.apps.result)
        ip.display_formatter.formatters["text/plain"].for_type(CoroutineType, _show_coroutine)
        if comms := _comms(ip):
            comms.register_target(_TARGET, self._open_comm)
            self._has_control = _serve_control_requests(ip.kernel, comms)
        self.bind()
        parts_of(ipymcp.host()).show_panel = self.display.show
        host = host_of(ipymcp.host())
        host.guard.notify, host.history.cell = print_notice, partial(_cell, ip)
        apps = apps_of(host)
        apps.display, apps.mode, apps.can_show = self.apps.show, lambda: self.settings.apps, self.apps.can_show
        host.questions.cell_forms = CellForms(ip, lambda: self.panel)
        if is_harmfully_patched():
            print_notice(
                "nest_asyncio 1.6 is applied in this kernel, and with ipykernel 7 it drops queued cells;"
                " ipymcp does not need it (pip install 'nest-asyncio2>=1.7.3' if something else does)"
            )

    def restore(self) -> None:
        """Load again what this notebook used, if the user has allowed that in the configuration."""
        host = host_of(ipymcp.host())
        if self.settings.restore != "auto" or host.remembered_as is None:
            return
        from ipymcp.setup import restore  # not at %load_ext

        found = host.loop.run(restore.plan(host))
        host.loop.run(restore.load(host, found, wait=False, again=False))
        names = [definition.name for definition in found.definitions]
        if names or found.rules:
            print_notice(f"restored what {host.rememberer} used: {', '.join(names) or 'its rules'}; %mcp shows it")
        for name, why in found.missing.items():
            print_notice(f"{name} is not restored: {why}")

    def reinstall(self) -> None:
        """Register everything again and serve the sidebar on another socket; servers, settings and views stay."""
        self._unregister()
        self.install()
        if self._relay is not None:
            self._relay.restart()

    def remove(self) -> None:
        """Unregister everything and stop the servers."""
        self._unregister()
        if comms := _comms(self.ip):
            for comm in [one for one in comms.comms.values() if one.target_name == _TARGET]:
                comm.close()  # notifies the page that the extension was unloaded
        if self._panel is not None:
            self._panel.close()
        self._unbind()
        if self._relay is not None:
            self._relay.close()
        mcp = ipymcp.host()
        apps_of(host_of(mcp)).close_all()
        parts_of(mcp).show_panel = None
        host_of(mcp).calls.presenter = host_of(mcp).questions.panel = host_of(mcp).questions.cell_forms = None
        McpError.full_tracebacks = False
        mcp.close()

    def _unregister(self) -> None:
        ip = self.ip
        ip.magics_manager.magics["line"].pop("mcp", None)
        ip.magics_manager.magics["line"].pop("mcp_shown", None)
        ip.magics_manager.magics["cell"].pop("mcp", None)
        transform.remove(self.ip)
        ip.configurables[:] = [known for known in ip.configurables if type(known).__name__ != "IPyMCP"]
        if self._matcher is not None:
            ip.Completer.custom_matchers.remove(self._matcher)
        ip.events.unregister("pre_run_cell", self._before_cell)
        ip.events.unregister("post_run_cell", self._after_cell)
        for each in (_SERVER, _RESULT):
            ip.display_formatter.mimebundle_formatter.pop(".".join(each), None)
        ip.display_formatter.formatters["text/plain"].pop(CoroutineType, None)
        if comms := _comms(ip):
            comms.unregister_target(_TARGET, self._open_comm)
            getattr(ip.kernel, "control_handlers", {}).pop(_REQUEST, None)

    def bind(self) -> None:
        """Bind `mcp` to the configured name, unless the user has bound that name."""
        mcp, name = ipymcp.host(), self.settings.namespace
        if self._bound != name:
            self._unbind()
        self._bound = None
        if not name:
            return
        if self.ip.user_ns.get(name, mcp) is not mcp:
            self.report_name()
            return
        self.ip.push({name: mcp}, interactive=False)
        self._bound = name

    def report_name(self) -> None:
        """Say once for each object of the user's that bears our name how to go on."""
        name = self.settings.namespace
        other = self.ip.user_ns.get(name, ipymcp.host())
        if not name or other is ipymcp.host() or other is self._reported:
            return
        self._reported = other
        kind = f"the module {other.__name__}" if isinstance(other, ModuleType) else f"a {type(other).__name__}"
        print_notice(
            f"the name {name} is {kind} of yours, and not the notebook's servers: after from ipymcp import mcp as"
            " servers, a tool is servers.SERVER.TOOL(…); %mcp works as always"
        )

    @property
    def bound_name(self) -> str:
        """The name that `mcp` is bound to at the moment; empty if there is none."""
        return self._bound if self._bound and self.ip.user_ns.get(self._bound) is ipymcp.host() else ""

    def _unbind(self) -> None:
        if self._bound and self.ip.user_ns.get(self._bound) is ipymcp.host():
            del self.ip.user_ns[self._bound]
            self.ip.user_ns_hidden.pop(self._bound, None)

    @property
    def panel(self) -> Panel:
        """The notebook's panel, created when a cell or a view first needs it."""
        if self._panel is None:
            from ipymcp.notebook import call_code
            from ipymcp.panel.panel import Panel, PanelContext
            from ipymcp.panel.subjects import COMMANDS, SECTIONS

            with self._panel_lock:
                if self._panel is None:
                    context = PanelContext(
                        mode=lambda: self.settings.panel,
                        namespace=lambda: self.bound_name,
                        kernel=self._run_id,
                        code=call_code,
                        has_control=self._has_control,
                        has_visitors=is_voila(os.environ),
                        publisher=self.ip.display_pub,
                    )
                    self._panel = Panel(ipymcp.host(), context, COMMANDS, SECTIONS)
        return self._panel

    def _setting_changed(self, change: Mapping[str, Any]) -> None:
        if change["name"] == "namespace":
            self.bind()
        elif change["name"] in ("model", "sampling_tokens", "replay"):
            self._set_model()
        elif change["name"] == "panel" and self._panel is not None:
            self._panel.send_mode()
        else:
            self._apply_settings()

    def _apply_settings(self) -> None:
        """Apply the settings that only have to be assigned."""
        settings: Any = self.settings
        host = host_of(ipymcp.host())
        McpError.full_tracebacks = settings.tracebacks
        host.client_handlers.nested_loop = settings.nested_loop
        host.history.mode = settings.history
        host.registry_address = settings.registry
        host.starts_on_use = settings.start_on_use
        host.client_handlers.shows_apps = settings.apps != "off" and hasattr(self.ip, "kernel")
        host.guard.policy.pins, host.guard.policy.doubts = settings.pins, settings.doubts

    def _set_model(self) -> None:
        settings: Any = self.settings
        chosen = settings.model or None, settings.sampling_tokens, settings.replay
        outdated = " ".join(map(quoted, parts_of(ipymcp.host()).set_model(*chosen)))
        if outdated:
            # on stdout: the setting itself has taken effect
            late = f"these running servers may ask the model only after %mcp restart {outdated}"
            print(one_line(f"ipymcp: {late}"))  # noqa: T201 - meant for the cell

    def _open_comm(self, comm: object, _: object) -> None:
        """Serve the panel to a page that cannot use the relay."""
        from ipymcp.panel.channels import serve_comm

        serve_comm(self.panel, comm)

    def _before_cell(self, *_: object) -> None:
        """Bind the name again after `%reset`, and let an interrupt of this cell reach the threads of libraries."""
        self.is_loading_cell = False
        host_of(ipymcp.host()).loop.awaiting.begin_cell()
        if self._bound and self._bound not in self.ip.user_ns:
            self.ip.push({self._bound: ipymcp.host()}, interactive=False)

    def _after_cell(self, result: Any = None) -> None:
        """Print notices that were added outside of a cell."""
        self.is_loading_cell = False
        if _LOADS.search(getattr(getattr(result, "info", None), "raw_cell", None) or ""):
            self.report_name()  # IPython only says that the extension is already loaded
        host_of(ipymcp.host()).loop.awaiting.end_cell()
        for notice in host_of(ipymcp.host()).notices.take():
            print_notice(notice)
        self._start_relay()

    def _start_relay(self) -> None:
        """Start the relay's socket, so that JupyterLab's sidebar can connect to this kernel."""
        if self._relay is None and hasattr(self.ip, "kernel"):
            from ipymcp.panel.channels import Relay

            self._relay = Relay(lambda: self.panel, host_of(ipymcp.host()))
        if self._relay is not None and not self._relay.is_started:
            self._relay.start()


def load(ip: Any) -> None:
    """Load the extension into a shell; if it is already loaded, register it again."""
    extension = getattr(ip, _ATTRIBUTE, None)
    if extension is None:
        extension = Extension(ip)
        extension.install()
        setattr(ip, _ATTRIBUTE, extension)
        extension.restore()
    else:
        extension.reinstall()


def unload(ip: Any) -> None:
    """Unload the extension from a shell, unless it is about to be loaded again by `%reload_ext`."""
    extension = getattr(ip, _ATTRIBUTE, None)
    if extension is not None and not _is_reloading(ip):
        extension.remove()
        delattr(ip, _ATTRIBUTE)


def _is_reloading(ip: Any) -> bool:
    """Whether IPython unloads the extension in order to load it again, which it does not tell."""
    reload = ip.extension_manager.reload_extension.__code__
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not reload:
        frame = frame.f_back
    return frame is not None


def _magic(line: str, cell: str | None = None, *, local_ns: Mapping[str, Any] | None = None) -> Any:
    """MCP servers in this notebook: %mcp load, tools, call, logs, stop; %mcp help lists all."""
    value = _run(line, cell, local_ns)
    extension = _loaded()
    if extension is None or not extension.is_loading_cell or cell is not None or is_silent(line):
        return value
    if value is not None and _is_discarded(extension.ip):
        _display(value)
    return value


def _shown(line: str, *, local_ns: Mapping[str, Any] | None = None) -> None:
    """Run %mcp in the middle of a cell and display its value, which IPython does not display there."""
    value = _run(line, None, local_ns)
    if value is not None:
        _display(value)


def _run(line: str, cell: str | None, local_ns: Mapping[str, Any] | None) -> Any:
    from ipymcp.notebook.magics.dispatch import run

    extension = _loaded()
    assert extension is not None
    extension.report_name()
    return run(extension.ip, extension.settings, extension.display, line, cell, local_ns or {})


def _loaded() -> Extension | None:
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), _ATTRIBUTE, None)


def _display(value: Any) -> None:
    from IPython import display

    show: Any = display.display  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    show(value)


def _is_discarded(ip: Any) -> bool:
    """Whether the user's code that is being run discards the value of the current call, so that no one displays it."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals is not ip.user_global_ns:
        frame = frame.f_back
    if frame is None:
        return False
    following = (each.opname for each in dis.get_instructions(frame.f_code) if each.offset > frame.f_lasti)
    return next(following, None) == "POP_TOP"


for _each in (_magic, _shown):
    _each.needs_local_scope = True  # type: ignore[attr-defined]
    _each._ipython_magic_no_var_expand = True  # type: ignore[attr-defined]


def _show_coroutine(coroutine: CoroutineType[Any, Any, Any], printer: Any, _: bool) -> None:
    """Print a hint for a coroutine of ipymcp that was not awaited; print others as usual."""
    if str((coroutine.cr_frame.f_globals if coroutine.cr_frame else {}).get("__name__")).startswith("ipymcp."):
        printer.text("not called: this is a coroutine, write await before it (or leave out .aio)")
    else:
        printer.text(repr(coroutine))


def _comms(ip: Any) -> Any:
    """The kernel's comm manager, or None."""
    return getattr(getattr(ip, "kernel", None), "comm_manager", None)


def _cell(ip: Any) -> int | None:
    """The number of the running cell; `execution_count` may be one more, depending on IPython's version."""
    return len(ip.history_manager.input_hist_parsed) - 1
