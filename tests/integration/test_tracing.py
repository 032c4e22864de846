"""Spans for OpenTelemetry, with its own SDK, in a real kernel."""

import json
from typing import Any

import pytest

from tests.asking import CALL, ask, asking_kernel
from tests.conftest import StartKernel
from tests.kernels import Kernel

CONFIGURE = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
"""
SHOW = """
import json
def show():
    done = spans.get_finished_spans()
    names = {one.context.span_id: one.name for one in done}
    for one in done:
        above = names.get(one.parent.span_id) if one.parent else None
        said = [one.name, above, one.kind.name, one.status.status_code.name, dict(one.attributes)]
        print(json.dumps(said, default=str))
    spans.clear()
"""


def finished(kernel: Kernel) -> list[tuple[str, str | None, str, str, dict[str, Any]]]:
    """Name, parent, kind, status and attributes of the spans that have ended since."""
    return [tuple(json.loads(line)) for line in kernel.run("show()").stdout.splitlines()]


@pytest.fixture
def kernel(start_kernel: StartKernel, models: str) -> Kernel:
    kernel = asking_kernel(start_kernel, models)
    assert kernel.run("mcp.demo.echo('before')").status == "ok"
    assert kernel.run(CONFIGURE + SHOW).status == "ok"
    return kernel


def test_a_call_is_a_span_below_that_of_its_cell(kernel: Kernel) -> None:
    kernel.run("with trace.get_tracer('mine').start_as_current_span('my cell'):\n    mcp.demo.echo('a private text')")
    kernel.run("try:\n    mcp.demo.fail()\nexcept Exception: pass")
    kernel.run("await mcp.demo.echo.aio('hey')")

    spans = finished(kernel)

    assert [one[:4] for one in spans] == [
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

    above = {name: parent for name, parent, *_ in spans}
    call = next(attributes for name, *_, attributes in spans if name == "tools/call echo")
    assert call["ipymcp.caller"] == "model"
    assert above["tools/call echo"] == "execute_tool demo__echo"
    assert above["chat tools"].startswith("invoke_agent")
    said = json.dumps(spans)
    assert "They answered" not in said and "gen_ai.usage.input_tokens" in said, "texts are not in spans"
