import type { Kernel } from "@jupyterlab/services";
import { Signal } from "@lumino/signaling";
import { expect, test } from "vitest";
import { connectByComm } from "../../src/lab/comm";
import type { ToKernel } from "../../src/protocol";

const HELLO: ToKernel = { kind: "hello", version: 1, client: "sidebar", wants: [] };
const BYE: ToKernel = { kind: "bye" };

/** What a page has of a kernel, and what it did with it. */
class FakeConnection {
  readonly did: unknown[] = [];
  readonly comm = {
    commId: "c",
    isDisposed: false,
    onMsg: (_: unknown): void => undefined,
    onClose: (_: unknown): void => undefined,
    open: (): void => void this.did.push("open"),
    send: (data: unknown): void => void this.did.push(["shell", data]),
    close: (): void => void this.did.push("close"),
  };
  readonly statusChanged = new Signal<unknown, Kernel.Status>({});
  readonly username = "";
  readonly clientId = "page";
  readonly isDisposed = false;
  status: Kernel.Status = "idle";
  createComm = (): unknown => this.comm;
  sendControlMessage = (message: { channel: string; header: { msg_type: string }; content: unknown }): void => {
    this.did.push([message.channel, message.header.msg_type, message.content]);
  };

  become(status: Kernel.Status): void {
    this.status = status;
    this.statusChanged.emit(status);
  }
}

function opened(status: Kernel.Status) {
  const kernel = new FakeConnection();
  kernel.status = status;
  const heard: unknown[] = [];
  const way = connectByComm(kernel as never)({
    opened: () => undefined,
    received: (message) => heard.push(message),
    ended: ({ reason: why }) => heard.push(why),
  });
  return { kernel, heard, way };
}

test("what is said goes over the comm, and by the control channel while the kernel is busy", () => {
  const { kernel, way } = opened("idle");
  way.send(HELLO);
  kernel.become("busy");
  way.send(BYE);
  kernel.become("idle");
  way.send(BYE);
  expect(kernel.did).toEqual([
    "open",
    ["shell", { ...HELLO, control: true }],
    ["control", "ipymcp_request", { comm_id: "c", data: BYE }],
    ["shell", BYE],
  ]);
});

test("a kernel that reads the control channel is sent everything there, since a page cannot tell whether a cell runs", () => {
  const { kernel, way } = opened("idle");
  way.send(HELLO);
  kernel.comm.onMsg({ content: { data: { kind: "hello", control: true } } });
  way.send(BYE);
  expect(kernel.did).toEqual([
    "open",
    ["shell", { ...HELLO, control: true }],
    ["control", "ipymcp_request", { comm_id: "c", data: BYE }],
  ]);
});

test("a kernel that is busy already is spoken to by the control channel alone", () => {
  const { kernel, heard, way } = opened("busy");
  way.send(HELLO);
  kernel.comm.onMsg({ content: { data: { kind: "hello" } } });
  kernel.become("idle");
  way.send(BYE);
  way.close();
  expect(heard).toEqual([{ kind: "hello" }]);
  expect(kernel.did).toEqual([
    ["control", "ipymcp_request", { comm_id: "c", data: { ...HELLO, control: true } }],
    ["control", "ipymcp_request", { comm_id: "c", data: BYE }],
    "close",
  ]);
});

test("a busy kernel that does not know such requests is asked anew when it is free", () => {
  const { kernel, heard } = opened("busy");
  kernel.become("idle");
  kernel.become("busy");
  kernel.become("idle");
  expect(heard).toEqual(["silent"]);
});

test("a kernel without ipymcp closes the comm", () => {
  const { kernel, heard, way } = opened("idle");
  kernel.comm.onClose({});
  way.close();
  expect(heard).toEqual(["absent"]);
});
