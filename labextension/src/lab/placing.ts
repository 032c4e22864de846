/** Where lines go, so that they share none with what is there: after the cursor's line, or in its place if that is blank. */
export function placed(source: string, at: number, text: string): { start: number; end: number; inserted: string } {
  const from = source.slice(0, at).lastIndexOf("\n") + 1;
  const newline = source.indexOf("\n", at);
  const to = newline < 0 ? source.length : newline;
  if (source.slice(from, to).trim() === "") return { start: from, end: to, inserted: text };
  return { start: to, end: to, inserted: `\n${text}` };
}
