/** A notebook's panel as a tab of the main area, where it can be wide. */

import { MainAreaWidget } from "@jupyterlab/apputils";
import { Widget } from "@lumino/widgets";
import { draw } from "../panel";
import type { PanelModel } from "../panelmodel";
import { SharedPanel } from "../sharedpanel";
import { singleLine } from "../text";
import { trans } from "../translation";
import { icon } from "./icon";
import type { NotebookView } from "./notebook";
import type { WelcomeView } from "./welcome";
import { drawWelcome } from "./welcome";

/** Create the tab. It follows its notebook's kernels, and closes with the notebook. */
export function createMainArea(view: NotebookView): MainAreaWidget<NotebookPanelView> {
  const main = new MainAreaWidget({ content: new NotebookPanelView(view) });
  main.toolbar.hide();
  main.title.icon = icon;
  const setTitle = (): void => void (main.title.label = trans.__("MCP: %1", singleLine(view.name)));
  setTitle();
  view.notebook.title.changed.connect(setTitle);
  const close = (): void => main.dispose();
  view.notebook.disposed.connect(close);
  main.disposed.connect(() => {
    view.notebook.title.changed.disconnect(setTitle);
    view.notebook.disposed.disconnect(close);
  });
  return main;
}

/** The panel of a notebook with its own navigation, beside the one in the sidebar. */
export class NotebookPanelView extends Widget {
  #model: PanelModel | null = null;
  #panel: SharedPanel | null = null;
  #removePanel: (() => void) | null = null;
  #welcome: WelcomeView | null = null;

  constructor(private readonly view: NotebookView) {
    super();
    this.node.style.overflow = "hidden";
    this.node.tabIndex = -1;
    view.changed.connect(this.#redraw, this);
    this.#redraw();
  }

  /** Show what the sidebar shows, so that it can go elsewhere. */
  followSidebar(): void {
    const { model } = this.view;
    if (model) this.#panel?.store.set({ navigation: model.store.get().navigation });
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.view.changed.disconnect(this.#redraw, this);
    this.#clear();
    super.dispose();
  }

  #redraw(): void {
    const { model, connectionStatus } = this.view;
    if (model === null) {
      if (!this.#welcome) this.#clear();
      this.#welcome ??= drawWelcome(this.node, this.view.welcomeActions);
      this.#welcome.show(connectionStatus, this.view.used.names());
    } else if (model !== this.#model) {
      this.#clear();
      const panel = new SharedPanel(model, { client: "sidebar" });
      const undraw = draw(this.node, panel, this.view.cellServices);
      this.#model = model;
      this.#panel = panel;
      this.#removePanel = () => {
        undraw();
        panel.close();
      };
    }
  }

  #clear(): void {
    this.#welcome?.remove();
    this.#removePanel?.();
    this.#welcome = this.#panel = this.#removePanel = this.#model = null;
  }
}
