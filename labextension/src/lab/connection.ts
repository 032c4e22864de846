/** A connection to a kernel's panel. */

import type { FromKernel, ToKernel } from "../protocol";

/** The reason why a connection ended. The relay sends all but the last three. */
export type EndReason =
  | "absent" // ipymcp is not loaded in the kernel
  | "left" // the kernel closed its socket
  | "ended" // the kernel process has ended
  | "unknown" // Jupyter does not know the kernel
  | "elsewhere" // the Jupyter server cannot reach the kernel
  | "foreign" // the answering process is not trusted
  | "silent" // the kernel did not respond
  | "denied" // the user may not run code
  | "none" // this Jupyter server has no relay
  | "lost"; // the connection broke

export interface ConnectionEnd {
  reason: EndReason;
  message: string;
  hint?: string;
}

export interface Connection {
  send(message: ToKernel): void;
  close(): void;
}

/** The listeners of a connection. They are called only after `Connect` has returned, and never after `close`. */
export interface ConnectionEvents {
  opened(): void;
  received(message: FromKernel): void;
  /** The last event of a connection. */
  ended(how: ConnectionEnd): void;
}

export type Connect = (events: ConnectionEvents) => Connection;
