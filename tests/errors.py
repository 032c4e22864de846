"""What a user reads of a call that must fail."""

from collections.abc import Callable
from typing import Any

import pytest

from ipymcp.errors import McpError


def refused(
    error_type: type[McpError], call: Callable[..., object], *args: Any, **options: Any
) -> tuple[str, str | None]:
    """Return the message and the hint of the error that a call raises."""
    with pytest.raises(error_type) as caught:
        call(*args, **options)
    return str(caught.value), caught.value.hint
