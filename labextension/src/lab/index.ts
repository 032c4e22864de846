/** The plugin for JupyterLab and Notebook 7: a sidebar, commands, a menu and a status bar item for the active notebook. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ILabShell, ILayoutRestorer } from "@jupyterlab/application";
import { ICommandPalette, Notification } from "@jupyterlab/apputils";
import { URLExt } from "@jupyterlab/coreutils";
import type { NotebookPanel } from "@jupyterlab/notebook";
import { INotebookTracker } from "@jupyterlab/notebook";
import { ServerConnection } from "@jupyterlab/services";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import type { IStatusBar } from "@jupyterlab/statusbar";
import { ITranslator } from "@jupyterlab/translation";
import type { Token } from "@lumino/coreutils";
import type { QuestionRow } from "../protocol";
import { stylePage } from "../root";
import { cardOf } from "../store";
import { singleLine } from "../text";
import { setTranslations, trans } from "../translation";
import { addCommands } from "./commands";
import { offerCode } from "./insertable";
import type { createMainArea } from "./mainarea";
import type { NotebookView, RelayEndpoints } from "./notebook";
import { drawOutputs } from "./output";
import { SIDEBAR, Sidebar } from "./sidebar";
import { StatusItem } from "./statusitem";
import { NotebookViews, afterDrawing } from "./views";

const ID = "ipymcp:panel";
const CATEGORY = "MCP";
/** After JupyterLab's own items. */
const RANK = 900;
/** Milliseconds for a displayed output to render. */
const RENDER_TIMEOUT = 700;

interface Settings {
  side: "left" | "right";
  status: boolean;
  openOnQuestions: boolean;
}

const DEFAULTS: Settings = { side: "right", status: true, openOnQuestions: true };

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  // JupyterLab shows this text before it knows the language.
  // eslint-disable-next-line ipymcp/translated
  description: "MCP servers of the active notebook.",
  autoStart: true,
  // All are optional, because some pages of Notebook 7 have no notebooks.
  optional: [INotebookTracker, ILayoutRestorer, ICommandPalette, ISettingRegistry, ITranslator, ILabShell],
  activate,
};

async function activate(
  app: JupyterFrontEnd,
  tracker: INotebookTracker | null,
  restorer: ILayoutRestorer | null,
  palette: ICommandPalette | null,
  registry: ISettingRegistry | null,
  translator: ITranslator | null,
  labShell: ILabShell | null,
): Promise<void> {
  if (translator) setTranslations(translator.load("ipymcp"));
  if (!tracker) return;
  stylePage();
  const tabs = new Map<NotebookView, ReturnType<typeof createMainArea>>();
  const openInMainArea = async (view: NotebookView): Promise<void> => {
    const mainArea = await import("./mainarea");
    const tab = tabs.get(view) ?? mainArea.createMainArea(view);
    if (!tabs.has(view)) {
      tabs.set(view, tab);
      tab.disposed.connect(() => tabs.delete(view));
      app.shell.add(tab, "main", { mode: "split-right", ref: view.notebook.id });
    }
    tab.content.followSidebar();
    app.shell.activateById(tab.id);
  };
  // The main area of Notebook 7 has room only for the notebook.
  const endpoints = relayEndpoints(app.serviceManager.serverSettings);
  const views = new NotebookViews(tracker, endpoints, labShell ? openInMainArea : undefined);
  const draw = (notebook: NotebookPanel): void => {
    drawOutputs(notebook, () => views.viewOf(notebook));
    offerCode(notebook);
  };
  tracker.widgetAdded.connect((_, notebook) => draw(notebook));
  tracker.forEach(draw);
  const newNotebook = (): void => void app.commands.execute("notebook:create-new");
  const sidebar = new Sidebar(labShell ? newNotebook : undefined);
  const open = (): void => app.shell.activateById(SIDEBAR);

  const openAndFocus = (focus?: string): void => {
    open();
    sidebar.focusInside(focus);
  };

  const ids = addCommands(app, {
    current: () => views.current,
    runOnceLoaded: (command) => views.run(command),
    open: openAndFocus,
    ...(labShell && { openInMainArea }),
  });
  for (const command of ids) palette?.addItem({ command, category: CATEGORY });
  views.currentChanged.connect((_, view) => sidebar.showNotebook(view));
  sidebar.showNotebook(views.current);
  let lastStatus = "";
  const refreshCommands = afterDrawing(() => {
    const now = views.current?.connectionStatus.kind ?? "";
    if (now !== lastStatus) for (const id of ids) app.commands.notifyCommandChanged(id);
    lastStatus = now;
  });
  views.changed.connect(() => {
    refreshCommands();
    sidebar.showWaiting(views.waitingLabel);
    sidebar.showAttention(views.current?.model?.store.get().servers ?? {});
  });

  void import("./launcher").then(({ addFileCommand, addLauncherItem }) => {
    void addLauncherItem(app, CATEGORY);
    void addFileCommand(app, views, openAndFocus);
  });
  const settings = await loadSettings(registry);
  const statusBar = await serviceOf(app, async () => (await import("@jupyterlab/statusbar")).IStatusBar);
  if (statusBar) addStatus(statusBar, views, openAndFocus, settings);
  const running = await serviceOf(app, async () => (await import("@jupyterlab/running")).IRunningSessionManagers);
  const { RunningServers } = await import("./runningservers");
  running?.add(
    new RunningServers(views, (view) => {
      app.shell.activateById(view.notebook.id);
      view.model?.show("servers");
      openAndFocus();
    }),
  );
  // A card, or a panel in the notebook, may draw the question a moment later; then the sidebar need not open.
  const showQuestion = ({ view, question }: { view: NotebookView; question: QuestionRow }): void => {
    const card = cardOf(question);
    if (!card && !view.hasInSight(".mcp-panel")) return open();
    setTimeout(() => {
      const isOpen = view.model?.store.get().questions[question.id] !== undefined;
      if (view === views.current && isOpen && !view.hasInSight(".mcp-question")) open();
    }, RENDER_TIMEOUT);
  };
  views.asked.connect((_, asked) => {
    const { view, question } = asked;
    if (view === views.current && settings().openOnQuestions) return showQuestion(asked);
    Notification.info(`${singleLine(view.name)}: ${singleLine(question.title)}`, {
      autoClose: false,
      actions: [
        {
          label: trans.__("Show"),
          callback: () => {
            app.shell.activateById(view.notebook.id);
            showQuestion(asked);
          },
        },
      ],
    });
  });
  app.shell.add(sidebar, settings().side, { rank: RANK, type: CATEGORY });
  restorer?.add(sidebar, SIDEBAR);
}

/** Return the relay endpoints of a Jupyter server. */
function relayEndpoints(settings: ServerConnection.ISettings): RelayEndpoints {
  return (kernelId) => {
    const path = ["ipymcp/kernels", encodeURIComponent(kernelId), "panel"];
    const token = settings.appendToken && settings.token !== "" ? `?token=${encodeURIComponent(settings.token)}` : "";
    return {
      url: URLExt.join(settings.wsUrl, ...path) + token,
      frameUrl: (query) => `${URLExt.join(settings.baseUrl, "ipymcp/apps/frame")}${query && `?${query}`}`,
      callback: new URL(URLExt.join(settings.baseUrl, "ipymcp/oauth/callback"), location.href).href,
      WebSocket: settings.WebSocket,
      probe: async () => {
        const url = URLExt.join(settings.baseUrl, ...path);
        return (await ServerConnection.makeRequest(url, {}, settings)).status;
      },
    };
  };
}

/** A service of JupyterLab, if there is one. Voilà lacks these packages and would reject a plugin that lists their tokens. */
async function serviceOf<T>(app: JupyterFrontEnd, token: () => Promise<Token<T>>): Promise<T | null> {
  try {
    return await app.resolveOptionalService(await token());
  } catch {
    return null;
  }
}

function addStatus(bar: IStatusBar, views: NotebookViews, open: () => void, settings: () => Settings): void {
  const item = new StatusItem(open);
  bar.registerStatusItem(ID, {
    item,
    align: "left",
    rank: RANK,
    isActive: () => settings().status && Boolean(views.current?.model),
    activeStateChanged: views.changed as never,
  });
  views.changed.connect(() => item.showState(views.current?.model?.store.get() ?? null));
}

/** Return a getter of the current settings; the defaults if they cannot be loaded. */
async function loadSettings(registry: ISettingRegistry | null): Promise<() => Settings> {
  try {
    const loaded = await registry?.load(ID);
    return () => ({ ...DEFAULTS, ...(loaded?.composite as Partial<Settings> | undefined) });
  } catch {
    return () => DEFAULTS;
  }
}

export default plugin;
