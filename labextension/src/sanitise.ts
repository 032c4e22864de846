/** Sanitise HTML from the kernel again, keeping only known harmless elements and attributes. */

import { webAddress } from "./text";

const ELEMENTS = new Set(
  (
    "a abbr audio b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure h1 h2 h3 h4 h5 h6 hr i " +
    "img ins kbd li mark ol p pre q s samp small span strong sub summary sup table tbody td tfoot th thead tr tt u ul var"
  ).split(" "),
);
/** Removed with their content. Other unknown elements are replaced by their content. */
const DANGEROUS = new Set(
  (
    "script style iframe frame object embed applet link meta base form input button textarea select option svg math " +
    "template noscript video source track canvas portal slot"
  ).split(" "),
);
const ATTRIBUTES = new Set("align alt class colspan dir height lang open rowspan scope start title width".split(" "));
const AUDIO_DATA_URL = /^data:audio\/[a-z0-9.+-]+;base64,[A-Za-z0-9+/=\s]+$/i;
const IMAGE_DATA_URL = /^data:image\/(png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]+$/i;

/** Parse HTML into a fragment without scripts, handlers, forms, styles and remote content. */
export function sanitise(html: string): DocumentFragment {
  const template = document.createElement("template");
  // Template content is inert: nothing runs or loads.
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
  const attribute = (name: string): string => element.getAttribute(name) ?? "";
  const { href, src, style } = { href: attribute("href"), src: attribute("src"), style: attribute("style") };
  for (const { name: each } of [...element.attributes]) {
    if (!ATTRIBUTES.has(each.toLowerCase())) element.removeAttribute(each);
  }
  if (/text-align:\s*right/.test(style)) element.setAttribute("align", "right");
  if (name === "a") setLink(element, href);
  if (name === "img") setImage(element, src);
  if (name === "audio") setAudio(element, src);
}

function setLink(element: Element, href: string): void {
  const address = webAddress(href.trim());
  if (address === null) return;
  element.setAttribute("href", address);
  element.setAttribute("rel", "noopener noreferrer");
  element.setAttribute("target", "_blank");
}

/** Keep audio from data URLs. */
function setAudio(element: Element, src: string): void {
  if (!AUDIO_DATA_URL.test(src)) return element.remove();
  element.setAttribute("src", src);
  element.setAttribute("controls", "");
}

/** Keep images from data URLs; replace remote images with links. */
function setImage(element: Element, src: string): void {
  if (IMAGE_DATA_URL.test(src)) return element.setAttribute("src", src);
  const address = webAddress(src.trim());
  const alt = element.getAttribute("alt") ?? "";
  if (address === null) return element.replaceWith(document.createTextNode(alt));
  const anchor = document.createElement("a");
  anchor.textContent = alt || address;
  setLink(anchor, address);
  element.replaceWith(anchor);
}
