import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import type { Server, Verb } from "../protocol";
import { isVisitor, serversOf } from "../store";
import { bytes, count, counted, line, visible, whole } from "../text";
import { useAct, useLoaded, useMay, useNow, usePanel, useSelect, useUnique } from "./context";
import { Button, Disclosure, ProblemBox, StateMark } from "./parts";

/** Where a server's name leads. */
export type Go = (view: "tools" | "logs", server: string) => void;

/** What can be done with a server as a whole. */
export type Deed = Extract<Verb, "start" | "stop" | "restart" | "unload" | "enable" | "disable" | "trust" | "login">;

const TITLES: { [D in Deed]: string } = {
  start: "Start",
  stop: "Stop",
  restart: "Restart",
  unload: "Unload",
  enable: "Enable",
  disable: "Disable",
  trust: "Trust\u2026",
  login: "Log in",
};

/** What can be done in each state; the first is what one most likely wants. */
export const DEEDS: { [State in Server["state"]]: Deed[] } = {
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
  const servers = serversOf({ servers: all, calls: {}, questions: {} });
  const act = useAct();
  const full = useMay("start");
  const [loading, setLoading] = useState(false);
  if (!servers.length) return <Beginning />;
  return (
    <div class="mcp-view">
      {full && (
        <div class="mcp-toolbar">
          <Button onClick={() => void act("start_all", {})}>Start all</Button>
          <Button onClick={() => void act("stop_all", {})}>Stop all</Button>
          <span class="mcp-space" />
          <button type="button" class="mcp-button" aria-expanded={loading} onClick={() => setLoading(!loading)}>
            Load{"\u2026"}
          </button>
        </div>
      )}
      <div class="mcp-scroll">
        {loading && <Known withDemo />}
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

/** One server: its line, and all about it when opened. */
export function ServerCard({ server, go, open: begin }: { server: Server; go?: Go; open: boolean }): JSX.Element {
  const [open, setOpen] = useState(begin);
  const full = useMay("start");
  const act = useAct();
  const id = useUnique();
  const [first] = DEEDS[server.state] ?? [];
  return (
    <div class="mcp-card">
      <div class="mcp-card-line">
        <button
          type="button"
          class="mcp-caret mcp-card-name"
          aria-expanded={open}
          aria-controls={id}
          title={server.where ? line(server.where) : undefined}
          onClick={() => setOpen(!open)}
        >
          <span class="mcp-ellipsis">{line(server.name)}</span>
        </button>
        <StateMark state={server.state} />
        <span class="mcp-dim mcp-figure mcp-wide">{server.state === "ready" ? counted(server.tools, "tool") : ""}</span>
        {full && first && (
          <span class="mcp-deed">
            <Button
              label={`${TITLES[first]} ${line(server.name)}`}
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
  const full = useMay("start");
  const logs = useMay("logs");
  const act = useAct();
  const [, ...deeds] = DEEDS[server.state] ?? [];
  const offers = [
    counted(server.tools, "tool") + (server.disabled_tools ? ` (${count(server.disabled_tools)} disabled)` : ""),
    server.resources !== null && counted(server.resources, "resource"),
    server.prompts !== null && counted(server.prompts, "prompt"),
  ].filter(Boolean);
  return (
    <div class="mcp-details">
      <dl class="mcp-facts">
        {server.where && (
          <Fact name="Runs">
            <code>{line(server.where)}</code>
          </Fact>
        )}
        {server.source && <Fact name="From">{line(server.source)}</Fact>}
        <Fact name="Transport">
          {[server.transport, server.era, server.lazy && "starts when needed"].filter(Boolean).join(" · ")}
        </Fact>
        {server.version && <Fact name="Version">{line(server.version)}</Fact>}
        <Fact name="Up">{server.since === null ? "\u2013" : whole(now - server.since)}</Fact>
        {server.pid !== null && (
          <Fact name="Process">
            {server.pid} <Memory server={server.name} />
          </Fact>
        )}
        <Fact name="Calls">{count(server.calls)}</Fact>
        <Fact name="Offers">{offers.join(", ")}</Fact>
        {server.alias !== server.name && (
          <Fact name="In Python">
            <code>{line(server.alias)}</code>
          </Fact>
        )}
        {server.capabilities.length > 0 && <Fact name="Can">{line(server.capabilities.join(", "))}</Fact>}
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
          deeds.map((deed) => (
            <Button
              key={deed}
              quiet={deed !== "restart"}
              label={`${TITLES[deed]} ${line(server.name)}`}
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

/** Asked for, never pushed: measuring a process tree costs the kernel something. */
function Memory({ server }: { server: string }): JSX.Element {
  const act = useAct();
  const may = useMay("memory");
  const [said, setSaid] = useState("");
  if (!may) return <></>;
  const ask = async (): Promise<void> => {
    const memory = await act("memory", { server });
    if (memory) {
      setSaid(`${bytes(memory.bytes)} in ${memory.processes === 1 ? "one process" : `${memory.processes} processes`}`);
    }
  };
  return (
    <>
      <span class="mcp-dim" role="status">
        {said}
      </span>{" "}
      <Button quiet label={`Measure the memory of ${line(server)}`} onClick={() => void ask()}>
        {said ? "Again" : "Memory"}
      </Button>
    </>
  );
}

/** What could be loaded: of the configuration, and the demo unless that is offered, or loaded, already. */
function Known({ withDemo }: { withDemo: boolean }): JSX.Element {
  const act = useAct();
  const servers = useSelect((state) => state.servers);
  const { value, problem, loading, reload } = useLoaded("known", {}, "known");
  const load = async (name: string): Promise<void> => {
    await act("load", { what: [name] });
    reload();
  };
  const known = value ?? [];
  return (
    <section class="mcp-known" aria-label="Servers that can be loaded" aria-busy={loading}>
      {problem && <ProblemBox problem={problem} />}
      {value && !known.length && (
        <p class="mcp-dim">
          {Object.keys(servers).length ? "No other server is configured." : "No server is configured."}
        </p>
      )}
      <ul class="mcp-cards">
        {known.map((server) => (
          <li key={server.name} class="mcp-card-line">
            <span class="mcp-card-name">
              <span class="mcp-ellipsis">{line(server.name)}</span>
            </span>
            <span
              class="mcp-dim mcp-ellipsis"
              title={[server.where, server.source]
                .filter(Boolean)
                .map((each) => line(each ?? ""))
                .join("\n")}
            >
              {line(server.source)}
            </span>
            <span class="mcp-deed">
              <Button label={`Load ${line(server.name)}`} onClick={() => void load(server.name)}>
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
            <span class="mcp-dim mcp-ellipsis">comes with ipymcp</span>
            <span class="mcp-deed">
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

/** No servers yet: how to begin. */
function Beginning(): JSX.Element {
  const { connection, synced, questions } = useSelect((state) => state);
  const isAsked = Object.keys(questions).length > 0;
  const { services, model } = usePanel();
  const full = useMay("load");
  const mayInsert = !useSelect(isVisitor);
  const act = useAct();
  if (!synced) {
    return (
      <div class="mcp-beginning">
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
      <div class="mcp-beginning">
        <h2>No servers yet</h2>
        <p>
          Load one in a cell, such as the small one that comes with ipymcp: <code>%mcp load demo</code>
        </p>
        <p class="mcp-actions">
          {full && (
            <Button primary={!isAsked} onClick={() => void act("load", { what: ["demo"] })}>
              Load the demo server
            </Button>
          )}
          {mayInsert && <Button onClick={() => void insert()}>Insert the line</Button>}
        </p>
      </div>
      {full && <Known withDemo={false} />}
    </div>
  );
}
