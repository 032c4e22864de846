import type { PanelState } from "../store";

/** Summarise server states: `MCP 2/3, 1 failed`. */
export function summary({ servers }: PanelState): string {
  const all = Object.values(servers);
  const ready = all.filter(({ state }) => state === "ready").length;
  const failed = all.filter(({ state }) => state === "error" || state === "unreachable").length;
  return `MCP ${ready}/${all.length}${failed ? `, ${failed} failed` : ""}`;
}
