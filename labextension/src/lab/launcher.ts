/** Entries of JupyterLab's launcher and file browser, which some pages do not have. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Notification } from "@jupyterlab/apputils";
import { PathExt } from "@jupyterlab/coreutils";
import type { PanelModel } from "../panelmodel";
import { isAllowed, problemOf } from "../store";
import { singleLine } from "../text";
import { trans } from "../translation";
import { problemText } from "../views/context";
import type { NotebookView } from "./notebook";
import type { NotebookViews } from "./views";

/** Add a card to the launcher that opens the view that adds a server. */
export async function addLauncherItem(app: JupyterFrontEnd, category: string): Promise<void> {
  try {
    const { ILauncher } = await import("@jupyterlab/launcher");
    const launcher = await app.resolveOptionalService(ILauncher);
    launcher?.add({ command: "ipymcp:add-server", category, rank: 0 });
  } catch {
    return; // the page has no launcher
  }
}

/** Add a command to the file browser's menu that loads the servers of a file. */
export async function addFileCommand(app: JupyterFrontEnd, views: NotebookViews, open: () => void): Promise<void> {
  try {
    const { IDefaultFileBrowser } = await import("@jupyterlab/filebrowser");
    const browser = await app.resolveOptionalService(IDefaultFileBrowser);
    if (!browser) return;
    const path = (): string | undefined =>
      [...browser.selectedItems()].find(({ name }) => /\.json5?$/.test(name))?.path;
    const label = trans.__("Load MCP Servers of This File");
    const load = async ({ notebook }: NotebookView, model: PanelModel, file: string): Promise<void> => {
      const contents = app.serviceManager.contents;
      const folder = PathExt.dirname(contents.localPath(notebook.context.path));
      try {
        await model.request("load_file", { path: PathExt.relative(folder, contents.localPath(file)) });
      } catch (error) {
        Notification.error(singleLine(problemText(problemOf(error))));
      }
    };
    app.commands.addCommand("ipymcp:load-file", {
      label,
      caption: trans.__("Load them in the active notebook, after you have seen and agreed to them"),
      isVisible: () => {
        const state = views.current?.model?.store.get();
        return path() !== undefined && (state === undefined || isAllowed(state, "load_file"));
      },
      execute: () => {
        const file = path();
        if (file === undefined) return;
        if (!views.current?.model) open();
        views.run({ label, execute: (view, model) => void load(view, model, file) });
      },
    });
  } catch {
    return; // the page has no file browser
  }
}
