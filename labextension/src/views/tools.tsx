import type { JSX } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import type { Tool } from "../protocol";
import { count, singleLine } from "../text";
import { useLatest, useLoaded, useSelect } from "./context";
import { ListAndDetail } from "./detail";
import { Badges, ProblemBox, mostSevere } from "./parts";
import { Rows } from "./rows";
import type { Draft } from "./tool";
import { ToolView } from "./tool";

interface Props {
  /** Show only this server's tools; empty for all. */
  server: string;
  onServer(server: string): void;
}

const keyOf = (tool: Tool): string => `${tool.server}\n${tool.name}`;

/** The tools of all servers and the selected tool. */
export function ToolsView({ server, onServer }: Props): JSX.Element {
  // A key that changes with everything that affects the list.
  const version = useSelect((state) =>
    Object.values(state.servers)
      .map((each) => `${each.name} ${each.state} ${each.tools} ${each.disabled_tools} ${each.tools_version}`)
      .join("\n"),
  );
  const { value: loaded, problem, reload } = useLoaded("tools", {}, version);
  const value = useLatest(loaded);
  const [search, setSearch] = useState("");
  const [chosen, setChosen] = useState<string | null>(null);
  const drafts = useRef(new Map<string, Draft>());
  const tools = value ?? [];
  const indexed = useMemo(() => tools.map(searchText), [tools]);
  const found = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    return tools.filter(
      (tool, index) => (!server || tool.server === server) && words.every((word) => indexed[index]?.includes(word)),
    );
  }, [tools, indexed, search, server]);
  const tool = tools.find((each) => keyOf(each) === chosen) ?? null;
  const keys = (event: KeyboardEvent): void => {
    const [first] = found;
    if (!first || (event.key !== "ArrowDown" && event.key !== "Enter")) return;
    event.preventDefault();
    if (event.key === "Enter") return setChosen(keyOf(first));
    const view = (event.currentTarget as HTMLElement).closest(".mcp-list");
    view?.querySelector<HTMLElement>("[role=listbox]")?.focus();
  };
  const list = (
    <>
      <div class="mcp-toolbar">
        <input
          class="mcp-input mcp-grow"
          type="search"
          aria-label="Search tools"
          placeholder="Search tools"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
          onKeyDown={keys}
        />
      </div>
      <div class="mcp-toolbar mcp-compact">
        <span class="mcp-muted" role="status">
          {found.length === tools.length ? count(tools.length) : `${count(found.length)} of ${count(tools.length)}`}
        </span>
        {server && (
          <button type="button" class="mcp-button mcp-quiet" onClick={() => onServer("")}>
            of {singleLine(server)}: show all
          </button>
        )}
      </div>
      {problem && <ProblemBox problem={problem} />}
      <Rows
        count={found.length}
        height={26}
        label="Tools"
        selected={tool ? found.indexOf(tool) : -1}
        empty={value === null ? "" : tools.length ? "No tools match the search." : "No tools: no server is ready."}
        onSelect={(index) => setChosen(found[index] ? keyOf(found[index]) : null)}
        draw={(index) => found[index] && <ToolRow tool={found[index]} />}
      />
    </>
  );
  const drafted = (key: string): Draft => {
    const draft = drafts.current.get(key) ?? { value: {}, call: null };
    drafts.current.set(key, draft);
    return draft;
  };
  return (
    <ListAndDetail
      list={list}
      detail={tool && <ToolView key={keyOf(tool)} row={tool} draft={drafted(keyOf(tool))} onChange={reload} />}
      subject={chosen ?? ""}
      hint="Choose a tool to see what it does and to run it."
      onBack={() => setChosen(null)}
    />
  );
}

const searchText = (tool: Tool): string =>
  `${tool.server}.${tool.name} ${tool.alias} ${tool.title ?? ""} ${tool.description ?? ""}`.toLowerCase();

function ToolRow({ tool }: { tool: Tool }): JSX.Element {
  return (
    <>
      <span class={tool.disabled ? "mcp-ellipsis mcp-off" : "mcp-ellipsis"}>
        <span class="mcp-muted">{singleLine(tool.server)}.</span>
        {singleLine(tool.name)}
      </span>
      <span class="mcp-row-badges">
        {tool.changed && <span class="mcp-badge mcp-badge-danger">changed</span>}
        {tool.disabled ? (
          <span class="mcp-badge mcp-badge-neutral">disabled</span>
        ) : (
          <Badges badges={mostSevere(tool.badges)} />
        )}
      </span>
    </>
  );
}
