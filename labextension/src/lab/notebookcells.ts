/** Read and change the cells of a notebook for its kernel; loaded at the first request for cells. */

import type { NotebookPanel } from "@jupyterlab/notebook";
import type { Cell, CellFields, CellRequest } from "../protocol";
import { trans } from "../translation";

type Reply = Omit<CellFields, "request">;
type Widget = NotebookPanel["content"]["widgets"][number];

const COLOR = /\x1b\[[0-9;]*m/g;
const TEXTS = ["text/plain", "text/markdown", "text/html"];

export function cellsReply({ content }: NotebookPanel, request: CellRequest): Reply {
  const { widgets } = content;
  const shared = content.model?.sharedModel;
  if (!shared) return { problem: trans.__("The notebook is not loaded yet.") };
  const index = widgets.findIndex(({ model }) => model.id === request.cell);
  const cell = widgets[index];
  switch (request.do) {
    case "read":
      return { cells: widgets.map(asCell) };
    case "insert": {
      if (request.cell !== "" && !cell) return { problem: trans.__("The notebook has no cell %1.", request.cell) };
      const running = widgets.map(isRunning).lastIndexOf(true);
      const above = cell ? index : running >= 0 ? running : content.activeCellIndex;
      shared.insertCell(above + 1, { cell_type: request.type, source: request.source });
      const inserted = widgets[above + 1];
      return { cells: inserted ? [asCell(inserted)] : [] };
    }
    case "edit":
      if (!cell) return { problem: trans.__("The notebook has no cell %1.", request.cell) };
      if (isRunning(cell)) return { problem: trans.__("This cell is running or waits to run.") };
      if (cell.model.getMetadata("editable") === false) return { problem: trans.__("This cell is read-only.") };
      if (cell.model.sharedModel.getSource() !== request.was) return { problem: trans.__("The cell has changed.") };
      cell.model.sharedModel.setSource(request.source);
      return { cells: [asCell(cell)] };
  }
}

function asCell(cell: Widget): Cell {
  const { id, type, sharedModel } = cell.model;
  const known = type === "markdown" || type === "raw" ? type : "code";
  return { id, type: known, source: sharedModel.getSource(), outputs: outputsOf(cell), is_running: isRunning(cell) };
}

/** Whether a cell runs or is queued, which its prompt shows. */
function isRunning(cell: Widget): boolean {
  return cell.model.type === "code" && (cell.inputArea?.promptNode.textContent ?? "").includes("*");
}

function outputsOf({ model }: Widget): string {
  const { outputs = [] } = model.toJSON() as { outputs?: Output[] };
  return outputs.map(textOf).filter(Boolean).join("\n").replace(COLOR, "");
}

interface Output {
  output_type: string;
  text?: string | string[];
  data?: { [mimeType: string]: unknown };
  traceback?: string[];
}

function textOf({ text, data, traceback }: Output): string {
  if (text !== undefined) return joined(text);
  if (traceback) return traceback.join("\n");
  const found = TEXTS.find((each) => data?.[each] !== undefined);
  return found === undefined ? Object.keys(data ?? {}).join(", ") : joined(data?.[found]);
}

const joined = (text: unknown): string => (Array.isArray(text) ? text.join("") : String(text));
