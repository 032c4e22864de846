/** Render panels and apps in notebook outputs: live while their kernel runs, else as they were saved. */

import type { NotebookPanel } from "@jupyterlab/notebook";
import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Panel, Widget } from "@lumino/widgets";
import type { AppOptions } from "../app/options";
import { parseApp } from "../app/options";
import type { AppServices, AppView } from "../app/view";
import { draw } from "../panel";
import type { PanelModel } from "../panelmodel";
import { SharedPanel } from "../sharedpanel";
import { visible } from "../text";
import { trans } from "../translation";
import type { NotebookView } from "./notebook";
import type { SavedPanel } from "./saved";
import { isFromKernel, isLive, parseSaved, staleNote } from "./saved";

export const PANEL_TYPE = "application/vnd.ipymcp.panel+json";
const APP_TYPE = "application/vnd.ipymcp.app+json";
/** Preferred to the widget renderer (-10), because these work while a cell runs. */
const RANK = -20;
const HTML = "text/html";

/** Register the renderers of a notebook's outputs. They are safe: saved content is shown only as text or a sanitised table, and a
 * live app is the kernel's. */
export function drawOutputs({ content: { rendermime } }: NotebookPanel, view: () => NotebookView): void {
  const table = (): IRenderMime.IRenderer => rendermime.createRenderer(HTML);
  const register = (mimeType: string, createRenderer: () => IRenderMime.IRenderer): void =>
    rendermime.addFactory({ safe: true, mimeTypes: [mimeType], createRenderer }, RANK);
  register(PANEL_TYPE, () => new PanelOutput(view(), table));
  register(APP_TYPE, () => new AppOutput(view()));
}

abstract class LiveOutput<Saved extends SavedPanel> extends Panel implements IRenderMime.IRenderer {
  protected saved: Saved | null = null;
  protected live: { model: PanelModel; widget: Widget; leave(): void } | null = null;
  protected readonly note = new Widget({ node: document.createElement("div") });

  constructor(protected readonly view: NotebookView) {
    super();
    this.note.node.style.cssText =
      "color: var(--jp-ui-font-color2); font: 12px var(--jp-ui-font-family); padding: 4px 0;";
    this.addWidget(this.note);
    view.changed.connect(this.redraw, this);
  }

  abstract renderModel(model: IRenderMime.IMimeModel): Promise<void>;

  override dispose(): void {
    if (this.isDisposed) return;
    this.view.changed.disconnect(this.redraw, this);
    this.removeLive();
    super.dispose();
  }

  /** Show what is live or what was saved. */
  protected abstract redraw(): void;
  /** Draw what is live; return a function that removes it. */
  protected abstract mount(node: HTMLElement, model: PanelModel, saved: Saved): () => void;

  /** Draw what is live, unless it is drawn already. */
  protected drawLive(model: PanelModel, saved: Saved): void {
    if (this.live?.model === model) return;
    this.removeLive();
    const widget = new Widget();
    this.addWidget(widget);
    let unmount: (() => void) | null = null;
    this.live = { model, widget, leave: () => unmount?.() };
    unmount = this.mount(widget.node, model, saved);
  }

  protected removeLive(): void {
    this.live?.leave();
    this.live?.widget.dispose();
    this.live = null;
  }
}

/** A panel, or its saved table. A card of a model's call shows its question while that is open, else the saved card. */
class PanelOutput extends LiveOutput<SavedPanel> {
  #table: Widget | null = null;

  constructor(
    view: NotebookView,
    private readonly createTable: () => IRenderMime.IRenderer,
  ) {
    super(view);
  }

  async renderModel({ data, metadata }: IRenderMime.IMimeModel): Promise<void> {
    const saved = parseSaved(data[PANEL_TYPE]);
    if (saved?.card !== this.saved?.card) this.removeLive();
    this.saved = saved;
    this.#table?.dispose();
    const table = (this.#table = this.createTable());
    this.addWidget(table);
    this.redraw();
    await table.renderModel({ trusted: false, data: { [HTML]: data[HTML] ?? "" }, metadata, setData: () => undefined });
    // Align left like JupyterLab's own outputs.
    for (const each of table.node.querySelectorAll("table")) each.style.margin = "0";
  }

  protected redraw(): void {
    const { saved, view } = this;
    const { model } = view;
    if (saved && model && isLive(saved, model.store.get())) {
      this.drawLive(model, saved);
    } else {
      this.removeLive();
      this.note.node.textContent = saved?.card === undefined ? visible(staleNote(view.connectionStatus)) : "";
    }
    this.note.setHidden(this.live !== null || this.note.node.textContent === "");
    this.#table?.setHidden(this.live !== null);
  }

  protected mount(node: HTMLElement, model: PanelModel, { server, card, elsewhere }: SavedPanel): () => void {
    if (elsewhere === true) return () => undefined;
    const asks = card !== undefined && { card, wants: ["questions" as const] };
    const panel = new SharedPanel(model, { client: "cell", ...(server !== undefined && { server }), ...asks });
    const undraw = draw(node, panel, this.view.cellServices);
    return () => {
      undraw();
      panel.close();
    };
  }
}

/** An app, or the saved line that explains how to restore it. */
class AppOutput extends LiveOutput<SavedPanel & AppOptions> {
  async renderModel({ data }: IRenderMime.IMimeModel): Promise<void> {
    const own = data[APP_TYPE];
    const [saved, options] = [parseSaved(own), parseApp(own)];
    if (options?.app !== this.saved?.app) this.removeLive();
    this.saved = saved && options ? { ...saved, ...options } : null;
    const line = data["text/plain"];
    this.note.node.textContent = typeof line === "string" ? visible(line) : "";
    this.redraw();
  }

  protected redraw(): void {
    const { saved, view } = this;
    const { model } = view;
    // A live app stays while the connection is being restored.
    const isConnecting = view.connectionStatus.kind === "connecting" && this.live !== null;
    if (saved && model && isFromKernel(saved, model.store.get())) this.drawLive(model, saved);
    else if (!isConnecting) this.removeLive();
    this.note.setHidden(this.live !== null);
  }

  protected mount(node: HTMLElement, model: PanelModel, options: AppOptions): () => void {
    const { cellServices, frameUrl } = this.view;
    let app: AppView | null = null;
    let isRemoved = false;
    import("../app/view").then(
      ({ AppView }) => {
        if (isRemoved) return;
        const drawQuestions: AppServices["drawQuestions"] = (element, panel) => draw(element, panel, cellServices);
        app = new AppView(node, model, { ...cellServices, drawQuestions, frameUrl }, options);
      },
      (error: unknown) => (node.textContent = trans.__("The app could not be loaded: %1", String(error))),
    );
    return () => {
      isRemoved = true;
      app?.dispose();
    };
  }
}
