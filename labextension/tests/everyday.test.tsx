import { fireEvent, waitFor, within } from "@testing-library/preact";
import { describe, expect, test, vi } from "vitest";
import type { QuestionRow, ToolRow } from "../src/protocol";
import { demo } from "./demo";
import { FakeKernel, server, stateOf, tool } from "./fake";
import { show, type } from "./screen";

const form = (id: string): QuestionRow => ({
  ...{ id, kind: "form", type: "fill", server: "demo", title: "demo asks", message: "" },
  schema: { type: "object", properties: { name: { type: "string", title: "Your name" } }, required: ["name"] },
});

describe("a tool that is switched off and on", () => {
  test("goes by what the list says now, as often as one likes", async () => {
    const state = { disabled: false, decision: "ask" as ToolRow["decision"] };
    const flip = (disabled: boolean) => () => {
      state.disabled = disabled;
      return null;
    };
    const now = (): ToolRow => tool("demo", "echo", { ...state });
    const kernel = new FakeKernel(stateOf([server("demo")]), {
      tools: () => [now()],
      tool: () => now(),
      enable_tools: flip(false),
      disable_tools: flip(true),
    });
    const { see, tab, menu } = await show(kernel);
    tab("Tools");
    fireEvent.click(await see.findByRole("treeitem", { name: /echo/ }));
    for (let turn = 0; turn < 2; turn++) {
      await menu("Actions of echo", "Disable");
      await waitFor(() => expect(see.getAllByText("disabled").length).toBeGreaterThan(0));
      await menu("Actions of echo", "Enable");
      await waitFor(() => expect(see.queryByText("disabled")).toBeNull());
    }
    expect(kernel.intents.filter((each) => each.do === "enable_tools")).toHaveLength(2);
    expect(see.getByText("asks first")).toBeTruthy();
    state.decision = "allow";
    await menu("Actions of echo", "Disable");
    await waitFor(() => expect(see.queryByText("asks first")).toBeNull());
  });

  test("shows what a rule typed in a cell decides of it", async () => {
    let decision: ToolRow["decision"] = "allow";
    const kernel = new FakeKernel(stateOf([server("demo")]), {
      tools: () => [tool("demo", "echo", { decision })],
      tool: () => tool("demo", "echo", { decision }),
    });
    const { see, tab } = await show(kernel);
    tab("Tools");
    fireEvent.click(await see.findByRole("treeitem", { name: /echo/ }));
    await see.findByRole("heading", { name: /echo/ });
    expect(see.queryByText("denied by policy")).toBeNull();
    decision = "deny";
    kernel.patch({ servers: { demo: server("demo", { tools_version: 2 }) } });
    expect(await see.findByText("denied by policy")).toBeTruthy();
  });

  test("the list says what is exceptional about a tool, and nothing else", async () => {
    const badges = [
      { text: "writes", kind: "neutral" as const },
      { text: "destructive", kind: "danger" as const },
    ];
    const { see, tab } = await show(
      new FakeKernel(stateOf([server("demo")]), { tools: () => [tool("demo", "edit", { badges })] }),
    );
    tab("Tools");
    const option = await see.findByRole("treeitem", { name: /edit/ });
    expect(option.textContent).toBe("editdestructive");
    expect(see.getByText("destructive").title).toContain("may destroy or overwrite");
  });
});

describe("lists", () => {
  test("measure themselves once there are rows, not before", async () => {
    const seen: Element[] = [];
    const before = globalThis.ResizeObserver;
    globalThis.ResizeObserver = class {
      observe = (element: Element): void => void seen.push(element);
      unobserve = (): void => undefined;
      disconnect = (): void => undefined;
    };
    try {
      const { see, tab } = await show(demo());
      tab("Tools");
      await waitFor(() => see.getAllByRole("treeitem"));
      expect(seen).toContain(see.getByRole("tree", { name: "Tools" }));
    } finally {
      globalThis.ResizeObserver = before;
    }
  });
});

describe("the keyboard", () => {
  test("goes from the search box to the first tool, and from a tool back to it; Enter folds a server", async () => {
    const { see, tab, tools } = await show(demo());
    tab("Tools");
    const list = await see.findByRole("tree", { name: "Tools" });
    const box = see.getByRole("searchbox", { name: "Search tools" });
    const cursor = (): string | null => {
      const id = list.getAttribute("aria-activedescendant");
      return id && (document.getElementById(id)?.querySelector(".mcp-group, .mcp-member > span")?.textContent ?? null);
    };
    type(box, "file");
    await waitFor(() => expect(tools()).toEqual(["fs.read_file"]));
    fireEvent.keyDown(box, { key: "ArrowDown" });
    await waitFor(() => expect(cursor()).toBe("read_file"));
    fireEvent.keyDown(list, { key: "Enter" });
    const heading = await see.findByRole("heading", { name: /read_file/ });
    fireEvent.keyDown(heading, { key: "Escape" });
    await waitFor(() => expect(document.activeElement).toBe(list));
    expect(cursor()).toBe("read_file");
    fireEvent.keyDown(list, { key: "ArrowUp" });
    await waitFor(() => expect(cursor()).toBe("fs"));
    fireEvent.keyDown(list, { key: "Enter" });
    await waitFor(() => expect(tools()).toEqual([]));
    type(box, "");
    await waitFor(() => expect(tools()).toHaveLength(3));
  });

  test("goes from the search box to the list, opens the first, and comes back", async () => {
    const { see, tab, tools } = await show(demo());
    tab("Tools");
    await waitFor(() => see.getAllByRole("treeitem"));
    const box = see.getByRole("searchbox", { name: "Search tools" });
    fireEvent.keyDown(box, { key: "ArrowDown" });
    expect(document.activeElement).toBe(see.getByRole("tree", { name: "Tools" }));
    type(box, "echo");
    await waitFor(() => expect(tools()).toEqual(["demo.echo"]));
    fireEvent.keyDown(box, { key: "Enter" });
    const heading = await see.findByRole("heading", { name: /echo/ });
    fireEvent.keyDown(heading, { key: "Escape" });
    await waitFor(() => expect(see.queryByRole("heading", { name: /echo/ })).toBeNull());
    await waitFor(() => expect(document.activeElement).toBe(see.getByRole("tree", { name: "Tools" })));
  });

  test("stays on Run while a call runs, and comes back to it from Cancel", async () => {
    const kernel = new FakeKernel(stateOf([server("demo")]), {
      tools: () => [tool("demo", "wait")],
      tool: () => tool("demo", "wait", { schema: { type: "object", properties: {} } }),
      validate: () => ({ errors: [] }),
      call: () => ({ call: 9 }),
    });
    const { see, tab } = await show(kernel);
    tab("Tools");
    fireEvent.click(await see.findByRole("treeitem", { name: /wait/ }));
    const run = await see.findByRole("button", { name: "Run" });
    run.focus();
    fireEvent.click(run);
    await waitFor(() => expect(kernel.asked("call")).toHaveLength(1));
    await waitFor(() => expect(run.getAttribute("aria-disabled")).toBe("true"));
    expect(document.activeElement).toBe(run);
    fireEvent.click(run);
    expect(see.getByText("Waiting to start")).toBeTruthy();
    kernel.patch({ questions: { q1: { ...form("q1"), server: "demo" } } });
    await waitFor(() => see.getByText("Waiting for your answer"));
    kernel.patch({ questions: { q1: null } });
    const call = { id: 9, server: "demo", tool: "wait", origin: "panel", cell: null, started: 1 };
    kernel.patch({ calls: { 9: { ...call, progress: null, waits: false } } });
    const outcome = within(see.getByRole("region", { name: "Run wait" }));
    (await outcome.findByRole("button", { name: "Cancel demo.wait" })).focus();
    kernel.transport.say({ kind: "result", call: 9, ok: false, error: { message: "call 9 was cancelled" } });
    kernel.patch({ calls: { 9: null } });
    await waitFor(() => expect(document.activeElement).toBe(run));
    expect(kernel.asked("call")).toHaveLength(1);
  });
});

describe("questions", () => {
  test("keep clicks away from what they have just pushed", async () => {
    const kernel = demo();
    const { root } = await show(kernel);
    const panel = root.querySelector(".mcp-panel");
    expect(panel?.classList.contains("mcp-click-guard")).toBe(false);
    vi.useFakeTimers();
    try {
      kernel.patch({ questions: { q1: form("q1") } });
      await vi.advanceTimersByTimeAsync(10);
      expect(panel?.classList.contains("mcp-click-guard")).toBe(true);
      await vi.advanceTimersByTimeAsync(500);
      expect(panel?.classList.contains("mcp-click-guard")).toBe(false);
      kernel.patch({ questions: { q1: null } });
      await vi.advanceTimersByTimeAsync(10);
      expect(panel?.classList.contains("mcp-click-guard")).toBe(true);
      await vi.advanceTimersByTimeAsync(500);
      expect(panel?.classList.contains("mcp-click-guard")).toBe(false);
    } finally {
      vi.useRealTimers();
    }
  });

  test("name a field that is wrong by its label", async () => {
    const kernel = new FakeKernel(stateOf([server("demo")], [form("q1")]), {
      answer: () => ({ errors: [{ path: ["name"], message: "is missing" }] }),
    });
    const { see, click } = await show(kernel);
    click("Send");
    await waitFor(() => expect(see.getByText("Your name", { selector: "strong" })).toBeTruthy());
  });

  test("show all of what they are about, line by line", async () => {
    const code = Array.from({ length: 300 }, (_, index) => `line_${index}()`).join("\n");
    const question: QuestionRow = {
      ...{ id: "q1", kind: "approval", type: "approve", server: "notebook", title: "May this be run?", message: "" },
      answers: ["once", "no"],
      calls: [{ server: "notebook", tool: "run_python", arguments: { code }, caller: "model", why: "code", hints: "" }],
    };
    const { see } = await show(new FakeKernel(stateOf([], [question])));
    expect(see.getByRole("region", { name: "Argument code" }).textContent).toBe(code);
  });
});

describe("visitors", () => {
  test("are offered no logs, no code and nothing of the machine", async () => {
    const kernel = demo({ mode: "run", visitor: true });
    const { see, tab, root } = await show(kernel);
    expect(see.queryByRole("tab", { name: /Logs/ })).toBeNull();
    fireEvent.click(see.getByRole("button", { name: "demo" }));
    expect(see.queryByRole("button", { name: "Logs" })).toBeNull();
    tab("Tools");
    fireEvent.click(await see.findByRole("treeitem", { name: /echo/ }));
    await see.findByRole("button", { name: "Run" });
    expect(root.textContent).not.toContain("Insert");
  });
});

test("a template has a field for each parameter, and the kernel makes the address", async () => {
  const kernel = new FakeKernel(stateOf([server("demo", { resources: 1 })]), {
    resources: () => ({
      resources: [],
      templates: [{ template: "a://{x}", name: "by x", parameters: [{ name: "x", required: true }] }],
    }),
    read: () => ({
      text: "it",
      html: null,
      image: null,
      json: null,
      links: [],
      truncated: false,
      size: 2,
      variable: null,
    }),
  });
  const { see, list, click } = await show(kernel);
  list("Resources");
  fireEvent.click(await see.findByRole("treeitem", { name: /by x/ }));
  type(await see.findByRole("textbox", { name: /x/ }), "one");
  click("Read");
  await waitFor(() => expect(kernel.asked("read")).toMatchObject([{ template: "a://{x}", arguments: { x: "one" } }]));
});

test("before a search the wizard offers well-known servers, and fills in what the chosen one is started by", async () => {
  const kernel = demo({ registry: () => "registry.example" });
  const { see, click } = await show(kernel);
  click("Add server\u2026");
  const known = within(await see.findByRole("list", { name: "Well-known servers" }));
  expect(known.getAllByRole("listitem")).toHaveLength(8);
  fireEvent.click(known.getByRole("button", { name: "Git" }));
  const value = (name: string): string => see.getByRole<HTMLTextAreaElement>("textbox", { name }).value;
  await waitFor(() => expect([value("Program"), value("Arguments")]).toEqual(["uvx", "mcp-server-git"]));
  fireEvent.click(see.getByRole("tab", { name: "Search" }));
  fireEvent.click(known.getByRole("button", { name: "GitHub" }));
  await waitFor(() => expect(value("Address")).toMatch(/^https:/));
  expect(kernel.intents.filter((each) => each.do === "try")).toHaveLength(0);
});
