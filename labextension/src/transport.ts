import type { FromKernel, ToKernel } from "./protocol";

/** The state of the connection to the kernel, with a reason to display. */
export type ConnectionState =
  { state: "connecting" | "open"; reason?: undefined } | { state: "busy" | "closed"; reason: string };

export type Unsubscribe = () => void;

/** An ordered message channel between a panel and the kernel. */
export interface Transport {
  send(message: ToKernel): void;
  onMessage(listener: (message: FromKernel) => void): Unsubscribe;
  /** Call the listener with the current state, then on every change. */
  onState(listener: (connection: ConnectionState) => void): Unsubscribe;
}
