"""Config files as tests read them: whole, or not at all."""

from pathlib import Path

from ipymcp.config.config_files import read_each
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.errors import ConfigError


def read(path: str | Path) -> dict[str, ServerDefinition]:
    """The servers that a file defines; the first thing that is wrong is raised."""
    file = Path(path).absolute()
    found = read_each(Source(scope="named", file=str(file), folder=str(file.parent)))
    for one in found.values():
        if isinstance(one, ConfigError):
            raise one
    return {name: one for name, one in found.items() if isinstance(one, ServerDefinition)}
