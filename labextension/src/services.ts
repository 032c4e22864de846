import { trans } from "./translation";

/** Code that uses `%mcp` or `mcp` is inserted with the line that loads ipymcp, unless a cell above has that line. */
export type CodeUses = "mcp";

/** The functions of the page that a panel uses. */
export interface Services {
  /** Insert code into the notebook, or copy it if there is none. */
  insertCode(text: string, uses?: CodeUses): Promise<"inserted" | "copied">;
  /** Insert code as the notebook's first cell; absent where the page cannot. */
  insertFirst?(text: string): void;
  /** Return a function that shows the cell that loads a server; null if there is no such cell. */
  cellThatLoads?(name: string): (() => void) | null;
  /** Render Markdown as HTML, which is not sanitised; absent where the page cannot. */
  renderMarkdown?(text: string): Promise<string>;
  copy(text: string): Promise<void>;
  /** Open an http or https URL in a new tab. */
  openExternal(url: string): void;
  /** Open the panel in the main area, where it can be wide; absent where that is not possible. */
  openInMainArea?(): void;
}

async function copy(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Pages served over plain HTTP have no clipboard API but can copy a selection.
  const field = document.createElement("textarea");
  field.value = text;
  field.style.cssText = "position: fixed; opacity: 0";
  const { activeElement } = document;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  if (activeElement instanceof HTMLElement) activeElement.focus();
  if (!isCopied) throw new Error(trans.__("This browser allows copying only on pages served over HTTPS."));
}

/** Services that work in any page: the clipboard and a new tab. */
export const pageServices: Services = {
  insertCode: async (text) => {
    await copy(text);
    return "copied";
  },
  copy,
  openExternal: (url) => void window.open(url, "_blank", "noopener,noreferrer"),
};
