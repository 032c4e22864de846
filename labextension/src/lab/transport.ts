/** The transport to one kernel: the server's relay, or a comm if there is none. */

import type { FromKernel, ToKernel } from "../protocol";
import { trans } from "../translation";
import type { ConnectionState, Transport, Unsubscribe } from "../transport";
import type { ConnectionEnd, Connect, Connection, EndReason } from "./connection";

/** End reasons after which the comm is used. */
const NEEDS_COMM: ReadonlySet<EndReason> = new Set<EndReason>(["none", "elsewhere"]);
/** End reasons after which a retry may succeed. */
export const TRANSIENT: ReadonlySet<EndReason> = new Set<EndReason>(["lost", "silent"]);

/** Milliseconds from the end of a cell, which may have loaded ipymcp, to the first and from there to the second retry. */
const RETRY_DELAY = 300;
const SECOND_RETRY_DELAY = 1500;
/** Milliseconds between retries, doubled after each failure. */
const MIN_RETRY_INTERVAL = 1000;
const MAX_RETRY_INTERVAL = 30_000;

const busy = (): string =>
  trans.__("A cell is running and this Jupyter server has no relay to the kernel: replies may wait until it ends");
const CONNECTING: ConnectionState = { state: "connecting" };

export interface Connectors {
  relay: Connect;
  comm: Connect;
}

export class KernelTransport implements Transport {
  /** How the connection ended; null while it works. */
  ended: ConnectionEnd | null = null;
  /** Whether a message has arrived on the current connection. */
  isReached = false;
  /** Whether a message has ever arrived. */
  wasReached = false;
  readonly #messages = new Set<(message: FromKernel) => void>();
  readonly #states = new Set<(state: ConnectionState) => void>();
  readonly #changes = new Set<() => void>();
  #state = CONNECTING;
  #connection: Connection | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #usesComm = false;
  #isBusy = false;
  /** Whether the kernel accepts messages on the control channel while busy. */
  #hasControl = false;
  #failures = 0;
  #lastTry = -Infinity;
  #retriesLeft = 0;

  constructor(private readonly connectors: Connectors) {}

  // -- Transport

  send(message: ToKernel): void {
    this.#connection?.send(message);
  }

  onMessage(listener: (message: FromKernel) => void): Unsubscribe {
    this.#messages.add(listener);
    return () => this.#messages.delete(listener);
  }

  onState(listener: (connection: ConnectionState) => void): Unsubscribe {
    this.#states.add(listener);
    listener(this.#state);
    return () => this.#states.delete(listener);
  }

  // -- for the connection status

  /** Listen for changes of `ended` and `isReached`. */
  onChange(listener: () => void): Unsubscribe {
    this.#changes.add(listener);
    return () => this.#changes.delete(listener);
  }

  /** Whether it is connected, connecting or about to retry. */
  get isTrying(): boolean {
    return this.#connection !== null || this.#timer !== undefined;
  }

  /** Connect unless already connected. */
  connect(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#connection) return;
    this.#lastTry = Date.now();
    const open = this.#usesComm ? this.connectors.comm : this.connectors.relay;
    const connection: Connection = open({
      opened: () => connection === this.#connection && this.#setState(this.#openState()),
      received: (message) => connection === this.#connection && this.#receive(message),
      ended: (how) => connection === this.#connection && this.#end(how),
    });
    this.#connection = connection;
  }

  /** Retry soon, because ipymcp may have been loaded.
   *
   * @param retries The number of retries that may follow the first.
   */
  retrySoon(retries = 1): void {
    this.#retriesLeft = Math.max(this.#retriesLeft, retries);
    if (this.#connection || this.#timer !== undefined) return;
    this.#connectAfter(Math.max(RETRY_DELAY, this.#lastTry + MIN_RETRY_INTERVAL - Date.now()));
  }

  setBusy(isBusy: boolean): void {
    this.#isBusy = isBusy;
    if (this.#usesComm && this.#state.state !== "closed") this.#setState(this.#openState());
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const connection = this.#connection;
    this.#connection = null;
    connection?.close();
  }

  // -- connection events

  #openState(): ConnectionState {
    return this.#usesComm && this.#isBusy && !this.#hasControl ? { state: "busy", reason: busy() } : { state: "open" };
  }

  #receive(message: FromKernel): void {
    this.#failures = this.#retriesLeft = 0;
    if (message.kind === "hello" && this.#hasControl !== (message.control === true)) {
      this.#hasControl = message.control === true;
      if (this.#usesComm) this.#setState(this.#openState());
    }
    if (!this.isReached) {
      this.isReached = this.wasReached = true;
      this.ended = null;
      this.#notifyChange();
    }
    for (const listener of [...this.#messages]) listener(message);
  }

  #end(how: ConnectionEnd): void {
    this.#connection = null;
    this.isReached = this.#hasControl = false;
    if (!this.#usesComm && NEEDS_COMM.has(how.reason)) {
      this.#usesComm = true;
      return this.connect();
    }
    this.ended = how;
    this.#setState({ state: "closed", reason: how.hint ? `${how.message}\n${how.hint}` : how.message });
    if (TRANSIENT.has(how.reason)) {
      this.#connectAfter(Math.min(MAX_RETRY_INTERVAL, MIN_RETRY_INTERVAL * 2 ** this.#failures++));
    } else if (this.#retriesLeft-- > 0) this.#connectAfter(SECOND_RETRY_DELAY);
    this.#notifyChange();
  }

  #connectAfter(milliseconds: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.connect(), milliseconds);
  }

  #setState(state: ConnectionState): void {
    this.#state = state;
    for (const listener of [...this.#states]) listener(state);
  }

  #notifyChange(): void {
    for (const listener of [...this.#changes]) listener();
  }
}
