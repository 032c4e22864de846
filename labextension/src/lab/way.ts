/** One connection to a kernel's panel, from when it is opened to its end. */

import type { FromKernel, ToKernel } from "../protocol";

/** Why a connection ended, in one word. The relay says all but the last three. */
export type Why =
  | "absent" // ipymcp is not loaded there
  | "left" // the kernel closed its socket
  | "ended" // the kernel is gone
  | "unknown" // Jupyter does not know the kernel
  | "elsewhere" // the kernel is out of the Jupyter server's reach
  | "foreign" // what answers is not to be believed
  | "silent" // it does not answer
  | "denied" // the user may not run code
  | "none" // this Jupyter server has no relay
  | "lost"; // the connection broke

export interface Ended {
  why: Why;
  message: string;
  hint?: string;
}

export interface Way {
  send(message: ToKernel): void;
  close(): void;
}

/** None of it is told before `open` has returned, and nothing after it was closed from here. */
export interface WayEvents {
  opened(): void;
  heard(message: FromKernel): void;
  /** The last that is heard of it. */
  ended(how: Ended): void;
}

export type OpenWay = (events: WayEvents) => Way;
