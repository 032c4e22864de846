/** A panel in a notebook's output: live while the kernel that showed it lives, ever after the table that was saved. A model's
 * call that waits for an answer: the question while it is open, else the card that was saved. */

import type { NotebookPanel } from "@jupyterlab/notebook";
import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Panel, Widget } from "@lumino/widgets";
import { Beside } from "../beside";
import { draw } from "../panel";
import type { PanelModel } from "../panelmodel";
import { visible } from "../text";
import type { NotebookView } from "./notebook";
import type { Saved } from "./saved";
import { TYPE, howToRevive, isLive, savedIn } from "./saved";

/** Before the widget's, which is -10: this one answers while a cell blocks the kernel. */
const RANK = -20;
const HTML = "text/html";
const NOTE = "color: var(--jp-ui-font-color2); font: 12px var(--jp-ui-font-family); padding: 4px 0;";

/** Have panels in a notebook's outputs drawn by us. Safe: of what is saved only a sanitised table is shown. */
export function drawOutputs({ content: { rendermime } }: NotebookPanel, view: () => NotebookView): void {
  const createRenderer = (): PanelOutput => new PanelOutput(view(), () => rendermime.createRenderer(HTML));
  rendermime.addFactory({ safe: true, mimeTypes: [TYPE], createRenderer }, RANK);
}

class PanelOutput extends Panel implements IRenderMime.IRenderer {
  private saved: Saved | null = null;
  private table: Widget | null = null;
  private readonly note = new Widget({ node: document.createElement("div") });
  private live: { model: PanelModel; widget: Widget; leave(): void } | null = null;

  constructor(
    private readonly view: NotebookView,
    private readonly tables: () => IRenderMime.IRenderer,
  ) {
    super();
    this.note.node.style.cssText = NOTE;
    this.addWidget(this.note);
    view.changed.connect(this.look, this);
  }

  async renderModel({ data, metadata }: IRenderMime.IMimeModel): Promise<void> {
    const saved = savedIn(data[TYPE]);
    if (saved?.card !== this.saved?.card) this.undraw();
    this.saved = saved;
    this.table?.dispose();
    const table = (this.table = this.tables());
    this.addWidget(table);
    this.look();
    await table.renderModel({ trusted: false, data: { [HTML]: data[HTML] ?? "" }, metadata, setData: () => undefined });
    // As JupyterLab's own outputs: at the left, not centred as in a document.
    for (const each of table.node.querySelectorAll("table")) each.style.margin = "0";
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.view.changed.disconnect(this.look, this);
    this.undraw();
    super.dispose();
  }

  /** Draw what there is to draw now. */
  private look(): void {
    const { saved, view } = this;
    const { model } = view;
    if (saved && model && isLive(saved, model.store.get())) {
      if (this.live?.model !== model) this.enliven(model, saved);
    } else {
      this.undraw();
      this.note.node.textContent = saved?.card === undefined ? visible(howToRevive(view.standing)) : "";
    }
    this.note.setHidden(this.live !== null || this.note.node.textContent === "");
    this.table?.setHidden(this.live !== null);
  }

  private enliven(model: PanelModel, { server, card, elsewhere }: Saved): void {
    this.undraw();
    const widget = new Widget();
    this.live = { model, widget, leave: () => undefined };
    this.addWidget(widget);
    if (elsewhere === true) return;
    const asks = card !== undefined && { card, wants: ["questions" as const] };
    const beside = new Beside(model, { client: "cell", ...(server !== undefined && { server }), ...asks });
    const undraw = draw(widget.node, beside, this.view.cellServices);
    const shown = { card, widget };
    this.view.asking.add(shown);
    this.live.leave = () => {
      this.view.asking.delete(shown);
      undraw();
      beside.close();
    };
  }

  private undraw(): void {
    this.live?.leave();
    this.live?.widget.dispose();
    this.live = null;
  }
}
