import { LogBuffer } from "./logbuffer";
import type { FromKernel, Intent, LogBatch, Patch, Reply, State, Verb, Verbs, ViewHello } from "./protocol";
import { VERSION } from "./protocol";
import { INITIAL_STATE, KernelError, Store, withView, withNotice, withPatch, withResult } from "./store";
import type { PanelState, ViewName } from "./store";
import type { ConnectionState, Transport, Unsubscribe } from "./transport";

/** The part of the notebook's state that a panel shows. */
export interface Scope {
  client: "cell" | "sidebar";
  wants?: ViewHello["wants"];
  /** The only server to show, as a card. */
  server?: string;
  /** The card whose questions to show, without any others. */
  card?: string;
}

interface PendingRequest {
  resolve(value: unknown): void;
  reject(error: unknown): void;
  slowTimer: ReturnType<typeof setTimeout>;
}

interface LogSubscription {
  buffer: LogBuffer;
  listeners: Set<() => void>;
  watchers: number;
}

const SLOW_REPLY_DELAY = 1500;
const CONNECTION_ENDED = "The connection to the kernel ended before it replied.";

/** The panel interface that the views use. */
export type Panel = Pick<PanelModel, "store" | "scope" | "request" | "notify" | "show" | "logs" | "watchLogs">;

/** The panel's side of the panel protocol: state, requests and logs. */
export class PanelModel {
  readonly store = new Store<PanelState>(INITIAL_STATE);
  private readonly pending = new Map<number, PendingRequest>();
  private readonly logSubscriptions = new Map<string, LogSubscription>();
  private readonly unsubscribe: Unsubscribe[];
  // Views of one widget share its comm, so each starts from a random id and ignores the others' replies.
  private nextId = Math.floor(Math.random() * 2 ** 40);
  private seq = -1;
  /** A snapshot was requested; patches that arrive before it are ignored. */
  private awaitsSnapshot = true;

  constructor(
    private readonly transport: Transport,
    readonly scope: Scope,
  ) {
    this.unsubscribe = [
      transport.onMessage((message) => this.receive(message)),
      transport.onState((connection) => this.connectionChanged(connection)),
    ];
  }

  /** Send an intent to the kernel.
   *
   * @throws KernelError if the kernel refuses or the connection ends.
   */
  request<V extends Verb>(verb: V, fields: Verbs[V][0]): Promise<Verbs[V][1]> {
    const { connection } = this.store.get();
    if (connection.state === "closed") return Promise.reject(new KernelError({ message: connection.reason }));
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      const slowTimer = setTimeout(() => this.store.set({ waiting: true }), SLOW_REPLY_DELAY);
      this.pending.set(id, { resolve: resolve as (value: unknown) => void, reject, slowTimer });
      this.transport.send({ kind: "intent", id, do: verb, ...fields } as Intent);
    });
  }

  /** Show a temporary notice, which screen readers announce. */
  notify(text: string, bad = false): void {
    this.store.set(withNotice(this.store.get(), text, bad));
  }

  /** Show a view, filtered by server if the view supports it. */
  show(view: ViewName, server?: string): void {
    this.store.set(withView(this.store.get(), view, server));
  }

  logs(server: string): LogBuffer {
    return this.logSubscription(server).buffer;
  }

  /** Subscribe to a server's log; the listener runs after each batch. */
  watchLogs(server: string, listener: () => void): Unsubscribe {
    const watch = this.logSubscription(server);
    watch.listeners.add(listener);
    if (watch.watchers++ === 0) this.requestLogs(server, true);
    return () => {
      watch.listeners.delete(listener);
      if (--watch.watchers === 0) this.requestLogs(server, false);
    };
  }

  close(): void {
    for (const leave of this.unsubscribe) leave();
    this.rejectAll(CONNECTION_ENDED);
  }

  private logSubscription(server: string): LogSubscription {
    let watch = this.logSubscriptions.get(server);
    if (!watch) {
      watch = { buffer: new LogBuffer(), listeners: new Set(), watchers: 0 };
      this.logSubscriptions.set(server, watch);
    }
    return watch;
  }

  private requestLogs(server: string, on: boolean): void {
    if (this.store.get().connection.state === "closed") return;
    const since = this.logSubscription(server).buffer.last;
    // A removed server has no log; ignore the error.
    this.request("logs", { server, on, ...(on && since !== undefined && { since }) }).catch(() => undefined);
  }

  private connectionChanged(connection: ConnectionState): void {
    const before = this.store.get().connection.state;
    this.store.set({ connection });
    if (connection.state === "closed") this.rejectAll(connection.reason);
    else if (before === "closed" || before === "connecting") {
      if (connection.state !== "connecting") this.sendHello();
    }
  }

  private sendHello(): void {
    this.awaitsSnapshot = true;
    const { client, server, wants = ["servers", "calls", "questions"] } = this.scope;
    this.transport.send({ kind: "hello", version: VERSION, client, wants, ...(server !== undefined && { server }) });
  }

  private receive(message: FromKernel): void {
    switch (message.kind) {
      case "hello":
        return this.receiveHello(message);
      case "snapshot":
        return this.applySnapshot(message.seq, message.state);
      case "patch":
        return this.applyPatch(message);
      case "reply":
        return this.receiveReply(message);
      case "result":
        return this.store.set({ results: withResult(this.store.get().results, message) });
      case "log":
        return this.receiveLog(message);
      case "history":
        return this.store.set({ finishedCalls: message.over });
      case "mark":
        return this.transport.send({ kind: "read", sent: message.sent });
    }
  }

  private receiveHello(hello: NonNullable<PanelState["hello"]>): void {
    const { hello: before, helloCount } = this.store.get();
    this.store.set({ hello, helloCount: helloCount + 1 });
    if (before && before.kernel !== hello.kernel) {
      this.store.set({ results: {} });
      for (const { buffer } of this.logSubscriptions.values()) buffer.clear();
    }
    for (const [server, { watchers }] of this.logSubscriptions) if (watchers) this.requestLogs(server, true);
  }

  private applySnapshot(seq: number, state: State): void {
    this.seq = seq;
    this.awaitsSnapshot = false;
    this.store.set({ servers: state.servers, calls: state.calls, questions: state.questions, synced: true });
  }

  private applyPatch(patch: Patch): void {
    if (this.awaitsSnapshot || patch.seq <= this.seq) return;
    if (patch.seq !== this.seq + 1) return this.sendHello();
    this.seq = patch.seq;
    this.store.set(withPatch(this.store.get(), patch));
  }

  private receiveReply(reply: Reply): void {
    const pending = this.pending.get(reply.id);
    if (!pending) return;
    this.removePending(reply.id, pending);
    if (reply.ok) pending.resolve(reply.value);
    else pending.reject(new KernelError(reply.error));
  }

  private receiveLog(batch: LogBatch): void {
    const watch = this.logSubscriptions.get(batch.server);
    if (!watch) return;
    watch.buffer.add(batch);
    for (const listener of watch.listeners) listener();
  }

  private removePending(id: number, pending: PendingRequest): void {
    clearTimeout(pending.slowTimer);
    this.pending.delete(id);
    if (this.store.get().waiting) this.store.set({ waiting: false });
  }

  private rejectAll(reason: string): void {
    for (const [id, pending] of [...this.pending]) {
      this.removePending(id, pending);
      pending.reject(new KernelError({ message: reason }));
    }
  }
}
