import type { FromKernel, ToKernel } from "./protocol";

/** How things stand with the kernel; the reason is shown. */
export type Connection =
  { state: "connecting" | "open"; reason?: undefined } | { state: "busy" | "closed"; reason: string };

export type Unsubscribe = () => void;

/** Carries messages between a view and the kernel, in order, or is closed. */
export interface Transport {
  send(message: ToKernel): void;
  onMessage(listener: (message: FromKernel) => void): Unsubscribe;
  /** Tells how it stands at once, and then every change. */
  onState(listener: (connection: Connection) => void): Unsubscribe;
}
