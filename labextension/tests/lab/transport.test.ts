import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { NOT_LOADED, connectionStatus } from "../../src/lab/connectionstatus";
import { KernelTransport } from "../../src/lab/transport";
import type { ConnectionEnd, Connect, ConnectionEvents } from "../../src/lab/connection";
import { PanelModel } from "../../src/panelmodel";
import type { ToKernel } from "../../src/protocol";
import { FakeKernel, server, stateOf } from "../fake";

/** A way that a test opens, speaks over and ends. */
class Ways {
  readonly opened: { by: "relay" | "comm"; events: ConnectionEvents; sent: ToKernel[]; isClosed: boolean }[] = [];
  relay = this.by("relay");
  comm = this.by("comm");

  private by(by: "relay" | "comm"): Connect {
    return (events) => {
      const way = { by, events, sent: [] as ToKernel[], isClosed: false };
      this.opened.push(way);
      return { send: (message) => way.sent.push(message), close: () => (way.isClosed = true) };
    };
  }

  get last(): (typeof this.opened)[number] {
    const way = this.opened.at(-1);
    if (!way) throw new Error("nothing was opened");
    return way;
  }

  /** The kernel answers hello over the last one. */
  greet(): void {
    const { hello, state } = new FakeKernel(stateOf([server("fs")]));
    this.last.events.opened();
    this.last.events.received(hello);
    this.last.events.received({ kind: "snapshot", seq: 1, state });
  }
}

const ABSENT: ConnectionEnd = {
  reason: "absent",
  message: "ipymcp is not loaded in this kernel",
  hint: "%load_ext ipymcp",
};

beforeEach(() => void vi.useFakeTimers({ now: 0 }));
afterEach(() => void vi.useRealTimers());

function begun(): { ways: Ways; transport: KernelTransport; model: PanelModel } {
  const ways = new Ways();
  const transport = new KernelTransport(ways);
  const model = new PanelModel(transport, { client: "sidebar" });
  transport.connect();
  return { ways, transport, model };
}

test("a model says hello over the relay, and has its servers", () => {
  const { ways, transport, model } = begun();
  expect(ways.last.sent).toEqual([]);
  ways.greet();
  expect(ways.last.sent).toEqual([
    { kind: "hello", version: 1, client: "sidebar", wants: ["servers", "calls", "questions"] },
  ]);
  expect([transport.isReached, transport.ended]).toEqual([true, null]);
  expect(Object.keys(model.store.get().servers)).toEqual(["fs"]);
});

test("a broken connection is tried again, ever more seldom, and then says hello again", () => {
  const { ways, model } = begun();
  ways.greet();
  for (const pause of [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]) {
    ways.last.events.ended({ reason: "lost", message: "It broke." });
    expect(model.store.get().connection).toEqual({ state: "closed", reason: "It broke." });
    const before = ways.opened.length;
    vi.advanceTimersByTime(pause - 1);
    expect(ways.opened.length).toBe(before);
    vi.advanceTimersByTime(1);
    expect(ways.opened.length).toBe(before + 1);
  }
  ways.greet();
  expect(model.store.get().connection).toEqual({ state: "open" });
  expect(ways.last.sent.map(({ kind }) => kind)).toEqual(["hello"]);
  ways.last.events.ended({ reason: "lost", message: "It broke." });
  const before = ways.opened.length;
  vi.advanceTimersByTime(1000);
  expect(ways.opened.length).toBe(before + 1);
});

test("a kernel without ipymcp is asked once more after each cell, and not besides", () => {
  const { ways, transport } = begun();
  ways.last.events.ended(ABSENT);
  expect(transport.ended).toEqual(ABSENT);
  vi.advanceTimersByTime(100_000);
  expect(ways.opened.length).toBe(1);

  transport.retrySoon();
  transport.retrySoon();
  vi.advanceTimersByTime(300);
  expect(ways.opened.length).toBe(2);
  ways.last.events.ended(ABSENT);
  expect(transport.isTrying).toBe(true);
  vi.advanceTimersByTime(1500);
  expect(ways.opened.length).toBe(3);
  ways.last.events.ended(ABSENT);
  expect(transport.isTrying).toBe(false);
  vi.advanceTimersByTime(100_000);
  expect(ways.opened.length).toBe(3);
});

test("after a load it is asked for some seconds before there is a problem", () => {
  const { ways, transport } = begun();
  const problem = (): unknown => {
    const status = connectionStatus(transport, { ...NOT_LOADED, loading: true, loaded: true });
    return status.kind === "absent" && [status.loading, status.problem?.message];
  };
  ways.last.events.ended(ABSENT);
  transport.retrySoon(); // the cell that loaded it has ended
  transport.retrySoon(4);
  for (const pause of [1000, 1500, 1500, 1500, 1500]) {
    expect(problem()).toEqual([true, undefined]);
    const before = ways.opened.length;
    vi.advanceTimersByTime(pause);
    expect(ways.opened.length).toBe(before + 1);
    expect(problem()).toEqual([true, undefined]);
    ways.last.events.ended(ABSENT);
  }
  expect(problem()).toEqual([
    false,
    "ipymcp is loaded, but the panel cannot connect to it: the kernel's ipymcp may be older than the panel.",
  ]);
});

test("cells that end fast do not have it ask more than once a second", () => {
  const { ways, transport } = begun();
  ways.last.events.ended(ABSENT);
  for (let cell = 0; cell < 100; cell++) {
    const before = ways.opened.length;
    transport.retrySoon();
    vi.advanceTimersByTime(100);
    if (ways.opened.length > before) ways.last.events.ended(ABSENT);
  }
  expect(ways.opened.length).toBeGreaterThan(5);
  expect(ways.opened.length).toBeLessThanOrEqual(11);
});

test("without a relay there is a comm, and the panel says when it waits for a cell", () => {
  const { ways, transport, model } = begun();
  ways.last.events.ended({ reason: "none", message: "This Jupyter server has no ipymcp extension." });
  expect(ways.opened.map(({ by }) => by)).toEqual(["relay", "comm"]);
  ways.greet();
  expect(model.store.get().connection).toEqual({ state: "open" });
  transport.setBusy(true);
  expect(model.store.get().connection).toEqual({
    state: "busy",
    reason: "A cell is running and this Jupyter server has no relay to the kernel: replies may wait until it ends",
  });
  transport.setBusy(false);
  expect(model.store.get().connection).toEqual({ state: "open" });
  expect(ways.last.sent.map(({ kind }) => kind)).toEqual(["hello"]);
});

test("a kernel that hears the control channel is there for a view over a comm while it is busy", () => {
  const { ways, transport, model } = begun();
  ways.last.events.ended({ reason: "none", message: "There is no relay." });
  transport.setBusy(true);
  expect(model.store.get().connection.state).toBe("busy");
  const { hello, state } = new FakeKernel(stateOf([server("fs")]));
  ways.last.events.opened();
  ways.last.events.received({ ...hello, control: true });
  ways.last.events.received({ kind: "snapshot", seq: 1, state });
  expect(model.store.get().connection).toEqual({ state: "open" });
  ways.last.events.ended({ reason: "lost", message: "It broke." });
  vi.advanceTimersByTime(1000);
  ways.last.events.opened();
  expect(model.store.get().connection.state).toBe("busy");
});

test("with a relay a busy kernel changes nothing", () => {
  const { ways, transport, model } = begun();
  ways.greet();
  transport.setBusy(true);
  expect(model.store.get().connection).toEqual({ state: "open" });
});

test("what ended, or was closed, is not heard any more", () => {
  const { ways, transport, model } = begun();
  const { events } = ways.last;
  ways.greet();
  events.ended(ABSENT);
  events.received({ kind: "patch", seq: 2, set: { servers: { fs: null } } });
  expect(Object.keys(model.store.get().servers)).toEqual(["fs"]);
  transport.connect();
  const { last } = ways;
  transport.close();
  expect(last.isClosed).toBe(true);
  last.events.ended({ reason: "lost", message: "It broke." });
  vi.advanceTimersByTime(100_000);
  expect(ways.opened.length).toBe(2);
});
