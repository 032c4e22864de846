import { fireEvent, screen, waitFor } from "@testing-library/preact";
import { afterEach, expect, test } from "vitest";
import type { ConnectionStatus } from "../../src/lab/connectionstatus";
import { NOT_LOADED, connectionStatus } from "../../src/lab/connectionstatus";
import { summary } from "../../src/lab/summary";
import { KernelTransport } from "../../src/lab/transport";
import type { ConnectionEnd, ConnectionEvents } from "../../src/lab/connection";
import type { WelcomeView } from "../../src/lab/welcome";
import { drawWelcome } from "../../src/lab/welcome";
import { INITIAL_STATE } from "../../src/store";
import { server, stateOf } from "../fake";

let remove = (): void => undefined;
afterEach(() => remove());

interface Drawn {
  text: string;
  done: unknown[];
  show: WelcomeView["show"];
}

function drawn(status: ConnectionStatus): Drawn {
  const done: unknown[] = [];
  const element = document.createElement("div");
  document.body.append(element);
  const welcome = drawWelcome(element, {
    load: (then) => done.push(then),
    retry: () => done.push("retry"),
    insert: (text) => done.push(text),
    createNotebook: () => done.push("new"),
  });
  welcome.show(status);
  remove = () => {
    welcome.remove();
    expect(element.childElementCount).toBe(0);
    element.remove();
  };
  return { text: element.querySelector(".ipymcp")?.textContent ?? "", done, show: welcome.show };
}

/** How it stands once a connection has ended. */
function ended(how: ConnectionEnd, attempt = NOT_LOADED): ConnectionStatus {
  let events: ConnectionEvents | undefined;
  const open = (given: ConnectionEvents) => {
    events = given;
    return { send: () => undefined, close: () => undefined };
  };
  const transport = new KernelTransport({ relay: open, comm: open });
  transport.connect();
  events?.ended(how);
  return connectionStatus(transport, attempt);
}

const ABSENT: ConnectionEnd = {
  reason: "absent",
  message: "ipymcp is not loaded in this kernel",
  hint: "%load_ext ipymcp",
};

test("a panel whose connection breaks stays, with what was typed into it; one whose kernel ends does not", () => {
  let events: ConnectionEvents | undefined;
  const open = (given: ConnectionEvents) => {
    events = given;
    return { send: () => undefined, close: () => undefined };
  };
  const transport = new KernelTransport({ relay: open, comm: open });
  expect(connectionStatus(transport)).toEqual({ kind: "connecting" });
  transport.connect();
  events?.received({ kind: "log", server: "fs", lines: [], dropped: 0 });
  expect(connectionStatus(transport)).toEqual({ kind: "panel" });
  events?.ended({ reason: "lost", message: "It broke." });
  expect(connectionStatus(transport)).toEqual({ kind: "panel" });
  transport.connect();
  events?.ended({ reason: "ended", message: "the kernel has ended", hint: "restart it" });
  expect(connectionStatus(transport)).toMatchObject({ kind: "disconnected" });
  transport.close();
});

test("a notebook without ipymcp shows how to load it, and a button that does", () => {
  const { text, done } = drawn(ended(ABSENT));
  expect(text).toBe(
    "ipymcp is not loaded in this notebookLoad it to use MCP servers here. The button runs in the kernel: " +
      "%load_ext ipymcpLoad ipymcpAlso insert the cell that does this",
  );
  fireEvent.click(screen.getByRole("button", { name: "Load ipymcp" }));
  expect(done).toEqual([{ again: false, insert: false }]);
});

test("a notebook that used servers offers them again, and the cell that loads them", async () => {
  const { text, show, done } = drawn(ended(ABSENT));
  expect(text).not.toContain("used");
  show(ended(ABSENT), ["files", "ht\ntp"]);
  expect(screen.getByText(/Restore files and ht tp\?/)).toBeTruthy();
  fireEvent.click(screen.getByRole("checkbox", { name: "Also insert the cell that does this" }));
  await waitFor(() => expect((screen.getByRole("checkbox") as HTMLInputElement).checked).toBe(true));
  fireEvent.click(screen.getByRole("button", { name: "Restore" }));
  expect(done).toEqual([{ again: true, insert: true }]);
});

test("a command that waits for ipymcp is named, with the button that lets it go on", () => {
  const { show, done, text } = drawn(ended(ABSENT));
  expect(text).not.toContain("Add MCP Server");
  show(ended(ABSENT), [], "Add MCP Server");
  expect(screen.getByText(/Add MCP Server needs ipymcp: load it first\./)).toBeTruthy();
  show({ kind: "no-notebook" }, [], "Add MCP Server");
  expect(screen.getByText(/Add MCP Server needs a notebook: open one\./)).toBeTruthy();
  fireEvent.click(screen.getByRole("button", { name: "New notebook" }));
  expect(done).toEqual(["new"]);
});

test("while it loads the button is the same, and waits", () => {
  const loading = ended(ABSENT, { ...NOT_LOADED, loading: true });
  const { show } = drawn(ended(ABSENT));
  const button = screen.getByRole("button");
  show(loading);
  expect(screen.getByRole("button", { name: "Loading\u2026" })).toBe(button);
  expect((button as HTMLButtonElement).disabled).toBe(true);
});

test("where ipymcp is not installed there is the pip line", () => {
  const problem = {
    message: "ipymcp is not installed in this kernel's environment.",
    remedy: "%pip install git+https://github.com/ipymcp/ipymcp",
  };
  const { text, done } = drawn(ended(ABSENT, { ...NOT_LOADED, problem }));
  expect(text).toContain(
    "ipymcp is not installed in this kernel's environment.Run this in a cell, then load ipymcp: %pip install git+https://github.com/ipymcp/ipymcp",
  );
  fireEvent.click(screen.getByRole("button", { name: "Insert into a cell" }));
  expect(done).toEqual(["%pip install git+https://github.com/ipymcp/ipymcp"]);
});

test("loaded, and still nobody there: it may be older", () => {
  expect(drawn(ended(ABSENT, { ...NOT_LOADED, loaded: true, loading: true })).text).toContain(
    "ipymcp is loaded, but the panel cannot connect to it: the kernel's ipymcp may be older than the panel.",
  );
});

test("a socket that is gone is mended by reloading", () => {
  expect(ended({ reason: "left", message: "the kernel's socket is gone", hint: "%reload_ext ipymcp" })).toMatchObject({
    kind: "absent",
    command: "%reload_ext ipymcp",
  });
  // A hint is text, and no code: what a button runs is one of two lines.
  expect(ended({ reason: "left", message: "gone", hint: "!rm -rf ~" })).toMatchObject({ command: "%load_ext ipymcp" });
});

test("whatever else is in the way is said, and may be tried again", () => {
  const { text, done } = drawn(ended({ reason: "denied", message: "You may not.", hint: "Ask \u202eyour admin" }));
  expect(text).toBe("You may not.Ask \u27e8U+202E\u27e9your adminTry again");
  fireEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(done).toEqual(["retry"]);
});

test.each([
  [{ kind: "no-notebook" } as const, "No notebook is openOpen a notebook to see its MCP servers here.New notebook"],
  [{ kind: "no-kernel" } as const, "This notebook has no kernelStart one to use MCP servers in it."],
  [{ kind: "connecting" } as const, "Connecting to the kernel\u2026"],
  [
    { kind: "other-language", language: "R" } as const,
    "Not a Python kernelipymcp works in Python notebooks; this notebook's kernel runs R.",
  ],
])("%o", (status, text) => expect(drawn(status).text).toBe(text));

test("the status bar counts what is ready, and what failed", () => {
  const servers = [server("a"), server("b", { state: "error" }), server("c", { state: "stopped" })];
  expect(summary({ ...INITIAL_STATE, ...stateOf(servers) })).toBe("MCP 1/3, 1 failed");
  expect(summary(INITIAL_STATE)).toBe("MCP 0/0");
});
