import { LogBuffer } from "./logbuffer";
import type { FromKernel, Intent, LogBatch, Patch, Reply, State, Verb, Verbs, ViewHello } from "./protocol";
import { VERSION } from "./protocol";
import { EMPTY, KernelError, Store, looked, noticed, patched, withResult } from "./store";
import type { PanelState, ViewName } from "./store";
import type { Connection, Transport, Unsubscribe } from "./transport";

/** What of the notebook a panel shows. */
export interface Scope {
  client: "cell" | "sidebar";
  wants?: ViewHello["wants"];
  /** One server alone: its card. */
  server?: string;
  /** What one card asks, alone. */
  card?: string;
}

interface Pending {
  resolve(value: unknown): void;
  reject(error: unknown): void;
  slow: ReturnType<typeof setTimeout>;
}

interface Watch {
  buffer: LogBuffer;
  listeners: Set<() => void>;
  watchers: number;
}

const SLOW = 1500;
const ENDED = "The connection to the kernel ended before it answered.";

/** What the views of a panel draw, and whom they ask. */
export type Panel = Pick<PanelModel, "store" | "scope" | "ask" | "notify" | "show" | "logs" | "watchLogs">;

/** One panel's side of the conversation with the kernel. */
export class PanelModel {
  readonly store = new Store<PanelState>(EMPTY);
  private readonly pending = new Map<number, Pending>();
  private readonly watches = new Map<string, Watch>();
  private readonly leave: Unsubscribe[];
  // Two views of one widget share its comm: each counts from somewhere else, and ignores the other's replies.
  private nextId = Math.floor(Math.random() * 2 ** 40);
  private seq = -1;
  /** A snapshot was asked for: patches until then belong to what was missed. */
  private stale = true;

  constructor(
    private readonly transport: Transport,
    readonly scope: Scope,
  ) {
    this.leave = [
      transport.onMessage((message) => this.receive(message)),
      transport.onState((connection) => this.changed(connection)),
    ];
  }

  /** Ask the kernel to do something.
   *
   * @throws KernelError: what the kernel answered instead, or that it went away.
   */
  ask<V extends Verb>(verb: V, fields: Verbs[V][0]): Promise<Verbs[V][1]> {
    const { connection } = this.store.get();
    if (connection.state === "closed") return Promise.reject(new KernelError({ message: connection.reason }));
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      const slow = setTimeout(() => this.store.set({ waiting: true }), SLOW);
      this.pending.set(id, { resolve: resolve as (value: unknown) => void, reject, slow });
      this.transport.send({ kind: "intent", id, do: verb, ...fields } as Intent);
    });
  }

  /** Say something in passing; a screen reader hears it. */
  notify(text: string, bad = false): void {
    this.store.set(noticed(this.store.get(), text, bad));
  }

  /** Bring a view to the front; of one server, where the view has servers to choose from. */
  show(view: ViewName, server?: string): void {
    this.store.set(looked(this.store.get(), view, server));
  }

  logs(server: string): LogBuffer {
    return this.watch(server).buffer;
  }

  /** Have a server's log lines come, and hear of each batch. */
  watchLogs(server: string, listener: () => void): Unsubscribe {
    const watch = this.watch(server);
    watch.listeners.add(listener);
    if (watch.watchers++ === 0) this.subscribe(server, true);
    return () => {
      watch.listeners.delete(listener);
      if (--watch.watchers === 0) this.subscribe(server, false);
    };
  }

  close(): void {
    for (const leave of this.leave) leave();
    this.fail(ENDED);
  }

  private watch(server: string): Watch {
    let watch = this.watches.get(server);
    if (!watch) {
      watch = { buffer: new LogBuffer(), listeners: new Set(), watchers: 0 };
      this.watches.set(server, watch);
    }
    return watch;
  }

  private subscribe(server: string, on: boolean): void {
    if (this.store.get().connection.state === "closed") return;
    const since = this.watch(server).buffer.last;
    // A server that is gone has no log to follow: nothing to say.
    this.ask("logs", { server, on, ...(on && since !== undefined && { since }) }).catch(() => undefined);
  }

  private changed(connection: Connection): void {
    const before = this.store.get().connection.state;
    this.store.set({ connection });
    if (connection.state === "closed") this.fail(connection.reason);
    else if (before === "closed" || before === "connecting") {
      if (connection.state !== "connecting") this.sayHello();
    }
  }

  private sayHello(): void {
    this.stale = true;
    const { client, server, wants = ["servers", "calls", "questions"] } = this.scope;
    this.transport.send({ kind: "hello", version: VERSION, client, wants, ...(server !== undefined && { server }) });
  }

  private receive(message: FromKernel): void {
    switch (message.kind) {
      case "hello":
        return this.greeted(message);
      case "snapshot":
        return this.take(message.seq, message.state);
      case "patch":
        return this.patch(message);
      case "reply":
        return this.reply(message);
      case "result":
        return this.store.set({ results: withResult(this.store.get().results, message) });
      case "log":
        return this.log(message);
      case "history":
        return this.store.set({ over: message.over });
      case "mark":
        return this.transport.send({ kind: "read", sent: message.sent });
    }
  }

  private greeted(hello: NonNullable<PanelState["hello"]>): void {
    const { hello: before, greetings } = this.store.get();
    this.store.set({ hello, greetings: greetings + 1 });
    if (before && before.kernel !== hello.kernel) {
      this.store.set({ results: {} });
      for (const { buffer } of this.watches.values()) buffer.clear();
    }
    for (const [server, { watchers }] of this.watches) if (watchers) this.subscribe(server, true);
  }

  private take(seq: number, state: State): void {
    this.seq = seq;
    this.stale = false;
    this.store.set({ servers: state.servers, calls: state.calls, questions: state.questions, synced: true });
  }

  private patch(patch: Patch): void {
    if (this.stale || patch.seq <= this.seq) return;
    if (patch.seq !== this.seq + 1) return this.sayHello();
    this.seq = patch.seq;
    this.store.set(patched(this.store.get(), patch));
  }

  private reply(reply: Reply): void {
    const pending = this.pending.get(reply.id);
    if (!pending) return;
    this.settle(reply.id, pending);
    if (reply.ok) pending.resolve(reply.value);
    else pending.reject(new KernelError(reply.error));
  }

  private log(batch: LogBatch): void {
    const watch = this.watches.get(batch.server);
    if (!watch) return;
    watch.buffer.add(batch);
    for (const listener of watch.listeners) listener();
  }

  private settle(id: number, pending: Pending): void {
    clearTimeout(pending.slow);
    this.pending.delete(id);
    if (this.store.get().waiting) this.store.set({ waiting: false });
  }

  private fail(reason: string): void {
    for (const [id, pending] of [...this.pending]) {
      this.settle(id, pending);
      pending.reject(new KernelError({ message: reason }));
    }
  }
}
