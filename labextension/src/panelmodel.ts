import type {
  CellFields,
  CellRequest,
  FailureReply,
  FromKernel,
  Intent,
  LogBatch,
  LogRow,
  MessageBatch,
  MessageRow,
  Patch,
  StateRows,
  SuccessReply,
  Verb,
  Verbs,
  ViewHello,
} from "./protocol";
import { VERSION } from "./protocol";
import { MAX_ROWS, RowBuffer } from "./rowbuffer";
import type { StreamName, Streams } from "./rowbuffer";
import { INITIAL_STATE, KernelError, Store, withView, withNotice, withPatch, withResult, withUpdate } from "./store";
import type { PanelState, Target, ViewName } from "./store";
import { trans } from "./translation";
import type { ConnectionState, Transport, Unsubscribe } from "./transport";

/** The part of the notebook's state that a panel shows. */
export interface Scope {
  client: "cell" | "sidebar";
  wants?: ViewHello["wants"];
  /** The only server to show, as a card. */
  server?: string;
  /** The card whose questions to show, without any others. */
  card?: string;
  /** Read or change the notebook's cells; absent where the page cannot. */
  cells?(request: CellRequest): Promise<Omit<CellFields, "request">>;
}

interface PendingRequest {
  resolve(value: unknown): void;
  reject(error: unknown): void;
  slowTimer: ReturnType<typeof setTimeout> | undefined;
}

interface Subscription<Name extends StreamName = StreamName> {
  name: Name;
  server: string;
  buffer: RowBuffer<Streams[Name]>;
  listeners: Set<() => void>;
  watchers: number;
}

const SLOW_REPLY_DELAY = 1500;
/** Requests that may wait for a person, a server or the network while the kernel is idle. */
const OPEN_ENDED: ReadonlySet<Verb> = new Set<Verb>([
  "try",
  "drop",
  "search",
  "load",
  "load_file",
  "trust",
  "login",
  "read",
  "prompt",
  "app_call",
]);
const connectionEnded = (): string => trans.__("The connection to the kernel ended before it replied.");

/** The panel interface that the views use. */
export type Panel = Pick<PanelModel, "store" | "scope" | "request" | "notify" | "show" | "rows" | "follow">;

/** The panel's side of the panel protocol: state, requests and logs. */
export class PanelModel {
  readonly store = new Store<PanelState>(INITIAL_STATE);
  readonly #pending = new Map<number, PendingRequest>();
  readonly #subscriptions = new Map<string, Subscription>();
  readonly #unsubscribe: Unsubscribe[];
  // Views of one widget share its comm, so each starts from a random id and ignores the others' replies.
  #nextId = Math.floor(Math.random() * 2 ** 40);
  #seq = -1;
  /** A snapshot was requested; patches that arrive before it are ignored. */
  #awaitsSnapshot = true;

  constructor(
    private readonly transport: Transport,
    readonly scope: Scope,
  ) {
    this.#unsubscribe = [
      transport.onMessage((message) => this.#receive(message)),
      transport.onState((connection) => this.#connectionChanged(connection)),
    ];
  }

  /** Send an intent to the kernel.
   *
   * @throws KernelError if the kernel refuses or the connection ends.
   */
  request<V extends Verb>(verb: V, fields: Verbs[V][0]): Promise<Verbs[V][1]> {
    const { connection } = this.store.get();
    if (connection.state === "closed") return Promise.reject(new KernelError({ message: connection.reason }));
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      const slowTimer = OPEN_ENDED.has(verb)
        ? undefined
        : setTimeout(() => this.store.set({ waiting: true }), SLOW_REPLY_DELAY);
      this.#pending.set(id, { resolve: resolve as (value: unknown) => void, reject, slowTimer });
      this.transport.send({ kind: "intent", id, do: verb, ...fields } as Intent);
    });
  }

  /** Show a temporary notice, which screen readers announce. */
  notify(text: string, bad = false): void {
    this.store.set(withNotice(this.store.get(), text, bad));
  }

  /** Show a view, and what to show in it. */
  show(view: ViewName, target: Target = {}): void {
    this.store.set(withView(this.store.get(), view, target));
  }

  /** The received rows of a server's log or messages. */
  rows<Name extends StreamName>(name: Name, server: string): RowBuffer<Streams[Name]> {
    return this.#subscription(name, server).buffer;
  }

  /** Follow a server's log or messages; the listener runs after each batch. */
  follow(name: StreamName, server: string, listener: () => void): Unsubscribe {
    const subscription = this.#subscription(name, server);
    subscription.listeners.add(listener);
    if (subscription.watchers++ === 0) this.#requestRows(subscription, true);
    return () => {
      subscription.listeners.delete(listener);
      if (--subscription.watchers > 0) return;
      this.#requestRows(subscription, false);
      if (name === "protocol") subscription.buffer.clear();
    };
  }

  close(): void {
    for (const leave of this.#unsubscribe) leave();
    this.#rejectAll(connectionEnded());
  }

  #subscription<Name extends StreamName>(name: Name, server: string): Subscription<Name> {
    const key = `${name} ${server}`;
    let found = this.#subscriptions.get(key);
    if (!found) {
      found = { name, server, buffer: new RowBuffer(MAX_ROWS[name]), listeners: new Set(), watchers: 0 };
      this.#subscriptions.set(key, found);
    }
    return found as Subscription<Name>;
  }

  #requestRows({ name, server, buffer }: Subscription, on: boolean): void {
    if (this.store.get().connection.state === "closed") return;
    const since = buffer.last;
    // A removed server has no log; ignore the error.
    this.request(name, { server, on, ...(on && since !== undefined && { since }) }).catch(() => undefined);
  }

  #connectionChanged(connection: ConnectionState): void {
    const before = this.store.get().connection.state;
    this.store.set({ connection });
    if (connection.state === "closed") this.#rejectAll(connection.reason);
    else if (before === "closed" || before === "connecting") {
      if (connection.state !== "connecting") this.#sendHello();
    }
  }

  #sendHello(): void {
    this.#awaitsSnapshot = true;
    const { client, server, wants = ["servers", "calls", "questions"], cells } = this.scope;
    const own = { ...(server !== undefined && { server }), ...(cells && { cells: true }) };
    this.transport.send({ kind: "hello", version: VERSION, client, wants, ...own });
  }

  async #replyWithCells(message: CellRequest): Promise<void> {
    const reply = await this.scope.cells?.(message).catch((error: unknown) => ({ problem: String(error) }));
    // The kernel may have stopped waiting for the reply.
    await this.request("cells", { request: message.id, ...reply }).catch(() => undefined);
  }

  #receive(message: FromKernel): void {
    switch (message.kind) {
      case "hello":
        return this.#receiveHello(message);
      case "snapshot":
        return this.#applySnapshot(message.seq, message.state);
      case "patch":
        return this.#applyPatch(message);
      case "reply":
        return this.#receiveReply(message);
      case "result":
        return this.store.set({ results: withResult(this.store.get().results, message) });
      case "log":
        return this.#receiveRows(this.#subscriptions.get(`logs ${message.server}`), message);
      case "protocol":
        return this.#receiveRows(this.#subscriptions.get(`protocol ${message.server}`), message);
      case "resource":
        return this.store.set(withUpdate(this.store.get(), message));
      case "history":
        return this.store.set({ finishedCalls: message.over });
      case "cells":
        return void this.#replyWithCells(message);
      case "mark":
        return this.transport.send({ kind: "read", sent: message.sent });
    }
  }

  #receiveHello(hello: NonNullable<PanelState["hello"]>): void {
    const { hello: before, helloCount, subscribed } = this.store.get();
    this.store.set({ hello, helloCount: helloCount + 1, subscribed: {} });
    if (before && before.kernel !== hello.kernel) {
      this.store.set({ results: {} });
      for (const { buffer } of this.#subscriptions.values()) buffer.clear();
    }
    for (const each of this.#subscriptions.values()) if (each.watchers) this.#requestRows(each, true);
    for (const { server, uri } of Object.values(subscribed)) {
      this.request("subscribe", { server, uri, on: true }).catch(() => undefined);
    }
  }

  #applySnapshot(seq: number, state: StateRows): void {
    this.#seq = seq;
    this.#awaitsSnapshot = false;
    this.store.set({ servers: state.servers, calls: state.calls, questions: state.questions, synced: true });
  }

  #applyPatch(patch: Patch): void {
    if (this.#awaitsSnapshot || patch.seq <= this.#seq) return;
    if (patch.seq !== this.#seq + 1) return this.#sendHello();
    this.#seq = patch.seq;
    this.store.set(withPatch(this.store.get(), patch));
  }

  #receiveReply(reply: SuccessReply | FailureReply): void {
    const pending = reply.id === null ? undefined : this.#pending.get(reply.id);
    if (reply.id === null || !pending) return;
    this.#removePending(reply.id, pending);
    if (reply.ok) pending.resolve(reply.value);
    else pending.reject(new KernelError(reply.error));
  }

  #receiveRows(subscription: Subscription | undefined, batch: LogBatch | MessageBatch): void {
    if (!subscription) return;
    (subscription.buffer as RowBuffer<LogRow | MessageRow>).add(batch);
    for (const listener of subscription.listeners) listener();
  }

  #removePending(id: number, pending: PendingRequest): void {
    clearTimeout(pending.slowTimer);
    this.#pending.delete(id);
    if (this.store.get().waiting) this.store.set({ waiting: false });
  }

  #rejectAll(reason: string): void {
    for (const [id, pending] of [...this.#pending]) {
      this.#removePending(id, pending);
      pending.reject(new KernelError({ message: reason }));
    }
  }
}
