import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Preview } from "../protocol";
import { sanitise } from "../sanitise";
import { isVisitor } from "../store";
import css from "../styles/preview.css?inline";
import { bytes, singleLine, visible } from "../text";
import { trans } from "../translation";
import { useCopy, usePanel, useSelect } from "./context";
import { late } from "./late";
import { Button, Disclosure, ExternalLink, Lines } from "./parts";

const Grid = late(async () => (await import("./grid")).Grid);

const IMAGE_TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"]);
const MAX_CHARACTERS = 200_000;
/** Maximum length of a text that is shown on one line with its buttons. */
const SMALL_CHARACTERS = 60;
const SMALL_BYTES = 2_000;
/** Minimum size of a complete result whose size is shown. */
const LARGE_BYTES = 100_000;

/** Preview of the result of a call, a resource or a prompt. */
export function PreviewView({ preview, label }: { preview: Preview; label: string }): JSX.Element {
  const { services } = usePanel();
  const copy = useCopy();
  const visitor = useSelect(isVisitor);
  const { text, image, json, links, truncated, size, table, variable } = preview;
  const rendered = useRendered(preview.markdown ?? null);
  const html = preview.html ?? rendered;
  const hasJson = json !== null && json !== undefined;
  const jsonText = hasJson ? JSON.stringify(json, null, 2) : "";
  const isJsonOnly = hasJson && !text && !html && !image && !table;
  const copyText = text ?? jsonText;
  const hasImage = image && IMAGE_TYPES.has(image.mime) && /^[A-Za-z0-9+/=\s]+$/.test(image.data);
  const showsText = text && !html && !table;
  const isSmall =
    showsText && size < SMALL_BYTES && text.length <= SMALL_CHARACTERS && !text.includes("\n") && !hasJson;
  const data = (): JSX.Element => <Lines label={trans.__("Data")} text={visible(jsonText.slice(0, MAX_CHARACTERS))} />;
  return (
    <div class={isSmall ? "mcp-preview mcp-small" : "mcp-preview"} role="group" aria-label={label}>
      {hasImage && <img class="mcp-picture" src={`data:${image.mime};base64,${image.data}`} alt={singleLine(label)} />}
      {table && <Grid key={table.result} table={table} label={label} />}
      {html && !table && <Html html={html} label={label} />}
      {showsText && <Lines label={trans.__("Text")} text={visible(text.slice(0, MAX_CHARACTERS))} />}
      {isJsonOnly && data()}
      {hasJson && !isJsonOnly && !(table && !table.notes.length) && (
        <Disclosure title={trans.__("Data")}>{data}</Disclosure>
      )}
      {links.length > 0 && (
        <ul>
          {links.map(({ uri, name }) => (
            <li key={uri}>
              <ExternalLink uri={uri} name={name} />
            </li>
          ))}
        </ul>
      )}
      {!text && !html && !hasImage && !hasJson && !table && !links.length && (
        <p class="mcp-muted">{trans.__("The result is empty.")}</p>
      )}
      <div class="mcp-foot">
        {(truncated || size >= LARGE_BYTES) && (
          <span class="mcp-muted">
            {truncated ? trans.__("%1, truncated", bytes(size)) : bytes(size)}
            {truncated && variable && (
              <>
                {" \u00b7 "}
                {trans.__("full value in")} <code>{singleLine(variable)}</code>
              </>
            )}
          </span>
        )}
        {copyText !== "" && (
          <Button quiet onClick={() => copy(copyText)}>
            {trans.__("Copy")}
          </Button>
        )}
        {variable && !visitor && (
          <Button quiet title={singleLine(variable)} onClick={() => void services.insertCode(variable)}>
            {trans.__("Insert variable")}
          </Button>
        )}
      </div>
    </div>
  );
}

/** The HTML of a Markdown text; null while it is being rendered, and where the page cannot render it. */
function useRendered(text: string | null): string | null {
  const { services } = usePanel();
  const [html, setHtml] = useState<string | null>(null);
  useEffect(() => {
    let isCurrent = true;
    setHtml(null);
    if (text) {
      services.renderMarkdown?.(text).then(
        (found) => isCurrent && setHtml(found),
        () => undefined,
      );
    }
    return () => {
      isCurrent = false;
    };
  }, [text]);
  return html;
}

/** HTML in a shadow root, isolated from the page's styles. */
function Html({ html, label }: { html: string; label: string }): JSX.Element {
  const host = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!host.current) return;
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: "open" });
    const style = document.createElement("style");
    style.textContent = css;
    const content = sanitise(html);
    // JupyterLab's anchors of headings.
    for (const link of content.querySelectorAll("a:not([href])")) if (link.textContent === "\u00b6") link.remove();
    for (const image of content.querySelectorAll<HTMLImageElement>("img:not([alt])")) image.alt = singleLine(label);
    root.replaceChildren(style, content);
  }, [html, label]);
  return <div ref={host} class="mcp-html" tabIndex={0} role="region" aria-label={label} />;
}
