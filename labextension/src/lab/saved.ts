/** The panel data saved in a notebook's outputs, next to an HTML table. */

import { cardOf } from "../store";
import type { PanelState } from "../store";
import { trans } from "../translation";
import type { ConnectionStatus } from "./connectionstatus";
import type { ConnectionEnd, EndReason } from "./connection";

export interface SavedPanel {
  /** The id of the kernel process that displayed it, as in its hello. */
  kernel: string;
  /** The server, if it is a server card. */
  server?: string;
  /** The card of a model's call that shows the question while it is open. */
  card?: string;
  /** Another output shows that card, so this one is hidden meanwhile. */
  elsewhere?: boolean;
}

/** Parse untrusted output data; null if it is invalid. */
export function parseSaved(data: unknown): SavedPanel | null {
  const { kernel, server, card, elsewhere } = (typeof data === "object" && data !== null ? data : {}) as Record<
    string,
    unknown
  >;
  if (typeof kernel !== "string" || kernel === "") return null;
  return {
    kernel,
    ...(typeof server === "string" && { server }),
    ...(typeof card === "string" && { card, elsewhere: elsewhere === true }),
  };
}

/** Whether the connected kernel displayed it. */
export function isFromKernel({ kernel }: SavedPanel, { hello }: PanelState): boolean {
  return hello?.kernel === kernel;
}

/** Whether a live panel can replace it. Questions are live only while open. */
export function isLive(saved: SavedPanel, state: PanelState): boolean {
  const { card } = saved;
  return (
    isFromKernel(saved, state) &&
    (card === undefined || Object.values(state.questions).some((each) => cardOf(each) === card))
  );
}

const KERNEL_ENDED: ReadonlySet<EndReason> = new Set<EndReason>(["ended", "unknown"]);

/** A one-line note above a table that is not live. */
export function staleNote(status: ConnectionStatus): string {
  if (status.kind === "connecting") return "";
  return `${trans.__("This is a snapshot from when the cell ran.")} ${remedy(status)}`;
}

function remedy(status: ConnectionStatus): string {
  if (status.kind === "panel") return trans.__("The kernel has changed: run the cell again for a live panel.");
  if (status.kind === "disconnected" && !KERNEL_ENDED.has(status.ended.reason)) return endText(status.ended);
  return status.kind === "no-kernel"
    ? trans.__("For a live panel, start a kernel, run %load_ext ipymcp, then run this cell again.")
    : trans.__("For a live panel, run %load_ext ipymcp, then run this cell again.");
}

const endText = ({ message, hint }: ConnectionEnd): string =>
  hint ? `${message.replace(/\.$/, "")}: ${hint}` : message;
