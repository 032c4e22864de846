"""Pages of apps for the server `servers/apps.py`, and the cells that load it."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.environments import ROOT

SERVER = ROOT / "tests" / "servers" / "apps.py"

CLIENT = """
let next = 1;
const waiting = new Map();
const seen = [];
const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const request = (method, params = {}) => new Promise((resolve) => {
  waiting.set(next, resolve);
  send({ id: next++, method, params });
});
addEventListener("message", ({ data }) => {
  if (data.method === undefined) { waiting.get(data.id)?.(data); return; }
  seen.push(data);
  if (data.id !== undefined) send({ id: data.id, result: {} });
  globalThis.heard?.(data);
});
const write = (name, value) => {
  const line = document.createElement("p");
  line.id = name;
  line.textContent = typeof value === "string" ? value : JSON.stringify(value);
  document.body.append(line);
};
const begin = async (capabilities = {}) => {
  const { result } = await request("ui/initialize", {
    appInfo: { name: "test", version: "1" }, appCapabilities: capabilities, protocolVersion: "2026-01-26",
  });
  send({ method: "ui/notifications/initialized" });
  return result;
};
"""
"""A client of the extension, in a few lines."""


def page(script: str, body: str = "") -> str:
    """A page that runs a script with the client above."""
    code = f"{CLIENT}(async () => {{{script}}})();"
    return f"<!doctype html><html><head><title>t</title></head><body>{body}<script>{code}</script></body></html>"


def write(folder: Path, name: str, html: str, ui: Any = None) -> None:
    """Give the server in this folder a tool with that page."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.html").write_text(html)
    if ui is not None:
        (folder / f"{name}.json").write_text(json.dumps(ui))


def load(folder: Path, name: str = "apps") -> str:
    """The line that loads the server of that folder."""
    return f"%mcp load {name} -- {sys.executable} {SERVER} {folder};"
