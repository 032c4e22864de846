"""A raw server of resources that change, and of tools that become tasks, in both eras. Standard library only.

    python offering.py [--era legacy|modern] [WORD[=VALUE] ...]

  ttl=MS            every list and reading is fresh for so long (stateless era; 0 by default)
  silent            does not declare that its lists change, nor that it announces changed resources
  unknown=METHOD    answers METHOD as if it did not know it; may come several times, with commas
  page=N            lists in pages of N
  poll=MS           asks for so long between two tasks/get (50)
  mute=METHOD       never answers METHOD

Resources: note://a, note://b; template note://{name}. Prompts: greet(name), plain.
Tools
  write(uri, text, tell=true)    changes a note, and says so to who subscribed
  grow(uri)                      one more resource, and says so; forget(uri) the other way round
  add_prompt(name)               one more prompt, and says so; one more tool, say_NAME, and does not
  end_listening()                ends all subscriptions/listen, with their results
  work(steps, ask, fail, is_error, forever)   a task: steps of `poll` each; asks the user for a name,
                                 or the model ("sampling"); fails; reports an error
  counts()                       {"methods": {method: how often}, "cancelled": [task ids], "wanted": [filters]}
"""

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from typing import Any

META = "io.modelcontextprotocol/"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
TASKS = META + "tasks"
INFO = {"name": "offering", "version": "1"}
SCHEMA = {"type": "object"}
TOOLS = ("write", "grow", "forget", "add_prompt", "end_listening", "counts")
Json = dict[str, Any]


class Refusal(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message}


class Task:
    def __init__(self, number: int, arguments: Json, poll: float) -> None:
        self.id = f"task-{number}-{os.getpid()}"
        self.arguments = arguments
        self.poll = poll
        self.born = time.monotonic()
        self.status = "working"
        self.answers: Json = {}
        self.answered = threading.Event()

    def steps(self) -> int:
        return int((time.monotonic() - self.born) / self.poll)

    def advance(self) -> None:
        """Update the task's status."""
        if self.status in ("cancelled", "completed", "failed") or self.arguments.get("forever"):
            return
        if self.arguments.get("ask") and not self.answered.is_set():
            self.status = "input_required"
        elif self.steps() < self.arguments.get("steps", 2):
            self.status = "working"
        else:
            self.status = "failed" if self.arguments.get("fail") else "completed"

    def result(self) -> Json:
        name = self.answers.get("name", {}).get("content", {}).get("name", "no one")
        text = {"type": "text", "text": f"worked for {name}"}
        return {"content": [text], "isError": bool(self.arguments.get("is_error"))}


class Server:
    def __init__(self, words: Json, era: str) -> None:
        self.words, self.era = words, era
        self.lock = threading.Lock()
        self.notes = {"note://a": "first a", "note://b": "first b"}
        self.prompts = ["greet", "plain"]
        self.more_tools: list[str] = []
        self.counts: Counter[str] = Counter()
        self.listeners: dict[Any, Json] = {}
        self.wanted: list[Json] = []
        self.subscribed: set[str] = set()
        self.tasks: dict[str, Task] = {}
        self.cancelled: list[str] = []
        self.asked: dict[str, Task] = {}
        self.poll = int(words.get("poll", 50)) / 1000

    # Writing

    def say(self, **message: Any) -> None:
        with self.lock:
            os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def tell(self, method: str, word: str, **params: Any) -> None:
        """Send a notification to those who asked for it."""
        if self.era == "legacy":
            if word != "resourceSubscriptions" or params["uri"] in self.subscribed:
                self.say(method=method, params=params)
            return
        for identifier, wanted in list(self.listeners.items()):
            asked = wanted.get(word)
            if asked and (asked is True or params["uri"] in asked):
                self.say(method=method, params={"_meta": {META + "subscriptionId": identifier}, **params})

    # Reading

    def run(self) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "method" not in message:
                self.take_answer(message)
            elif "id" in message:
                threading.Thread(target=self.answer, args=(message,), daemon=True).start()
            elif message["method"] == "notifications/cancelled":
                self.listeners.pop(message["params"]["requestId"], None)

    def take_answer(self, message: Json) -> None:
        task = self.asked.pop(str(message["id"]), None)
        if task is not None:
            task.answers["name"] = message.get("result", {})
            task.answered.set()

    def answer(self, message: Json) -> None:
        method, params = message["method"], message.get("params") or {}
        self.counts[method] += 1
        if method in self.words.get("mute", "").split(","):
            return
        try:
            if method in self.words.get("unknown", "").split(","):
                raise Refusal(-32601, f"Method not found: {method}")
            result = self.dispatch(message["id"], method, params)
        except Refusal as refusal:
            self.say(id=message["id"], error=refusal.error)
            return
        if result is None:
            return
        if self.era == "modern":
            cacheable = method.endswith("/list") or method in ("server/discover", "resources/read")
            more = {"ttlMs": int(self.words.get("ttl", 0)), "cacheScope": "private"} if cacheable else {}
            result = {"resultType": "complete", "_meta": {META + "serverInfo": INFO}, **more, **result}
        self.say(id=message["id"], result=result)

    def dispatch(self, identifier: Any, method: str, params: Json) -> Json | None:
        if method == ("initialize" if self.era == "legacy" else "server/discover"):
            return self.about()
        if method == "tools/call":
            return self.call(params)
        if method == "subscriptions/listen":
            return self.listen(identifier, params["notifications"])
        name = "on_" + method.replace("/", "_")
        if not hasattr(self, name):
            raise Refusal(-32601, f"Method not found: {method}")
        return getattr(self, name)(params)

    def about(self) -> Json:
        changing = {} if "silent" in self.words else {"listChanged": True}
        resources = {} if "silent" in self.words else {"listChanged": True, "subscribe": True}
        capabilities: Json = {"tools": {}, "resources": resources, "prompts": changing, "completions": {}}
        if self.era == "modern":
            return {"supportedVersions": [MODERN], "capabilities": {**capabilities, "extensions": {TASKS: {}}}}
        tasks = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        return {"protocolVersion": LEGACY, "capabilities": {**capabilities, "tasks": tasks}, "serverInfo": INFO}

    def listen(self, identifier: Any, wanted: Json) -> None:
        self.wanted.append(wanted)
        about = {"_meta": {META + "subscriptionId": identifier}, "notifications": wanted}
        self.say(method="notifications/subscriptions/acknowledged", params=about)
        self.listeners[identifier] = wanted

    # Lists

    def page(self, key: str, items: list[Json], params: Json) -> Json:
        start, size = int(params.get("cursor", 0)), int(self.words.get("page", 100))
        more = {"nextCursor": str(start + size)} if start + size < len(items) else {}
        return {key: items[start : start + size], **more}

    def on_tools_list(self, params: Json) -> Json:
        tools: list[Json] = [{"name": name, "inputSchema": SCHEMA} for name in (*TOOLS, *self.more_tools)]
        execution = {"execution": {"taskSupport": "required"}} if self.era == "legacy" else {}
        return self.page("tools", [*tools, {"name": "work", "inputSchema": SCHEMA, **execution}], params)

    def on_resources_list(self, params: Json) -> Json:
        return self.page("resources", [{"uri": uri, "name": uri[-1]} for uri in self.notes], params)

    def on_resources_templates_list(self, params: Json) -> Json:
        return self.page("resourceTemplates", [{"uriTemplate": "note://{name}", "name": "note"}], params)

    def on_prompts_list(self, params: Json) -> Json:
        arguments = {"greet": [{"name": "name", "required": True}]}
        prompts = [{"name": name, "arguments": arguments.get(name, [])} for name in self.prompts]
        return self.page("prompts", prompts, params)

    # Resources and prompts

    def on_resources_read(self, params: Json) -> Json:
        uri = params["uri"]
        if uri not in self.notes:
            raise Refusal(-32602 if self.era == "modern" else -32002, "Resource not found")
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": self.notes[uri]}]}

    def on_resources_subscribe(self, params: Json) -> Json:
        self.subscribed.add(params["uri"])
        return {}

    def on_resources_unsubscribe(self, params: Json) -> Json:
        self.subscribed.discard(params["uri"])
        return {}

    def on_prompts_get(self, params: Json) -> Json:
        text = f"Hello, {params.get('arguments', {}).get('name', 'no one')}."
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}

    def on_completion_complete(self, params: Json) -> Json:
        typed = params["argument"]["value"]
        return {"completion": {"values": [name for name in ("Ada", "Alan", "Bob") if name.startswith(typed)]}}

    # Tools

    def call(self, params: Json) -> Json:
        name, arguments = params["name"], params.get("arguments") or {}
        if name == "work":
            return self.work(arguments)
        data = getattr(self, f"tool_{name}")(**arguments)
        return {"content": [{"type": "text", "text": "done"}], "structuredContent": data or {}}

    def tool_write(self, uri: str, text: str, *, tell: bool = True) -> None:
        self.notes[uri] = text
        if tell:
            self.tell("notifications/resources/updated", "resourceSubscriptions", uri=uri)

    def tool_grow(self, uri: str) -> None:
        self.notes[uri] = f"first {uri[-1]}"
        self.tell("notifications/resources/list_changed", "resourcesListChanged")

    def tool_forget(self, uri: str) -> None:
        del self.notes[uri]
        self.tell("notifications/resources/list_changed", "resourcesListChanged")

    def tool_add_prompt(self, name: str) -> None:
        self.prompts.append(name)
        self.more_tools.append(f"say_{name}")
        self.tell("notifications/prompts/list_changed", "promptsListChanged")

    def tool_end_listening(self) -> None:
        for identifier in list(self.listeners):
            del self.listeners[identifier]
            meta = {META + "subscriptionId": identifier, META + "serverInfo": INFO}
            self.say(id=identifier, result={"resultType": "complete", "_meta": meta})

    def tool_counts(self) -> Json:
        return {"methods": dict(self.counts), "cancelled": self.cancelled, "wanted": self.wanted}

    # Tasks

    def work(self, arguments: Json) -> Json:
        task = Task(len(self.tasks), arguments, self.poll)
        self.tasks[task.id] = task
        if self.era == "modern":
            return {**self.state(task), "resultType": "task"}
        return {"task": self.state(task)}

    def state(self, task: Task) -> Json:
        now = "2026-07-28T10:00:00Z"
        milliseconds = int(self.poll * 1000)
        modern = self.era == "modern"
        timing = (
            {"ttlMs": 60_000, "pollIntervalMs": milliseconds}
            if modern
            else {"ttl": 60_000, "pollInterval": milliseconds}
        )
        words = f"step {task.steps()} {task.arguments.get('said', '')}".strip()
        said = {"statusMessage": words} if task.status == "working" else {}
        return {"taskId": task.id, "status": task.status, "createdAt": now, "lastUpdatedAt": now, **timing, **said}

    def task(self, params: Json) -> Task:
        task = self.tasks.get(params["taskId"])
        if task is None:
            raise Refusal(-32602, "Task not found")
        task.advance()
        return task

    def on_tasks_get(self, params: Json) -> Json:
        task = self.task(params)
        state = self.state(task)
        if self.era == "legacy":
            return state
        if task.status == "input_required":
            asks_model = task.arguments["ask"] == "sampling"
            method, params = ("sampling/createMessage", PROMPT) if asks_model else ("elicitation/create", QUESTION)
            state["inputRequests"] = {"name": {"method": method, "params": params}}
        elif task.status == "completed":
            state["result"] = task.result()
        elif task.status == "failed":
            state["error"] = {"code": -32603, "message": "out of ideas"}
        return state

    def on_tasks_update(self, params: Json) -> Json:
        task = self.task(params)
        task.answers.update(params["inputResponses"])
        task.answered.set()
        return {}

    def on_tasks_cancel(self, params: Json) -> Json:
        task = self.task(params)
        task.status = "cancelled"
        self.cancelled.append(task.id)
        return {} if self.era == "modern" else self.state(task)

    def on_tasks_result(self, params: Json) -> Json:
        """Handshake era: ask the task's question, and wait for the end."""
        task = self.task(params)
        related = {"_meta": {META + "related-task": {"taskId": task.id}}}
        if task.status == "input_required":
            self.asked[f"ask-{task.id}"] = task
            self.say(id=f"ask-{task.id}", method="elicitation/create", params={**QUESTION, **related})
        while task.status not in ("completed", "failed", "cancelled"):
            time.sleep(0.01)
            task.advance()
        if task.status != "completed":
            raise Refusal(-32603, "out of ideas" if task.status == "failed" else "cancelled")
        return {**task.result(), **related}


QUESTION = {
    "mode": "form",
    "message": "Who is it for?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}
PROMPT: Json = {"messages": [{"role": "user", "content": {"type": "text", "text": "Who?"}}], "maxTokens": 10}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--era", choices=["legacy", "modern"], default="modern")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    words = {word: value for word, _, value in (item.partition("=") for item in options.words)}
    Server(words, options.era).run()
    os._exit(0)


if __name__ == "__main__":
    main()
