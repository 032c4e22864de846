/** The kernel's HTML once more, element by element: what is not known to be harmless goes. */

import { webAddress } from "./text";

const ELEMENTS = new Set(
  (
    "a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure h1 h2 h3 h4 h5 h6 hr i " +
    "img ins kbd li mark ol p pre q s samp small span strong sub summary sup table tbody td tfoot th thead tr tt u ul var"
  ).split(" "),
);
/** Gone with all that is in them. The content of other unknown elements stays. */
const DANGEROUS = new Set(
  (
    "script style iframe frame object embed applet link meta base form input button textarea select option svg math " +
    "template noscript audio video source track canvas portal slot"
  ).split(" "),
);
const ATTRIBUTES = new Set("align alt class colspan dir height lang open rowspan scope start title width".split(" "));
const PICTURE = /^data:image\/(png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]+$/i;

/** A fragment without scripts, handlers, forms, styles and anything that would be fetched. */
export function sanitised(html: string): DocumentFragment {
  const template = document.createElement("template");
  // In a template nothing runs and nothing is fetched.
  // eslint-disable-next-line no-restricted-properties -- the one place
  template.innerHTML = html;
  clean(template.content);
  return template.content;
}

function clean(parent: DocumentFragment | Element): void {
  for (const node of [...parent.childNodes]) {
    if (node.nodeType === Node.TEXT_NODE) continue;
    if (node.nodeType !== Node.ELEMENT_NODE) node.remove();
    else cleanElement(node as Element);
  }
}

function cleanElement(element: Element): void {
  const name = element.localName.toLowerCase();
  if (DANGEROUS.has(name)) return element.remove();
  clean(element);
  if (!ELEMENTS.has(name)) return element.replaceWith(...element.childNodes);
  const { href, src } = { href: element.getAttribute("href"), src: element.getAttribute("src") };
  for (const { name: attribute } of [...element.attributes]) {
    if (!ATTRIBUTES.has(attribute.toLowerCase())) element.removeAttribute(attribute);
  }
  if (name === "a" && href !== null) link(element, href);
  if (name === "img") picture(element, src ?? "");
}

function link(element: Element, href: string): void {
  const address = webAddress(href.trim());
  if (address === null) return;
  element.setAttribute("href", address);
  element.setAttribute("rel", "noopener noreferrer");
  element.setAttribute("target", "_blank");
}

/** A picture in the page's own bytes is shown; one elsewhere is a link to it. */
function picture(element: Element, src: string): void {
  if (PICTURE.test(src)) return element.setAttribute("src", src);
  const address = webAddress(src.trim());
  const alt = element.getAttribute("alt") ?? "";
  if (address === null) return element.replaceWith(document.createTextNode(alt));
  const anchor = document.createElement("a");
  anchor.textContent = alt || address;
  link(anchor, address);
  element.replaceWith(anchor);
}
