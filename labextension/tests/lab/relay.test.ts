import { expect, test } from "vitest";
import { connectByRelay } from "../../src/lab/relay";
import type { ConnectionEnd } from "../../src/lab/connection";
import type { FromKernel } from "../../src/protocol";

class FakeSocket {
  static last: FakeSocket;
  readyState = 0;
  readonly sent: string[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;
  constructor(readonly url: string) {
    FakeSocket.last = this;
  }
  send(text: string): void {
    this.sent.push(text);
  }
  close(): void {
    this.readyState = 3;
    this.onclose?.();
  }
  open(): void {
    this.readyState = 1;
    this.onopen?.();
  }
  say(data: unknown): void {
    this.onmessage?.({ data });
  }
}

function opened(status = 404) {
  const heard: (string | FromKernel | ConnectionEnd)[] = [];
  const place = {
    url: "ws://here/ipymcp/kernels/k/panel",
    callback: "http://here/ipymcp/oauth/callback",
    WebSocket: FakeSocket as unknown as typeof WebSocket,
    frameUrl: () => "",
    probe: () => Promise.resolve(status),
  };
  const way = connectByRelay(place)({
    opened: () => heard.push("opened"),
    received: (message) => heard.push(message),
    ended: (how) => heard.push(how),
  });
  return { way, heard, socket: FakeSocket.last };
}

test("hello says where logins come back to, and nothing else does", () => {
  const { way, socket } = opened();
  way.send({ kind: "intent", id: 1, do: "known" });
  expect(socket.sent).toEqual([]);
  socket.open();
  way.send({ kind: "hello", version: 1, client: "sidebar", wants: ["servers"] });
  way.send({ kind: "intent", id: 1, do: "known" });
  expect(socket.sent.map((text) => JSON.parse(text))).toEqual([
    {
      kind: "hello",
      version: 1,
      client: "sidebar",
      wants: ["servers"],
      callback: "http://here/ipymcp/oauth/callback",
    },
    { kind: "intent", id: 1, do: "known" },
  ]);
});

test("what the relay says is why it ended; what the kernel says is heard; what is no message is not", () => {
  const { heard, socket } = opened();
  socket.open();
  for (const data of ["no JSON", "null", "3", '{"kind":"log","server":"fs","lines":[],"dropped":0}']) socket.say(data);
  socket.say('{"kind":"relay","state":"absent","message":"ipymcp is not loaded","hint":"%load_ext ipymcp"}');
  socket.close();
  expect(heard).toEqual([
    "opened",
    { kind: "log", server: "fs", lines: [], dropped: 0 },
    { reason: "absent", message: "ipymcp is not loaded", hint: "%load_ext ipymcp" },
  ]);
});

test("a connection that breaks is lost, and one that was closed here ends in silence", () => {
  const one = opened();
  one.socket.open();
  one.socket.close();
  expect(one.heard).toEqual([
    "opened",
    { reason: "lost", message: "The connection to the Jupyter server was lost. Retrying." },
  ]);
  const other = opened();
  other.socket.open();
  other.way.close();
  expect(other.heard).toEqual(["opened"]);
});

test.each([
  [404, "none"],
  [403, "denied"],
  [401, "denied"],
  [400, "lost"],
  [502, "lost"],
])("a WebSocket that does not open where HTTP says %d: %s", async (status, why) => {
  const { heard, socket } = opened(status);
  socket.close();
  await Promise.resolve();
  await Promise.resolve();
  expect(heard.map((each) => (each as ConnectionEnd).reason)).toEqual([why]);
});
