/** Commands of the palette and the menu, which act on the active notebook. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { InputDialog, Notification } from "@jupyterlab/apputils";
import type { PanelModel } from "../panelmodel";
import type { CallRow, ServerRow } from "../protocol";
import { callsOf, isAllowed, problemOf, serversOf, withAdding } from "../store";
import type { PanelState, Target, ViewName } from "../store";
import { singleLine } from "../text";
import { trans } from "../translation";
import { problemText } from "../views/context";
import { stateView } from "../views/parts";
import type { ServerAction } from "../views/parts";
import { icon } from "./icon";
import type { NotebookView } from "./notebook";
import type { WaitingCommand } from "./views";

/** What the commands act on. */
export interface CommandContext {
  /** Return the active notebook's view, or null. */
  current(): NotebookView | null;
  /** Run a command on the active notebook, as soon as ipymcp is loaded there. */
  runOnceLoaded(command: WaitingCommand): void;
  /** Open the sidebar and focus the element that matches a selector, else its tabs. */
  open(focus?: string): void;
  /** Open a notebook's panel in the main area; absent where there is none. */
  openInMainArea?: (view: NotebookView) => void;
}

type Action = (model: PanelModel) => unknown;

interface Command {
  id: string;
  label: string;
  /** Absent where it would only repeat the label. */
  caption?: string;
  /** Whether it makes sense now. */
  isEnabled(state: PanelState): boolean;
  execute: Action;
}

const DEMO = "demo";
const ADD_SERVER = "ipymcp:add-server";
const serverLabels = (): { [D in ServerAction]: [label: string, caption?: string] } => ({
  start: [trans.__("Start MCP Server\u2026")],
  stop: [trans.__("Stop MCP Server\u2026")],
  restart: [trans.__("Restart MCP Server\u2026")],
  unload: [trans.__("Unload MCP Server\u2026"), trans.__("Stop a server and remove it from this notebook")],
  enable: [trans.__("Enable MCP Server\u2026")],
  disable: [trans.__("Disable MCP Server\u2026"), trans.__("Stop a server and keep it from starting automatically")],
  trust: [trans.__("Trust MCP Server\u2026"), trans.__("Decide whether a server may run")],
  login: [trans.__("Login to MCP Server\u2026")],
});
const viewLabels = (): [id: string, label: string, view: ViewName, target: Target][] => [
  ["ipymcp:show-tools", trans.__("Find MCP Tool"), "tools", { kind: "tools", tool: null }],
  ["ipymcp:show-resources", trans.__("Show MCP Resources"), "tools", { kind: "resources" }],
  ["ipymcp:show-prompts", trans.__("Show MCP Prompts"), "tools", { kind: "prompts" }],
  ["ipymcp:show-calls", trans.__("Show MCP Activity"), "activity", {}],
];

/** Add all commands; return their ids in palette order. */
export function addCommands(app: JupyterFrontEnd, context: CommandContext): string[] {
  const { current, open } = context;
  const all = [
    ...serverCommands(),
    ...viewLabels().map(([id, label, view, target]) => viewCommand(id, label, view, target, open)),
    logsCommand(open),
  ];
  addServerCommand(app, context);
  for (const { id, label, caption, isEnabled, execute } of all) {
    app.commands.addCommand(id, {
      label,
      ...(caption && { caption }),
      isEnabled: () => {
        const state = current()?.model?.store.get();
        return state !== undefined && isEnabled(state);
      },
      execute: () => runAction(current()?.model ?? null, execute),
    });
  }
  app.commands.addCommand("ipymcp:open", {
    label: trans.__("Open MCP Panel"),
    caption: trans.__("Show the MCP servers of the active notebook"),
    icon,
    execute: () => open(),
  });
  app.commands.addCommand("ipymcp:load-extension", {
    label: trans.__("Load ipymcp in This Notebook"),
    caption: trans.__("Run %load_ext ipymcp in its kernel"),
    isEnabled: () => current()?.connectionStatus.kind === "absent",
    execute: async () => {
      open();
      await current()?.load();
    },
  });
  const { openInMainArea } = context;
  if (openInMainArea) {
    app.commands.addCommand("ipymcp:open-in-main-area", {
      label: trans.__("Open MCP Panel in Main Area"),
      caption: trans.__("Show its MCP servers beside it"),
      icon,
      isEnabled: () => current() !== null,
      execute: () => {
        const view = current();
        if (view) openInMainArea(view);
      },
    });
  }
  const opening = openInMainArea ? ["ipymcp:open", "ipymcp:open-in-main-area"] : ["ipymcp:open"];
  return [...opening, "ipymcp:load-extension", ADD_SERVER, ...all.map(({ id }) => id)];
}

async function runAction(model: PanelModel | null, act: Action): Promise<void> {
  if (!model) return;
  try {
    await act(model);
  } catch (error) {
    Notification.error(singleLine(problemText(problemOf(error))));
  }
}

const serverCommands = (): Command[] => [
  {
    id: "ipymcp:load",
    label: trans.__("Load MCP Servers\u2026"),
    caption: trans.__("Load a configured server or the demo"),
    isEnabled: (state) => isAllowed(state, "load"),
    execute: loadServers,
  },
  allCommand("start", trans.__("Start All MCP Servers")),
  allCommand("stop", trans.__("Stop All MCP Servers")),
  allCommand("restart", trans.__("Restart All MCP Servers")),
  ...(Object.entries(serverLabels()) as [ServerAction, [string, string?]][]).map(serverCommand),
  {
    id: "ipymcp:cancel",
    label: trans.__("Cancel MCP Call\u2026"),
    isEnabled: (state) => isAllowed(state, "cancel") && callsOf(state.calls).length > 0,
    execute: cancelCall,
  },
];

function allCommand(verb: "start" | "stop" | "restart", label: string): Command {
  return {
    id: `ipymcp:${verb}-all`,
    label,
    isEnabled: (state) => isAllowed(state, `${verb}_all`) && serversOf(state.servers).length > 0,
    execute: (model) => model.request(`${verb}_all`, {}),
  };
}

function serverCommand([verb, [label, caption]]: [ServerAction, [string, string?]]): Command {
  const candidates = (state: PanelState): ServerRow[] =>
    serversOf(state.servers).filter((server) => stateView(server.state).actions.includes(verb));
  return {
    id: `ipymcp:${verb}`,
    label,
    ...(caption && { caption }),
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
  const what = await choose(trans.__("Load MCP Servers\u2026"), names, singleLine);
  if (what !== null) await model.request("load", { what: [what] });
}

async function cancelCall(model: PanelModel): Promise<void> {
  const calls = callsOf(model.store.get().calls);
  const call = calls.length === 1 ? calls[0] : await choose(trans.__("Cancel MCP Call\u2026"), calls, titleOf);
  if (call) await model.request("cancel", { call: call.id });
}

/** Add the command that opens the form for a new server. The launcher offers it also before ipymcp is loaded. */
function addServerCommand({ commands }: JupyterFrontEnd, { current, open, runOnceLoaded }: CommandContext): void {
  const label = trans.__("Add MCP Server\u2026");
  commands.addCommand(ADD_SERVER, {
    label,
    caption: trans.__("Add a server from the registry, by a command, a URL or JSON"),
    icon,
    isEnabled: () => {
      const state = current()?.model?.store.get();
      return state === undefined || isAllowed(state, "try");
    },
    execute: () => {
      open();
      runOnceLoaded({
        label,
        execute: (_, { store }) => {
          if (!isAllowed(store.get(), "try")) return;
          store.set(withAdding(store.get()));
          open("[type=search]");
        },
      });
    },
  });
}

function logsCommand(open: CommandContext["open"]): Command {
  const label = trans.__("Show Logs of MCP Server\u2026");
  return {
    id: "ipymcp:logs",
    label,
    isEnabled: (state) => serversOf(state.servers).length > 0,
    execute: async (model) => {
      const servers = serversOf(model.store.get().servers);
      const server = servers.length === 1 ? servers[0] : await choose(label, servers, nameOf);
      if (!server) return;
      model.show("logs", { server: server.name });
      open();
    },
  };
}

function viewCommand(id: string, label: string, view: ViewName, target: Target, open: CommandContext["open"]): Command {
  const act = (model: PanelModel): void => {
    model.show(view, target);
    open(view === "tools" ? ".mcp-list:not([hidden] *) [type=search]" : undefined);
  };
  return { id, label, isEnabled: () => true, execute: act };
}

const nameOf = (server: ServerRow): string => singleLine(server.name);
const titleOf = ({ id, server, tool }: CallRow): string =>
  trans.__("%1.%2 (call %3)", singleLine(server), singleLine(tool), id);

/** Let the user choose an item; null if cancelled. */
async function choose<T>(label: string, from: T[], name: (one: T) => string): Promise<T | null> {
  // Number items with equal labels.
  const names = from.map(name);
  const items = names.map((each, index) => (names.indexOf(each) === index ? each : `${each} (${index + 1})`));
  if (!items.length) {
    Notification.info(trans.__("There is nothing to choose from."));
    return null;
  }
  const title = label.replace("\u2026", "");
  const { button, value } = await InputDialog.getItem({ title, items, okLabel: title.split(" ")[0] ?? title });
  return button.accept && value !== null ? (from[items.indexOf(value)] ?? null) : null;
}
