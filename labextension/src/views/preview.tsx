import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Preview } from "../protocol";
import { sanitised } from "../sanitise";
import { isVisitor } from "../store";
import css from "../styles/preview.css?inline";
import { bytes, line, visible, webAddress } from "../text";
import { usePanel, useSelect } from "./context";
import { Button, Disclosure, Lines } from "./parts";

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"]);
const LONGEST = 200_000;

/** What a call, a resource or a prompt gave. */
export function PreviewView({ preview, label }: { preview: Preview; label: string }): JSX.Element {
  const { services, model } = usePanel();
  const visitor = useSelect(isVisitor);
  const { text, html, image, json, links, truncated, size, variable } = preview;
  const hasJson = json !== null && json !== undefined;
  const written = hasJson ? JSON.stringify(json, null, 2) : "";
  const only = hasJson && !text && !html && !image;
  const copied = text ?? written;
  const isPicture = image && PICTURES.has(image.mime) && /^[A-Za-z0-9+/=\s]+$/.test(image.data);
  return (
    <div class="mcp-preview" role="group" aria-label={label}>
      {isPicture && <img class="mcp-picture" src={`data:${image.mime};base64,${image.data}`} alt={line(label)} />}
      {html ? (
        <Html html={html} label={label} />
      ) : (
        text && <Lines label="Text" text={visible(text.slice(0, LONGEST))} />
      )}
      {only && <Lines label="Data" text={visible(written.slice(0, LONGEST))} />}
      {hasJson && !only && (
        <Disclosure title="Data">{() => <Lines label="Data" text={visible(written.slice(0, LONGEST))} />}</Disclosure>
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
      {!text && !html && !isPicture && !hasJson && !links.length && <p class="mcp-dim">Nothing came back.</p>}
      <div class="mcp-foot">
        <span class="mcp-dim">
          {bytes(size)}
          {truncated && ", cut here"}
          {variable && " · whole in "}
          {variable && <code>{line(variable)}</code>}
        </span>
        {copied !== "" && (
          <Button
            quiet
            onClick={() =>
              void services.copy(copied).then(
                () => model.notify("Copied."),
                (error: Error) => model.notify(error.message, true),
              )
            }
          >
            Copy
          </Button>
        )}
        {variable && !visitor && (
          <Button quiet onClick={() => void services.insertCode(variable)}>
            Insert its name
          </Button>
        )}
      </div>
    </div>
  );
}

/** An address that a browser may open is a link; any other is text. */
export function Link({ uri, name }: { uri: string; name: string }): JSX.Element {
  const address = webAddress(uri);
  if (address === null) {
    return (
      <>
        {line(name)} <code>{line(uri)}</code>
      </>
    );
  }
  return (
    <a href={address} rel="noopener noreferrer" target="_blank" title={line(uri)}>
      {line(name) || line(uri)}
    </a>
  );
}

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const PLACES = 6;

/** A table's cell: numbers at the right, with as many places as pandas prints; what does not fit is in its title. */
function arrange(cell: HTMLTableCellElement): void {
  const text = (cell.textContent ?? "").trim();
  if (NUMBER.test(text)) {
    cell.classList.add("number");
    const short = rounded(text);
    if (short === text) return;
    cell.textContent = short;
    cell.title = text;
  } else if (text && !cell.title && !cell.children.length) cell.title = text;
}

/** A float with too many places, rounded to those that pandas prints. */
export function rounded(text: string): string {
  const places = /\.(\d+)/.exec(text)?.[1]?.length ?? 0;
  const value = Number(text);
  if (places <= PLACES || !Number.isFinite(value)) return text;
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e16) ? value.toExponential(PLACES) : value.toFixed(PLACES);
}

/** Apart from the page: its styles do not reach in, nor what is in it out. */
function Html({ html, label }: { html: string; label: string }): JSX.Element {
  const host = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!host.current) return;
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: "open" });
    const style = document.createElement("style");
    style.textContent = css;
    const fragment = sanitised(html);
    for (const cell of fragment.querySelectorAll("td")) arrange(cell);
    root.replaceChildren(style, fragment);
  }, [html]);
  return <div ref={host} class="mcp-html" tabIndex={0} role="region" aria-label={label} />;
}
