"""What lies where, below `<base_url>ipymcp/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.jupyter import settings
from ipymcp.jupyter.callback import Callback, Redirected
from ipymcp.jupyter.relay import PanelRelay
from ipymcp.jupyter.sessions import Sessions

if TYPE_CHECKING:
    from ipymcp.jupyter.kernels import Kernels
    from ipymcp.state.store import Store

__all__ = ["routes"]

_KERNEL = r"([\w-]+)"
_NAME = r"([^/]+)"
_DIGEST = r"([0-9a-f]{64})"


def routes(kernels: Kernels, store: Store) -> list[tuple[str, type, dict[str, Any]]]:
    """Every address, who answers there, and what that works on."""
    over, kept = {"kernels": kernels}, {"store": store}
    return [
        (rf"ipymcp/kernels/{_KERNEL}/panel", PanelRelay, over),
        (r"ipymcp/sessions", Sessions, over),
        (r"ipymcp/config", settings.Config, kept),
        (r"ipymcp/config/check", settings.Check, kept),
        (rf"ipymcp/config/servers/{_NAME}", settings.Server, kept),
        (r"ipymcp/secrets", settings.SecretNames, kept),
        (rf"ipymcp/secrets/{_NAME}", settings.Secret, kept),
        (r"ipymcp/trust", settings.Agreements, kept),
        (rf"ipymcp/trust/{_DIGEST}", settings.Agreement, kept),
        (r"ipymcp/oauth/callback", Callback, {}),
        (r"ipymcp/oauth/redirected", Redirected, over),
    ]
