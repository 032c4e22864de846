/** How a notebook stands with its kernel, where the panel itself has nothing to show yet. */

import { PASSING } from "./transport";
import type { KernelTransport } from "./transport";
import type { Ended, Why } from "./way";
import type { LoadProblem } from "./loading";
import { LOAD, RELOAD, UPGRADE } from "./loading";

export type Standing =
  | { is: "no-notebook" | "no-kernel" | "connecting" | "panel" }
  | { is: "other-language"; language: string }
  | { is: "absent"; command: string; loading: boolean; problem: LoadProblem | null }
  | { is: "hindered"; ended: Ended };

export const NO_NOTEBOOK: Standing = { is: "no-notebook" };
export const NO_KERNEL: Standing = { is: "no-kernel" };
export const CONNECTING: Standing = { is: "connecting" };
export const OTHER_LANGUAGE = { is: "other-language" } as const;
const PANEL: Standing = { is: "panel" };

/** What `%load_ext` may mend. */
const LOADABLE: ReadonlySet<Why> = new Set<Why>(["absent", "left"]);

/** What came of the load button. */
export interface Attempt {
  loading: boolean;
  /** It ran, and did not fail. */
  loaded: boolean;
  problem: LoadProblem | null;
}

export const NOT_TRIED: Attempt = { loading: false, loaded: false, problem: null };

/** Loaded, and yet nobody is there. */
const MUTE: LoadProblem = {
  message: "ipymcp is loaded, but this panel does not find it: the kernel's ipymcp may be older than the panel.",
  remedy: UPGRADE,
};

export function standingOf(
  { ended, isReached, wasReached, isTrying }: KernelTransport,
  attempt: Attempt = NOT_TRIED,
): Standing {
  if (isReached) return PANEL;
  if (ended === null) return CONNECTING;
  // The panel says itself that it lost its kernel, and what was typed into it stays.
  if (wasReached && PASSING.has(ended.why)) return PANEL;
  if (!LOADABLE.has(ended.why)) return { is: "hindered", ended };
  const command = ended.hint === RELOAD ? RELOAD : LOAD;
  if (attempt.loaded && !isTrying) return { is: "absent", command, loading: false, problem: MUTE };
  return { is: "absent", command, loading: attempt.loading, problem: attempt.problem };
}
