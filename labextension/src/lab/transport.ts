/** How a sidebar talks to one kernel: by the relay, else over a comm, for as long as there is a kernel. */

import type { FromKernel, ToKernel } from "../protocol";
import type { Connection, Transport, Unsubscribe } from "../transport";
import type { Ended, OpenWay, Way, Why } from "./way";

/** The comm is what is left then. */
const UNREACHABLE: ReadonlySet<Why> = new Set<Why>(["none", "elsewhere"]);
/** What may pass by itself. */
export const PASSING: ReadonlySet<Why> = new Set<Why>(["lost", "silent"]);

/** In milliseconds: after a cell, when what it loaded has had time to say where it is; and once more. */
const SOON = 300;
const AGAIN = 1500;
/** Between two tries at least; doubled each time where nobody answers. */
const PAUSE = 1000;
const LONGEST_PAUSE = 30_000;

const BUSY = "a cell runs, and this Jupyter server has no relay to the kernel: answers may wait for its end";
const CONNECTING: Connection = { state: "connecting" };

export interface Ways {
  relay: OpenWay;
  comm: OpenWay;
}

export class KernelTransport implements Transport {
  /** Why nothing comes from the kernel; null once something has come. */
  ended: Ended | null = null;
  /** Whether the kernel has said anything since the connection was opened. */
  isReached = false;
  /** Whether it ever has. */
  wasReached = false;
  private readonly messages = new Set<(message: FromKernel) => void>();
  private readonly states = new Set<(connection: Connection) => void>();
  private readonly news = new Set<() => void>();
  private connection = CONNECTING;
  private way: Way | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private byComm = false;
  private isBusy = false;
  /** Whether the kernel hears what is said while it is busy. */
  private hasControl = false;
  private failures = 0;
  private lastTry = -Infinity;
  private hopes = 0;

  constructor(private readonly ways: Ways) {}

  // -- as a transport --------------------------------------------------------------------------------------------------

  send(message: ToKernel): void {
    this.way?.send(message);
  }

  onMessage(listener: (message: FromKernel) => void): Unsubscribe {
    this.messages.add(listener);
    return () => this.messages.delete(listener);
  }

  onState(listener: (connection: Connection) => void): Unsubscribe {
    this.states.add(listener);
    listener(this.connection);
    return () => this.states.delete(listener);
  }

  // -- for who shows it ------------------------------------------------------------------------------------------------

  /** Hear when `ended` or `isReached` changed. */
  onNews(listener: () => void): Unsubscribe {
    this.news.add(listener);
    return () => this.news.delete(listener);
  }

  /** Whether it connects, or will soon, by itself. */
  get isTrying(): boolean {
    return this.way !== null || this.timer !== undefined;
  }

  /** Connect, if it is not connected. */
  connect(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.way) return;
    this.lastTry = Date.now();
    const open = this.byComm ? this.ways.comm : this.ways.relay;
    const way: Way = open({
      opened: () => way === this.way && this.become(this.opened()),
      heard: (message) => way === this.way && this.heard(message),
      ended: (how) => way === this.way && this.end(how),
    });
    this.way = way;
  }

  /** A cell has ended: the kernel may be reached now, if it could not before. */
  knock(): void {
    if (this.way || this.timer !== undefined) return;
    this.hopes = 1;
    this.after(Math.max(SOON, this.lastTry + PAUSE - Date.now()));
  }

  setBusy(isBusy: boolean): void {
    this.isBusy = isBusy;
    if (this.byComm && this.connection.state !== "closed") this.become(this.opened());
  }

  close(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    const { way } = this;
    this.way = null;
    way?.close();
  }

  // -- what a way tells ------------------------------------------------------------------------------------------------

  private opened(): Connection {
    return this.byComm && this.isBusy && !this.hasControl ? { state: "busy", reason: BUSY } : { state: "open" };
  }

  private heard(message: FromKernel): void {
    this.failures = this.hopes = 0;
    if (message.kind === "hello" && this.hasControl !== (message.control === true)) {
      this.hasControl = message.control === true;
      if (this.byComm) this.become(this.opened());
    }
    if (!this.isReached) {
      this.isReached = this.wasReached = true;
      this.ended = null;
      this.tell();
    }
    for (const listener of [...this.messages]) listener(message);
  }

  private end(how: Ended): void {
    this.way = null;
    this.isReached = this.hasControl = false;
    if (!this.byComm && UNREACHABLE.has(how.why)) {
      this.byComm = true;
      return this.connect();
    }
    this.ended = how;
    this.become({ state: "closed", reason: how.hint ? `${how.message}\n${how.hint}` : how.message });
    if (PASSING.has(how.why)) this.after(Math.min(LONGEST_PAUSE, PAUSE * 2 ** this.failures++));
    else if (this.hopes-- > 0) this.after(AGAIN);
    this.tell();
  }

  private after(milliseconds: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), milliseconds);
  }

  private become(connection: Connection): void {
    this.connection = connection;
    for (const listener of [...this.states]) listener(connection);
  }

  private tell(): void {
    for (const listener of [...this.news]) listener();
  }
}
