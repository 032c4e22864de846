/** Commands of the palette and the menu, which act on the active notebook. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { InputDialog, Notification } from "@jupyterlab/apputils";
import type { PanelModel } from "../panelmodel";
import type { Call, Server } from "../protocol";
import { callsOf, isAllowed, problemOf, serversOf } from "../store";
import type { PanelState, ViewName } from "../store";
import { singleLine } from "../text";
import { problemText } from "../views/context";
import { SERVER_ACTIONS } from "../views/servers";
import type { ServerAction } from "../views/servers";
import { icon } from "./icon";
import type { NotebookView } from "./notebook";

/** What the commands act on. */
export interface CommandContext {
  /** Return the active notebook's view, or null. */
  current(): NotebookView | null;
  /** Open the sidebar and focus the element that matches a selector, else its tabs. */
  open(focus?: string): void;
}

type Action = (model: PanelModel) => unknown;

interface Command {
  id: string;
  label: string;
  caption: string;
  /** Whether it makes sense now. */
  isEnabled(state: PanelState): boolean;
  execute: Action;
}

const DEMO = "demo";
const LABELS: { [D in ServerAction]: [label: string, caption: string] } = {
  start: ["Start MCP Server\u2026", "Start a server"],
  stop: ["Stop MCP Server\u2026", "Stop a server"],
  restart: ["Restart MCP Server\u2026", "Stop a server and start it again"],
  unload: ["Unload MCP Server\u2026", "Stop a server and remove it from this notebook"],
  enable: ["Enable MCP Server\u2026", "Start a server that was disabled"],
  disable: ["Disable MCP Server\u2026", "Stop a server and keep it from starting automatically"],
  trust: ["Trust MCP Server\u2026", "Decide whether a server may run"],
  login: ["Login to MCP Server\u2026", "Log in to a remote server"],
};
const VIEWS: [ViewName, string][] = [
  ["tools", "Find MCP Tool"],
  ["resources", "Show MCP Resources"],
  ["prompts", "Show MCP Prompts"],
  ["calls", "Show MCP Calls and History"],
];

/** Add all commands; return their ids in palette order. */
export function addCommands(app: JupyterFrontEnd, context: CommandContext): string[] {
  const { current, open } = context;
  const all = [...COMMANDS, ...VIEWS.map(([view, label]) => viewCommand(view, label, open)), logsCommand(open)];
  for (const { id, label, caption, isEnabled, execute } of all) {
    app.commands.addCommand(id, {
      label,
      caption,
      isEnabled: () => {
        const state = current()?.model?.store.get();
        return state !== undefined && isEnabled(state);
      },
      execute: () => runAction(current()?.model ?? null, execute),
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
    isEnabled: () => current()?.connectionStatus.kind === "absent",
    execute: async () => {
      open();
      await current()?.load();
    },
  });
  return ["ipymcp:open", "ipymcp:load-extension", ...all.map(({ id }) => id)];
}

async function runAction(model: PanelModel | null, act: Action): Promise<void> {
  if (!model) return;
  try {
    await act(model);
  } catch (error) {
    Notification.error(singleLine(problemText(problemOf(error))));
  }
}

const COMMANDS: Command[] = [
  {
    id: "ipymcp:load",
    label: "Load MCP Servers\u2026",
    caption: "Load a configured server or the demo",
    isEnabled: (state) => isAllowed(state, "load"),
    execute: loadServers,
  },
  {
    id: "ipymcp:start-all",
    label: "Start All MCP Servers",
    caption: "Start every server that is loaded and not disabled",
    isEnabled: (state) => isAllowed(state, "start_all") && serversOf(state.servers).length > 0,
    execute: (model) => model.request("start_all", {}),
  },
  {
    id: "ipymcp:stop-all",
    label: "Stop All MCP Servers",
    caption: "Stop every server of this notebook",
    isEnabled: (state) => isAllowed(state, "stop_all") && serversOf(state.servers).length > 0,
    execute: (model) => model.request("stop_all", {}),
  },
  ...(Object.keys(LABELS) as ServerAction[]).map(serverCommand),
  {
    id: "ipymcp:cancel",
    label: "Cancel MCP Call\u2026",
    caption: "Cancel a running call",
    isEnabled: (state) => isAllowed(state, "cancel") && callsOf(state.calls).length > 0,
    execute: cancelCall,
  },
];

function serverCommand(verb: ServerAction): Command {
  const [label, caption] = LABELS[verb];
  const candidates = (state: PanelState): Server[] =>
    serversOf(state.servers).filter((server) => SERVER_ACTIONS[server.state]?.includes(verb));
  return {
    id: `ipymcp:${verb}`,
    label,
    caption,
    isEnabled: (state) => isAllowed(state, verb) && candidates(state).length > 0,
    execute: async (model) => {
      const server = await choose(label, candidates(model.store.get()), nameOf);
      if (server) await model.request(verb, { server: server.name });
    },
  };
}

async function loadServers(model: PanelModel): Promise<void> {
  const known = await model.request("known", {});
  const names = [...known.map(({ name }) => name), DEMO].filter((name) => !model.store.get().servers[name]);
  const what = await choose("Load MCP Servers\u2026", names, singleLine);
  if (what !== null) await model.request("load", { what: [what] });
}

async function cancelCall(model: PanelModel): Promise<void> {
  const calls = callsOf(model.store.get().calls);
  const call = calls.length === 1 ? calls[0] : await choose("Cancel MCP Call\u2026", calls, titleOf);
  if (call) await model.request("cancel", { call: call.id });
}

function logsCommand(open: CommandContext["open"]): Command {
  return {
    id: "ipymcp:logs",
    label: "Show Logs of MCP Server\u2026",
    caption: "Follow a server's log",
    isEnabled: (state) => serversOf(state.servers).length > 0,
    execute: async (model) => {
      const servers = serversOf(model.store.get().servers);
      const server = servers.length === 1 ? servers[0] : await choose("Show Logs of MCP Server\u2026", servers, nameOf);
      if (!server) return;
      model.show("logs", server.name);
      open();
    },
  };
}

function viewCommand(view: ViewName, label: string, open: CommandContext["open"]): Command {
  const act = (model: PanelModel): void => {
    model.show(view);
    open(view === "tools" ? "[type=search]" : undefined);
  };
  return { id: `ipymcp:show-${view}`, label, caption: label, isEnabled: () => true, execute: act };
}

const nameOf = (server: Server): string => singleLine(server.name);
const titleOf = ({ id, server, tool }: Call): string => `${singleLine(server)}.${singleLine(tool)} (call ${id})`;

/** Let the user choose an item; null if cancelled. */
async function choose<T>(label: string, from: T[], name: (one: T) => string): Promise<T | null> {
  // Number items with equal labels.
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
