import type { LogRow, MessageRow } from "./protocol";

/** The rows of each stream that a panel can follow, by the command that follows it. */
export interface Streams {
  logs: LogRow;
  protocol: MessageRow;
}
export type StreamName = keyof Streams;

/** Maximum number of rows that are kept of a stream. */
export const MAX_ROWS: { [Name in StreamName]: number } = { logs: 2000, protocol: 1000 };

/** The last rows of a stream. */
export class RowBuffer<Row extends { n: number }> {
  rows: Row[] = [];
  /** Number of rows that were dropped here or by the kernel. */
  dropped = 0;
  /** Changes with the content, for rendering. */
  version = 0;

  constructor(private readonly maxRows: number) {}

  get last(): number | undefined {
    return this.rows.at(-1)?.n;
  }

  add(batch: { lines: Row[]; dropped: number }): void {
    const last = this.last ?? -Infinity;
    const added = batch.lines.filter((line) => line.n > last);
    this.dropped += batch.dropped;
    this.rows = this.rows.concat(added);
    const excess = this.rows.length - this.maxRows;
    if (excess > 0) {
      this.rows = this.rows.slice(excess);
      this.dropped += excess;
    }
    this.version += 1;
  }

  clear(): void {
    this.rows = [];
    this.dropped = 0;
    this.version += 1;
  }
}
