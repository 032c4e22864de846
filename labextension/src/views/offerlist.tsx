/** A searchable list of tools, resources or prompts, grouped by server. */

import type { ComponentChildren, JSX } from "preact";
import { useCallback, useMemo, useState } from "preact/hooks";
import type { Problem } from "../protocol";
import { singleLine } from "../text";
import { trans } from "../translation";
import { usePanel } from "./context";
import { Emblem } from "./emblem";
import { ProblemBox, SearchField } from "./parts";
import { plainLine } from "./prose";
import type { TreeItem } from "./rows";
import { Rows } from "./rows";

/** A server and its rows. */
export type Group<Row> = [server: string, rows: Row[]];

/** A row of the tree: a server, or a row of the server above it. */
interface Item<Row> extends TreeItem {
  server: string;
  /** The matching rows of the server, or the single row. */
  rows: Row[];
}

interface Props<Row> {
  /** The control that selects tools, resources or prompts. */
  kinds: JSX.Element;
  label: string;
  searchLabel: string;
  /** All rows by server, in the servers' order; null before they are known. */
  groups: Group<Row>[] | null;
  /** Show only this server's rows; empty for all. */
  server: string;
  /** Format a number of rows: `3 tools`. */
  total(count: number): string;
  empty: string;
  problems?: Problem[];
  /** The text that is searched, in lower case. */
  textOf(row: Row): string;
  keyOf(row: Row): string;
  hasSecondLine(row: Row): boolean;
  draw(row: Row): ComponentChildren;
  chosen: string | null;
  onChoose(row: Row): void;
  /** The keys of the ticked rows; absent or null if rows cannot be ticked. */
  picked?: ReadonlySet<string> | null;
  onPick?(picked: ReadonlySet<string>): void;
  /** Shown beside the search field. */
  action?: ComponentChildren;
  /** Draw a bar above the list, for the matching rows. */
  bar?(found: Row[]): ComponentChildren;
}

const ROW_HEIGHT = 26;
const TWO_LINES_HEIGHT = 40;
const NO_ITEM: TreeItem = { position: 1, size: 1 };
const NONE: ReadonlySet<string> = new Set();

export function OfferList<Row>(props: Props<Row>): JSX.Element {
  const { groups, server, total, textOf, keyOf, hasSecondLine, chosen, onChoose, picked = null, onPick } = props;
  const { model } = usePanel();
  const [search, setSearch] = useState("");
  const [allClosed, setAllClosed] = useState(NONE);
  // A search opens all groups.
  const [foundClosed, setFoundClosed] = useState(NONE);
  const [closed, setClosed] = search ? [foundClosed, setFoundClosed] : [allClosed, setAllClosed];
  const found = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const isFound = (row: Row): boolean => {
      const text = words.length ? textOf(row) : "";
      return words.every((word) => text.includes(word));
    };
    return (groups ?? [])
      .filter(([name]) => !server || name === server)
      .map(([name, rows]): Group<Row> => [name, rows.filter(isFound)])
      .filter(([, rows]) => rows.length > 0);
  }, [groups, search, server]);
  const items = useMemo(() => itemsOf(found, closed, picked, keyOf), [found, closed, picked]);
  const height = useCallback(
    (index: number) => {
      const item = items[index];
      const [row] = item?.rows ?? [];
      return item?.expanded === undefined && row && hasSecondLine(row) ? TWO_LINES_HEIGHT : ROW_HEIGHT;
    },
    [items],
  );
  const shown = found.flatMap(([, rows]) => rows);
  const all = (groups ?? []).reduce((sum, [name, rows]) => sum + (!server || name === server ? rows.length : 0), 0);
  const toggle = (index: number): void => {
    const item = items[index];
    if (item) setClosed(toggled(closed, [item.server]));
  };
  const select = (index: number): void => {
    const item = items[index];
    const [row] = item?.rows ?? [];
    if (!item || !row) return;
    if (picked) onPick?.(toggled(picked, item.rows.map(keyOf)));
    else if (item.expanded === undefined) onChoose(row);
    else toggle(index);
  };
  const find = (words: string): void => {
    setSearch(words);
    setFoundClosed(NONE);
  };
  const keys = (event: KeyboardEvent): void => {
    const [first] = shown;
    if (!first || (event.key !== "ArrowDown" && event.key !== "Enter")) return;
    event.preventDefault();
    if (event.key === "Enter") return onChoose(first);
    const view = (event.currentTarget as HTMLElement).closest(".mcp-list");
    view?.querySelector<HTMLElement>("[role=tree]")?.focus();
  };
  return (
    <>
      {props.kinds}
      <div class="mcp-toolbar">
        <SearchField label={props.searchLabel} value={search} onInput={find} onKeyDown={keys} />
        {props.action}
      </div>
      <div class={`mcp-toolbar mcp-compact${search || server ? "" : " mcp-visually-hidden"}`}>
        <span class="mcp-muted" role="status">
          {groups && (shown.length === all ? total(all) : trans.__("%1 of %2", shown.length, total(all)))}
        </span>
        {server && (
          <button type="button" class="mcp-button mcp-quiet" onClick={() => model.show("tools", { server: "" })}>
            {trans.__("of %1: show all", singleLine(server))}
          </button>
        )}
      </div>
      {props.bar?.(shown)}
      {props.problems?.map((problem) => (
        <ProblemBox key={problem.message} problem={problem} />
      ))}
      <Rows
        count={items.length}
        keyOf={(index) => {
          const item = items[index];
          return item
            ? `${item.server}\n${item.expanded === undefined && item.rows[0] ? keyOf(item.rows[0]) : ""}`
            : "";
        }}
        height={height}
        label={props.label}
        selected={items.findIndex(
          ({ expanded, rows: [row] }) => expanded === undefined && row !== undefined && keyOf(row) === chosen,
        )}
        empty={groups === null ? "" : all ? trans.__("Nothing matches the search.") : props.empty}
        start={Math.max(
          0,
          items.findIndex(({ expanded }) => expanded === undefined),
        )}
        version={search}
        onSelect={select}
        onToggle={toggle}
        item={(index) => items[index] ?? NO_ITEM}
        draw={(index) => items[index] && <Line item={items[index]} draw={props.draw} total={total} />}
      />
    </>
  );
}

function itemsOf<Row>(
  groups: Group<Row>[],
  closed: ReadonlySet<string>,
  picked: ReadonlySet<string> | null,
  keyOf: (row: Row) => string,
): Item<Row>[] {
  return groups.flatMap(([server, rows], index) => {
    const ticks = picked && rows.filter((row) => picked.has(keyOf(row))).length;
    const group: Item<Row> = {
      server,
      rows,
      expanded: !closed.has(server),
      position: index + 1,
      size: groups.length,
      ...(ticks !== null && { checked: ticks === 0 ? false : ticks === rows.length || "mixed" }),
    };
    if (closed.has(server)) return [group];
    const members = rows.map((row, at): Item<Row> => ({
      server,
      rows: [row],
      position: at + 1,
      size: rows.length,
      ...(picked && { checked: picked.has(keyOf(row)) }),
    }));
    return [group, ...members];
  });
}

/** Add keys to a set, or remove them if it has all of them. */
function toggled(set: ReadonlySet<string>, keys: string[]): ReadonlySet<string> {
  const fresh = new Set(set);
  const isOn = keys.every((key) => set.has(key));
  for (const key of keys) {
    if (isOn) fresh.delete(key);
    else fresh.add(key);
  }
  return fresh;
}

function Line<Row>({ item, draw, total }: { item: Item<Row> } & Pick<Props<Row>, "draw" | "total">): JSX.Element {
  const box = item.checked !== undefined && <span class="mcp-tick" aria-hidden="true" />;
  const [row] = item.rows;
  if (item.expanded === undefined && row) {
    return (
      <>
        {box}
        {draw(row)}
      </>
    );
  }
  return (
    <>
      {box}
      <span class="mcp-group mcp-ellipsis">
        <Emblem server={item.server} />
        {singleLine(item.server)}
      </span>
      <span class="mcp-muted mcp-figure">{total(item.rows.length)}</span>
    </>
  );
}

/** The contents of a row: a name, and a description below it. */
export function OfferLine(props: {
  name: string;
  title: string;
  description: string | null | undefined;
  off?: boolean;
  icon?: JSX.Element;
  children?: ComponentChildren;
}): JSX.Element {
  const { description } = props;
  return (
    <>
      {props.icon}
      <span class="mcp-member mcp-grow">
        <span class={props.off ? "mcp-ellipsis mcp-off" : "mcp-ellipsis"} title={singleLine(props.title)}>
          {singleLine(props.name)}
        </span>
        {description && (
          <span class="mcp-muted mcp-ellipsis" title={plainLine(description)}>
            {plainLine(description)}
          </span>
        )}
      </span>
      <span class="mcp-row-badges">{props.children}</span>
    </>
  );
}
