/** Code, put where the user works in a notebook. */

import type { NotebookPanel } from "@jupyterlab/notebook";
import { NotebookActions } from "@jupyterlab/notebook";
import { placed } from "./placing";

/** Put lines into the active cell, at its cursor, on lines of their own; into a new cell where that one is no code. */
export async function insertCode({ content }: NotebookPanel, text: string): Promise<"inserted"> {
  if (content.activeCell?.model.type !== "code" || content.activeCell.model.getMetadata("editable") === false) {
    NotebookActions.insertBelow(content);
  }
  const cell = content.activeCell;
  if (!cell) return "inserted";
  await cell.ready;
  const { editor, model } = cell;
  const source = model.sharedModel.getSource();
  const at = editor ? editor.getOffsetAt(editor.getCursorPosition()) : source.length;
  const { start, end, inserted } = placed(source, at, text);
  model.sharedModel.updateSource(start, end, inserted);
  editor?.setCursorPosition(editor.getPositionAt(start + inserted.length) ?? { line: 0, column: 0 });
  content.activate();
  return "inserted";
}

/** Put lines into a new cell below the active one. */
export async function insertBelow(notebook: NotebookPanel, text: string): Promise<"inserted"> {
  NotebookActions.insertBelow(notebook.content);
  return insertCode(notebook, text);
}
