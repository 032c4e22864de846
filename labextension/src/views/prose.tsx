/** What servers write about themselves, as a little Markdown: code, bold text, links, lists and headings. */

import type { ComponentChildren, JSX } from "preact";
import { singleLine, visible, webAddress } from "../text";
import { ExternalLink } from "./parts";

// Each class excludes what begins the next match, so that the time is linear.
const INLINE =
  /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\[([^[\]\n]+)\]\((https?:\/\/[^\s()]+)\)|https?:\/\/[^\s<>"'`()[\]]*[\w/#=&-]/g;
const BLOCK = /^\s*(?:#{1,6} +(.*)|(?:[-*]|\d{1,3}[.)]) +(.*))$/;

/** A text on one line without its marks. */
export const plainLine = (text: string): string =>
  singleLine(
    text.replace(
      INLINE,
      (whole: string, code?: string, bold?: string, title?: string) => code ?? bold ?? title ?? whole,
    ),
  );

function inline(text: string): ComponentChildren[] {
  const nodes: ComponentChildren[] = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, code, bold, title = whole, address = whole] = match;
    nodes.push(text.slice(end, match.index));
    if (code) nodes.push(<code>{code}</code>);
    else if (bold) nodes.push(<strong>{bold}</strong>);
    else nodes.push(webAddress(address) ? <ExternalLink uri={address} name={title} /> : whole);
    end = match.index + whole.length;
  }
  return [...nodes, text.slice(end)];
}

/** Lines of text, headings, and items of lists. */
function blocks(text: string): ComponentChildren[] {
  const nodes: ComponentChildren[] = [];
  let items: ComponentChildren[] | null = null;
  for (const line of text.split("\n")) {
    const [, heading, item] = BLOCK.exec(line) ?? [];
    if (item === undefined) {
      items = null;
      nodes.push(heading === undefined ? inline(`${line}\n`) : <strong>{inline(`${heading}\n`)}</strong>);
    } else {
      if (!items) nodes.push(<ul>{(items = [])}</ul>);
      items.push(<li>{inline(item)}</li>);
    }
  }
  return nodes;
}

export function Prose({ text }: { text: string }): JSX.Element {
  const parts = visible(text.trim()).split(/^ *```.*\n?/m);
  return (
    <div class="mcp-prose">
      {parts.map((part, index) => (index % 2 ? <pre class="mcp-pre">{part}</pre> : blocks(part.replace(/\n$/, ""))))}
    </div>
  );
}
