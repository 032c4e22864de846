import { Widget } from "@lumino/widgets";
import { trans } from "../translation";
import { icon } from "./icon";
import type { PanelState } from "../store";
import { ATTENTION_TITLES, attention } from "../views/parts";
import type { NotebookView } from "./notebook";
import { NO_NOTEBOOK } from "./connectionstatus";
import { drawWelcome } from "./welcome";
import type { WelcomeView } from "./welcome";

export const SIDEBAR = "ipymcp-sidebar";
/** Maximum attempts to set the focus, one per frame: an element can have it only some frames after it is shown. */
const MAX_FOCUS_FRAMES = 20;
/** Notebook 7 does not let an area grow to the width that its contents need. */
const MIN_WIDTH = { lab: "300px", notebook: "260px" };

/** The sidebar with the active notebook's panel. */
export class Sidebar extends Widget {
  readonly #empty = document.createElement("div");

  readonly #emptyView: WelcomeView;
  #waiting: string | null = null;

  /** @param createNotebook Create a notebook; absent in Notebook 7. */
  constructor(createNotebook?: () => void) {
    super();
    this.id = SIDEBAR;
    this.title.icon = icon;
    this.title.caption = trans.__("MCP servers");
    Object.assign(this.node.style, {
      minWidth: createNotebook ? MIN_WIDTH.lab : MIN_WIDTH.notebook,
      overflow: "hidden",
    });
    this.node.tabIndex = -1;
    this.node.setAttribute("role", "region");
    this.node.setAttribute("aria-label", trans.__("MCP servers of the active notebook"));
    const nothing = (): void => undefined;
    const actions = { load: nothing, retry: nothing, insert: nothing, ...(createNotebook && { createNotebook }) };
    this.#emptyView = drawWelcome(this.#empty, actions);
    this.showWaiting("");
    this.showNotebook(null);
  }

  /** Focus the element that matches a selector in the current view, once it is drawn, else the selected tab. */
  focusInside(where?: string, frames = MAX_FOCUS_FRAMES): void {
    requestAnimationFrame(() => {
      const find = (selector: string): HTMLElement | null => this.node.querySelector<HTMLElement>(selector);
      const found = where === undefined ? null : find(`[role=tabpanel]:not([hidden]) ${where}`);
      (found ?? find("[role=tab][aria-selected=true]") ?? find(".mcp-button") ?? this.node).focus();
      if (found instanceof HTMLInputElement) found.select();
      const { activeElement } = document;
      const isDone = where === undefined ? this.node.contains(activeElement) : activeElement === found;
      if (frames > 0 && !isDone) this.focusInside(where, frames - 1);
    });
  }

  /** Show the label of the command that waits for a notebook; empty for none. */
  showWaiting(label: string): void {
    if (label === this.#waiting) return;
    this.#waiting = label;
    this.#emptyView.show(NO_NOTEBOOK, [], label);
  }

  /** Mark the icon if a server of the notebook failed or waits for the user. */
  showAttention(servers: PanelState["servers"]): void {
    const needs = attention(servers);
    this.title.className = needs ? `ipymcp-attention mcp-tone-${needs}` : "";
    const parts = [trans.__("MCP servers"), needs && ATTENTION_TITLES[needs]()];
    this.title.caption = parts.filter(Boolean).join(" \u00b7 ");
  }

  /** Show a notebook's panel, or none. Hidden panels keep what was typed. */
  showNotebook(view: NotebookView | null): void {
    this.node.replaceChildren(view ? view.node : this.#empty);
  }
}
