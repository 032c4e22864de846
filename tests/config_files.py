"""Config files as tests read them: as a whole, or with an error."""

from pathlib import Path

from ipymcp.config.config_files import read_each
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.errors import ConfigError


def read(path: str | Path) -> dict[str, ServerDefinition]:
    """Return the servers that a file defines, or raise its first error."""
    file = Path(path).absolute()
    servers = read_each(Source(scope="named", file=str(file), folder=str(file.parent)))
    for server in servers.values():
        if isinstance(server, ConfigError):
            raise server
    return {name: server for name, server in servers.items() if isinstance(server, ServerDefinition)}
