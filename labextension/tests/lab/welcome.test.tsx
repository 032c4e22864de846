import { fireEvent, screen } from "@testing-library/preact";
import { afterEach, expect, test } from "vitest";
import type { Standing } from "../../src/lab/standing";
import { NOT_TRIED, standingOf } from "../../src/lab/standing";
import { summary } from "../../src/lab/summary";
import { KernelTransport } from "../../src/lab/transport";
import type { Ended, WayEvents } from "../../src/lab/way";
import { drawWelcome } from "../../src/lab/welcome";
import { EMPTY } from "../../src/store";
import { server, stateOf } from "../fake";

let remove = (): void => undefined;
afterEach(() => remove());

function drawn(standing: Standing): { text: string; done: string[]; show(standing: Standing): void } {
  const done: string[] = [];
  const element = document.createElement("div");
  document.body.append(element);
  const welcome = drawWelcome(element, {
    load: () => done.push("load"),
    retry: () => done.push("retry"),
    insert: (text) => done.push(text),
  });
  welcome.show(standing);
  remove = () => {
    welcome.remove();
    expect(element.childElementCount).toBe(0);
    element.remove();
  };
  return { text: element.querySelector(".ipymcp")?.textContent ?? "", done, show: welcome.show };
}

/** How it stands once a connection has ended. */
function ended(how: Ended, attempt = NOT_TRIED): Standing {
  let events: WayEvents | undefined;
  const open = (given: WayEvents) => {
    events = given;
    return { send: () => undefined, close: () => undefined };
  };
  const transport = new KernelTransport({ relay: open, comm: open });
  transport.connect();
  events?.ended(how);
  return standingOf(transport, attempt);
}

const ABSENT: Ended = { why: "absent", message: "ipymcp is not loaded in this kernel", hint: "%load_ext ipymcp" };

test("a panel whose connection breaks stays, with what was typed into it; one whose kernel ends does not", () => {
  let events: WayEvents | undefined;
  const open = (given: WayEvents) => {
    events = given;
    return { send: () => undefined, close: () => undefined };
  };
  const transport = new KernelTransport({ relay: open, comm: open });
  expect(standingOf(transport)).toEqual({ is: "connecting" });
  transport.connect();
  events?.heard({ kind: "log", server: "fs", lines: [], dropped: 0 });
  expect(standingOf(transport)).toEqual({ is: "panel" });
  events?.ended({ why: "lost", message: "It broke." });
  expect(standingOf(transport)).toEqual({ is: "panel" });
  transport.connect();
  events?.ended({ why: "ended", message: "the kernel has ended", hint: "restart it" });
  expect(standingOf(transport)).toMatchObject({ is: "hindered" });
  transport.close();
});

test("a notebook without ipymcp shows how to load it, and a button that does", () => {
  const { text, done } = drawn(ended(ABSENT));
  expect(text).toBe(
    "ipymcp is not loaded in this notebookLoad it to use MCP servers here: the button runs %load_ext ipymcp in the " +
      "kernel.Load ipymcp",
  );
  fireEvent.click(screen.getByRole("button", { name: "Load ipymcp" }));
  expect(done).toEqual(["load"]);
});

test("while it loads the button is the same, and waits", () => {
  const loading = ended(ABSENT, { ...NOT_TRIED, loading: true });
  const { show } = drawn(ended(ABSENT));
  const button = screen.getByRole("button");
  show(loading);
  expect(screen.getByRole("button", { name: "Loading\u2026" })).toBe(button);
  expect((button as HTMLButtonElement).disabled).toBe(true);
});

test("where ipymcp is not installed there is the pip line", () => {
  const problem = { message: "ipymcp is not installed in this kernel's environment.", remedy: "%pip install ipymcp" };
  const { text, done } = drawn(ended(ABSENT, { ...NOT_TRIED, problem }));
  expect(text).toContain(
    "ipymcp is not installed in this kernel's environment.Run %pip install ipymcp in a cell, then load it.",
  );
  fireEvent.click(screen.getByRole("button", { name: "Insert into a cell" }));
  expect(done).toEqual(["%pip install ipymcp"]);
});

test("loaded, and still nobody there: it may be older", () => {
  expect(drawn(ended(ABSENT, { ...NOT_TRIED, loaded: true, loading: true })).text).toContain(
    "ipymcp is loaded, but this panel does not find it: the kernel's ipymcp may be older than the panel.",
  );
});

test("a socket that is gone is mended by reloading", () => {
  expect(ended({ why: "left", message: "the kernel's socket is gone", hint: "%reload_ext ipymcp" })).toMatchObject({
    is: "absent",
    command: "%reload_ext ipymcp",
  });
  // A hint is text, and no code: what a button runs is one of two lines.
  expect(ended({ why: "left", message: "gone", hint: "!rm -rf ~" })).toMatchObject({ command: "%load_ext ipymcp" });
});

test("whatever else is in the way is said, and may be tried again", () => {
  const { text, done } = drawn(ended({ why: "denied", message: "You may not.", hint: "Ask \u202eyour admin" }));
  expect(text).toBe("You may not.Ask \u27e8U+202E\u27e9your adminTry again");
  fireEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(done).toEqual(["retry"]);
});

test.each([
  [{ is: "no-notebook" } as const, "No notebook is openIts MCP servers are shown here."],
  [{ is: "no-kernel" } as const, "This notebook has no kernelStart one to use MCP servers in it."],
  [{ is: "connecting" } as const, "Connecting to the kernel\u2026"],
  [
    { is: "other-language", language: "R" } as const,
    "Not a Python kernelipymcp works in Python notebooks; this one's kernel speaks R.",
  ],
])("%o", (standing, text) => expect(drawn(standing).text).toBe(text));

test("the status bar counts what is ready, and what failed", () => {
  const servers = [server("a"), server("b", { state: "error" }), server("c", { state: "stopped" })];
  expect(summary({ ...EMPTY, ...stateOf(servers) })).toBe("MCP 1/3, 1 failed");
  expect(summary(EMPTY)).toBe("MCP 0/0");
});
