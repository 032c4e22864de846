import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { afterEach, expect, test, vi } from "vitest";
import { PANEL_TYPE, drawOutputs } from "../../src/lab/output";
import type { ConnectionStatus } from "../../src/lab/connectionstatus";
import { CONNECTING, NO_KERNEL } from "../../src/lab/connectionstatus";
import { PanelModel } from "../../src/panelmodel";
import type { QuestionRow } from "../../src/protocol";
import { pageServices } from "../../src/services";
import { FakeKernel, server, stateOf } from "../fake";

const HTML = "text/html";

/** What JupyterLab's own renderer would be given. */
class Table extends Widget {
  async renderModel(model: { trusted: boolean; data: { [type: string]: unknown } }): Promise<void> {
    expect(model.trusted).toBe(false);
    this.node.textContent = `table of ${String(model.data[HTML])}`;
  }
}

interface Factory {
  safe: boolean;
  mimeTypes: string[];
  createRenderer(options: object): Widget & { renderModel(model: object): Promise<void> };
}

/** A notebook whose kernel a test makes. */
class Notebook {
  readonly changed = new Signal<this, void>(this);
  readonly cellServices = pageServices;
  model: PanelModel | null = null;
  connectionStatus: ConnectionStatus = CONNECTING;
  readonly added: { factory: Factory; rank: number }[] = [];
  drawn: Widget | null = null;

  constructor() {
    const rendermime = {
      addFactory: (factory: Factory, rank: number) => this.added.push({ factory, rank }),
      createRenderer: () => new Table(),
    };
    drawOutputs({ content: { rendermime } } as never, () => this as never);
  }

  async output(data: unknown, html = "servers"): Promise<HTMLElement> {
    const widget = this.added.find(({ factory }) => factory.mimeTypes.includes(PANEL_TYPE))?.factory.createRenderer({});
    if (!widget) throw new Error("nothing was added");
    this.drawn = widget;
    Widget.attach(widget, document.body);
    await widget.renderModel({ trusted: false, data: { [PANEL_TYPE]: data, [HTML]: html }, metadata: {} });
    return widget.node;
  }

  async reach(kernel: FakeKernel): Promise<void> {
    this.model = new PanelModel(kernel.transport, { client: "sidebar" });
    this.model.store.subscribe(() => this.changed.emit());
    this.setStatus({ kind: "panel" });
    await Promise.resolve();
  }

  setStatus(status: ConnectionStatus): void {
    this.connectionStatus = status;
    if (status.kind !== "panel") this.model = null;
    this.changed.emit();
  }
}

let notebook = new Notebook();
afterEach(() => {
  notebook.drawn?.dispose();
  notebook = new Notebook();
});

/** What is to be seen. */
function seen(node: HTMLElement): string {
  const shown = [...node.children].filter((each) => !each.classList.contains("lm-mod-hidden"));
  return shown.map((each) => each.textContent).join(" | ");
}

const KERNEL = { version: 1, kernel: "one" };

test("panels and apps come before the widget, and in notebooks that are not trusted", () => {
  const types = notebook.added.flatMap(({ factory }) => factory.mimeTypes);
  expect(types).toEqual([PANEL_TYPE, "application/vnd.ipymcp.app+json"]);
  expect(notebook.added.every(({ factory, rank }) => factory.safe && rank < -10)).toBe(true);
});

test("a table until the kernel that showed it is found, live from then on, a table again after a restart", async () => {
  const node = await notebook.output(KERNEL);
  expect(seen(node)).toBe("table of servers");
  await notebook.reach(new FakeKernel(stateOf([server("fs"), server("git")])));
  expect(seen(node)).toContain("2 of 2 ready");
  expect(seen(node)).not.toContain("table of servers");

  notebook.setStatus(CONNECTING);
  expect(seen(node)).toBe("table of servers");
  await notebook.reach(new FakeKernel(stateOf([]), {}, { kernel: "two" }));
  expect(seen(node)).toBe(
    "This is a snapshot from when the cell ran. The kernel has changed: run the cell again for a live panel. | " +
      "table of servers",
  );
});

test("a card shows its own server, and asks over the notebook's one conversation", async () => {
  const kernel = new FakeKernel(stateOf([server("fs"), server("git")]));
  const node = await notebook.output({ ...KERNEL, server: "git" });
  await notebook.reach(kernel);
  expect(node.querySelector("[role=tablist]")).toBeNull();
  expect(seen(node)).toContain("git");
  expect(seen(node)).not.toContain("uvx mcp-server-fs");
  [...node.querySelectorAll("button")].find(({ title }) => title === "Stop git")?.click();
  expect(kernel.asked("stop")).toMatchObject([{ server: "git" }]);
  expect(kernel.transport.sent.filter(({ kind }) => kind === "hello").length).toBe(1);
});

test("another panel looks at something else, and hears nothing that was said to the first", async () => {
  const kernel = new FakeKernel(stateOf([server("fs")]));
  const node = await notebook.output(KERNEL);
  await notebook.reach(kernel);
  notebook.model?.show("logs", { server: "fs" });
  notebook.model?.notify("Copied.");
  expect(node.querySelector("[aria-selected=true]")?.textContent).toBe("Servers");
  expect(seen(node)).not.toContain("Copied.");
});

test.each([
  [NO_KERNEL, "For a live panel, start a kernel, run %load_ext ipymcp, then run this cell again."],
  [
    { kind: "absent", command: "%load_ext ipymcp", loading: false, problem: null } as const,
    "For a live panel, run %load_ext ipymcp, then run this cell again.",
  ],
  [
    { kind: "disconnected", ended: { reason: "ended", message: "the kernel has ended", hint: "restart it" } } as const,
    "For a live panel, run %load_ext ipymcp, then run this cell again.",
  ],
  [
    {
      kind: "disconnected",
      ended: { reason: "denied", message: "You may not.", hint: "Ask \u202eyour admin" },
    } as const,
    "You may not: Ask \u27e8U+202E\u27e9your admin",
  ],
])("it says in one line how to get it back: %o", async (status, text) => {
  const node = await notebook.output(KERNEL);
  notebook.setStatus(status);
  expect(seen(node)).toBe(`This is a snapshot from when the cell ran. ${text} | table of servers`);
});

test.each([null, [], "x", {}, { kernel: 3 }, { kernel: "" }, { kernel: ["one"] }])(
  "what is no panel's data is a table: %j",
  async (data) => {
    const node = await notebook.output(data);
    await notebook.reach(new FakeKernel(stateOf([server("fs")])));
    expect(seen(node)).toContain("table of servers");
  },
);

const ASKS = {
  type: "approve",
  server: "fs",
  title: "May this call be made?",
  message: "",
  calls: [{ server: "fs", tool: "rm", arguments: { path: "a" }, caller: "model", why: "asked for", hints: "" }],
  answers: ["once", "no"],
} as const;
const asks = (id: string, card: string): QuestionRow => ({ ...ASKS, id, card }) as unknown as QuestionRow;

test("a model's card is the question while that is open, and no other question", async () => {
  const kernel = new FakeKernel(
    stateOf([server("fs")], [asks("q", "answer 1, call 1"), asks("r", "answer 2, call 1")]),
  );
  const node = await notebook.output({ ...KERNEL, card: "answer 1, call 1" }, "card");
  expect(seen(node)).toBe("table of card");
  await notebook.reach(kernel);
  expect(node.querySelectorAll("[role=alertdialog]").length).toBe(1);
  expect(seen(node)).not.toContain("more after this");
  expect(seen(node)).not.toContain("table of card");
  [...node.querySelectorAll("button")].find(({ textContent }) => textContent === "Allow once")?.click();
  expect(kernel.asked("answer")).toMatchObject([{ question: "q", answer: "once" }]);

  kernel.patch({ questions: { q: null } });
  expect(seen(node)).toBe("table of card");
});

test("who waits for an answer is led to the card, and back to where they were; who writes is left alone", async () => {
  const kernel = new FakeKernel(stateOf([server("fs")]));
  const node = await notebook.output({ ...KERNEL, card: "answer 1, call 1" }, "card");
  await notebook.reach(kernel);
  const [cell, editor] = ["button", "textarea"].map((name) => document.body.appendChild(document.createElement(name)));
  for (const [focused, moves] of [
    [cell, true],
    [editor, false],
  ] as const) {
    focused?.focus();
    kernel.patch({ questions: { q: asks("q", "answer 1, call 1") } });
    const dialog = (): Element | null => node.querySelector("[role=alertdialog]");
    await vi.waitFor(() => expect(document.activeElement === dialog()).toBe(moves));
    kernel.patch({ questions: { q: null } });
    expect(dialog()).toBeNull();
    await vi.waitFor(() => expect(document.activeElement).toBe(focused));
    focused?.remove();
  }
});

test("the card of a call whose question another card has hides while that is open", async () => {
  const kernel = new FakeKernel(stateOf([server("fs")], [asks("q", "answer 1, call 2")]));
  const node = await notebook.output({ ...KERNEL, card: "answer 1, call 2", elsewhere: true }, "card");
  await notebook.reach(kernel);
  expect(seen(node)).toBe("");
  kernel.patch({ questions: { q: null } });
  expect(seen(node)).toBe("table of card");
});

test("a saved card that waits asks nothing of another kernel, and is as it was", async () => {
  const kernel = new FakeKernel(stateOf([server("fs")], [asks("q", "answer 1, call 1")]), {}, { kernel: "two" });
  const node = await notebook.output({ ...KERNEL, card: "answer 1, call 1" }, "card");
  await notebook.reach(kernel);
  expect(seen(node)).toBe("table of card");
});

test("what is taken out listens no more", async () => {
  const kernel = new FakeKernel(stateOf([server("fs")]));
  const node = await notebook.output(KERNEL);
  await notebook.reach(kernel);
  notebook.drawn?.dispose();
  notebook.drawn = null;
  expect(seen(node)).not.toContain("ready");
  kernel.patch({ servers: { fs: server("fs", { calls: 4 }) } });
  notebook.setStatus({ kind: "panel" });
  expect(seen(node)).not.toContain("ready");
});
