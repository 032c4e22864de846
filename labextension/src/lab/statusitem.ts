import { Widget } from "@lumino/widgets";
import type { PanelState } from "../store";
import { trans } from "../translation";
import { summary } from "./summary";

const BUTTON_CSS =
  "all: unset; box-sizing: border-box; height: 100%; padding: 0 6px; cursor: pointer; white-space: nowrap;";
const FOCUS_CSS = "outline: 1px solid currentColor; outline-offset: -1px;";

/** Status bar item with the number of ready servers. */
export class StatusItem extends Widget {
  readonly #button = document.createElement("button");

  constructor(open: () => void) {
    super();
    this.#button.type = "button";
    this.#button.style.cssText = BUTTON_CSS;
    this.#button.onclick = open;
    this.#button.onfocus = () => (this.#button.style.cssText = BUTTON_CSS + FOCUS_CSS);
    this.#button.onblur = () => (this.#button.style.cssText = BUTTON_CSS);
    this.node.append(this.#button);
  }

  showState(state: PanelState | null): void {
    const text = state ? summary(state) : "";
    if (this.#button.textContent === text) return;
    this.#button.textContent = text;
    this.#button.title = text && trans.__("MCP servers that are ready in this notebook. Click to open the panel.");
  }
}
