"""Spans for OpenTelemetry, with its own SDK, in a real kernel."""

import json
from typing import Any

import pytest

from tests.asking import CALL, ask
from tests.kernels import Kernel

CONFIGURE = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
if not isinstance(trace.get_tracer_provider(), TracerProvider):  # there is one in a process
    trace.set_tracer_provider(TracerProvider())
spans = InMemorySpanExporter()
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(spans))
"""
SHOW = """
import json
def show():
    done = spans.get_finished_spans()
    names = {span.context.span_id: span.name for span in done}
    for span in done:
        parent = names.get(span.parent.span_id) if span.parent else None
        row = [span.name, parent, span.kind.name, span.status.status_code.name, dict(span.attributes)]
        print(json.dumps(row, default=str))
    spans.clear()
"""


def finished(kernel: Kernel) -> list[tuple[str, str | None, str, str, dict[str, Any]]]:
    """Name, parent, kind, status and attributes of the spans that have ended since."""
    return [tuple(json.loads(line)) for line in kernel.run("show()").stdout.splitlines()]


@pytest.fixture
def kernel(asking: Kernel) -> Kernel:
    assert asking.run("mcp.demo.echo('before')").status == "ok"
    assert asking.run(CONFIGURE + SHOW).status == "ok"
    return asking


def test_a_call_is_a_span_below_that_of_its_cell(kernel: Kernel) -> None:
    kernel.run("with trace.get_tracer('mine').start_as_current_span('my cell'):\n    mcp.demo.echo('a private text')")
    kernel.run("try:\n    mcp.demo.fail()\nexcept Exception: pass")
    kernel.run("await mcp.demo.echo.aio('hey')")

    spans = finished(kernel)

    assert [span[:4] for span in spans] == [
        ("tools/call echo", "my cell", "CLIENT", "UNSET"),
        ("my cell", None, "INTERNAL", "UNSET"),
        ("tools/call fail", None, "CLIENT", "ERROR"),
        ("tools/call echo", None, "CLIENT", "UNSET"),
    ]
    attributes = spans[0][4]
    assert attributes.pop("jsonrpc.request.id").isdigit()
    assert attributes.pop("mcp.protocol.version").startswith("202")
    assert attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "network.transport": "pipe",
        "ipymcp.server": "demo",
        "ipymcp.caller": "user",
    }
    assert spans[2][4]["error.type"] == "tool_error"


def test_an_answer_is_a_span_with_its_requests_and_calls_below(kernel: Kernel) -> None:
    assert ask(kernel, CALL, "tools").status == "ok"

    spans = finished(kernel)

    parents = {name: parent for name, parent, *_ in spans}
    call = next(attributes for name, *_, attributes in spans if name == "tools/call echo")
    assert call["ipymcp.caller"] == "model"
    assert parents["tools/call echo"] == "execute_tool demo__echo"
    assert parents["chat tools"].startswith("invoke_agent")
    text = json.dumps(spans)
    assert "They answered" not in text and "gen_ai.usage.input_tokens" in text, "texts are not in spans"
