/** What the command palette and the menu offer: all that the panel's buttons do, for the active notebook. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { InputDialog, Notification } from "@jupyterlab/apputils";
import type { PanelModel } from "../panelmodel";
import type { Call, Server } from "../protocol";
import { callsOf, may, problemOf, serversOf } from "../store";
import type { PanelState, ViewName } from "../store";
import { line } from "../text";
import { problemText } from "../views/context";
import { DEEDS } from "../views/servers";
import type { Deed } from "../views/servers";
import { icon } from "./icon";
import type { NotebookView } from "./notebook";

/** What commands work on. */
export interface Surroundings {
  /** The active notebook's; null where there is none. */
  current(): NotebookView | null;
  /** Bring the sidebar to the front, and the focus into it: to what a selector finds, or to its tabs. */
  open(focus?: string): void;
}

type Act = (model: PanelModel) => unknown;

interface Command {
  id: string;
  label: string;
  caption: string;
  /** Whether it makes sense now. */
  fits(state: PanelState): boolean;
  act: Act;
}

const DEMO = "demo";
const LABELS: { [D in Deed]: [label: string, caption: string] } = {
  start: ["Start MCP Server\u2026", "Start a server"],
  stop: ["Stop MCP Server\u2026", "Stop a server"],
  restart: ["Restart MCP Server\u2026", "Stop a server and start it again"],
  unload: ["Unload MCP Server\u2026", "Stop a server and forget it in this notebook"],
  enable: ["Enable MCP Server\u2026", "Start a server that was disabled"],
  disable: ["Disable MCP Server\u2026", "Stop a server, and start it no more by itself"],
  trust: ["Trust MCP Server\u2026", "Decide whether a server may run"],
  login: ["Login to MCP Server\u2026", "Log in to a remote server"],
};
const VIEWS: [ViewName, string][] = [
  ["tools", "Find MCP Tool"],
  ["resources", "Show MCP Resources"],
  ["prompts", "Show MCP Prompts"],
  ["calls", "Show MCP Calls and History"],
];

/** Add all of them; gives their ids, in the order in which a palette shows them. */
export function addCommands(app: JupyterFrontEnd, surroundings: Surroundings): string[] {
  const { current, open } = surroundings;
  const all = [...ALL, ...VIEWS.map(([view, label]) => showing(view, label, open)), logs(open)];
  for (const { id, label, caption, fits, act } of all) {
    app.commands.addCommand(id, {
      label,
      caption,
      isEnabled: () => {
        const state = current()?.model?.store.get();
        return state !== undefined && fits(state);
      },
      execute: () => attempt(current()?.model ?? null, act),
    });
  }
  app.commands.addCommand("ipymcp:open", {
    label: "Open MCP Panel",
    caption: "Show the MCP servers of the active notebook",
    icon,
    execute: () => open(),
  });
  app.commands.addCommand("ipymcp:load-extension", {
    label: "Load ipymcp in This Notebook",
    caption: "Run %load_ext ipymcp in the notebook's kernel",
    isEnabled: () => current()?.standing.is === "absent",
    execute: async () => {
      open();
      await current()?.load();
    },
  });
  return ["ipymcp:open", "ipymcp:load-extension", ...all.map(({ id }) => id)];
}

async function attempt(model: PanelModel | null, act: Act): Promise<void> {
  if (!model) return;
  try {
    await act(model);
  } catch (error) {
    Notification.error(line(problemText(problemOf(error))));
  }
}

const ALL: Command[] = [
  {
    id: "ipymcp:load",
    label: "Load MCP Servers\u2026",
    caption: "Load a server of the configuration, or the demo",
    fits: (state) => may(state, "load"),
    act: load,
  },
  {
    id: "ipymcp:start-all",
    label: "Start All MCP Servers",
    caption: "Start every server that is loaded and not disabled",
    fits: (state) => may(state, "start_all") && serversOf(state).length > 0,
    act: (model) => model.ask("start_all", {}),
  },
  {
    id: "ipymcp:stop-all",
    label: "Stop All MCP Servers",
    caption: "Stop every server of this notebook",
    fits: (state) => may(state, "stop_all") && serversOf(state).length > 0,
    act: (model) => model.ask("stop_all", {}),
  },
  ...(Object.keys(LABELS) as Deed[]).map(deed),
  {
    id: "ipymcp:cancel",
    label: "Cancel MCP Call\u2026",
    caption: "End a call that runs",
    fits: (state) => may(state, "cancel") && callsOf(state).length > 0,
    act: cancel,
  },
];

function deed(verb: Deed): Command {
  const [label, caption] = LABELS[verb];
  const candidates = (state: PanelState): Server[] =>
    serversOf(state).filter((server) => DEEDS[server.state]?.includes(verb));
  return {
    id: `ipymcp:${verb}`,
    label,
    caption,
    fits: (state) => may(state, verb) && candidates(state).length > 0,
    act: async (model) => {
      const server = await chosen(label, candidates(model.store.get()), nameOf);
      if (server) await model.ask(verb, { server: server.name });
    },
  };
}

async function load(model: PanelModel): Promise<void> {
  const known = await model.ask("known", {});
  const names = [...known.map(({ name }) => name), DEMO].filter((name) => !model.store.get().servers[name]);
  const what = await chosen("Load MCP Servers\u2026", names, line);
  if (what !== null) await model.ask("load", { what: [what] });
}

async function cancel(model: PanelModel): Promise<void> {
  const calls = callsOf(model.store.get());
  const call = calls.length === 1 ? calls[0] : await chosen("Cancel MCP Call\u2026", calls, titleOf);
  if (call) await model.ask("cancel", { call: call.id });
}

function logs(open: Surroundings["open"]): Command {
  return {
    id: "ipymcp:logs",
    label: "Show Logs of MCP Server\u2026",
    caption: "Follow what a server writes",
    fits: (state) => serversOf(state).length > 0,
    act: async (model) => {
      const servers = serversOf(model.store.get());
      const server = servers.length === 1 ? servers[0] : await chosen("Show Logs of MCP Server\u2026", servers, nameOf);
      if (!server) return;
      model.show("logs", server.name);
      open();
    },
  };
}

function showing(view: ViewName, label: string, open: Surroundings["open"]): Command {
  const act = (model: PanelModel): void => {
    model.show(view);
    open(view === "tools" ? "[type=search]" : undefined);
  };
  return { id: `ipymcp:show-${view}`, label, caption: label, fits: () => true, act };
}

const nameOf = (server: Server): string => line(server.name);
const titleOf = ({ id, server, tool }: Call): string => `${line(server)}.${line(tool)} (call ${id})`;

/** Have the user choose one; null where nothing was chosen. */
async function chosen<T>(label: string, from: T[], name: (one: T) => string): Promise<T | null> {
  // Two that read the same are told apart by their place.
  const names = from.map(name);
  const items = names.map((each, index) => (names.indexOf(each) === index ? each : `${each} (${index + 1})`));
  if (!items.length) {
    Notification.info("There is nothing to choose from.");
    return null;
  }
  const title = label.replace("\u2026", "");
  const { button, value } = await InputDialog.getItem({ title, items, okLabel: title.split(" ")[0] ?? title });
  return button.accept && value !== null ? (from[items.indexOf(value)] ?? null) : null;
}
