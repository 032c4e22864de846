import { Widget } from "@lumino/widgets";
import { icon } from "./icon";
import type { NotebookView } from "./notebook";
import { NO_NOTEBOOK } from "./standing";
import { drawWelcome } from "./welcome";

export const SIDEBAR = "ipymcp-sidebar";
/** At which all its tabs are to be read. */
const NARROWEST = "300px";

/** Shows the panel of the active notebook. */
export class Sidebar extends Widget {
  private readonly empty = document.createElement("div");

  constructor() {
    super();
    this.id = SIDEBAR;
    this.title.icon = icon;
    this.title.caption = "MCP servers";
    Object.assign(this.node.style, { minWidth: NARROWEST, overflow: "hidden" });
    this.node.tabIndex = -1;
    this.node.setAttribute("role", "region");
    this.node.setAttribute("aria-label", "MCP servers of the active notebook");
    const nothing = (): void => undefined;
    drawWelcome(this.empty, { load: nothing, retry: nothing, insert: nothing }).show(NO_NOTEBOOK);
    this.showNotebook(null);
  }

  /** Move the focus into what is shown, once that is drawn: to what a selector finds in the view, else to its tab. */
  focusInside(where?: string): void {
    requestAnimationFrame(() => {
      const find = (selector: string): HTMLElement | null => this.node.querySelector<HTMLElement>(selector);
      const found = where === undefined ? null : find(`[role=tabpanel]:not([hidden]) ${where}`);
      (found ?? find("[role=tab][aria-selected=true]") ?? find(".mcp-button") ?? this.node).focus();
    });
  }

  /** Show a notebook's; null for none. What was typed into another's stays there. */
  showNotebook(view: NotebookView | null): void {
    this.node.replaceChildren(view ? view.node : this.empty);
  }
}
