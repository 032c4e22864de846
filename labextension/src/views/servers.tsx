import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import type { ServerRow, UnloadedServer, UsedServers, Verb } from "../protocol";
import type { OfferKind, Target } from "../store";
import { isVisitor, serversOf } from "../store";
import { bytes, count, singleLine, visible, wholeDuration } from "../text";
import { trans } from "../translation";
import type { Loaded } from "./context";
import {
  useRequest,
  useLoaded,
  useAllowed,
  useInsert,
  useMode,
  useNow,
  usePanel,
  useSelect,
  useUniqueId,
} from "./context";
import { Emblem } from "./emblem";
import type { IconName } from "./icons";
import { Icon, IconButton } from "./icons";
import { late } from "./late";
import type { MenuItem } from "./menu";
import { MenuButton } from "./menu";
import { AddButton, useOwnServer } from "./ownserver";
import { ACTION_TITLES, Button, Disclosure, Fact, ProblemBox, StateMark, stateView } from "./parts";
import { Restore, useUsed } from "./restore";
import { StartView } from "./starting";
import type { ServerAction } from "./parts";

const AddView = late(async () => (await import("./add")).AddView);

/** Open a view for a server: its tools, resources and prompts, its messages or its log. */
export type Go = (view: "tools" | "activity" | "logs", target: Target) => void;

const DEMO = { name: "demo", where: "" };

const ACTION_ICONS: Partial<{ [A in ServerAction]: IconName }> = {
  start: "start",
  stop: "stop",
  restart: "restart",
  enable: "start",
  trust: "trust",
  login: "login",
};

export function ServersView({ go }: { go: Go }): JSX.Element {
  const all = useSelect((state) => state.servers);
  const servers = serversOf(all);
  const [loading, setLoading] = useState(false);
  const { model } = usePanel();
  const adding = useSelect((state) => state.adding);
  if (adding) {
    return <AddView key={adding.name} adding={adding} onClose={() => model.store.set({ adding: null })} />;
  }
  const used = useUsed();
  if (!servers.length) return <EmptyState used={used} />;
  return (
    <div class="mcp-view">
      <Toolbar servers={servers} loading={loading} onLoading={setLoading} />
      <div class="mcp-scroll">
        {used && <Restore used={used} />}
        {loading && <ConfiguredServers />}
        <ul aria-label={trans.__("Servers")}>
          {servers.map((server) => (
            <li key={server.name}>
              <ServerCard server={server} go={go} />
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

function Toolbar({
  servers,
  loading,
  onLoading,
}: {
  servers: ServerRow[];
  loading: boolean;
  onLoading(loading: boolean): void;
}): JSX.Element {
  const act = useRequest();
  const may = useMode();
  const [full, mayRefresh] = [may("start_all"), may("refresh")];
  const can = (action: ServerAction): boolean => servers.some(({ state }) => stateView(state).actions.includes(action));
  const forAll = (action: "start" | "stop" | "restart", label: string): MenuItem[] =>
    full && can(action) ? [{ label, onChoose: () => void act(`${action}_all`, {}) }] : [];
  const items = (): MenuItem[] => [
    ...forAll("start", trans.__("Start all servers")),
    ...forAll("stop", trans.__("Stop all servers")),
    ...forAll("restart", trans.__("Restart all servers")),
    ...(mayRefresh
      ? [
          {
            label: trans.__("List all tools again"),
            onChoose: () => void act("refresh", {}, trans.__("The tools were listed again.")),
            isSeparate: true,
          },
        ]
      : []),
  ];
  return (
    <div class="mcp-toolbar" role="group" aria-label={trans.__("All servers")}>
      <AddButton />
      {full && (
        <button type="button" class="mcp-button" aria-expanded={loading} onClick={() => onLoading(!loading)}>
          {trans.__("Configured servers\u2026")}
        </button>
      )}
      <span class="mcp-spacer" />
      {(full || mayRefresh) && (
        <MenuButton items={items} label={trans.__("Actions of all servers")} kind="mcp-icon-button">
          <Icon name="more" />
        </MenuButton>
      )}
    </div>
  );
}

/** A server's summary, its menu, and its details when it is expanded. */
export function ServerCard(props: { server: ServerRow; go?: Go; open?: boolean }): JSX.Element {
  const { server, go } = props;
  const [open, setOpen] = useState(props.open ?? false);
  const may = useMode();
  const act = useRequest();
  const id = useUniqueId();
  const full = may("start");
  const name = singleLine(server.name);
  const { actions } = stateView(server.state);
  const [first] = actions;
  const run = (action: ServerAction): void => void act(action, { server: server.name });
  const line = useRef<HTMLDivElement>(null);
  const own = useOwnServer(server);
  const items = (): MenuItem[] => [
    ...(full
      ? actions
          .filter((action) => !isRemoval(action))
          .map((action) => ({ label: ACTION_TITLES[action](), onChoose: () => run(action) }))
      : []),
    ...viewItems(server, go, may).map((view, index) => ({ ...view, isSeparate: full && index === 0 })),
    ...(full
      ? actions.filter(isRemoval).map((action, index) => ({
          label: ACTION_TITLES[action](),
          onChoose: () => run(action),
          isSeparate: index === 0,
        }))
      : []),
    ...own.items(),
  ];
  const icon = first && ACTION_ICONS[first];
  return (
    <div class="mcp-card">
      <div class="mcp-card-line" ref={line}>
        <div class="mcp-grow">
          <button
            type="button"
            class="mcp-caret mcp-card-name"
            aria-expanded={open}
            aria-controls={id}
            title={server.where ? singleLine(server.where) : undefined}
            onClick={() => setOpen(!open)}
          >
            <Emblem server={server.name} />
            <span class="mcp-ellipsis">{name}</span>
          </button>
          <div class="mcp-card-summary mcp-ellipsis">
            <StateMark state={server.state} />
            {server.tools > 0 && <span class="mcp-muted mcp-figure">{toolCount(server.tools)}</span>}
          </div>
        </div>
        {full && first && icon && (
          <IconButton icon={icon} label={`${ACTION_TITLES[first]()} ${name}`} onClick={() => run(first)} />
        )}
        {((full && actions.length > 0) || go) && (
          <MenuButton items={items} label={trans.__("Actions of %1", name)} kind="mcp-icon-button" area={line}>
            <Icon name="more" />
          </MenuButton>
        )}
      </div>
      {own.confirmation}
      {(server.starting || server.error) && (
        <StartView server={server} {...(go && { onLog: () => go("logs", { server: server.name }) })} />
      )}
      <div id={id} hidden={!open}>
        {open && <About server={server} />}
      </div>
    </div>
  );
}

/** Whether an action is separated from the everyday ones in the menu. */
const isRemoval = (action: ServerAction): boolean => action === "disable" || action === "unload";

const toolCount = (tools: number): string => trans._n("%2 tool", "%2 tools", tools, count(tools));

/** Menu items that open a server's tools, resources and prompts, with counts, its log and its messages. */
function viewItems(server: ServerRow, go: Go | undefined, may: (verb: Verb) => boolean): MenuItem[] {
  if (!go) return [];
  const { name, tools, resources, prompts } = server;
  const offers = (kind: OfferKind) => () => go("tools", { server: name, kind, tool: null });
  return [
    { label: toolCount(tools), onChoose: offers("tools") },
    ...(resources
      ? [{ label: trans._n("%2 resource", "%2 resources", resources, count(resources)), onChoose: offers("resources") }]
      : []),
    ...(prompts
      ? [{ label: trans._n("%2 prompt", "%2 prompts", prompts, count(prompts)), onChoose: offers("prompts") }]
      : []),
    ...(may("logs") ? [{ label: trans.__("Log"), onChoose: () => go("logs", { server: name }) }] : []),
    ...(may("protocol") ? [{ label: trans.__("Protocol"), onChoose: () => go("activity", { protocol: name }) }] : []),
  ];
}

/** What a server is: its command or URL and where that is defined. The rest is behind *Details*. */
function About({ server }: { server: ServerRow }): JSX.Element {
  return (
    <div class="mcp-details">
      <dl class="mcp-facts">
        {server.where && (
          <Fact name={server.transport === "stdio" ? trans.__("Command") : trans.__("URL")}>
            <code>{singleLine(server.where)}</code>
          </Fact>
        )}
        {server.source && <Fact name={trans.__("Source")}>{singleLine(server.source)}</Fact>}
      </dl>
      <Disclosure title={trans.__("Details")}>{() => <Details server={server} />}</Disclosure>
      {server.instructions && (
        <Disclosure title={trans.__("Instructions")}>
          {() => <div class="mcp-prose">{visible(server.instructions ?? "")}</div>}
        </Disclosure>
      )}
    </div>
  );
}

function Details({ server }: { server: ServerRow }): JSX.Element {
  const now = useNow(server.since !== null);
  return (
    <dl class="mcp-facts">
      <Fact name={trans.__("Transport")}>
        {[server.transport, server.lazy && trans.__("starts when needed")].filter(Boolean).join(" · ")}
      </Fact>
      {server.protocol && <Fact name={trans.__("Protocol")}>{singleLine(server.protocol)}</Fact>}
      {server.version && <Fact name={trans.__("Version")}>{singleLine(server.version)}</Fact>}
      {server.since !== null && <Fact name={trans.__("Uptime")}>{wholeDuration(now - server.since)}</Fact>}
      {server.pid !== null && (
        <>
          <Fact name="PID">{server.pid}</Fact>
          <Memory server={server.name} />
        </>
      )}
      <Fact name={trans.__("Calls")}>{count(server.calls)}</Fact>
      {server.disabled_tools > 0 && <Fact name={trans.__("Disabled tools")}>{count(server.disabled_tools)}</Fact>}
      {server.alias !== server.name && (
        <Fact name={trans.__("Python name")}>
          <code>{singleLine(server.alias)}</code>
        </Fact>
      )}
      {server.capabilities.length > 0 && (
        <Fact name={trans.__("Capabilities")}>{singleLine(server.capabilities.join(", "))}</Fact>
      )}
    </dl>
  );
}

/** The memory of a server's processes, on demand because measuring it is expensive for the kernel. */
function Memory({ server }: { server: string }): JSX.Element {
  const act = useRequest();
  const may = useAllowed("memory");
  const [reading, setReading] = useState("");
  if (!may) return <></>;
  const ask = async (): Promise<void> => {
    const memory = await act("memory", { server });
    if (memory) {
      setReading(trans._n("%2 (1 process)", "%2 (%1 processes)", memory.processes, bytes(memory.bytes)));
    }
  };
  return (
    <Fact name={trans.__("Memory")}>
      <span role="status">{reading}</span>{" "}
      <Button quiet label={trans.__("Measure the memory of %1", singleLine(server))} onClick={() => void ask()}>
        {reading ? "\u21bb" : trans.__("Measure")}
      </Button>
    </Fact>
  );
}

/** The configured servers and the demo server. */
const ConfiguredServers = (): JSX.Element => <KnownServers withDemo known={useLoaded("known", {}, "known")} />;

interface KnownServersProps {
  known: Loaded<UnloadedServer[]>;
  withDemo: boolean;
}

/** Configured servers that can be loaded, and optionally the demo server. */
function KnownServers({ withDemo, known: { value, problem, loading, reload } }: KnownServersProps): JSX.Element {
  const act = useRequest();
  const servers = useSelect((state) => state.servers);
  const load = async (name: string): Promise<void> => {
    await act("load", { what: [name] });
    reload();
  };
  const known = value ?? [];
  if (!withDemo && !known.length && !problem) return <></>;
  const offersDemo = withDemo && ![...known, ...Object.values(servers)].some(({ name }) => name === DEMO.name);
  return (
    <section class="mcp-loadable" aria-label={trans.__("Servers that can be loaded")} aria-busy={loading}>
      {problem && <ProblemBox problem={problem} />}
      {withDemo && value && !known.length && <p class="mcp-muted">{trans.__("No other server is configured.")}</p>}
      <ul>
        {[...known, ...(offersDemo ? [{ ...DEMO, source: trans.__("included with ipymcp") }] : [])].map(
          ({ name, where, source }) => (
            <li key={name} class="mcp-card-line">
              <span class="mcp-card-name">
                <Emblem server={name} />
                <span class="mcp-ellipsis">{singleLine(name)}</span>
              </span>
              <span class="mcp-muted mcp-ellipsis" title={[where, source].filter(Boolean).map(singleLine).join("\n")}>
                {singleLine(source)}
              </span>
              <span class="mcp-row-action">
                <Button label={trans.__("Load %1", singleLine(name))} onClick={() => void load(name)}>
                  {trans.__("Load")}
                </Button>
              </span>
            </li>
          ),
        )}
      </ul>
    </section>
  );
}

/** Getting started, shown when no server is loaded: what the notebook used, else the project's servers, else the demo server. */
function EmptyState({ used }: { used: UsedServers | null }): JSX.Element {
  const { connection, synced, questions } = useSelect((state) => state);
  const isAsked = Object.keys(questions).length > 0;
  const full = useAllowed("load");
  const known = useLoaded("known", full ? {} : null, "known");
  const mayInsert = !useSelect(isVisitor);
  const act = useRequest();
  if (!synced) {
    return (
      <div class="mcp-welcome">
        <p>{connection.reason ?? trans.__("Waiting for the kernel\u2026")}</p>
      </div>
    );
  }
  const insertCode = useInsert();
  const others = known.value?.filter(({ name }) => !used?.names.includes(name)) ?? [];
  const project = others.filter(({ is_project }) => is_project);
  const hasUsed = Boolean(used?.names.length);
  const offersDemo = !hasUsed && !project.length && (known.value !== null || !known.loading);
  return (
    <div class="mcp-view mcp-scroll">
      <div class="mcp-welcome">
        {used && <Restore used={used} />}
        <h2>{trans.__("No servers yet")}</h2>
        {offersDemo && (
          <p>
            {trans.__("Load one in a cell, for example the demo server included with ipymcp:")}{" "}
            <code>%mcp load demo</code>
          </p>
        )}
        <p class="mcp-actions">
          {project.length > 0 && (
            <Button
              primary={!isAsked && !hasUsed}
              onClick={() => void act("load", { what: project.map(({ name }) => name) })}
            >
              {trans._n("Load the server of this project", "Load %1 servers of this project", project.length)}
            </Button>
          )}
          {offersDemo && full && (
            <Button primary={!isAsked} onClick={() => void act("load", { what: ["demo"] })}>
              {trans.__("Load the demo server")}
            </Button>
          )}
          {offersDemo && mayInsert && (
            <Button onClick={() => void insertCode("%mcp load demo")}>{trans.__("Insert this line")}</Button>
          )}
          <AddButton />
        </p>
      </div>
      {full && (
        <KnownServers
          withDemo={!offersDemo && !used?.names.includes("demo")}
          known={{ ...known, value: known.value && others }}
        />
      )}
    </div>
  );
}
