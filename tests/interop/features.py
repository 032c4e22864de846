"""The features of server-everything and of the official SDKs, one function each, used over each transport."""

import logging
import os
import queue
from collections.abc import Callable
from dataclasses import dataclass
from logging.handlers import QueueHandler
from pathlib import Path
from typing import Any

import pytest

from ipymcp import CallCancelled, Mcp
from ipymcp.api.servers import ServerTools
from tests.bad_servers import News
from tests.processes import wait_until

DOCUMENTS = "demo://resource/static/document"
BOUND = 20.0
"""Seconds that an event may take."""


class User:
    """A user who answers questions of servers and records their kinds."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def sample(self, request: Any) -> str:
        """A model's answer."""
        self.asked.append("sampling")
        return "a model's words"

    def answer(self, question: Any) -> dict[str, Any]:
        """Fill what a form requires; visit any address."""
        self.asked.append(type(question).__name__)
        required = question.schema.get("required", ()) if hasattr(question, "schema") else ()
        return {name: _filled(question.schema["properties"][name]) for name in required}


def _filled(schema: dict[str, Any]) -> str:
    return schema["oneOf"][0]["const"] if "oneOf" in schema else "Ada"


@dataclass(frozen=True)
class Use:
    """A server in use."""

    mcp: Mcp
    name: str
    """The server's name in the host."""
    user: User

    @property
    def server(self) -> ServerTools:
        return self.mcp[self.name]


def structure(use: Use) -> None:
    result = use.server.get_structured_content("Chicago")
    assert set(result.data) == {"temperature", "conditions", "humidity"}, result


def image(use: Use) -> None:
    assert use.server.get_tiny_image().images[0].data.startswith(b"\x89PNG")


def progress(use: Use) -> None:
    steps: list[float] = []
    operation = use.server.trigger_long_running_operation
    operation.options(on_progress=lambda report: steps.append(report.progress))(duration=0.2, steps=4)
    assert steps == [1, 2, 3, 4]


def progress_with_messages(use: Use) -> None:
    reports: list[tuple[float, float | None, str | None]] = []
    slow = use.server.slow.options(on_progress=lambda each: reports.append((each.progress, each.total, each.message)))
    assert slow(seconds=0.2, steps=4).text == "4 steps"
    assert reports == [(step, 4, f"step {step} of 4") for step in (1, 2, 3, 4)]


def cancel(use: Use) -> None:
    _cancel(use, "trigger-long-running-operation", duration=60, steps=600)
    assert use.server.echo("on").text == "Echo: on"


def cancel_slow(use: Use) -> None:
    _cancel(use, "slow", seconds=60, steps=600)
    assert use.server.echo("next").text == "next"


def _cancel(use: Use, tool: str, **arguments: float) -> None:
    running: queue.SimpleQueue[float] = queue.SimpleQueue()
    call = use.server[tool].options(on_progress=lambda report: running.put(report.progress)).submit(**arguments)
    running.get(timeout=BOUND)
    assert call.cancel()
    with pytest.raises(CallCancelled):
        call.result()


def changed_tools(use: Use) -> None:
    name = f"fresh_{os.urandom(4).hex()}"
    with News(use.mcp) as news:
        use.server.grow(name)
        news.until(lambda: name in use.server)
        assert use.server[name]().text == name
        use.server.shrink(name)
        news.until(lambda: name not in use.server)


def sampling(use: Use) -> None:
    text = use.server.trigger_sampling_request("say something").text
    assert "a model's words" in text, text
    assert "sampling" in use.user.asked


def form(use: Use) -> None:
    text = use.server.trigger_elicitation_request().text
    assert "User provided the requested information" in text, text
    assert "Ada" in text and "It was a dark and stormy night." in text, text


def address(use: Use) -> None:
    text = use.server.trigger_url_elicitation("https://example.org/agree").text
    assert "accept" in text, text
    assert "UrlQuestion" in use.user.asked


def roots(use: Use) -> None:
    folder = Path.home()
    try:
        use.mcp.roots = str(folder)
        wait_until(lambda: folder.as_uri() in use.server.get_roots_list().text, BOUND)
    finally:
        use.mcp.roots = None


def log(use: Use) -> None:
    lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    logger, handler = logging.getLogger(f"ipymcp.server.{use.name}"), QueueHandler(lines)
    handler.addFilter(lambda record: "level" in record.getMessage())  # not the host's own lines
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        use.server.toggle_simulated_logging()
        assert lines.get(timeout=BOUND).getMessage().startswith("server: ")
        use.server.toggle_simulated_logging()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def resource(use: Use) -> None:
    text = use.server.resources[f"{DOCUMENTS}/architecture.md"].read().text
    assert "Everything" in text, text[:200]


def template(use: Use) -> None:
    text = use.server.resources["demo://resource/dynamic/text/{resourceId}"](resourceId="7").read().text
    assert "Resource 7" in text, text


def subscription(use: Use) -> None:
    updates: queue.SimpleQueue[Any] = queue.SimpleQueue()
    subscribed = use.server.resources[f"{DOCUMENTS}/architecture.md"].subscribe(updates.put)
    use.server.toggle_subscriber_updates()
    updates.get(timeout=BOUND)
    use.server.toggle_subscriber_updates()
    subscribed.close()


def prompt(use: Use) -> None:
    text = use.server.prompts.args_prompt(city="Kathmandu").messages[0].text
    assert text == "What's weather in Kathmandu?", text


def task(use: Use) -> None:
    text = use.server.simulate_research_query("python", ambiguous=True).text
    assert "Research Report: python" in text, text
    assert "FormQuestion" in use.user.asked


FEATURES: dict[str, Callable[[Use], None]] = {
    "a structured result": structure,
    "an image": image,
    "progress": progress,
    "a call cancelled": cancel,
    "log messages": log,
    "sampling": sampling,
    "elicitation by form": form,
    "elicitation by URL": address,
    "roots": roots,
    "a resource": resource,
    "a resource template": template,
    "a subscription": subscription,
    "a prompt with an argument": prompt,
    "a task that asks for input": task,
}
"""The features of server-everything, by their names on the page."""

SDK_FEATURES: dict[str, Callable[[Use], None]] = {
    "progress": progress_with_messages,
    "a call cancelled": cancel_slow,
    "a tool that comes and goes": changed_tools,
}
"""Those of the server of the tests on the official SDKs."""
