/** Outputs of a model's answer that offer their code as a new cell: a call, or the Python blocks of its text. */

import type { NotebookPanel } from "@jupyterlab/notebook";
import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Panel } from "@lumino/widgets";
import { trans } from "../translation";
import { insertBelowOutput } from "./cells";

const MIME_TYPE = "application/vnd.ipymcp.code+json";
/** Preferred to the renderers of HTML and Markdown, which it uses. */
const RANK = -20;
const DRAWN = ["text/markdown", "text/html"];
/** The languages of the blocks that are offered; a block without a language is offered too. */
const PYTHON = /^(py|i?python3?)?$/i;
const LANGUAGE = /\blanguage-(\S+)/;
const STYLE = "position: absolute; padding: 0 6px; opacity: 0.8;";
/** The button's position in the first line of a card, inside JupyterLab's padding. */
const IN_CARD = "top: 7px; right: 25px;";
const IN_BLOCK = "top: 0; right: 5px;";
const COLORS =
  "color: var(--jp-ui-font-color1); background: var(--jp-layout-color2); border: 1px solid var(--jp-border-color1);";
const SHAPE = "border-radius: 3px; font: 11px/17px var(--jp-ui-font-family); cursor: pointer; user-select: none;";

/** Register the renderer in a notebook. It is safe: outputs of an untrusted notebook are sanitised as they are without it. */
export function offerCode(notebook: NotebookPanel): void {
  const { rendermime } = notebook.content;
  const createRenderer = (): InsertableOutput =>
    new InsertableOutput(notebook, (mimeType) => rendermime.createRenderer(mimeType));
  rendermime.addFactory({ safe: true, mimeTypes: [MIME_TYPE], createRenderer }, RANK);
}

class InsertableOutput extends Panel implements IRenderMime.IRenderer {
  constructor(
    private readonly notebook: NotebookPanel,
    private readonly rendererOf: (mimeType: string) => IRenderMime.IRenderer,
  ) {
    super();
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const mimeType = DRAWN.find((each) => model.data[each] !== undefined);
    if (mimeType === undefined) return;
    const shown = this.rendererOf(mimeType);
    await shown.renderModel(model);
    for (const each of [...this.widgets]) each.dispose();
    this.addWidget(shown);
    const { code } = (model.data[MIME_TYPE] ?? {}) as { code?: unknown };
    if (typeof code === "string") this.#offer(this.node, code, IN_CARD);
    else for (const block of shown.node.querySelectorAll("pre")) this.#offerBlock(block);
  }

  /** Offer a code block of Markdown. */
  #offerBlock(block: HTMLElement): void {
    const code = block.querySelector("code");
    const [, language = ""] = LANGUAGE.exec(`${block.className} ${code?.className ?? ""}`) ?? [];
    if (!code || !PYTHON.test(language)) return;
    const text = code.textContent.replace(/\n$/, "");
    const frame = document.createElement("div");
    block.replaceWith(frame);
    frame.append(block);
    this.#offer(frame, text, IN_BLOCK);
  }

  #offer(frame: HTMLElement, code: string, place: string): void {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = trans.__("Insert as cell");
    button.style.cssText = STYLE + COLORS + SHAPE + place;
    button.addEventListener("click", () => void insertBelowOutput(this.notebook, this.node, code));
    frame.style.position = "relative";
    frame.append(button);
  }
}
