import { waitFor } from "@testing-library/preact";
import { afterEach, expect, test, vi } from "vitest";
import { commTransport, render } from "../src/cell";
import { PanelModel } from "../src/panelmodel";
import stub from "../src/stub";

class Model {
  readonly sent: unknown[] = [];
  private readonly listeners = new Map<string, Set<(...given: unknown[]) => void>>();
  constructor(private readonly traits: { [name: string]: unknown } = {}) {}
  get = (name: string): unknown => this.traits[name];
  isDead = false;
  send = (content: unknown): void => {
    if (this.isDead) throw new Error("Cannot send");
    this.sent.push(content);
  };
  on = (event: string, listener: (...given: never[]) => void): void => {
    const all = this.listeners.get(event) ?? new Set();
    this.listeners.set(event, all.add(listener as never));
  };
  off = (event: string, listener: unknown): void => void this.listeners.get(event)?.delete(listener as never);
  say(event: string, ...given: unknown[]): void {
    for (const listener of [...(this.listeners.get(event) ?? [])]) listener(...given);
  }
  get count(): number {
    return [...this.listeners.values()].reduce((sum, all) => sum + all.size, 0);
  }
}

afterEach(() => {
  delete (globalThis as { ipymcpPanels?: unknown }).ipymcpPanels;
  vi.useRealTimers();
});

test("messages go over the model", () => {
  const model = new Model();
  const transport = commTransport(model);
  const heard: unknown[] = [];
  const leave = transport.onMessage((message) => heard.push(message));
  model.say("msg:custom", { kind: "log" });
  leave();
  model.say("msg:custom", { kind: "log" });
  expect(heard).toEqual([{ kind: "log" }]);
  expect(model.count).toBe(0);
});

test("a comm that ends closes the panel, one that lives on says hello again", () => {
  vi.useFakeTimers();
  const model = new Model();
  const panel = new PanelModel(commTransport(model), { client: "cell" });
  const state = (): string => panel.store.get().connection.state;
  expect([state(), model.sent.length]).toEqual(["open", 1]);
  model.say("comm_live_update");
  expect(state()).toBe("closed");
  vi.advanceTimersByTime(500);
  expect([state(), model.sent.length]).toEqual(["open", 2]);

  model.isDead = true;
  model.say("comm_live_update");
  model.say("comm_live_update");
  vi.advanceTimersByTime(500);
  expect(panel.store.get().connection).toEqual({
    state: "closed",
    reason: "The kernel is gone. Run the cell again for a new panel.",
  });
  panel.close();
  expect(model.count).toBe(0);
});

test("a kernel that is shut down or exchanged closes the panel, where the page knows it", () => {
  const slots = new Set<() => void>();
  const disposed = {
    connect: (slot: () => void) => slots.add(slot),
    disconnect: (slot: () => void) => slots.delete(slot),
  };
  const panel = new PanelModel(commTransport({ ...new Model(), widget_manager: { kernel: { disposed } } }), {
    client: "cell",
  });
  for (const slot of slots) slot();
  expect(panel.store.get().connection.state).toBe("closed");
  panel.close();
  expect(slots.size).toBe(0);
});

test("an intent over a dead comm fails with the reason", async () => {
  const model = new Model();
  const panel = new PanelModel(commTransport(model), { client: "cell" });
  model.isDead = true;
  await expect(panel.request("stop_all", {})).rejects.toThrow(
    "The kernel is gone. Run the cell again for a new panel.",
  );
});

test("a model that names a server draws its card", () => {
  const model = new Model({ server: "fs" });
  const el = document.createElement("div");
  const leave = render({ model, el });
  expect(model.sent).toEqual([
    { kind: "hello", version: 1, client: "cell", wants: ["servers", "calls", "questions"], server: "fs" },
  ]);
  expect(el.querySelector("[role=tablist]")).toBeNull();
  leave();
  expect(el.childElementCount).toBe(0);
});

test("a model that only asks draws questions alone", async () => {
  const model = new Model({ server: "", asks: true });
  const el = document.body.appendChild(document.createElement("div"));
  const leave = render({ model, el });
  expect(model.sent).toEqual([{ kind: "hello", version: 1, client: "cell", wants: ["questions"] }]);
  const state = { servers: {}, calls: {}, questions: {} };
  const about = { id: "q1", server: "crm", title: "crm asks", message: "Who are you?" };
  const question = { ...about, type: "fill", schema: { properties: { name: { type: "string" } } } };
  model.say("msg:custom", { kind: "hello", version: 1, ipymcp: "0.1.0", mode: "run", namespace: "mcp", kernel: "one" });
  model.say("msg:custom", { kind: "snapshot", seq: 1, state: { ...state, questions: { q1: question } } });
  await waitFor(() => expect(el.querySelector("[role=alertdialog]")?.textContent).toContain("Who are you?"));
  expect(el.querySelector("[role=tablist], .mcp-status")).toBeNull();
  await waitFor(() => expect(document.activeElement).toBe(el.querySelector("[role=alertdialog]")));
  leave();
  el.remove();
});

test("the last view of a model says bye, and one that comes later hello", () => {
  const model = new Model();
  const views = [1, 2].map(() => render({ model, el: document.createElement("div") }));
  const kinds = (): unknown[] => model.sent.map((message) => (message as { kind: string }).kind);
  views[0]?.();
  expect(kinds()).toEqual(["hello", "hello"]);
  views[1]?.();
  expect(kinds()).toEqual(["hello", "hello", "bye"]);
  const leave = render({ model, el: document.createElement("div") });
  expect(kinds().at(-1)).toBe("hello");
  model.isDead = true;
  leave();
});

const code = (digest: string): DataView => {
  // What the kernel sends: the panel's module, here a small one.
  const text = `export default { render: ({ el }) => { el.append("${digest}"); return () => el.replaceChildren(); } }`;
  return new DataView(new TextEncoder().encode(text).buffer);
};

/** A blob's address cannot be imported outside of a browser: the same module by another one. */
function importable(): void {
  vi.spyOn(URL, "createObjectURL").mockImplementation((blob) => {
    const text = blob as Blob & { [key: string]: unknown } as Blob;
    return `data:text/javascript;base64,${btoa(written.get(text) ?? "")}`;
  });
}
const written = new Map<Blob, string>();
const RealBlob = globalThis.Blob;
class NotedBlob extends RealBlob {
  constructor(parts: BlobPart[] = [], options?: BlobPropertyBag) {
    super(parts, options);
    written.set(this, new TextDecoder().decode(parts[0] as DataView<ArrayBuffer>));
  }
}

test("ten stubs ask for the code once, and all draw with it", async () => {
  globalThis.Blob = NotedBlob;
  importable();
  try {
    const views = Array.from({ length: 10 }, () => ({
      model: new Model({ library: "d1" }),
      el: document.createElement("div"),
    }));
    const leave = views.map((view) => stub.render(view as never));
    expect(views.map((view) => view.model.sent.length)).toEqual([1, ...Array(9).fill(0)]);
    views[0]?.model.say("msg:custom", { kind: "library" }, [code("drawn")]);
    await waitFor(() => expect(views.map((view) => view.el.textContent)).toEqual(Array(10).fill("drawn")));
    for (const each of leave) each();
    expect(views.map((view) => view.el.textContent)).toEqual(Array(10).fill(""));
    const later = { model: new Model({ library: "d1" }), el: document.createElement("div") };
    stub.render(later as never);
    await waitFor(() => expect(later.el.textContent).toBe("drawn"));
    expect(later.model.sent).toEqual([]);
  } finally {
    globalThis.Blob = RealBlob;
    vi.restoreAllMocks();
  }
});

test("other code of another kernel is asked for by itself", () => {
  const [one, other] = ["d1", "d2"].map((library) => new Model({ library }));
  for (const model of [one, other]) stub.render({ model, el: document.createElement("div") } as never);
  expect([one?.sent, other?.sent]).toEqual([[{ kind: "library" }], [{ kind: "library" }]]);
});

test("what a stub said before the page had a subshell is said once more, by the first alone", () => {
  vi.useFakeTimers();
  const [one, other] = [new Model({ library: "d3" }), new Model({ library: "d3" })];
  const leave = [one, other].map((model) => stub.render({ model, el: document.createElement("div") } as never));
  vi.advanceTimersByTime(1000);
  expect([one.sent, other.sent]).toEqual([[{ kind: "library" }, { kind: "library" }], []]);
  for (const each of leave) each();
});

test("a stub whose kernel does not answer says so, and asks by itself", () => {
  vi.useFakeTimers();
  const [one, other] = [new Model({ library: "d1" }), new Model({ library: "d1" })];
  const el = document.createElement("div");
  stub.render({ model: one, el: document.createElement("div") } as never);
  const leave = stub.render({ model: other, el } as never);
  vi.advanceTimersByTime(9000);
  expect(other.sent).toEqual([{ kind: "library" }]);
  expect(el.textContent).toBe(
    "The kernel is busy or was restarted. The panel appears once the kernel is idle; after a restart, run the cell again.",
  );
  leave();
});
