/** The frame of an app: a document with an opaque origin, which has the page in an inner frame and a port to this page.
 *
 * The document (`app_frame.js`) limits the size, depth and number of the app's messages before they reach this page. */

export type StopReason = "rate" | "size" | "depth" | "left" | "silent" | "noise";

/** A JSON-RPC message. */
export interface Message {
  jsonrpc: "2.0";
  id?: string | number;
  method?: string;
  params?: unknown;
  result?: unknown;
  error?: { code: number; message: string };
}

export interface FrameEvents {
  message(message: Message): void;
  stopped(reason: StopReason): void;
  /** The browser blocked a resource that the app requested. */
  blocked(uri: string, directive: string): void;
  /** The user pressed Escape in the app, or the app claims so. */
  escaped(): void;
}

export interface PageContent {
  html: string;
  title: string;
  /** The `allow` attribute of the frame. */
  allow: string;
  /** Whether the app may contain frames of other origins. */
  frames: boolean;
  /** The HTML of the outer document, with its content security policy. */
  frame: string;
  /** The URL of the same document at the Jupyter server, which sends the policy as a header; null if there is none. */
  url: string | null;
}

interface FromFrame {
  ready?: boolean;
  pong?: number;
  stop?: StopReason;
  message?: string;
  blocked?: { uri: string; by: string };
  escape?: boolean;
}

/** Milliseconds for the served document to announce itself; after that the HTML in `frame` replaces it. */
const READY_TIMEOUT = 4000;
const PING_INTERVAL = 4000;
/** Milliseconds without a response after which an app is stopped. */
const SILENCE_TIMEOUT = 15_000;
/** Maximum messages in `NOISE_INTERVAL` that an app may send to this window directly, which ignores them. Their size is not
 * known before they are read, so that few are allowed. */
const MAX_NOISE = 100;
const NOISE_INTERVAL = 10_000;

export class AppFrame {
  readonly element = document.createElement("iframe");
  #port: MessagePort | null = null;
  #readyTimer: ReturnType<typeof setTimeout> | undefined;
  #pingTimer: ReturnType<typeof setInterval> | undefined;
  #lastPong = 0;
  #noise = 0;
  #noiseStart = 0;
  #isClosed = false;

  constructor(
    private readonly page: PageContent,
    private readonly events: FrameEvents,
  ) {
    const { element } = this;
    element.sandbox.add("allow-scripts", "allow-forms");
    element.setAttribute("referrerpolicy", "no-referrer");
    if (page.allow) element.setAttribute("allow", page.allow);
    element.title = page.title;
    element.className = "ipymcp-app-frame";
    window.addEventListener("message", this.#receive);
    if (page.url === null) this.#useOwnDocument();
    else {
      element.src = page.url;
      this.#readyTimer = setTimeout(() => this.#useOwnDocument(), READY_TIMEOUT);
    }
  }

  send(message: Message): void {
    this.#port?.postMessage({ message: JSON.stringify(message) });
  }

  /** Set the color scheme of the frame. Browsers draw an opaque background behind a page with another color scheme. */
  setScheme(scheme: "light" | "dark"): void {
    this.element.style.colorScheme = scheme;
    this.#port?.postMessage({ scheme });
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#readyTimer);
    clearInterval(this.#pingTimer);
    window.removeEventListener("message", this.#receive);
    this.#port?.close();
    this.element.remove();
  }

  #useOwnDocument(): void {
    this.element.removeAttribute("src");
    this.element.srcdoc = this.page.frame;
  }

  #stop(reason: StopReason): void {
    if (this.#isClosed) return;
    this.close();
    this.events.stopped(reason);
  }

  /** Handle a message to this window. The outer document announces itself when it is loaded, also after the frame was moved.
   * The app's messages arrive through the port. */
  readonly #receive = (event: MessageEvent): void => {
    const document_ = this.element.contentWindow;
    if (!document_ || !event.source) return;
    if (event.source !== document_) {
      if (isInside(event.source as Window, document_)) this.#countNoise();
      return;
    }
    const isAnnouncement = (event.data as { ipymcp?: unknown } | null)?.ipymcp === "frame";
    if (!isAnnouncement || event.origin !== "null") return;
    clearTimeout(this.#readyTimer);
    clearInterval(this.#pingTimer);
    this.#port?.close();
    const channel = new MessageChannel();
    this.#port = channel.port1;
    this.#port.onmessage = ({ data }) => this.#fromFrame(data as FromFrame);
    document_.postMessage(null, "*", [channel.port2]);
  };

  #fromFrame(data: FromFrame): void {
    if (this.#isClosed) return;
    if (data.ready) {
      const { html, allow, title, frames } = this.page;
      this.setScheme(this.element.style.colorScheme === "dark" ? "dark" : "light");
      this.#port?.postMessage({ html, allow, title, frames });
      this.#lastPong = Date.now();
      this.#pingTimer = setInterval(() => this.#ping(), PING_INTERVAL);
    } else if (data.pong) this.#lastPong = Date.now();
    else if (data.stop) this.#stop(data.stop);
    else if (data.escape) this.events.escaped();
    else if (data.blocked) this.events.blocked(data.blocked.uri, data.blocked.by);
    else if (data.message !== undefined) {
      const message = parseMessage(data.message);
      if (message) this.events.message(message);
    }
  }

  /** Check that the app responds. Browsers slow down hidden pages, so only a visible app must respond. */
  #ping(): void {
    if (document.hidden || !this.element.isConnected) this.#lastPong = Date.now();
    if (Date.now() - this.#lastPong > SILENCE_TIMEOUT) return this.#stop("silent");
    this.#port?.postMessage({ ping: Date.now() });
  }

  #countNoise(): void {
    const now = Date.now();
    if (now - this.#noiseStart > NOISE_INTERVAL) [this.#noise, this.#noiseStart] = [0, now];
    if (++this.#noise > MAX_NOISE) this.#stop("noise");
  }
}

/** Whether a window is in a frame of another window, at any depth. */
function isInside(source: Window, outer: Window): boolean {
  let each: Window = source;
  for (let depth = 0; depth < 9; depth++) {
    if (each.parent === outer) return true;
    if (each.parent === each) return false;
    each = each.parent;
  }
  return true;
}

const MAX_METHOD = 100;

/** Parse a JSON-RPC message; null if it is not one. */
function parseMessage(text: string): Message | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
  const { jsonrpc, id, method } = value as Message;
  const isNamed = method === undefined || (typeof method === "string" && method.length <= MAX_METHOD);
  const isNumbered = id === undefined || typeof id === "number" || (typeof id === "string" && id.length <= MAX_METHOD);
  return jsonrpc === "2.0" && isNamed && isNumbered ? (value as Message) : null;
}
