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
        help="Where your coroutine functions for servers (mcp.on_sampling, mcp.on_elicitation) run: on a loop of"
        " ipymcp's (off), or on the kernel's, by nest_asyncio where a call blocks that (handlers); always: calls wait"
        " by nesting the kernel's loop, too, so that your tasks go on meanwhile.",
    ).tag(config=True)
    pins = Enum(
        ("models", "all", "off"),
        "models",
        help="For whom a tool whose definition has changed is out of reach until %mcp pins accept.",
    ).tag(config=True)
    doubts = Bool(
        True,
        help="Ask about a tool that may change something, even where it is allowed, once a model has read what may be"
        " anybody's words: the result of a tool that is not said to stay with its own data.",
    ).tag(config=True)
    history = Enum(
        ("sizes", "values", "off"),
        "sizes",
        help="What is kept of calls, for %mcp history: the sizes of arguments and results, themselves, or nothing.",
    ).tag(config=True)
    panel = Enum(
        ("full", "run", "view"),
        help="What the panel may do: everything; call tools, read and answer; or only look."
        " Unless set, full, and run under Voilà.",
    ).tag(config=True)
    model = Unicode(
        "",
        help="The model that %mcp ask asks: provider:name, such as openai:gpt-5. Of several,"
        " separated by commas, the next is asked if one fails before it has said or done anything.",
    ).tag(config=True)
    sampling_tokens = Int(
        100_000, help="How many tokens of that model a server may cost that asks for its words (sampling)."
    ).tag(config=True)
    replay = Enum(
        ("off", "auto", "only"),
        "off",
        help="Where answers of %mcp ask come from: mcp-answers.json beside the notebook if prompt, model, tools"
        " and results are as recorded, else from the model and into that file (auto); only from it (only); off.",
    ).tag(config=True)
    registry = Unicode(
        "https://registry.modelcontextprotocol.io",
        help="The address of the MCP registry that %mcp search, add and outdated ask.",
    ).tag(config=True)
    apps = Enum(
        ("show", "ask", "off"),
        "show",
        help="Interactive pages of tools (MCP Apps): show them, ask about each of a server's pages first, or never.",
    ).tag(config=True)
    quiet = Bool(False, help="Show no progress of calls and no lines while servers load.").tag(config=True)

    @validate("apps", "pins", "history", "doubts", "panel", "registry", "replay", "sampling_tokens")
    def _only_by_the_user(self, proposal: dict[str, Any]) -> Any:
        refuse_models(f"set IPyMCP.{proposal['trait'].name}")
        return proposal["value"]

    @default("panel")
    def _usual_panel(self) -> str:
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
    """Whether a kernel with these variables was started by Voilà, whose visitors are not the notebook's author."""
    software = environment.get("SERVER_SOFTWARE", "").lower()
    return software.startswith("voila") or "VOILA_KERNEL_ID" in environment or "VOILA_PREHEAT" in environment
