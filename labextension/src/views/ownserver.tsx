/** Actions for the servers that ipymcp's own files define, and the button that adds a server. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { JsonObject, ServerRow } from "../protocol";
import { withAdding } from "../store";
import { singleLine } from "../text";
import { trans } from "../translation";
import { useAllowed, useMode, usePanel, useRequest } from "./context";
import type { MenuItem } from "./menu";
import { Button } from "./parts";

interface OwnServer {
  items(): MenuItem[];
  /** The question before the server is removed. */
  confirmation: JSX.Element | null;
}

/** Return the menu items for a server, which are none unless one of ipymcp's own files defines it. */
export function useOwnServer(server: ServerRow): OwnServer {
  const { model } = usePanel();
  const act = useRequest();
  const may = useMode();
  const [removing, setRemoving] = useState(false);
  if (!server.own || !may("definition") || model.scope.server !== undefined) {
    return { items: () => [], confirmation: null };
  }
  const name = singleLine(server.name);
  const edit = async (replaces: string | null): Promise<void> => {
    const found = await act("definition", { server: server.name });
    if (!found) return;
    const definition = JSON.parse(found.text) as JsonObject;
    const begin = { definition, keep: found.keep, replaces, name: replaces ?? `${server.name}_2` };
    model.store.set(withAdding(model.store.get(), { kind: "url" in definition ? "url" : "command", ...begin }));
  };
  const remove = (): void => {
    setRemoving(false);
    void act("remove", { server: server.name }, trans.__("%1 was removed.", name));
  };
  return {
    items: () => [
      { label: trans.__("Edit\u2026"), onChoose: () => void edit(server.name), isSeparate: true },
      { label: trans.__("Duplicate\u2026"), onChoose: () => void edit(null) },
      { label: trans.__("Remove\u2026"), onChoose: () => setRemoving(true) },
    ],
    confirmation: removing ? (
      <div class="mcp-details" role="alertdialog" aria-label={trans.__("Remove %1?", name)}>
        <p>{trans.__("Remove %1 from %2, with the secrets that only it uses?", name, singleLine(server.source))}</p>
        <div class="mcp-actions">
          <Button onClick={remove}>{trans.__("Remove")}</Button>
          <Button onClick={() => setRemoving(false)}>{trans.__("Cancel")}</Button>
        </div>
      </div>
    ) : null,
  };
}

/** The button that opens the view that adds a server; null if servers may not be added. */
export function AddButton(): JSX.Element | null {
  const { model } = usePanel();
  const may = useAllowed("try");
  if (!may) return null;
  return <Button onClick={() => model.store.set(withAdding(model.store.get()))}>{trans.__("Add server\u2026")}</Button>;
}
