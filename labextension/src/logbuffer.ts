import type { LogBatch, LogLine } from "./protocol";

export const MOST_ROWS = 2000;

/** The last lines of one server's log. */
export class LogBuffer {
  rows: LogLine[] = [];
  /** Lines that are not here any more, or never came. */
  dropped = 0;
  /** Counts what came, so that a view knows whether to draw. */
  version = 0;

  get last(): number | undefined {
    return this.rows.at(-1)?.n;
  }

  add(batch: LogBatch): void {
    const last = this.last ?? -Infinity;
    const fresh = batch.lines.filter((line) => line.n > last);
    this.dropped += batch.dropped;
    this.rows = this.rows.concat(fresh);
    const over = this.rows.length - MOST_ROWS;
    if (over > 0) {
      this.rows = this.rows.slice(over);
      this.dropped += over;
    }
    this.version += 1;
  }

  clear(): void {
    this.rows = [];
    this.dropped = 0;
    this.version += 1;
  }
}
