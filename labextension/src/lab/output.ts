/** Render panels in notebook outputs: live while their kernel runs, else the saved table. A card of a model's
 * call shows its question while that is open, else the saved card. */

import type { NotebookPanel } from "@jupyterlab/notebook";
import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Panel, Widget } from "@lumino/widgets";
import { SharedPanel } from "../sharedpanel";
import { draw } from "../panel";
import type { PanelModel } from "../panelmodel";
import { visible } from "../text";
import type { NotebookView } from "./notebook";
import type { SavedPanel } from "./saved";
import { MIME_TYPE, staleNote, isLive, parseSaved } from "./saved";

/** Preferred to the widget renderer (-10), because this one works while a cell runs. */
const RANK = -20;
const HTML = "text/html";
const NOTE_STYLE = "color: var(--jp-ui-font-color2); font: 12px var(--jp-ui-font-family); padding: 4px 0;";

/** Register the renderer of panels in a notebook. It is safe: saved content is shown only as a sanitised table. */
export function drawOutputs({ content: { rendermime } }: NotebookPanel, view: () => NotebookView): void {
  const createRenderer = (): PanelOutput => new PanelOutput(view(), () => rendermime.createRenderer(HTML));
  rendermime.addFactory({ safe: true, mimeTypes: [MIME_TYPE], createRenderer }, RANK);
}

class PanelOutput extends Panel implements IRenderMime.IRenderer {
  private saved: SavedPanel | null = null;
  private table: Widget | null = null;
  private readonly note = new Widget({ node: document.createElement("div") });
  private live: { model: PanelModel; widget: Widget; leave(): void } | null = null;

  constructor(
    private readonly view: NotebookView,
    private readonly createTable: () => IRenderMime.IRenderer,
  ) {
    super();
    this.note.node.style.cssText = NOTE_STYLE;
    this.addWidget(this.note);
    view.changed.connect(this.redraw, this);
  }

  async renderModel({ data, metadata }: IRenderMime.IMimeModel): Promise<void> {
    const saved = parseSaved(data[MIME_TYPE]);
    if (saved?.card !== this.saved?.card) this.removeLive();
    this.saved = saved;
    this.table?.dispose();
    const table = (this.table = this.createTable());
    this.addWidget(table);
    this.redraw();
    await table.renderModel({ trusted: false, data: { [HTML]: data[HTML] ?? "" }, metadata, setData: () => undefined });
    // Align left like JupyterLab's own outputs.
    for (const each of table.node.querySelectorAll("table")) each.style.margin = "0";
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.view.changed.disconnect(this.redraw, this);
    this.removeLive();
    super.dispose();
  }

  /** Show the live panel or the saved table. */
  private redraw(): void {
    const { saved, view } = this;
    const { model } = view;
    if (saved && model && isLive(saved, model.store.get())) {
      if (this.live?.model !== model) this.drawLive(model, saved);
    } else {
      this.removeLive();
      this.note.node.textContent = saved?.card === undefined ? visible(staleNote(view.connectionStatus)) : "";
    }
    this.note.setHidden(this.live !== null || this.note.node.textContent === "");
    this.table?.setHidden(this.live !== null);
  }

  private drawLive(model: PanelModel, { server, card, elsewhere }: SavedPanel): void {
    this.removeLive();
    const widget = new Widget();
    this.live = { model, widget, leave: () => undefined };
    this.addWidget(widget);
    if (elsewhere === true) return;
    const asks = card !== undefined && { card, wants: ["questions" as const] };
    const panel = new SharedPanel(model, { client: "cell", ...(server !== undefined && { server }), ...asks });
    const undraw = draw(widget.node, panel, this.view.cellServices);
    const shown = { card, widget };
    this.view.cardQuestions.add(shown);
    this.live.leave = () => {
      this.view.cardQuestions.delete(shown);
      undraw();
      panel.close();
    };
  }

  private removeLive(): void {
    this.live?.leave();
    this.live?.widget.dispose();
    this.live = null;
  }
}
