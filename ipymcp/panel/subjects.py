"""The subjects of the panel, and all that they offer: the commands of views and the sections of the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipymcp.panel import activity, adding, apps, calls, logs, panel, resources, results, servers, tools
from ipymcp.panel.calls import CallRows
from ipymcp.panel.panel import ViewCommand
from ipymcp.panel.servers import ServerRows

if TYPE_CHECKING:
    from ipymcp.panel.state import StateSection

SUBJECTS: Final = (servers, tools, calls, activity, results, resources, adding, apps, logs, panel)
COMMANDS: Final[dict[str, ViewCommand]] = {
    verb: command
    for subject in SUBJECTS
    for command in vars(subject).values()
    if isinstance(command, ViewCommand)
    for verb in command.verbs
}
"""The commands by verb. What a mode permits is in `permissions.py`."""
SECTIONS: Final[tuple[type[StateSection], ...]] = (ServerRows, CallRows)
