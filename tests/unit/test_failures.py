"""Explanations of a server's failures for its user."""

import json
import sys
from typing import Any

import pytest

from ipymcp.config.definition import ServerDefinition
from ipymcp.errors import ConnectionLost, RpcError, render_briefly
from ipymcp.runtime.failures import explain

PAY = "https://herring.example/pay?for=1"


def explained(*elicitations: object) -> RpcError:
    error = RpcError("Pay first.", code=-32042, data={"elicitations": list(elicitations)}, tool="buy")
    explain(error, ServerDefinition(name="shop", command="shop"), (), None)
    return error


def test_a_call_that_needs_a_visit_to_an_address_first_says_which() -> None:
    error = explained({"mode": "url", "elicitationId": "1", "url": PAY, "message": "Pay"}, {"mode": "form"}, 5)
    assert error._render_traceback_() == [
        f"RpcError: shop.buy: Pay first: visit {PAY} (at herring.example)",
        "  then call it again",
    ]


def test_a_domain_in_foreign_letters_is_said_in_plain_ones_too() -> None:
    assert (
        "(at h\u0435rring.example (xn--hrring-3of.example))"
        in explained({"url": "https://h\u0435rring.example/"}).message
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"url": "javascript:alert(1)"},
        {"url": f"{PAY} x"},
        {"url": "https://other.example\\@herring.example/"},
        {"url": 5},
        {},
        "no object",
    ],
)
def test_what_is_no_web_address_is_not_shown_as_one(asked: Any) -> None:
    assert (explained(asked).message, explained(asked).hint) == ("Pay first.", None)


@pytest.mark.parametrize("command", ["python", "python3.12"])
def test_a_module_that_the_python_on_the_path_lacks_names_this_kernels_python(command: str) -> None:
    words = ("Traceback (most recent call last):", "ModuleNotFoundError: No module named 'mcp_server.time'")
    error = explain(ConnectionLost("died"), ServerDefinition(name="time", command=command), words, 1)
    assert error.hint == (
        f"the {command} on PATH lacks mcp_server.time: install it there, or write"
        f' "command": {json.dumps(sys.executable)}, this kernel\'s Python'
    )


def test_a_module_that_another_program_lacks_is_left_to_its_log() -> None:
    words = ("ModuleNotFoundError: No module named 'time_server'",)
    error = explain(ConnectionLost("died"), ServerDefinition(name="time", command="/opt/python"), words, 1)
    assert error.hint == "%mcp logs time · %mcp restart time"


@pytest.mark.parametrize(
    ("filename", "first"),
    [
        ("/home/me/plot.py", "KeyboardInterrupt: interrupted in draw()"),
        ("zmq/backend/cython/_zmq.py", "KeyboardInterrupt: demo.slow.map was interrupted"),
        ("<string>", "KeyboardInterrupt: demo.slow.map was interrupted"),
    ],
    ids=["the user's file", "a module compiled by Cython", "generated code"],
)
def test_an_interrupt_names_the_users_function_only(filename: str, first: str) -> None:
    called: dict[str, Any] = {"__name__": "called"}
    exec(compile("def draw(): raise KeyboardInterrupt", filename, "exec"), called)
    own: dict[str, Any] = {"__name__": "ipymcp.runtime.progress", "draw": called["draw"]}
    exec("def show(): draw()", own)
    with pytest.raises(KeyboardInterrupt) as caught:
        own["show"]()
    render_briefly(caught.value, "demo.slow.map was interrupted")
    assert caught.value._render_traceback_()[0] == first  # type: ignore[attr-defined]
