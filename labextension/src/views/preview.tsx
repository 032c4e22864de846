import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Preview } from "../protocol";
import { sanitise } from "../sanitise";
import { isVisitor } from "../store";
import css from "../styles/preview.css?inline";
import { bytes, singleLine, visible, webAddress } from "../text";
import { useCopy, usePanel, useSelect } from "./context";
import { Button, Disclosure, Lines } from "./parts";

const IMAGE_TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"]);
const MAX_CHARACTERS = 200_000;

/** Preview of the result of a call, a resource or a prompt. */
export function PreviewView({ preview, label }: { preview: Preview; label: string }): JSX.Element {
  const { services } = usePanel();
  const copy = useCopy();
  const visitor = useSelect(isVisitor);
  const { text, html, image, json, links, truncated, size, variable } = preview;
  const hasJson = json !== null && json !== undefined;
  const jsonText = hasJson ? JSON.stringify(json, null, 2) : "";
  const isJsonOnly = hasJson && !text && !html && !image;
  const copyText = text ?? jsonText;
  const hasImage = image && IMAGE_TYPES.has(image.mime) && /^[A-Za-z0-9+/=\s]+$/.test(image.data);
  return (
    <div class="mcp-preview" role="group" aria-label={label}>
      {hasImage && <img class="mcp-picture" src={`data:${image.mime};base64,${image.data}`} alt={singleLine(label)} />}
      {html ? (
        <Html html={html} label={label} />
      ) : (
        text && <Lines label="Text" text={visible(text.slice(0, MAX_CHARACTERS))} />
      )}
      {isJsonOnly && <Lines label="Data" text={visible(jsonText.slice(0, MAX_CHARACTERS))} />}
      {hasJson && !isJsonOnly && (
        <Disclosure title="Data">
          {() => <Lines label="Data" text={visible(jsonText.slice(0, MAX_CHARACTERS))} />}
        </Disclosure>
      )}
      {links.length > 0 && (
        <ul class="mcp-links">
          {links.map(({ uri, name }) => (
            <li key={uri}>
              <Link uri={uri} name={name} />
            </li>
          ))}
        </ul>
      )}
      {!text && !html && !hasImage && !hasJson && !links.length && <p class="mcp-muted">The result is empty.</p>}
      <div class="mcp-foot">
        <span class="mcp-muted">
          {bytes(size)}
          {truncated && ", truncated"}
          {variable && " · full value in "}
          {variable && <code>{singleLine(variable)}</code>}
        </span>
        {copyText !== "" && (
          <Button quiet onClick={() => copy(copyText)}>
            Copy
          </Button>
        )}
        {variable && !visitor && (
          <Button quiet onClick={() => void services.insertCode(variable)}>
            Insert variable name
          </Button>
        )}
      </div>
    </div>
  );
}

/** A link for http and https URLs; plain text for any other URI. */
export function Link({ uri, name }: { uri: string; name: string }): JSX.Element {
  const address = webAddress(uri);
  if (address === null) {
    return (
      <>
        {singleLine(name)} <code>{singleLine(uri)}</code>
      </>
    );
  }
  return (
    <a href={address} rel="noopener noreferrer" target="_blank" title={singleLine(uri)}>
      {singleLine(name) || singleLine(uri)}
    </a>
  );
}

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const MAX_DECIMALS = 6;

/** Format a table cell: right-align and round numbers, and keep the full text in the title. */
function formatCell(cell: HTMLTableCellElement): void {
  const text = (cell.textContent ?? "").trim();
  if (NUMBER.test(text)) {
    cell.classList.add("number");
    const short = roundFloat(text);
    if (short === text) return;
    cell.textContent = short;
    cell.title = text;
  } else if (text && !cell.title && !cell.children.length) cell.title = text;
}

/** Round a float to the number of decimals that pandas prints. */
export function roundFloat(text: string): string {
  const places = /\.(\d+)/.exec(text)?.[1]?.length ?? 0;
  const value = Number(text);
  if (places <= MAX_DECIMALS || !Number.isFinite(value)) return text;
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e16) ? value.toExponential(MAX_DECIMALS) : value.toFixed(MAX_DECIMALS);
}

/** HTML in a shadow root, isolated from the page's styles. */
function Html({ html, label }: { html: string; label: string }): JSX.Element {
  const host = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!host.current) return;
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: "open" });
    const style = document.createElement("style");
    style.textContent = css;
    const fragment = sanitise(html);
    for (const cell of fragment.querySelectorAll("td")) formatCell(cell);
    root.replaceChildren(style, fragment);
  }, [html]);
  return <div ref={host} class="mcp-html" tabIndex={0} role="region" aria-label={label} />;
}
