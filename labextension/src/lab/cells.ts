/** Insert code into a notebook. */

import type { NotebookPanel } from "@jupyterlab/notebook";
import { NotebookActions } from "@jupyterlab/notebook";

/** Insert code into the active cell if it is empty, else into a new cell below. */
export async function insertCode({ content }: NotebookPanel, text: string): Promise<"inserted"> {
  const active = content.activeCell?.model;
  const isFree = active?.type === "code" && active.getMetadata("editable") !== false;
  if (!isFree || active.sharedModel.getSource().trim() !== "") NotebookActions.insertBelow(content);
  const cell = content.activeCell;
  if (!cell) return "inserted";
  await cell.ready;
  const { editor, model } = cell;
  model.sharedModel.setSource(text);
  editor?.setCursorPosition(editor.getPositionAt(text.length) ?? { line: 0, column: 0 });
  content.activate();
  return "inserted";
}

/** Insert code into a new cell below the active one. */
export async function insertBelow(notebook: NotebookPanel, text: string): Promise<"inserted"> {
  NotebookActions.insertBelow(notebook.content);
  return insertCode(notebook, text);
}
