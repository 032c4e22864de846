import { waitFor } from "@testing-library/preact";
import { afterEach, expect, test, vi } from "vitest";
import { commTransport, render } from "../src/cell";
import stub from "../src/stub";

class Model {
  readonly sent: unknown[] = [];
  comm_live = true;
  private readonly listeners = new Map<string, Set<(...given: unknown[]) => void>>();
  constructor(private readonly traits: { [name: string]: unknown } = {}) {}
  get = (name: string): unknown => this.traits[name];
  send = (content: unknown): void => void this.sent.push(content);
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

test("messages go over the model, and a comm that ends closes the connection", () => {
  const model = new Model();
  const transport = commTransport(model);
  const [heard, states]: [unknown[], string[]] = [[], []];
  const leave = [transport.onMessage((message) => heard.push(message)), transport.onState(({ state }) => states.push(state))];
  model.say("msg:custom", { kind: "log" });
  model.comm_live = false;
  model.say("comm_live_update");
  expect(heard).toEqual([{ kind: "log" }]);
  expect(states).toEqual(["open", "closed"]);
  for (const each of leave) each();
  expect(model.count).toBe(0);
});

test("a model that names a server draws its card", () => {
  const model = new Model({ server: "fs" });
  const el = document.createElement("div");
  const leave = render({ model, el });
  expect(model.sent).toEqual([{ kind: "hello", version: 1, client: "cell", wants: ["servers", "calls", "questions"], server: "fs" }]);
  expect(el.querySelector("[role=tablist]")).toBeNull();
  leave();
  expect(el.childElementCount).toBe(0);
});

const code = (digest: string): DataView => {
  // What the kernel sends: the panel's module, here a small one.
  const text = `export default { render: ({ el }) => { el.append("${digest}"); return () => el.replaceChildren(); } }`;
  return new DataView(new TextEncoder().encode(text).buffer);
};

/** A blob's address cannot be imported outside of a browser: the same module by another one. */
function importable(): void {
  vi.spyOn(URL, "createObjectURL").mockImplementation((blob) => {
    const text = (blob as Blob & { [key: string]: unknown }) as Blob;
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
    const views = Array.from({ length: 10 }, () => ({ model: new Model({ library: "d1" }), el: document.createElement("div") }));
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

test("a stub whose kernel does not answer says so, and asks by itself", () => {
  vi.useFakeTimers();
  const [one, other] = [new Model({ library: "d1" }), new Model({ library: "d1" })];
  const el = document.createElement("div");
  stub.render({ model: one, el: document.createElement("div") } as never);
  const leave = stub.render({ model: other, el } as never);
  vi.advanceTimersByTime(9000);
  expect(other.sent).toEqual([{ kind: "library" }]);
  expect(el.textContent).toBe("The kernel is busy or gone. The panel appears when it is free; run the cell again if it was restarted.");
  leave();
});
