/** Entries of JupyterLab's launcher and file browser, which some pages do not have. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Notification } from "@jupyterlab/apputils";
import { PathExt } from "@jupyterlab/coreutils";
import { isAllowed, problemOf } from "../store";
import { singleLine } from "../text";
import { trans } from "../translation";
import { problemText } from "../views/context";
import type { NotebookView } from "./notebook";

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
export async function addFileCommand(app: JupyterFrontEnd, current: () => NotebookView | null): Promise<void> {
  try {
    const { IDefaultFileBrowser } = await import("@jupyterlab/filebrowser");
    const browser = await app.resolveOptionalService(IDefaultFileBrowser);
    if (!browser) return;
    const path = (): string | undefined =>
      [...browser.selectedItems()].find(({ name }) => /\.json5?$/.test(name))?.path;
    app.commands.addCommand("ipymcp:load-file", {
      label: trans.__("Load MCP Servers of This File"),
      caption: trans.__("Load them in the active notebook, after you have seen and agreed to them"),
      isVisible: () => {
        const state = current()?.model?.store.get();
        return path() !== undefined && state !== undefined && isAllowed(state, "load_file");
      },
      execute: async () => {
        const view = current();
        const file = path();
        if (!view?.model || file === undefined) return;
        const contents = app.serviceManager.contents;
        const folder = PathExt.dirname(contents.localPath(view.notebook.context.path));
        try {
          await view.model.request("load_file", { path: PathExt.relative(folder, contents.localPath(file)) });
        } catch (error) {
          Notification.error(singleLine(problemText(problemOf(error))));
        }
      },
    });
  } catch {
    return; // the page has no file browser
  }
}
