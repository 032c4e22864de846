/** Insert code into a notebook, and find the cell that loads a server. */

import type { NotebookPanel } from "@jupyterlab/notebook";
import { NotebookActions } from "@jupyterlab/notebook";
import type { CodeUses } from "../services";
import { loadingCell } from "../views/restore";

const LOADS_EXTENSION = /^\s*%(re)?load_ext\s+ipymcp\b/m;

/** Insert code into the active cell if it is empty, else into a new cell below. */
export async function insertCode({ content }: NotebookPanel, code: string, uses?: CodeUses): Promise<"inserted"> {
  const active = content.activeCell?.model;
  const isFree = active?.type === "code" && active.getMetadata("editable") !== false;
  if (!isFree || active.sharedModel.getSource().trim() !== "") NotebookActions.insertBelow(content);
  const cell = content.activeCell;
  if (!cell) return "inserted";
  await cell.ready;
  const { editor, model } = cell;
  const above = content.widgets.slice(0, content.activeCellIndex);
  const isLoaded = above.some((each) => LOADS_EXTENSION.test(each.model.sharedModel.getSource()));
  const text = uses && !isLoaded ? loadingCell(code) : code;
  model.sharedModel.setSource(text);
  editor?.setCursorPosition(editor.getPositionAt(text.length) ?? { line: 0, column: 0 });
  content.activate();
  return "inserted";
}

/** Insert code into a new cell below the active one. */
export async function insertBelow(notebook: NotebookPanel, text: string, uses?: CodeUses): Promise<"inserted"> {
  NotebookActions.insertBelow(notebook.content);
  return insertCode(notebook, text, uses);
}

/** Insert code into a new cell below the one with an output. */
export async function insertBelowOutput(notebook: NotebookPanel, output: HTMLElement, text: string): Promise<void> {
  const { content } = notebook;
  const index = content.widgets.findIndex(({ node }) => node.contains(output));
  if (index >= 0) content.activeCellIndex = index;
  await insertBelow(notebook, text);
}

/** Insert code as the first cell, unless the first cell already has this code. */
export function insertFirst({ content }: NotebookPanel, text: string): void {
  const shared = content.model?.sharedModel;
  if (!shared || shared.cells[0]?.getSource() === text) return;
  shared.insertCell(0, { cell_type: "code", source: text, metadata: { trusted: true } });
  content.activeCellIndex = 0;
}

/** Return a function that shows the cell that loads a server; null if there is no such cell. */
export function cellThatLoads({ content }: NotebookPanel, name: string): (() => void) | null {
  const word = name.replace(/[^\w]/g, "\\$&");
  const line = new RegExp(`^\\s*%mcp\\s+load\\b.*(?<![\\w-])${word}(?![\\w-])|mcp\\.load\\(.*["']${word}["']`, "m");
  const cell = content.widgets.find(({ model }) => model.type === "code" && line.test(model.sharedModel.getSource()));
  if (!cell) return null;
  return () => {
    content.activeCellIndex = content.widgets.indexOf(cell);
    content.activate();
    void content.scrollToCell(cell);
  };
}
