"""The Model Context Protocol in the notebook: every tool of every MCP server is a Python function.

In a notebook:

    %load_ext ipymcp
    %mcp load demo
    from ipymcp import mcp
    mcp.demo.query("penguins", limit=3).df

In a script, a test or a thread:

    with ipymcp.connect({"time": {"command": "uvx", "args": ["mcp-server-time"]}}) as mcp:
        print(mcp.time.get_current_time("UTC").text)

Every name here is imported when it is first used.
"""

from __future__ import annotations

import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any

from ipymcp import import_guard
from ipymcp.version import __version__

import_guard.install()

if TYPE_CHECKING:
    from ipymcp import errors
    from ipymcp.api.connect import aconnect, connect
    from ipymcp.api.namespace import Mcp
    from ipymcp.api.resources import PromptResult, Prompts, Resources, Subscription
    from ipymcp.api.tool import Tool
    from ipymcp.api.toolset import Toolset
    from ipymcp.errors import (
        ArgumentError,
        AuthError,
        CallCancelled,
        CallError,
        CallInterrupted,
        CallTimeout,
        CommandNotFound,
        ConfigError,
        ConnectionLost,
        HttpError,
        LoopError,
        McpError,
        PolicyError,
        ProtocolError,
        ResultTooLarge,
        RpcError,
        SecretError,
        ServerError,
        ServerStopped,
        StartError,
        ToolError,
        TrustError,
        UnknownName,
    )
    from ipymcp.llm.backend import Limits
    from ipymcp.results.resource_result import ResourceResult
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import Call

    mcp: Mcp

__all__ = [
    "__version__",
    "mcp",
    "host",
    "connect",
    "aconnect",
    "Mcp",
    "Tool",
    "Toolset",
    "ToolResult",
    "Prompts",
    "ResourceResult",
    "Resources",
    "PromptResult",
    "Subscription",
    "Call",
    "Limits",
    "errors",
    "McpError",
    "ConfigError",
    "UnknownName",
    "SecretError",
    "PolicyError",
    "LoopError",
    "ServerError",
    "StartError",
    "CommandNotFound",
    "ServerStopped",
    "ConnectionLost",
    "TrustError",
    "AuthError",
    "ProtocolError",
    "CallError",
    "ArgumentError",
    "ToolError",
    "RpcError",
    "HttpError",
    "CallTimeout",
    "CallCancelled",
    "CallInterrupted",
    "ResultTooLarge",
    "load_ipython_extension",
    "unload_ipython_extension",
]

_HOMES = {
    "api.connect": ("connect", "aconnect"),
    "api.namespace": ("Mcp",),
    "api.resources": ("Resources", "Subscription", "Prompts", "PromptResult"),
    "api.tool": ("Tool",),
    "api.toolset": ("Toolset",),
    "llm.backend": ("Limits",),
    "results.resource_result": ("ResourceResult",),
    "results.tool_result": ("ToolResult",),
    "runtime.call": ("Call",),
}
"""The public names of each module; all others are errors."""
_lock = threading.Lock()
_notebook: Mcp | None = globals().get("_notebook")
"""The notebook's one host, which stays when `%reload_ext` runs this module again."""


def host() -> Mcp:
    """The host of this notebook and process, created at the first call; later calls return the same object."""
    global _notebook
    with _lock:
        if _notebook is None:
            from ipymcp.api.namespace import Mcp
            from ipymcp.config.paths import notebook_file
            from ipymcp.runtime.host import Host

            shell = _shell()
            _notebook = Mcp(Host(notebook=notebook_file(_path_from_front_end(shell)), is_shell=shell is not None))
        return _notebook


def _shell() -> Any:
    """The IPython shell; None in a script."""
    module: Any = sys.modules.get("IPython.core.getipython")
    return module.get_ipython() if module is not None else None


def _path_from_front_end(shell: Any) -> str | None:
    """The notebook's path, which VS Code sets as a variable of the notebook; None in other front ends."""
    path = shell.user_ns.get("__vsc_ipynb_file__") if shell is not None else None
    return path if isinstance(path, str) else None


def load_ipython_extension(ip: Any) -> None:
    """`%load_ext ipymcp`: add the magics and the name `mcp`."""
    from ipymcp.notebook.extension import load

    load(ip)


def unload_ipython_extension(ip: Any) -> None:
    """`%unload_ext ipymcp`: remove the magics and the name `mcp`, and stop the servers; `%reload_ext` keeps them."""
    from ipymcp.notebook.extension import unload

    unload(ip)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:  # pyright: ignore[reportUnusedFunction]
    """The Jupyter server extensions of this package; installing ipymcp enables them."""
    module = "ipymcp.jupyter.app"
    return [{"module": module, "app": importlib.import_module(module).IpymcpServer}]


def __getattr__(name: str) -> Any:
    if name == "mcp":
        return host()
    if name == "errors":
        return importlib.import_module("ipymcp.errors")
    if name in __all__:
        home = next((module for module, names in _HOMES.items() if name in names), "errors")
        return getattr(importlib.import_module(f"ipymcp.{home}"), name)
    elsewhere = "" if name.startswith("_") else "; servers are loaded and called by mcp: from ipymcp import mcp"
    raise AttributeError(f"module 'ipymcp' has no attribute {name!r}{elsewhere}")


def __dir__() -> list[str]:
    return sorted(__all__)
