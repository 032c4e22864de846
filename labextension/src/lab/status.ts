import { Widget } from "@lumino/widgets";
import type { PanelState } from "../store";
import { summary } from "./summary";

const LOOK = "all: unset; box-sizing: border-box; height: 100%; padding: 0 6px; cursor: pointer; white-space: nowrap;";
const FOCUSED = "outline: 1px solid currentColor; outline-offset: -1px;";

/** How many servers of the active notebook are ready, in the status bar. */
export class StatusItem extends Widget {
  private readonly button = document.createElement("button");

  constructor(open: () => void) {
    super();
    this.button.type = "button";
    this.button.style.cssText = LOOK;
    this.button.onclick = open;
    this.button.onfocus = () => (this.button.style.cssText = LOOK + FOCUSED);
    this.button.onblur = () => (this.button.style.cssText = LOOK);
    this.node.append(this.button);
  }

  tell(state: PanelState | null): void {
    const text = state ? summary(state) : "";
    if (this.button.textContent === text) return;
    this.button.textContent = text;
    this.button.title = text && "MCP servers of this notebook that are ready. Opens their panel.";
  }
}
