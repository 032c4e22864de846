import type { PanelState } from "../store";
import { trans } from "../translation";

/** Summarise server states: `MCP 2/3, 1 failed`. */
export function summary({ servers }: PanelState): string {
  const all = Object.values(servers);
  const ready = all.filter(({ state }) => state === "ready").length;
  const failed = all.filter(({ state }) => state === "error" || state === "unreachable").length;
  const counts = `MCP ${ready}/${all.length}`;
  return failed ? trans.__("%1, %2 failed", counts, failed) : counts;
}
