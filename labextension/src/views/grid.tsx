import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { FileFormat, FilePart, Problem, ResultTable, TableRecord } from "../protocol";
import { problemOf } from "../store";
import { count, singleLine, visible } from "../text";
import { trans } from "../translation";
import { saveFile, useAllowed, usePanel } from "./context";
import { Button, ProblemBox } from "./parts";

const FORMATS: readonly (readonly [FileFormat, string])[] = [
  ["csv", "CSV"],
  ["json", "JSON"],
  ["parquet", "Parquet"],
];
/** Rows of a page, as in the kernel. */
const PAGE_ROWS = 50;

/** A table whose rows come from the kernel page by page. The kernel sorts all rows. */
export function Grid({ table, label }: { table: ResultTable; label: string }): JSX.Element {
  const { result, notes } = table;
  const { model } = usePanel();
  const mayAsk = useAllowed("rows");
  const [problem, setProblem] = useState<Problem | null>(null);
  const [page, setPage] = useState(table.page);
  const [order, setOrder] = useState<{ sort: number | null; descending: boolean }>({ sort: null, descending: false });
  const [open, setOpen] = useState<{ row: number; record: TableRecord } | null>(null);
  const { columns, more_columns, rows, first, total } = page;
  const last = first + rows.length;

  /** Run an action whose error is shown below the table. */
  const attempt = async (action: () => Promise<void>): Promise<void> => {
    setProblem(null);
    try {
      await action();
    } catch (error) {
      setProblem(problemOf(error));
    }
  };
  const load = (from: number, wanted: typeof order): Promise<void> =>
    attempt(async () => {
      setPage(await model.request("rows", { result, first: from, ...wanted }));
      setOrder(wanted);
      setOpen(null);
    });
  const sort = (column: number): void => {
    const isSame = order.sort === column;
    if (isSame && order.descending) void load(0, { sort: null, descending: false });
    else void load(0, { sort: column, descending: isSame });
  };
  const toggle = (row: number): Promise<void> =>
    attempt(async () => {
      const isOpen = open?.row === row;
      setOpen(isOpen ? null : { row, record: await model.request("row", { result, first: row, ...order }) });
    });
  return (
    <div class="mcp-grid">
      <div class="mcp-table" tabIndex={0} role="region" aria-label={label}>
        <table>
          <thead>
            <tr>
              <td />
              {columns.map(({ name, is_numeric }, column) => {
                const direction = order.sort !== column ? undefined : order.descending ? "descending" : "ascending";
                return (
                  <th key={column} scope="col" class={is_numeric ? "mcp-number" : ""} aria-sort={direction}>
                    <button type="button" class="mcp-sort" disabled={!mayAsk} onClick={() => sort(column)}>
                      {singleLine(name)}
                    </button>
                  </th>
                );
              })}
              {more_columns > 0 && (
                <th scope="col">{trans._n("%1 more column", "%1 more columns", more_columns, count(more_columns))}</th>
              )}
            </tr>
          </thead>
          <tbody>
            {rows.map((cells, index) => (
              <tr key={first + index} onClick={() => void (mayAsk && toggle(first + index))}>
                <th scope="row">
                  <button
                    type="button"
                    class="mcp-sort"
                    aria-expanded={open?.row === first + index}
                    aria-label={trans.__("Row %1", count(first + index + 1))}
                    disabled={!mayAsk}
                  >
                    {count(first + index + 1)}
                  </button>
                </th>
                {cells.map((cell, column) => (
                  <td key={column} class={columns[column]?.is_numeric ? "mcp-number" : ""} title={visible(cell)}>
                    {visible(cell)}
                  </td>
                ))}
                {more_columns > 0 && <td />}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {notes.map((note) => (
        <div key={note} class="mcp-muted">
          {visible(note)}
        </div>
      ))}
      {open && <RecordView {...open} onClose={() => setOpen(null)} />}
      {problem && <ProblemBox problem={problem} />}
      <div class="mcp-foot">
        {total > PAGE_ROWS && (
          <Button
            label={trans.__("Previous rows")}
            disabled={!first}
            onClick={() => void load(Math.max(0, first - PAGE_ROWS), order)}
          >
            ‹
          </Button>
        )}
        <span class="mcp-muted mcp-figure" role="status">
          {total > PAGE_ROWS
            ? trans.__("%1–%2 of %3 rows", count(first + 1), count(last), count(total))
            : trans._n("%1 row", "%1 rows", total)}
        </span>
        {total > PAGE_ROWS && (
          <Button label={trans.__("Next rows")} disabled={last >= total} onClick={() => void load(last, order)}>
            ›
          </Button>
        )}
        {mayAsk && <Downloads result={result} attempt={attempt} />}
      </div>
    </div>
  );
}

/** All values of a row, in full. */
function RecordView(props: { row: number; record: TableRecord; onClose(): void }): JSX.Element {
  const { members, more } = props.record;
  const title = trans.__("Row %1", count(props.row + 1));
  return (
    <section class="mcp-record" aria-label={title}>
      <div class="mcp-head">
        <h3>{title}</h3>
        <Button quiet onClick={props.onClose}>
          {trans.__("Close")}
        </Button>
      </div>
      <dl class="mcp-members" tabIndex={0}>
        {members.map(([name, text]) => (
          <div key={name}>
            <dt>{singleLine(name)}</dt>
            <dd class="mcp-prose">{visible(text)}</dd>
          </div>
        ))}
      </dl>
      {more > 0 && <div class="mcp-muted">{trans._n("%1 more value", "%1 more values", more, count(more))}</div>}
    </section>
  );
}

/** Buttons that save the whole table as a file. */
function Downloads({
  result,
  attempt,
}: {
  result: number;
  attempt(save: () => Promise<void>): Promise<void>;
}): JSX.Element {
  const { model } = usePanel();
  const [percent, setPercent] = useState<number | null>(null);
  const save = (format: FileFormat): Promise<void> =>
    attempt(async () => {
      const parts: Uint8Array<ArrayBuffer>[] = [];
      setPercent(0);
      try {
        for (let offset: number | null = 0; offset !== null;) {
          const part: FilePart = await model.request("file", { result, format, offset });
          parts.push(Uint8Array.from(atob(part.data), (character) => character.charCodeAt(0)));
          offset = part.next;
          setPercent(Math.floor((100 * (offset ?? part.size)) / Math.max(1, part.size)));
        }
      } finally {
        setPercent(null);
      }
      saveFile(`result-${result}.${format}`, parts);
    });
  return (
    <span class="mcp-downloads" role="group" aria-label={trans.__("Download")}>
      <span class="mcp-muted">{percent === null ? trans.__("Download") : trans.__("%1 %", percent)}</span>
      {FORMATS.map(([format, name]) => (
        <Button key={format} quiet busy={percent !== null} onClick={() => void save(format)}>
          {name}
        </Button>
      ))}
    </span>
  );
}
