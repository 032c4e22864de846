import type { JSX } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import type { Badge, ToolRow } from "../protocol";
import type { OfferKind } from "../store";
import { OFFER_KINDS, compareNames, toolKey } from "../store";
import { count } from "../text";
import { trans } from "../translation";
import { useAllowed, useLatest, useLoaded, usePanel, useRequest, useSelect } from "./context";
import { ListAndDetail } from "./detail";
import { IconButton } from "./icons";
import { late } from "./late";
import { OfferIcon } from "./emblem";
import type { Group } from "./offerlist";
import { OfferLine, OfferList } from "./offerlist";
import { Badges, Button } from "./parts";
import type { Draft } from "./tool";
import { ToolView } from "./tool";

const ResourcesView = late(async () => (await import("./offers")).ResourcesView);
const PromptsView = late(async () => (await import("./offers")).PromptsView);

interface Props {
  /** Show only this server's tools; empty for all. */
  server: string;
  /** The control that selects tools, resources or prompts. */
  kinds: JSX.Element;
}

const kindTitles = (): { [Kind in OfferKind]: string } => ({
  tools: trans.__("Tools"),
  resources: trans.__("Resources"),
  prompts: trans.__("Prompts"),
});

/** The tools, resources or prompts of the servers. */
export function OffersView(): JSX.Element {
  const { model } = usePanel();
  const { kind, tools } = useSelect((state) => state.navigation);
  const box = useRef<HTMLDivElement>(null);
  const visited = useRef(new Set<OfferKind>());
  visited.current.add(kind);
  const titles = kindTitles();
  const change = (next: OfferKind): void => {
    model.show("tools", { kind: next });
    setTimeout(() =>
      box.current?.querySelector<HTMLElement>(".mcp-view:not([hidden]) .mcp-kinds [aria-pressed=true]")?.focus(),
    );
  };
  const kinds = (
    <div class="mcp-toolbar mcp-kinds" role="group" aria-label={trans.__("What to list")}>
      {OFFER_KINDS.map((each) => (
        <button key={each} type="button" class="mcp-button" aria-pressed={each === kind} onClick={() => change(each)}>
          {titles[each]}
        </button>
      ))}
    </div>
  );
  const draw: { [Kind in OfferKind]: () => JSX.Element } = {
    tools: () => <ToolsView server={tools} kinds={kinds} />,
    resources: () => <ResourcesView server={tools} kinds={kinds} />,
    prompts: () => <PromptsView server={tools} kinds={kinds} />,
  };
  return (
    <div class="mcp-view" ref={box}>
      {OFFER_KINDS.map((each) => (
        <div key={each} class="mcp-view" hidden={each !== kind}>
          {visited.current.has(each) && draw[each]()}
        </div>
      ))}
    </div>
  );
}

/** The tools by server, in the servers' order, and the selected tool. */
function ToolsView({ server, kinds }: Props): JSX.Element {
  const { model } = usePanel();
  const chosen = useSelect((state) => state.navigation.tool);
  const setChosen = (tool: ToolRow | null): void => model.show("tools", { tool });
  // A key that changes with everything that affects the list.
  const version = useSelect((state) =>
    Object.values(state.servers)
      .map((each) => `${each.name} ${each.state} ${each.tools} ${each.disabled_tools} ${each.tools_version}`)
      .join("\n"),
  );
  const { value: loaded, problem, reload } = useLoaded("tools", {}, version);
  const value = useLatest(loaded);
  const [picked, setPicked] = useState<ReadonlySet<string> | null>(null);
  const mayPick = useAllowed("enable_tools");
  const drafts = useRef(new Map<string, Draft>());
  const groups = useMemo(() => value && groupsOf(value), [value]);
  const tool = value?.find((each) => toolKey(each) === chosen) ?? null;
  const list = (
    <OfferList<ToolRow>
      kinds={kinds}
      label={trans.__("Tools")}
      searchLabel={trans.__("Search tools")}
      groups={groups}
      server={server}
      total={(length) => trans._n("%2 tool", "%2 tools", length, count(length))}
      empty={trans.__("No tools: no server is ready.")}
      problems={problem ? [problem] : []}
      textOf={textOf}
      keyOf={toolKey}
      hasSecondLine={({ description }) => Boolean(description)}
      draw={(each) => (
        <OfferLine
          name={each.name}
          title={`${each.server}.${each.name}`}
          description={each.description}
          off={each.disabled}
          icon={<OfferIcon server={each.server} of="tools" name={each.name} has={each.has_icon} />}
        >
          <Badges badges={exceptions(each)} />
        </OfferLine>
      )}
      chosen={chosen}
      onChoose={setChosen}
      picked={picked}
      onPick={setPicked}
      action={
        mayPick && (
          <IconButton
            icon="select"
            label={trans.__("Enable or disable several tools")}
            pressed={picked !== null}
            onClick={() => setPicked(picked ? null : new Set())}
          />
        )
      }
      bar={(found) => picked && <PickedActions tools={found} picked={picked} onPick={setPicked} />}
    />
  );
  const drafted = (key: string): Draft => {
    const draft = drafts.current.get(key) ?? { value: {}, call: null };
    drafts.current.set(key, draft);
    return draft;
  };
  return (
    <ListAndDetail
      list={list}
      detail={tool && <ToolView key={toolKey(tool)} row={tool} draft={drafted(toolKey(tool))} onChange={reload} />}
      subject={chosen}
      hint={trans.__("Choose a tool to see what it does and to run it.")}
      onBack={() => setChosen(null)}
    />
  );
}

const textOf = (tool: ToolRow): string =>
  `${tool.server}.${tool.name} ${tool.alias} ${tool.title ?? ""} ${tool.description ?? ""}`.toLowerCase();

/** The tools by server, in the order of the list of servers. */
function groupsOf(tools: ToolRow[]): Group<ToolRow>[] {
  const groups = new Map<string, ToolRow[]>();
  for (const tool of tools) {
    const group = groups.get(tool.server);
    if (group) group.push(tool);
    else groups.set(tool.server, [tool]);
  }
  return [...groups].sort(([one], [other]) => compareNames(one, other));
}

/** Buttons for the ticked tools. */
function PickedActions(props: {
  tools: ToolRow[];
  picked: ReadonlySet<string>;
  onPick(picked: ReadonlySet<string>): void;
}): JSX.Element {
  const act = useRequest();
  const { tools, picked, onPick } = props;
  const wanted = tools.filter((tool) => picked.has(toolKey(tool))).map(({ server, name }) => ({ server, tool: name }));
  const change = async (verb: "enable_tools" | "disable_tools"): Promise<void> => {
    const { length } = wanted;
    const done =
      verb === "enable_tools"
        ? trans._n("%2 tool enabled.", "%2 tools enabled.", length, count(length))
        : trans._n("%2 tool disabled.", "%2 tools disabled.", length, count(length));
    // The reply to either has no value; a refusal gives undefined.
    if ((await act(verb, { tools: wanted }, done)) !== undefined) onPick(new Set());
  };
  return (
    <div class="mcp-toolbar mcp-picked" role="group" aria-label={trans.__("Selected tools")}>
      <span class="mcp-grow" role="status">
        {trans.__("%1 selected", count(wanted.length))}
      </span>
      <Button quiet onClick={() => onPick(wanted.length === tools.length ? new Set() : new Set(tools.map(toolKey)))}>
        {wanted.length === tools.length ? trans.__("None") : trans.__("All")}
      </Button>
      <Button disabled={!wanted.length} onClick={() => void change("enable_tools")}>
        {trans.__("Enable")}
      </Button>
      <Button disabled={!wanted.length} onClick={() => void change("disable_tools")}>
        {trans.__("Disable")}
      </Button>
    </div>
  );
}

/** What one has to know of a tool before running it; nothing for most. */
function exceptions({ changed, disabled, decision, badges }: ToolRow): (Badge & { title: string })[] {
  const all: (false | (Badge & { title: string }))[] = [
    changed && {
      text: trans.__("changed"),
      kind: "danger",
      title: trans.__("Its definition has changed since it was first seen."),
    },
    disabled && { text: trans.__("disabled"), kind: "neutral", title: trans.__("It cannot be called.") },
    decision === "deny" && {
      text: trans.__("denied"),
      kind: "danger",
      title: trans.__("Your policy denies its calls."),
    },
    decision === "ask" && { text: trans.__("asks"), kind: "neutral", title: trans.__("You are asked before it runs.") },
    ...badges
      .filter(({ kind }) => kind === "danger")
      .map((badge) => ({ ...badge, title: trans.__("Its server says that it may destroy or overwrite something.") })),
  ];
  return all.filter((each) => each !== false);
}
