import { afterEach, describe, expect, test, vi } from "vitest";
import { MAX_ROWS } from "../src/rowbuffer";
import { PanelModel } from "../src/panelmodel";
import type { FromKernel, LogRow } from "../src/protocol";
import { KernelError, isAllowed, versionMismatch, mode } from "../src/store";
import { FakeKernel, FakeTransport, server, stateOf } from "./fake";

const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));
const lines = (from: number, count: number): LogRow[] =>
  Array.from({ length: count }, (_, index) => ({
    n: from + index,
    time: 0,
    level: "info",
    source: "stderr",
    text: "x",
  }));

afterEach(() => {
  vi.useRealTimers();
});

describe("the conversation", () => {
  test("the first message is a hello that says what is wanted", () => {
    const transport = new FakeTransport();
    new PanelModel(transport, { client: "cell", server: "fs" });
    expect(transport.sent).toEqual([
      { kind: "hello", version: 1, client: "cell", wants: ["servers", "calls", "questions"], server: "fs" },
    ]);
  });

  test("hello waits until the transport is open", () => {
    const transport = new FakeTransport({ state: "connecting" });
    new PanelModel(transport, { client: "sidebar" });
    expect(transport.sent).toEqual([]);
    transport.become({ state: "open" });
    expect(transport.sent).toHaveLength(1);
  });

  test("patches change what they name, remove what is null and leave the rest the same objects", async () => {
    const kernel = new FakeKernel(stateOf([server("a"), server("b")]));
    const model = new PanelModel(kernel.transport, { client: "cell" });
    await settled();
    const before = model.store.get();
    kernel.patch({ servers: { a: null, c: server("c") } });
    const after = model.store.get();
    expect(Object.keys(after.servers)).toEqual(["b", "c"]);
    expect(after.servers["b"]).toBe(before.servers["b"]);
    expect(after.calls).toBe(before.calls);
  });

  test("a gap in the patches says hello again, once, and patches until the snapshot are not applied", async () => {
    const kernel = new FakeKernel(stateOf([server("a")]));
    const model = new PanelModel(kernel.transport, { client: "cell" });
    await settled();
    kernel.lose();
    kernel.patch({ servers: { b: server("b") } });
    kernel.patch({ servers: { c: server("c") } });
    expect(Object.keys(model.store.get().servers)).toEqual(["a"]);
    expect(kernel.transport.sent.filter((message) => message.kind === "hello")).toHaveLength(2);
    kernel.state = stateOf([server("a"), server("b"), server("c")]);
    await settled();
    expect(Object.keys(model.store.get().servers)).toEqual(["a", "b", "c"]);
    kernel.patch({ servers: { a: null } });
    expect(Object.keys(model.store.get().servers)).toEqual(["b", "c"]);
  });

  test("messages of an unknown kind are ignored", async () => {
    const kernel = new FakeKernel(stateOf([server("a")]));
    const model = new PanelModel(kernel.transport, { client: "cell" });
    await settled();
    const before = model.store.get();
    kernel.transport.say({ kind: "confetti", amount: 3 } as unknown as FromKernel);
    expect(model.store.get()).toBe(before);
  });

  test("an intent's promise is what the kernel replies, and a refusal carries its hint", async () => {
    const kernel = new FakeKernel(stateOf(), { memory: () => ({ bytes: 7, processes: 1 }) });
    const model = new PanelModel(kernel.transport, { client: "cell" });
    await expect(model.request("memory", { server: "a" })).resolves.toEqual({ bytes: 7, processes: 1 });
    kernel.answers.start = () => {
      throw Object.assign(new Error("not in this mode"), { hint: "%config IPyMCP.panel" });
    };
    const refused = await model.request("start", { server: "a" }).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(KernelError);
    expect((refused as KernelError).problem).toEqual({
      message: "not in this mode",
      hint: "%config IPyMCP.panel",
      type: "PolicyError",
    });
  });

  test("two views of one widget do not take each other's replies", () => {
    const transport = new FakeTransport();
    const [one, other] = [new PanelModel(transport, { client: "cell" }), new PanelModel(transport, { client: "cell" })];
    void one.request("stop_all", {});
    void other.request("stop_all", {});
    const ids = transport.sent.flatMap((message) => (message.kind === "intent" ? [message.id] : []));
    expect(new Set(ids).size).toBe(2);
  });

  test("when the connection ends, pending intents fail with its reason and new ones fail at once", async () => {
    const transport = new FakeTransport();
    const model = new PanelModel(transport, { client: "cell" });
    const pending = model.request("stop_all", {});
    transport.become({ state: "closed", reason: "the kernel died" });
    await expect(pending).rejects.toThrow("the kernel died");
    await expect(model.request("stop_all", {})).rejects.toThrow("the kernel died");
  });

  test("a connection that opens again says hello and follows the logs from where they ended", async () => {
    const kernel = new FakeKernel(stateOf([server("a")]));
    const model = new PanelModel(kernel.transport, { client: "cell" });
    await settled();
    model.follow("logs", "a", () => undefined);
    kernel.transport.say({ kind: "log", server: "a", lines: lines(1, 5), dropped: 0 });
    kernel.transport.become({ state: "closed", reason: "gone" });
    kernel.transport.become({ state: "open" });
    await settled();
    expect(kernel.transport.sent.filter((message) => message.kind === "hello")).toHaveLength(2);
    expect(kernel.asked("logs").at(-1)).toMatchObject({ server: "a", on: true, since: 5 });
  });

  test("another kernel behind the same connection begins with empty logs", async () => {
    const kernel = new FakeKernel(stateOf([server("a")]));
    const model = new PanelModel(kernel.transport, { client: "cell" });
    await settled();
    model.follow("logs", "a", () => undefined);
    kernel.transport.say({ kind: "log", server: "a", lines: lines(1, 5), dropped: 0 });
    kernel.transport.say({ ...kernel.hello, kernel: "two" });
    await settled();
    expect(model.rows("logs", "a").rows).toEqual([]);
    expect(kernel.asked("logs").at(-1)).not.toHaveProperty("since");
  });

  test("an intent that waits long is said, until something is answered", () => {
    vi.useFakeTimers();
    const transport = new FakeTransport();
    const model = new PanelModel(transport, { client: "cell" });
    void model.request("stop_all", {});
    vi.advanceTimersByTime(1600);
    expect(model.store.get().waiting).toBe(true);
    const intent = transport.sent.at(-1);
    if (intent?.kind === "intent") transport.say({ kind: "reply", id: intent.id, ok: true, value: null });
    expect(model.store.get().waiting).toBe(false);
  });

  test("nothing is sent while nothing changes, and a closed panel hears nothing", async () => {
    vi.useFakeTimers();
    const kernel = new FakeKernel(stateOf([server("a")]));
    const model = new PanelModel(kernel.transport, { client: "cell" });
    await vi.advanceTimersByTimeAsync(60_000);
    expect(kernel.transport.sent).toHaveLength(1);
    model.close();
    expect(kernel.transport.listeners).toBe(0);
  });
});

describe("what may be done", () => {
  const stateIn = async (given: object): Promise<ReturnType<PanelModel["store"]["get"]>> => {
    const kernel = new FakeKernel(stateOf(), {}, given);
    const model = new PanelModel(kernel.transport, { client: "cell" });
    await settled();
    return model.store.get();
  };

  test("each mode allows its verbs, and before hello none but looking", async () => {
    const [full, run, view] = await Promise.all([stateIn({}), stateIn({ mode: "run" }), stateIn({ mode: "view" })]);
    expect([isAllowed(full, "start"), isAllowed(full, "call"), isAllowed(full, "tools")]).toEqual([true, true, true]);
    expect([isAllowed(run, "start"), isAllowed(run, "call"), isAllowed(run, "tools")]).toEqual([false, true, true]);
    expect([isAllowed(view, "start"), isAllowed(view, "call"), isAllowed(view, "tools")]).toEqual([false, false, true]);
    const silent = new PanelModel(new FakeTransport(), { client: "cell" }).store.get();
    expect(mode(silent)).toBe("view");
  });

  test("a newer kernel makes the panel view only and says to upgrade the panel", async () => {
    const state = await stateIn({ version: 2, ipymcp: "0.9.0" });
    expect(mode(state)).toBe("view");
    expect(versionMismatch(state)).toBe(
      "The kernel uses version 2 of the panel protocol and this panel version 1, so the panel is read-only. " +
        "Upgrade this panel: install the latest ipymcp in the environment of JupyterLab, then restart it.",
    );
  });

  test("an older kernel is what is to be upgraded", async () => {
    expect(versionMismatch(await stateIn({ version: 0, ipymcp: "0.0.1" }))).toContain(
      "Upgrade ipymcp 0.0.1 in the kernel: install the latest ipymcp in the environment of the kernel, then restart it.",
    );
  });
});

describe("logs", () => {
  test("50,000 lines leave the last 2,000, and what went is counted", () => {
    const transport = new FakeTransport();
    const model = new PanelModel(transport, { client: "cell" });
    model.follow("logs", "a", () => undefined);
    for (let batch = 0; batch < 100; batch++) {
      transport.say({ kind: "log", server: "a", lines: lines(batch * 500, 500), dropped: 10 });
    }
    const log = model.rows("logs", "a");
    expect(log.rows).toHaveLength(MAX_ROWS.logs);
    expect(log.last).toBe(49_999);
    expect(log.dropped).toBe(48_000 + 1000);
  });

  test("lines that came already are not shown twice", () => {
    const transport = new FakeTransport();
    const model = new PanelModel(transport, { client: "cell" });
    model.follow("logs", "a", () => undefined);
    transport.say({ kind: "log", server: "a", lines: lines(1, 5), dropped: 0 });
    transport.say({ kind: "log", server: "a", lines: lines(3, 5), dropped: 0 });
    expect(model.rows("logs", "a").rows.map((row) => row.n)).toEqual([1, 2, 3, 4, 5, 6, 7]);
  });

  test("they are followed while somebody looks", () => {
    const transport = new FakeTransport();
    const model = new PanelModel(transport, { client: "cell" });
    const [one, other] = [model.follow("logs", "a", () => undefined), model.follow("logs", "a", () => undefined)];
    one();
    const said = (): unknown[] =>
      transport.sent.flatMap((message) => (message.kind === "intent" && message.do === "logs" ? [message.on] : []));
    expect(said()).toEqual([true]);
    other();
    expect(said()).toEqual([true, false]);
  });
});

test("a view that is asked how far it has read says so", () => {
  const transport = new FakeTransport();
  new PanelModel(transport, { client: "cell" });
  transport.say({ kind: "mark", sent: 250_001 });
  expect(transport.sent.at(-1)).toEqual({ kind: "read", sent: 250_001 });
});
