/** The servers that this notebook used before, to be loaded again. */

import type { JSX } from "preact";
import type { UsedServers } from "../protocol";
import { singleLine } from "../text";
import { trans } from "../translation";
import { useAllowed, useLoaded, usePanel, useRequest } from "./context";
import { Button } from "./parts";

const LOAD_EXTENSION = "%load_ext ipymcp";

/** A sentence with the names of these servers. */
export const usedSentence = (names: readonly string[]): string =>
  trans.__("This notebook used %1.", names.map(singleLine).join(", "));

/** The code of a cell that loads servers by a `%mcp` line. */
export const loadingCell = (line: string): string => [LOAD_EXTENSION, line].filter(Boolean).join("\n");

/** The servers that the notebook used and that are not loaded; null until the kernel has replied. */
export function useUsed(): UsedServers | null {
  const may = useAllowed("used");
  return useLoaded("used", may ? {} : null, "used").value;
}

/** Buttons that load the servers again, or show the cells that load them. */
export function Restore({ used }: { used: UsedServers }): JSX.Element {
  const { services } = usePanel();
  const act = useRequest();
  const { names, what, line, typed } = used;
  const { insertFirst, cellThatLoads } = services;
  return (
    <section class="mcp-restore" aria-label={trans.__("Servers used before")}>
      <h2>{usedSentence(names)}</h2>
      {line !== "" && (
        <div class="mcp-actions">
          <Button primary onClick={() => void act("load", { what })}>
            {trans.__("Load again")}
          </Button>
          {insertFirst && (
            <Button onClick={() => insertFirst(loadingCell(line))}>{trans.__("Insert as first cell")}</Button>
          )}
        </div>
      )}
      {typed.map((name) => {
        const go = cellThatLoads?.(name);
        return (
          <p key={name}>
            {trans.__("%1 is defined only in a cell: run that again, or add it again.", singleLine(name))}{" "}
            {go && (
              <Button quiet label={trans.__("Go to the cell of %1", singleLine(name))} onClick={go}>
                {trans.__("Go to cell")}
              </Button>
            )}
          </p>
        );
      })}
    </section>
  );
}
