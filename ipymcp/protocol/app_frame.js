/* The document around an app's page: it holds the page in a frame of another opaque origin, and checks its messages. */
(() => {
  "use strict";
  /* Maximum characters and messages in a second. */
  const MAX_CHARACTERS = 10_000_000;
  const MAX_MESSAGES = 1_000;
  const MAX_DEPTH = 100;
  /* The first script of the page. It lets only the parent and the page's own frames send messages to the page, and
   * reports blocked loads. No policy covers WebRTC, so its interfaces are deleted. A nested frame from `srcdoc` or a
   * `javascript:` URL would have them again: such frames are removed before they load, anywhere in the page. For the
   * same reason, shadow trees can only be made by `attachShadow`, so that each of them is watched. */
  const GUARD = `<script>((hasFrames) => {
    const host = parent;
    const report = (uri, by) => host.postMessage({ ipymcp: "blocked", uri: String(uri).slice(0, 300), by }, "*");
    const { apply, deleteProperty, ownKeys } = Reflect;
    for (const name of ownKeys(window)) if (/^(webkit)?RTC/.test(String(name))) deleteProperty(window, name);
    const { remove, hasAttribute, getAttribute, attachShadow } = Element.prototype;
    const { observe } = MutationObserver.prototype;
    const Observer = MutationObserver;
    const isKept = (frame) => {
      if (!hasFrames || apply(hasAttribute, frame, ["srcdoc"])) return false;
      const { 0: a, 1: b, 2: c, 3: d, 4: e, 5: f, 6: g, 7: h } = apply(getAttribute, frame, ["src"]) ?? "";
      return a === "h" && b === "t" && c === "t" && d === "p" && e === "s" && f === ":" && g === "/" && h === "/";
    };
    const watch = (root, find) => {
      const clear = () => {
        const found = apply(find, root, ["iframe,frame"]);
        for (let i = 0; found[i]; i++) {
          if (isKept(found[i])) continue;
          apply(remove, found[i], []);
          report("about:srcdoc", "frame-src");
        }
      };
      const options = { __proto__: null, childList: true, subtree: true, attributes: hasFrames };
      apply(observe, new Observer(clear), [root, options]);
    };
    const { querySelectorAll } = DocumentFragment.prototype;
    watch(document, Document.prototype.querySelectorAll);
    Element.prototype.attachShadow = function ({ mode, delegatesFocus, slotAssignment }) {
      const root = apply(attachShadow, this, [{ __proto__: null, mode, delegatesFocus, slotAssignment }]);
      watch(root, querySelectorAll);
      return root;
    };
    for (const owner of [Document, Document.prototype, Element.prototype, ShadowRoot.prototype])
      for (const name of ownKeys(owner))
        if (/^(?!insertAdjacent|get|inner|outer).*HTML/.test(String(name))) deleteProperty(owner, name);
    Document.prototype.write = Document.prototype.writeln = () => report("document.write", "script-src");
    const isOwn = (source) => {
      for (let each = source, up = 0; each && up < 9; each = each.parent, up++) {
        if (each === window) return true;
        if (each === each.parent) return false;
      }
      return false;
    };
    addEventListener("message", (event) => {
      const { source, isTrusted } = event;
      if (isTrusted && source !== host && !(source && isOwn(source))) event.stopImmediatePropagation();
    }, true);
    addEventListener("securitypolicyviolation", ({ blockedURI, effectiveDirective, sample }) => {
      /* Libraries compile an empty function to test whether evaluation is allowed: that is not reported. */
      const isTest = blockedURI === "eval" && /^\\(function anonymous\\(\\s*\\) \\{\\s*\\}\\)$/.test(sample);
      if (!isTest) report(blockedURI, effectiveDirective);
    });
    /* The base URL of \`srcdoc\` is that of the outer document: a link to a fragment of the page would lead there. */
    addEventListener("click", (event) => {
      const isLink = (each) => each.localName === "a" && each.getAttribute("href")?.startsWith("#");
      const link = event.defaultPrevented ? undefined : event.composedPath().find(isLink);
      if (!link) return;
      event.preventDefault();
      location.hash = link.getAttribute("href");
    });
    addEventListener("keydown", (event) => {
      const leave = () => event.defaultPrevented || host.postMessage({ ipymcp: "escape" }, "*");
      if (event.key === "Escape") setTimeout(leave);
    });
    document.currentScript.remove();
  })(HAS_FRAMES)</` + `script>`;

  let port = null;
  let inner = null;
  let loads = 0;
  let count = 0;
  let characters = 0;
  let second = 0;

  const isShallow = (value, depth) => {
    if (typeof value !== "object" || value === null) return true;
    if (depth > MAX_DEPTH) return false;
    for (const key in value) if (!isShallow(value[key], depth + 1)) return false;
    return true;
  };

  const stop = (why) => {
    if (!inner) return;
    inner.remove();
    inner = null;
    port.postMessage({ stop: why });
  };

  const show = ({ html, allow, title, frames }) => {
    if (inner) return;
    inner = document.createElement("iframe");
    inner.setAttribute("sandbox", "allow-scripts allow-forms");
    inner.setAttribute("referrerpolicy", "no-referrer");
    if (allow) inner.setAttribute("allow", allow);
    inner.title = title;
    /* A shadow tree that is declared in HTML would not be watched. The attribute's name has no other spelling. */
    const page = html.replace(/shadowrootmode/gi, "data-$&");
    /* Nothing of the page precedes the guard. The page's own doctype is ignored: `srcdoc` has no quirks mode. */
    inner.srcdoc = "<!doctype html>" + GUARD.replace("HAS_FRAMES", String(Boolean(frames))) + page;
    inner.addEventListener("load", () => ++loads > 1 && stop("left"));
    document.body.append(inner);
  };

  const fromHost = ({ data }) => {
    if (data.ping) port.postMessage({ pong: data.ping });
    else if (data.html !== undefined) show(data);
    else if (data.scheme) document.documentElement.style.colorScheme = data.scheme;
    else if (data.message && inner) inner.contentWindow.postMessage(JSON.parse(data.message), "*");
  };

  const fromPage = (event) => {
    const now = Math.floor(performance.now() / 1000);
    if (now !== second) count = characters = 0;
    second = now;
    if (++count > MAX_MESSAGES) return stop("rate");
    const { data } = event;
    if (typeof data !== "object" || data === null) return;
    if (data.ipymcp === "blocked") {
      port.postMessage({ blocked: { uri: String(data.uri).slice(0, 300), by: String(data.by).slice(0, 100) } });
      return;
    }
    if (data.ipymcp === "escape") return port.postMessage({ escape: true });
    if (data.jsonrpc !== "2.0") return;
    let text = "";
    try {
      if (!isShallow(data, 0)) return stop("depth");
      text = JSON.stringify(data);
    } catch {
      return stop("depth");
    }
    characters += text.length;
    if (characters > MAX_CHARACTERS) return stop("size");
    port.postMessage({ message: text });
  };

  addEventListener("message", (event) => {
    if (port) {
      if (inner && event.source === inner.contentWindow) fromPage(event);
    } else if (event.source === parent && event.ports[0]) {
      port = event.ports[0];
      port.onmessage = fromHost;
      port.postMessage({ ready: true });
    }
  });
  parent.postMessage({ ipymcp: "frame" }, "*");
})();
