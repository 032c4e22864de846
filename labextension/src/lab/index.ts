/** ipymcp in JupyterLab, and in Notebook 7: a sidebar for the active notebook, commands, a menu, a line in the status bar. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ILayoutRestorer } from "@jupyterlab/application";
import { ICommandPalette, Notification } from "@jupyterlab/apputils";
import { URLExt } from "@jupyterlab/coreutils";
import { INotebookTracker } from "@jupyterlab/notebook";
import { ServerConnection } from "@jupyterlab/services";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import type { IStatusBar } from "@jupyterlab/statusbar";
import type { Question } from "../protocol";
import { line } from "../text";
import { addCommands } from "./commands";
import type { NotebookView, Relays } from "./notebook";
import { drawOutputs } from "./output";
import { SIDEBAR, Sidebar } from "./sidebar";
import { StatusItem } from "./status";
import { NotebookViews } from "./views";

const ID = "ipymcp:panel";
const CATEGORY = "MCP";
/** Behind Lab's own. */
const RANK = 900;
/** Milliseconds within which a cell has drawn what the kernel displayed. */
const DRAWN = 700;

interface Settings {
  side: "left" | "right";
  status: boolean;
  openOnQuestions: boolean;
}

const DEFAULTS: Settings = { side: "right", status: true, openOnQuestions: true };

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: "MCP servers of the active notebook.",
  autoStart: true,
  // All optional: some pages of Notebook 7 have no notebooks.
  optional: [INotebookTracker, ILayoutRestorer, ICommandPalette, ISettingRegistry],
  activate,
};

async function activate(
  app: JupyterFrontEnd,
  tracker: INotebookTracker | null,
  restorer: ILayoutRestorer | null,
  palette: ICommandPalette | null,
  registry: ISettingRegistry | null,
): Promise<void> {
  if (!tracker) return;
  const views = new NotebookViews(tracker, relays(app.serviceManager.serverSettings));
  tracker.widgetAdded.connect((_, notebook) => drawOutputs(notebook, () => views.of(notebook)));
  tracker.forEach((notebook) => drawOutputs(notebook, () => views.of(notebook)));
  const sidebar = new Sidebar();
  const open = (): void => app.shell.activateById(SIDEBAR);

  const enter = (focus?: string): void => {
    open();
    sidebar.focusInside(focus);
  };

  const ids = addCommands(app, { current: () => views.current, open: enter });
  for (const command of ids) palette?.addItem({ command, category: CATEGORY });
  views.currentChanged.connect((_, view) => sidebar.showNotebook(view));
  sidebar.showNotebook(views.current);
  let standing = "";
  views.changed.connect(() => {
    const now = views.current?.standing.is ?? "";
    if (now !== standing) for (const id of ids) app.commands.notifyCommandChanged(id);
    standing = now;
  });

  const settings = await settled(registry);
  const statusBar = await statusBarOf(app);
  if (statusBar) addStatus(statusBar, views, open, settings);
  // A question that has a card comes with it, or a moment before: the sidebar opens where no card shows it.
  const lead = ({ view, question: { id, card } }: { view: NotebookView; question: Question }): void => {
    if (card === undefined) return open();
    setTimeout(() => {
      const isOpen = view.model?.store.get().questions[id] !== undefined;
      if (view === views.current && isOpen && !view.asksIn(card)) open();
    }, DRAWN);
  };
  views.asked.connect((_, asked) => {
    const { view, question } = asked;
    if (view === views.current && settings().openOnQuestions) return lead(asked);
    Notification.info(`${line(view.name)}: ${line(question.title)}`, {
      autoClose: false,
      actions: [
        {
          label: "Show",
          callback: () => {
            app.shell.activateById(view.notebook.id);
            lead(asked);
          },
        },
      ],
    });
  });
  app.shell.add(sidebar, settings().side, { rank: RANK, type: CATEGORY });
  restorer?.add(sidebar, SIDEBAR);
}

/** Where a Jupyter server has its relays. */
function relays(settings: ServerConnection.ISettings): Relays {
  return (kernelId) => {
    const path = ["ipymcp/kernels", encodeURIComponent(kernelId), "panel"];
    const token = settings.appendToken && settings.token !== "" ? `?token=${encodeURIComponent(settings.token)}` : "";
    return {
      url: URLExt.join(settings.wsUrl, ...path) + token,
      callback: new URL(URLExt.join(settings.baseUrl, "ipymcp/oauth/callback"), location.href).href,
      WebSocket: settings.WebSocket,
      probe: async () => {
        const url = URLExt.join(settings.baseUrl, ...path);
        return (await ServerConnection.makeRequest(url, {}, settings)).status;
      },
    };
  };
}

/** Notebook 7 has none. Voilà does not even know what one is, and refuses all of us if we say that we need it. */
async function statusBarOf(app: JupyterFrontEnd): Promise<IStatusBar | null> {
  try {
    return await app.resolveOptionalService((await import("@jupyterlab/statusbar")).IStatusBar);
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
  views.changed.connect(() => item.tell(views.current?.model?.store.get() ?? null));
}

/** What the user has set, always as it is now; the defaults where that cannot be read. */
async function settled(registry: ISettingRegistry | null): Promise<() => Settings> {
  try {
    const loaded = await registry?.load(ID);
    return () => ({ ...DEFAULTS, ...(loaded?.composite as Partial<Settings> | undefined) });
  } catch {
    return () => DEFAULTS;
  }
}

export default plugin;
