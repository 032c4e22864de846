/** The status of a notebook's connection to its kernel. */

import { trans } from "../translation";
import { TRANSIENT } from "./transport";
import type { KernelTransport } from "./transport";
import type { ConnectionEnd, EndReason } from "./connection";
import type { LoadProblem } from "./loadextension";
import { LOAD, RELOAD, UPGRADE } from "./loadextension";

export type ConnectionStatus =
  | { kind: "no-notebook" | "no-kernel" | "connecting" | "panel" }
  | { kind: "other-language"; language: string }
  | { kind: "absent"; command: string; loading: boolean; problem: LoadProblem | null }
  | { kind: "disconnected"; ended: ConnectionEnd };

export const NO_NOTEBOOK: ConnectionStatus = { kind: "no-notebook" };
export const NO_KERNEL: ConnectionStatus = { kind: "no-kernel" };
export const CONNECTING: ConnectionStatus = { kind: "connecting" };
const PANEL: ConnectionStatus = { kind: "panel" };

/** End reasons that `%load_ext` may fix. */
const LOADABLE: ReadonlySet<EndReason> = new Set<EndReason>(["absent", "left"]);

/** The state of loading ipymcp with the button. */
export interface LoadAttempt {
  loading: boolean;
  /** The load succeeded. */
  loaded: boolean;
  problem: LoadProblem | null;
}

export const NOT_LOADED: LoadAttempt = { loading: false, loaded: false, problem: null };

/** The problem if ipymcp is loaded but cannot be reached. */
const notFound = (): LoadProblem => ({
  message: trans.__(
    "ipymcp is loaded, but the panel cannot connect to it: the kernel's ipymcp may be older than the panel.",
  ),
  remedy: UPGRADE,
});

export function connectionStatus(
  { ended, isReached, wasReached, isTrying }: KernelTransport,
  attempt: LoadAttempt = NOT_LOADED,
): ConnectionStatus {
  if (isReached) return PANEL;
  if (ended === null) return CONNECTING;
  // The panel itself reports the lost connection and keeps what was typed.
  if (wasReached && TRANSIENT.has(ended.reason)) return PANEL;
  if (!LOADABLE.has(ended.reason)) return { kind: "disconnected", ended };
  const command = ended.hint === RELOAD ? RELOAD : LOAD;
  if (attempt.loaded && !isTrying) return { kind: "absent", command, loading: false, problem: notFound() };
  return { kind: "absent", command, loading: attempt.loading, problem: attempt.problem };
}
