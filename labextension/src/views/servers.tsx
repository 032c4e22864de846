import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import type { Server, Verb } from "../protocol";
import { isVisitor, serversOf } from "../store";
import { bytes, count, plural, singleLine, visible, wholeDuration } from "../text";
import { useRequest, useLoaded, useAllowed, useNow, usePanel, useSelect, useUniqueId } from "./context";
import { Button, Disclosure, ProblemBox, StateMark } from "./parts";

/** Open a server's tools or logs. */
export type Go = (view: "tools" | "logs", server: string) => void;

/** An intent that acts on a whole server. */
export type ServerAction = Extract<
  Verb,
  "start" | "stop" | "restart" | "unload" | "enable" | "disable" | "trust" | "login"
>;

const TITLES: { [D in ServerAction]: string } = {
  start: "Start",
  stop: "Stop",
  restart: "Restart",
  unload: "Unload",
  enable: "Enable",
  disable: "Disable",
  trust: "Trust\u2026",
  login: "Log in",
};

/** The actions available in each state; the first is the primary one. */
export const SERVER_ACTIONS: { [State in Server["state"]]: ServerAction[] } = {
  disabled: ["enable", "unload"],
  stopped: ["start", "disable", "unload"],
  starting: ["stop"],
  ready: ["stop", "restart", "disable", "unload"],
  restarting: ["stop"],
  error: ["start", "disable", "unload"],
  needs_trust: ["trust", "disable", "unload"],
  needs_auth: ["login", "disable", "unload"],
  unreachable: ["start", "disable", "unload"],
};

export function ServersView({ go }: { go: Go }): JSX.Element {
  const all = useSelect((state) => state.servers);
  const servers = serversOf(all);
  const act = useRequest();
  const full = useAllowed("start");
  const [loading, setLoading] = useState(false);
  if (!servers.length) return <EmptyState />;
  return (
    <div class="mcp-view">
      {full && (
        <div class="mcp-toolbar">
          <Button onClick={() => void act("start_all", {})}>Start all</Button>
          <Button onClick={() => void act("stop_all", {})}>Stop all</Button>
          <span class="mcp-spacer" />
          <button type="button" class="mcp-button" aria-expanded={loading} onClick={() => setLoading(!loading)}>
            Load{"\u2026"}
          </button>
        </div>
      )}
      <div class="mcp-scroll">
        {loading && <KnownServers withDemo />}
        <ul class="mcp-cards" aria-label="Servers">
          {servers.map((server) => (
            <li key={server.name}>
              <ServerCard server={server} go={go} open={servers.length === 1} />
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

/** A server's summary line with expandable details. */
export function ServerCard({ server, go, open: begin }: { server: Server; go?: Go; open: boolean }): JSX.Element {
  const [open, setOpen] = useState(begin);
  const full = useAllowed("start");
  const act = useRequest();
  const id = useUniqueId();
  const [first] = SERVER_ACTIONS[server.state] ?? [];
  return (
    <div class="mcp-card">
      <div class="mcp-card-line">
        <button
          type="button"
          class="mcp-caret mcp-card-name"
          aria-expanded={open}
          aria-controls={id}
          title={server.where ? singleLine(server.where) : undefined}
          onClick={() => setOpen(!open)}
        >
          <span class="mcp-ellipsis">{singleLine(server.name)}</span>
        </button>
        <StateMark state={server.state} />
        <span class="mcp-muted mcp-figure mcp-wide">
          {server.state === "ready" ? plural(server.tools, "tool") : ""}
        </span>
        {full && first && (
          <span class="mcp-row-action">
            <Button
              label={`${TITLES[first]} ${singleLine(server.name)}`}
              onClick={() => void act(first, { server: server.name })}
            >
              {TITLES[first]}
            </Button>
          </span>
        )}
      </div>
      {server.error && <ProblemBox problem={server.error} />}
      <div id={id} hidden={!open}>
        {open && <Details server={server} {...(go && { go })} />}
      </div>
    </div>
  );
}

function Details({ server, go }: { server: Server; go?: Go }): JSX.Element {
  const now = useNow(server.since !== null);
  const full = useAllowed("start");
  const logs = useAllowed("logs");
  const act = useRequest();
  const [, ...actions] = SERVER_ACTIONS[server.state] ?? [];
  const offers = [
    plural(server.tools, "tool") + (server.disabled_tools ? ` (${count(server.disabled_tools)} disabled)` : ""),
    server.resources !== null && plural(server.resources, "resource"),
    server.prompts !== null && plural(server.prompts, "prompt"),
  ].filter(Boolean);
  return (
    <div class="mcp-details">
      <dl class="mcp-facts">
        {server.where && (
          <Fact name="Runs">
            <code>{singleLine(server.where)}</code>
          </Fact>
        )}
        {server.source && <Fact name="From">{singleLine(server.source)}</Fact>}
        <Fact name="Transport">
          {[server.transport, server.era, server.lazy && "starts when needed"].filter(Boolean).join(" · ")}
        </Fact>
        {server.version && <Fact name="Version">{singleLine(server.version)}</Fact>}
        <Fact name="Up">{server.since === null ? "\u2013" : wholeDuration(now - server.since)}</Fact>
        {server.pid !== null && (
          <Fact name="Process">
            {server.pid} <Memory server={server.name} />
          </Fact>
        )}
        <Fact name="Calls">{count(server.calls)}</Fact>
        <Fact name="Offers">{offers.join(", ")}</Fact>
        {server.alias !== server.name && (
          <Fact name="In Python">
            <code>{singleLine(server.alias)}</code>
          </Fact>
        )}
        {server.capabilities.length > 0 && <Fact name="Can">{singleLine(server.capabilities.join(", "))}</Fact>}
      </dl>
      {server.instructions && (
        <Disclosure title="Instructions">
          {() => <div class="mcp-prose">{visible(server.instructions ?? "")}</div>}
        </Disclosure>
      )}
      <div class="mcp-actions">
        {go && <Button onClick={() => go("tools", server.name)}>Tools</Button>}
        {go && logs && <Button onClick={() => go("logs", server.name)}>Logs</Button>}
        {full &&
          actions.map((deed) => (
            <Button
              key={deed}
              quiet={deed !== "restart"}
              label={`${TITLES[deed]} ${singleLine(server.name)}`}
              onClick={() => void act(deed, { server: server.name })}
            >
              {TITLES[deed]}
            </Button>
          ))}
      </div>
    </div>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }): JSX.Element {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

/** Loaded on demand, because measuring a process tree is expensive for the kernel. */
function Memory({ server }: { server: string }): JSX.Element {
  const act = useRequest();
  const may = useAllowed("memory");
  const [reading, setReading] = useState("");
  if (!may) return <></>;
  const ask = async (): Promise<void> => {
    const memory = await act("memory", { server });
    if (memory) {
      setReading(
        `${bytes(memory.bytes)} in ${memory.processes === 1 ? "one process" : `${memory.processes} processes`}`,
      );
    }
  };
  return (
    <>
      <span class="mcp-muted" role="status">
        {reading}
      </span>{" "}
      <Button quiet label={`Measure the memory of ${singleLine(server)}`} onClick={() => void ask()}>
        {reading ? "Again" : "Memory"}
      </Button>
    </>
  );
}

/** Configured servers that can be loaded, and optionally the demo server. */
function KnownServers({ withDemo }: { withDemo: boolean }): JSX.Element {
  const act = useRequest();
  const servers = useSelect((state) => state.servers);
  const { value, problem, loading, reload } = useLoaded("known", {}, "known");
  const load = async (name: string): Promise<void> => {
    await act("load", { what: [name] });
    reload();
  };
  const known = value ?? [];
  return (
    <section class="mcp-loadable" aria-label="Servers that can be loaded" aria-busy={loading}>
      {problem && <ProblemBox problem={problem} />}
      {value && !known.length && (
        <p class="mcp-muted">
          {Object.keys(servers).length ? "No other server is configured." : "No server is configured."}
        </p>
      )}
      <ul class="mcp-cards">
        {known.map((server) => (
          <li key={server.name} class="mcp-card-line">
            <span class="mcp-card-name">
              <span class="mcp-ellipsis">{singleLine(server.name)}</span>
            </span>
            <span
              class="mcp-muted mcp-ellipsis"
              title={[server.where, server.source]
                .filter(Boolean)
                .map((each) => singleLine(each ?? ""))
                .join("\n")}
            >
              {singleLine(server.source)}
            </span>
            <span class="mcp-row-action">
              <Button label={`Load ${singleLine(server.name)}`} onClick={() => void load(server.name)}>
                Load
              </Button>
            </span>
          </li>
        ))}
        {withDemo && !servers["demo"] && !known.some((server) => server.name === "demo") && (
          <li class="mcp-card-line">
            <span class="mcp-card-name">
              <span class="mcp-ellipsis">demo</span>
            </span>
            <span class="mcp-muted mcp-ellipsis">included with ipymcp</span>
            <span class="mcp-row-action">
              <Button label="Load demo" onClick={() => void load("demo")}>
                Load
              </Button>
            </span>
          </li>
        )}
      </ul>
    </section>
  );
}

/** Getting started, shown when no server is loaded. */
function EmptyState(): JSX.Element {
  const { connection, synced, questions } = useSelect((state) => state);
  const isAsked = Object.keys(questions).length > 0;
  const { services, model } = usePanel();
  const full = useAllowed("load");
  const mayInsert = !useSelect(isVisitor);
  const act = useRequest();
  if (!synced) {
    return (
      <div class="mcp-welcome">
        <p>{connection.reason ?? "Waiting for the kernel\u2026"}</p>
      </div>
    );
  }
  const insert = async (): Promise<void> => {
    const where = await services.insertCode("%mcp load demo");
    model.notify(where === "inserted" ? "Inserted." : "Copied: paste it into a cell.");
  };
  return (
    <div class="mcp-view mcp-scroll">
      <div class="mcp-welcome">
        <h2>No servers yet</h2>
        <p>
          Load one in a cell, for example the demo server included with ipymcp: <code>%mcp load demo</code>
        </p>
        <p class="mcp-actions">
          {full && (
            <Button primary={!isAsked} onClick={() => void act("load", { what: ["demo"] })}>
              Load the demo server
            </Button>
          )}
          {mayInsert && <Button onClick={() => void insert()}>Insert this line</Button>}
        </p>
      </div>
      {full && <KnownServers withDemo={false} />}
    </div>
  );
}
