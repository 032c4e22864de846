"""The features of server-everything, one function each, run over each of its transports."""

import logging
import queue
from collections.abc import Callable
from dataclasses import dataclass
from logging.handlers import QueueHandler
from pathlib import Path
from typing import Any

import ipymcp
from ipymcp import CallCancelled, Mcp

SERVER = "everything"
DOCUMENTS = "demo://resource/static/document"
BOUND = 20.0
"""Seconds that an event may take."""


class User:
    """A user who answers questions of servers and records them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[str] = []

    def connect(self, name: str, definition: Any) -> ipymcp.connect:
        """A host with one server, for this user."""
        return ipymcp.connect(
            {name: definition}, on_sampling=self.sample, on_elicitation=self.answer, roots=[str(self.root)]
        )

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
class Feature:
    """One thing the server offers or asks for."""

    name: str
    use: Callable[[Mcp, User], None]
    """Uses it.

    Raises:
        AssertionError: What came of it is not what should.
    """


def structure(mcp: Mcp, user: User) -> None:
    result = mcp.everything.get_structured_content("Chicago")
    assert set(result.data) == {"temperature", "conditions", "humidity"}, result


def image(mcp: Mcp, user: User) -> None:
    assert mcp.everything.get_tiny_image().images[0].data.startswith(b"\x89PNG")


def progress(mcp: Mcp, user: User) -> None:
    heard: list[float] = []
    operation = mcp.everything.trigger_long_running_operation
    operation.options(on_progress=lambda told: heard.append(told.progress))(duration=0.2, steps=4)
    assert heard == [1, 2, 3, 4], heard


def cancel(mcp: Mcp, user: User) -> None:
    running: queue.SimpleQueue[float] = queue.SimpleQueue()
    operation = mcp.everything.trigger_long_running_operation
    call = operation.options(on_progress=lambda told: running.put(told.progress)).submit(duration=60, steps=600)
    running.get(timeout=BOUND)
    assert call.cancel()
    try:
        call.result()
    except CallCancelled:
        assert mcp.everything.echo("on").text == "Echo: on"
    else:
        raise AssertionError("the call was not cancelled")


def sampling(mcp: Mcp, user: User) -> None:
    text = mcp.everything.trigger_sampling_request("say something").text
    assert "a model's words" in text, text
    assert "sampling" in user.asked


def form(mcp: Mcp, user: User) -> None:
    text = mcp.everything.trigger_elicitation_request().text
    assert "User provided the requested information" in text, text
    assert "Ada" in text and "It was a dark and stormy night." in text, text


def address(mcp: Mcp, user: User) -> None:
    text = mcp.everything.trigger_url_elicitation("https://example.org/agree").text
    assert "accept" in text, text
    assert "UrlQuestion" in user.asked, user.asked


def roots(mcp: Mcp, user: User) -> None:
    text = mcp.everything.get_roots_list().text
    assert user.root.as_uri() in text, text


def log(mcp: Mcp, user: User) -> None:
    heard: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    logger, handler = logging.getLogger(f"ipymcp.server.{SERVER}"), QueueHandler(heard)
    handler.addFilter(lambda record: "level" in record.getMessage())  # what the server says of itself aside
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        mcp.everything.toggle_simulated_logging()
        assert heard.get(timeout=BOUND).getMessage().startswith("server: ")
        mcp.everything.toggle_simulated_logging()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def resource(mcp: Mcp, user: User) -> None:
    text = mcp.everything.resources[f"{DOCUMENTS}/architecture.md"].read().text
    assert "Everything" in text, text[:200]


def template(mcp: Mcp, user: User) -> None:
    text = mcp.everything.resources["demo://resource/dynamic/text/{resourceId}"](resourceId="7").read().text
    assert "Resource 7" in text, text


def subscription(mcp: Mcp, user: User) -> None:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    kept = mcp.everything.resources[f"{DOCUMENTS}/architecture.md"].subscribe(told.put)
    mcp.everything.toggle_subscriber_updates()
    told.get(timeout=BOUND)
    mcp.everything.toggle_subscriber_updates()
    kept.close()


def prompt(mcp: Mcp, user: User) -> None:
    text = mcp.everything.prompts.args_prompt(city="Kathmandu").messages[0].text
    assert text == "What's weather in Kathmandu?", text


def task(mcp: Mcp, user: User) -> None:
    text = mcp.everything.simulate_research_query("python", ambiguous=True).text
    assert "Research Report: python" in text, text
    assert "FormQuestion" in user.asked, user.asked


FEATURES = (
    Feature("a structured result", structure),
    Feature("an image", image),
    Feature("progress", progress),
    Feature("a call cancelled", cancel),
    Feature("log messages", log),
    Feature("sampling", sampling),
    Feature("elicitation by form", form),
    Feature("elicitation by URL", address),
    Feature("roots", roots),
    Feature("a resource", resource),
    Feature("a resource template", template),
    Feature("a subscription", subscription),
    Feature("a prompt with an argument", prompt),
    Feature("a task that asks for input", task),
)
