/** Render apps in notebook outputs: live while their kernel runs, else the saved line that explains how to restore them. */

import type { NotebookPanel } from "@jupyterlab/notebook";
import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Panel, Widget } from "@lumino/widgets";
import type { AppView } from "../app/view";
import type { AppOptions } from "../app/options";
import { parseApp } from "../app/options";
import { draw } from "../panel";
import type { PanelModel } from "../panelmodel";
import { visible } from "../text";
import { trans } from "../translation";
import type { NotebookView } from "./notebook";
import type { SavedPanel } from "./saved";
import { isFromKernel, parseSaved } from "./saved";

const MIME_TYPE = "application/vnd.ipymcp.app+json";
/** Preferred to the widget renderer, because this one works while a cell runs. */
const RANK = -20;
const NOTE_STYLE = "color: var(--jp-ui-font-color2); font: 12px var(--jp-ui-font-family); padding: 4px 0;";

/** Register the renderer of apps in a notebook. It is safe: the output has no content from a server. */
export function drawApps({ content: { rendermime } }: NotebookPanel, view: () => NotebookView): void {
  rendermime.addFactory({ safe: true, mimeTypes: [MIME_TYPE], createRenderer: () => new AppOutput(view()) }, RANK);
}

class AppOutput extends Panel implements IRenderMime.IRenderer {
  private saved: (SavedPanel & AppOptions) | null = null;
  private readonly note = new Widget({ node: document.createElement("div") });
  private live: { model: PanelModel; widget: Widget; view: AppView | null; leave(): void } | null = null;

  constructor(private readonly view: NotebookView) {
    super();
    this.note.node.style.cssText = NOTE_STYLE;
    this.addWidget(this.note);
    view.changed.connect(this.redraw, this);
  }

  async renderModel({ data }: IRenderMime.IMimeModel): Promise<void> {
    const own = data[MIME_TYPE];
    const [saved, options] = [parseSaved(own), parseApp(own)];
    if (options?.app !== this.saved?.app) this.removeLive();
    this.saved = saved && options ? { ...saved, ...options } : null;
    const line = data["text/plain"];
    this.note.node.textContent = typeof line === "string" ? visible(line) : "";
    this.redraw();
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.view.changed.disconnect(this.redraw, this);
    this.removeLive();
    super.dispose();
  }

  private redraw(): void {
    const { saved, view } = this;
    const { model } = view;
    // A live app stays while the connection is being restored.
    const isConnecting = view.connectionStatus.kind === "connecting" && this.live !== null;
    if (saved && model && isFromKernel(saved, model.store.get())) {
      if (this.live?.model !== model) this.drawLive(model, saved);
    } else if (!isConnecting) this.removeLive();
    this.note.setHidden(this.live !== null);
  }

  private drawLive(model: PanelModel, options: AppOptions): void {
    this.removeLive();
    const widget = new Widget();
    const live = (this.live = { model, widget, view: null as AppView | null, leave: () => undefined as void });
    this.addWidget(widget);
    const { view } = this;
    const shown = { card: `app ${options.app}`, widget };
    view.cardQuestions.add(shown);
    live.leave = () => {
      view.cardQuestions.delete(shown);
      live.view?.dispose();
    };
    import("../app/view").then(
      ({ AppView }) => {
        if (this.live !== live) return;
        const drawQuestions: AppView["services"]["drawQuestions"] = (element, panel) =>
          draw(element, panel, view.cellServices);
        const { frameUrl } = view;
        live.view = new AppView(widget.node, model, { ...view.cellServices, drawQuestions, frameUrl }, options);
      },
      (error: unknown) => (widget.node.textContent = trans.__("The app could not be loaded: %1", String(error))),
    );
  }

  private removeLive(): void {
    this.live?.leave();
    this.live?.widget.dispose();
    this.live = null;
  }
}
