"""Settings of the extension (`%config IPyMCP`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from traitlets import Bool, Enum, Int, TraitError, Unicode, default, validate
from traitlets.config import Configurable

from ipymcp.security.untrusted import refuse_models

if TYPE_CHECKING:
    from collections.abc import Mapping


class IPyMCP(Configurable):
    """MCP in the notebook."""

    namespace = Unicode("mcp", help="The name that the notebook's servers are bound to; empty for none.").tag(
        config=True
    )
    tracebacks = Bool(False, help="Show Python's whole traceback for ipymcp's errors instead of two lines.").tag(
        config=True
    )
    nested_loop = Enum(
        ("off", "handlers", "always"),
        "off",
        help="Where your coroutine functions for servers (mcp.on_sampling, mcp.on_elicitation) run: off: on a loop of"
        " ipymcp; handlers: on the kernel's loop, with nest_asyncio if a call blocks it; always: calls, too, wait by"
        " nesting the kernel's loop, so that your tasks continue.",
    ).tag(config=True)
    pins = Enum(
        ("models", "all", "off"),
        "models",
        help="Whose calls of a tool are blocked after its definition has changed, until %mcp pins accept: those of"
        " models, all, or none (off).",
    ).tag(config=True)
    doubts = Bool(
        True,
        help="Ask about calls of tools that may change something, even if a rule allows them, once the model has read"
        " untrusted content: the result of a tool that is not declared to use only its server's own data.",
    ).tag(config=True)
    history = Enum(
        ("sizes", "values", "off"),
        "sizes",
        help="The data of calls that is stored for %mcp history: the sizes of arguments and results, these values,"
        " too, or nothing.",
    ).tag(config=True)
    restore = Enum(
        ("ask", "auto"),
        "ask",
        help="Whether what this notebook used before its kernel was restarted is loaded again when ipymcp is loaded"
        " (auto), or by %mcp restore (ask). Set it in your own IPython configuration: c.IPyMCP.restore.",
    ).tag(config=True)
    panel = Enum(
        ("full", "run", "view"),
        help="What the panel may do: everything (full); call tools, read and answer (run); or only show (view)."
        " Unless set, full, and run under Voilà.",
    ).tag(config=True)
    model = Unicode(
        "",
        help="The model that %mcp ask asks: provider:name, such as openai:gpt-5. With several names,"
        " separated by commas, the next model is asked if one fails before it has written or called anything.",
    ).tag(config=True)
    sampling_tokens = Int(
        100_000, help="Token budget of each server for sampling requests, which that model answers."
    ).tag(config=True)
    start_on_use = Bool(
        True,
        help="Start a configured server that is not loaded when it is first used, as in mcp.github.search(…);"
        " you are asked about a project's.",
    ).tag(config=True)
    replay = Enum(
        ("off", "auto", "only"),
        "off",
        help="Whether answers of %mcp ask are recorded in mcp-answers.json beside the notebook: auto replays an answer"
        " if prompt, model, tools and results are as recorded, else asks and records; only never asks; off.",
    ).tag(config=True)
    registry = Unicode(
        "https://registry.modelcontextprotocol.io",
        help="The address of the MCP registry that %mcp search, add and outdated ask.",
    ).tag(config=True)
    apps = Enum(
        ("show", "ask", "off"),
        "show",
        help="Interactive pages of tools (MCP Apps): show them, ask before each page is shown for the first time, or"
        " never show them.",
    ).tag(config=True)
    quiet = Bool(False, help="Show no progress of calls and of loading servers.").tag(config=True)

    @validate("apps", "pins", "history", "doubts", "panel", "registry", "replay", "sampling_tokens", "start_on_use")
    def _refuse_models(self, proposal: dict[str, Any]) -> Any:
        refuse_models(f"set IPyMCP.{proposal['trait'].name}")
        return proposal["value"]

    @default("panel")
    def _default_panel(self) -> str:
        return "run" if is_voila(os.environ) else "full"

    def update_config(self, config: Any) -> None:
        """Apply values of `%config`; types are checked first, since traitlets would copy values that cannot be copied.

        Raises:
            TraitError: A value has the wrong type.
        """
        for name, value in config.get(type(self).__name__, {}).items():
            trait = self.traits().get(name)
            if isinstance(trait, Unicode) and not isinstance(value, str):
                hint = ": a model object goes to mcp.ask(…, model=…)" if name == "model" else ""
                raise TraitError(f"IPyMCP.{name} is a string, not {type(value).__name__}{hint}")
        super().update_config(config)

    @validate("namespace")
    def _identifier(self, proposal: dict[str, Any]) -> str:
        name: str = proposal["value"]
        if name and not name.isidentifier():
            raise ValueError(f"IPyMCP.namespace must be a Python name, not {name!r}")
        return name


def is_voila(environment: Mapping[str, str]) -> bool:
    """Whether a kernel with these environment variables was started by Voilà, whose users are not the author."""
    software = environment.get("SERVER_SOFTWARE", "").lower()
    return software.startswith("voila") or "VOILA_KERNEL_ID" in environment or "VOILA_PREHEAT" in environment
