import type { LogBatch, LogLine } from "./protocol";

export const MAX_ROWS = 2000;

/** The last lines of a server's log. */
export class LogBuffer {
  rows: LogLine[] = [];
  /** Number of lines that were dropped here or by the kernel. */
  dropped = 0;
  /** Changes with the content, for rendering. */
  version = 0;

  get last(): number | undefined {
    return this.rows.at(-1)?.n;
  }

  add(batch: LogBatch): void {
    const last = this.last ?? -Infinity;
    const added = batch.lines.filter((line) => line.n > last);
    this.dropped += batch.dropped;
    this.rows = this.rows.concat(added);
    const excess = this.rows.length - MAX_ROWS;
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
