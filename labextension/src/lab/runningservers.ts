/** The section of servers in JupyterLab's list of running terminals and kernels. */

import type { IRunningSessions } from "@jupyterlab/running";
import { Signal } from "@lumino/signaling";
import type { ServerRow } from "../protocol";
import { isAllowed, serversOf } from "../store";
import { singleLine } from "../text";
import { trans } from "../translation";
import { stateView } from "../views/parts";
import { icon } from "./icon";
import type { NotebookView } from "./notebook";
import type { NotebookViews } from "./views";
import { afterDrawing } from "./views";

/** The servers that run in open notebooks.
 *
 * @param open Shows the servers of a notebook.
 */
export class RunningServers implements IRunningSessions.IManager {
  readonly name = trans.__("MCP servers");
  readonly shutdownLabel = trans.__("Stop");
  readonly shutdownAllLabel = trans.__("Stop All");
  readonly shutdownAllConfirmationText = trans.__("Stop the MCP servers of all open notebooks?");
  readonly runningChanged = new Signal<this, void>(this);
  #lastShown = "";

  constructor(
    private readonly views: NotebookViews,
    private readonly open: (view: NotebookView) => void,
  ) {
    views.anyChanged.connect(afterDrawing(() => this.refreshRunning()));
  }

  running(): IRunningSessions.IRunningItem[] {
    return this.#found().map(([view, server]) => ({
      icon: () => icon,
      label: () => `${singleLine(server.name)} · ${singleLine(view.name)}`,
      labelTitle: () => singleLine(server.where),
      detail: stateView(server.state).label,
      open: () => this.open(view),
      ...(canStop(view) && { shutdown: () => stop(view, [server]) }),
    }));
  }

  shutdownAll(): void {
    for (const view of this.views.all()) if (canStop(view)) stop(view, runningIn(view));
  }

  /** Emit a change only if the list changes, because other changes, such as calls, are frequent. */
  refreshRunning(): void {
    const shown = this.#found().map(([view, { name, state }]) => `${view.name}\n${name}\n${state}`);
    if (shown.join("\n") === this.#lastShown) return;
    this.#lastShown = shown.join("\n");
    this.runningChanged.emit();
  }

  #found(): [NotebookView, ServerRow][] {
    return this.views
      .all()
      .flatMap((view) => runningIn(view).map((server): [NotebookView, ServerRow] => [view, server]));
  }
}

const runningIn = ({ model }: NotebookView): ServerRow[] =>
  serversOf(model?.store.get().servers ?? {}).filter(({ state }) => stateView(state).actions.includes("stop"));

const canStop = ({ model }: NotebookView): boolean => model !== null && isAllowed(model.store.get(), "stop");

function stop({ model }: NotebookView, servers: ServerRow[]): void {
  // A refusal shows in the server's state.
  for (const { name } of servers) model?.request("stop", { server: name }).catch(() => undefined);
}
