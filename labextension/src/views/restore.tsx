/** The servers that this notebook used before, to be loaded again. */

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { Panel } from "../panelmodel";
import type { UsedServers } from "../protocol";
import { problemOf } from "../store";
import { listed, singleLine } from "../text";
import { trans } from "../translation";
import { problemText, useAllowed, useLoaded, usePanel, useRequest, useSelect } from "./context";
import { Button } from "./parts";

const LOAD_EXTENSION = "%load_ext ipymcp";

const NOTHING_USED: UsedServers = { names: [], what: [], line: "", typed: [] };

/** A question with the names of these servers. */
export const restoreQuestion = (names: readonly string[]): string => trans.__("Restore %1?", listed(names));

/** The code of a cell that loads servers by a `%mcp` line. */
export const loadingCell = (line: string): string => [LOAD_EXTENSION, line].filter(Boolean).join("\n");

/** The servers that the notebook used and that are not loaded; null until the kernel has replied. */
export function useUsed(): UsedServers | null {
  const may = useAllowed("used");
  const { model } = usePanel();
  const loaded = useSelect(({ servers }) => Object.keys(servers).join());
  const { value } = useLoaded("used", may ? {} : null, loaded);
  useEffect(() => {
    if (value) model.store.set({ used: value });
  }, [value]);
  const used = useSelect((state) => state.used);
  const servers = useSelect((state) => state.servers);
  const missing = (name: string): boolean => !(name in servers);
  return used && { ...used, names: used.names.filter(missing), typed: used.typed.filter(missing) };
}

/** Load the servers again, with the tools that were disabled and the rules, and say what is missing. */
export async function restore(model: Panel): Promise<void> {
  try {
    const { missing } = await model.request("restore", {});
    const lines = missing.map(({ name, reason }) => `${singleLine(name)}: ${singleLine(reason)}`);
    if (lines.length) model.notify([trans.__("Not restored:"), ...lines].join("\n"), true);
  } catch (error) {
    model.notify(problemText(problemOf(error)), true);
  }
}

/** Buttons that load the servers again or forget them, or show the cells that load them. */
export function Restore({ used }: { used: UsedServers }): JSX.Element | null {
  const { model, services } = usePanel();
  const act = useRequest();
  const { names, line, typed } = used;
  const { insertFirst, cellThatLoads } = services;
  if (!names.length) return null;
  const others = names.filter((name) => !typed.includes(name));
  const forget = async (): Promise<void> => {
    await act("forget", { what: names });
    model.store.set({ used: NOTHING_USED });
  };
  return (
    <section class="mcp-restore" aria-label={trans.__("Servers used before")}>
      {others.length > 0 && <h2>{restoreQuestion(others)}</h2>}
      {typed.map((name) => {
        const go = cellThatLoads?.(name);
        return (
          <p key={name}>
            {go
              ? trans.__("%1 was loaded by a cell: run that cell again.", singleLine(name))
              : trans.__("%1 was loaded by a cell that is gone: add it again.", singleLine(name))}{" "}
            {go && (
              <Button quiet label={trans.__("Go to the cell of %1", singleLine(name))} onClick={go}>
                {trans.__("Go to cell")}
              </Button>
            )}
          </p>
        );
      })}
      <div class="mcp-actions">
        {others.length > 0 && (
          <Button primary onClick={() => void restore(model)}>
            {trans.__("Restore")}
          </Button>
        )}
        {others.length > 0 && insertFirst && (
          <Button onClick={() => insertFirst(loadingCell(line))}>{trans.__("Insert as first cell")}</Button>
        )}
        <Button quiet onClick={() => void forget()}>
          {trans.__("Forget")}
        </Button>
      </div>
    </section>
  );
}
