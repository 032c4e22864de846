/** What a notebook's file keeps of a panel, beside a table of HTML. */

import type { PanelState } from "../store";
import type { Standing } from "./standing";
import type { Ended, Why } from "./way";

export const TYPE = "application/vnd.ipymcp.panel+json";

export interface Saved {
  /** The kernel's life that showed it, as its hello names it. */
  kernel: string;
  /** Of a server's card. */
  server?: string;
  /** Of a card of a model's call: the one that has the question, as long as that is open. */
  card?: string;
  /** That is another one: this one hides meanwhile. */
  elsewhere?: boolean;
}

/** What an output says, which anybody may have written; null where that is nothing to go by. */
export function savedIn(data: unknown): Saved | null {
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

/** Whether the kernel that showed it is the one that is talked to. */
export function isOf({ kernel }: Saved, { hello }: PanelState): boolean {
  return hello?.kernel === kernel;
}

/** Whether there is something live to show in its place: a question only while it is open. */
export function isLive(saved: Saved, state: PanelState): boolean {
  const { card } = saved;
  return (
    isOf(saved, state) && (card === undefined || Object.values(state.questions).some((each) => each.card === card))
  );
}

const PAST = "This is how it was when the cell ran.";
const LOAD_AGAIN = "For a live panel run %load_ext ipymcp, then this cell again.";
const OVER: ReadonlySet<Why> = new Set<Why>(["ended", "unknown"]);

/** What to say above a table that is not live: one line. */
export function howToRevive(standing: Standing): string {
  switch (standing.is) {
    case "connecting":
      return "";
    case "panel":
      return `${PAST} The kernel is another one now: run the cell again for a live panel.`;
    case "hindered":
      return `${PAST} ${OVER.has(standing.ended.why) ? LOAD_AGAIN : hindrance(standing.ended)}`;
    case "no-kernel":
      return `${PAST} For a live panel start a kernel, run %load_ext ipymcp, then this cell again.`;
    default:
      return `${PAST} ${LOAD_AGAIN}`;
  }
}

const hindrance = ({ message, hint }: Ended): string => (hint ? `${message.replace(/\.$/, "")}: ${hint}` : message);
