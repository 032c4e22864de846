/** Format numbers, times and untrusted text for display. */

// Control, soft-hyphen, zero-width, bidi, invisible-operator, filler and tag characters, as in the kernel.
const INVISIBLE =
  /[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]/gu;

/** Replace invisible and bidirectional control characters with their code, such as `⟨U+202E⟩`. */
export function visible(text: string): string {
  return text.replace(/\r\n?/g, "\n").replace(INVISIBLE, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

/** Make text visible and collapse it to one line. */
export const singleLine = (text: string): string => visible(text).replace(/\s+/g, " ");

const NUMBER = new Intl.NumberFormat("en");
export const count = (value: number): string => NUMBER.format(value);

const LIST = new Intl.ListFormat("en", { style: "long", type: "conjunction" });
/** Names in a sentence: `demo, files, and shop`. */
export const listed = (names: readonly string[]): string => LIST.format(names.map(singleLine));

/** Format a count with its noun: `3 tools`, `1 tool`. */
export const plural = (value: number, noun: string): string => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = size / 1000;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 9.95 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Format a duration: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`. */
export function duration(seconds: number): string {
  if (seconds < 0.0995) return `${Math.round(Math.max(0, seconds) * 1000)} ms`;
  if (seconds < 9.95) return `${Math.max(0, seconds).toFixed(1)} s`;
  return wholeDuration(seconds);
}

/** Format a duration in whole seconds, for running timers. */
export function wholeDuration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} min ${s % 60} s`;
  const h = Math.floor(m / 60);
  return h < 24 ? `${h} h ${m % 60} min` : `${Math.floor(h / 24)} d ${h % 24} h`;
}

const pad = (value: number, width = 2): string => String(value).padStart(width, "0");

/** Format a time of day in local time: `14:03:59.120`. */
export function clock(time: number, milliseconds = false): string {
  const date = new Date(time * 1000);
  const text = [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => pad(part)).join(":");
  return milliseconds ? `${text}.${pad(date.getMilliseconds(), 3)}` : text;
}

/** Return the URL if it is http or https, else null. */
export function webAddress(text: string): string | null {
  if (!/^https?:\/\//i.test(text)) return null;
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}
