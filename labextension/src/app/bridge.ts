/** The host's side of the protocol with an app: responds to its requests, and tells it about the call that it shows.
 *
 * Source: MCP extension io.modelcontextprotocol/ui, SEP-1865 (2026-01-26). */

import type { DisplayMode } from "./context";
import { DISPLAY_MODES } from "./context";
import type { Message } from "./frame";

const PROTOCOL_VERSION = "2026-01-26";
const INVALID = -32602;
const DENIED = -32000;
/** Maximum bytes of a request to the kernel, whose relay accepts 7.9 MB. */
const MAX_REQUEST = 7_500_000;
/** Maximum open requests to the kernel. */
const MAX_OPEN = 50;
const MAX_URL = 10_000;
const MAX_TEXT = 100_000;
const MAX_FILES = 20;
const TEARDOWN_TIMEOUT = 500;

/** The functions of the view that serve the app's requests. Those that ask the user resolve to whether the user agreed. */
export interface AppHost {
  context(): { [key: string]: unknown };
  capabilities(): { [key: string]: unknown };
  request(method: string, params: object): Promise<{ result: unknown; error: string; code: number }>;
  resize(height: number): void;
  setMode(mode: DisplayMode): DisplayMode;
  openLink(url: string): Promise<boolean>;
  offerMessage(text: string): Promise<boolean>;
  download(files: AppFile[]): Promise<boolean>;
  teardown(): void;
  /** Called when the app has declared its display modes. */
  initialized(): void;
}

export interface AppFile {
  name: string;
  type: string;
  data: BlobPart;
}

/** The call that the app shows, as far as it is known. */
export interface Call {
  /** The arguments as far as a model has written them. */
  partial?: unknown;
  /** The complete arguments. */
  input?: unknown;
  result?: unknown;
  /** The reason why there will be no result. */
  cancelled?: string | null;
}

class Refusal extends Error {
  constructor(
    message: string,
    readonly code = INVALID,
  ) {
    super(message);
  }
}

type Params = { [key: string]: unknown };

export class Bridge {
  /** The display modes that the app declares; null before it has. */
  modes: readonly DisplayMode[] | null = null;
  #isInitialized = false;
  #hasInput = false;
  #hasEnd = false;
  #open = 0;
  #finishTeardown: (() => void) | null = null;

  constructor(
    private readonly host: AppHost,
    private readonly send: (message: Message) => void,
    private call: Call,
  ) {}

  /** Whether the call is over, so that there is nothing more to tell the app about it. */
  get isOver(): boolean {
    return isKnown(this.call.result) || isKnown(this.call.cancelled);
  }

  /** Tell the app what has become of its call. */
  update(call: Call): void {
    this.call = call;
    if (this.#isInitialized) this.#deliver();
  }

  receive(message: Message): void {
    const { id, method } = message;
    if (method === undefined) {
      if (id === TEARDOWN) this.#finishTeardown?.();
      return;
    }
    const params = isObject(message.params) ? message.params : {};
    if (id === undefined) return this.#handleNotification(method, params);
    this.#answer(method, params).then(
      (result) => this.send({ jsonrpc: "2.0", id, result }),
      (error: unknown) => {
        const code = error instanceof Refusal ? error.code : DENIED;
        this.send({ jsonrpc: "2.0", id, error: { code, message: String((error as Error).message) } });
      },
    );
  }

  /** Tell the app that a part of the host context has changed. */
  contextChanged(change: { [key: string]: unknown }): void {
    if (this.#isInitialized) this.#notify("ui/notifications/host-context-changed", change);
  }

  /** Ask the app to end; resolves when it has ended, or after `TEARDOWN_TIMEOUT`. */
  async teardown(reason: string): Promise<void> {
    if (!this.#isInitialized) return;
    await new Promise<void>((resolve) => {
      this.#finishTeardown = resolve;
      setTimeout(resolve, TEARDOWN_TIMEOUT);
      this.send({ jsonrpc: "2.0", id: TEARDOWN, method: "ui/resource-teardown", params: { reason } });
    });
  }

  /** Send what the app does not have yet, in the order that the extension demands. */
  #deliver(): void {
    const { partial, input, result, cancelled } = this.call;
    if (!isKnown(input)) {
      if (isKnown(partial)) this.#notify("ui/notifications/tool-input-partial", { arguments: partial });
    } else if (!this.#hasInput) {
      this.#hasInput = true;
      this.#notify("ui/notifications/tool-input", { arguments: input });
    }
    if (this.#hasEnd || !this.isOver) return;
    this.#hasEnd = true;
    if (isKnown(result)) this.#notify("ui/notifications/tool-result", result);
    else this.#notify("ui/notifications/tool-cancelled", { reason: cancelled });
  }

  #notify(method: string, params: unknown): void {
    this.send({ jsonrpc: "2.0", method, params });
  }

  #handleNotification(method: string, params: Params): void {
    switch (method) {
      case "ui/notifications/initialized":
        if (this.#isInitialized) return;
        this.#isInitialized = true;
        this.#hasInput = this.#hasEnd = false;
        return this.#deliver();
      case "ui/notifications/size-changed":
        if (typeof params["height"] === "number" && params["height"] >= 0) this.host.resize(params["height"]);
        return;
      case "ui/notifications/request-teardown":
        return this.host.teardown();
      case "notifications/message":
        this.#forward(method, params).catch(() => undefined);
    }
  }

  async #answer(method: string, params: Params): Promise<unknown> {
    switch (method) {
      case "ui/initialize":
        return this.#initialize(params);
      case "ping":
        return {};
      case "ui/request-display-mode":
        return { mode: this.#displayMode(params["mode"]) };
      case "ui/open-link":
        return granted(await this.host.openLink(webAddress(params["url"])));
      case "ui/message":
        return granted(await this.host.offerMessage(textOf(params["content"])));
      case "ui/download-file":
        return granted(await this.host.download(filesOf(params["contents"])));
      default:
        return this.#forward(method, params);
    }
  }

  #initialize(params: Params): unknown {
    const { availableDisplayModes: modes } = isObject(params["appCapabilities"]) ? params["appCapabilities"] : {};
    this.modes = Array.isArray(modes) ? DISPLAY_MODES.filter((mode) => modes.includes(mode)) : DISPLAY_MODES;
    this.#isInitialized = false;
    this.host.initialized();
    return {
      protocolVersion: PROTOCOL_VERSION,
      hostInfo: { name: "ipymcp", version: "1" },
      hostCapabilities: this.host.capabilities(),
      hostContext: this.host.context(),
    };
  }

  #displayMode(wanted: unknown): DisplayMode {
    const mode = DISPLAY_MODES.find((each) => each === wanted);
    if (!mode) throw new Refusal("the display mode must be inline, fullscreen or pip");
    return this.host.setMode(mode);
  }

  /** Forward a request to the kernel, which allows only a few methods. */
  async #forward(method: string, params: Params): Promise<unknown> {
    if (new Blob([JSON.stringify(params)]).size > MAX_REQUEST) {
      throw new Refusal("a request may have at most 7.5 MB");
    }
    if (this.#open >= MAX_OPEN) throw new Refusal("at most 50 requests may be open", DENIED);
    this.#open++;
    try {
      const { result, error, code } = await this.host.request(method, params);
      if (code) throw new Refusal(error, code);
      return result;
    } finally {
      this.#open--;
    }
  }
}

const TEARDOWN = "ipymcp-teardown";

function isObject(value: unknown): value is Params {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isKnown(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function granted(isGranted: boolean): object {
  if (!isGranted) throw new Refusal("the user did not agree", DENIED);
  return {};
}

/** Check a link: http or https, without a login. */
export function webAddress(value: unknown): string {
  const url = typeof value === "string" && value.length <= MAX_URL ? parseUrl(value) : null;
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password) {
    throw new Refusal("a link must be an http or https URL without a login");
  }
  return url.href;
}

function parseUrl(text: string): URL | null {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}

/** The text of a message: one content block or several. */
function textOf(content: unknown): string {
  const blocks: unknown[] = Array.isArray(content) ? content : [content];
  const texts = blocks.map((block) => (isObject(block) && block["type"] === "text" ? block["text"] : undefined));
  const text = texts.filter((each) => typeof each === "string").join("\n");
  if (!text.trim() || text.length > MAX_TEXT) throw new Refusal("a message must have 1 to 100,000 characters of text");
  return text;
}

/** The files of a download. Links are not fetched. */
function filesOf(contents: unknown): AppFile[] {
  const blocks: unknown[] = Array.isArray(contents) ? contents : [];
  const files = blocks.slice(0, MAX_FILES).map((block): AppFile => {
    const resource = isObject(block) && block["type"] === "resource" ? block["resource"] : undefined;
    if (!isObject(resource)) throw new Refusal("only embedded resources can be saved");
    const { uri, mimeType, text, blob } = resource;
    const type = typeof mimeType === "string" ? mimeType : "application/octet-stream";
    const data = typeof text === "string" ? text : typeof blob === "string" ? decodeBase64(blob) : null;
    if (data === null) throw new Refusal("a file must have text, or a blob in base64");
    return { name: fileName(uri), type, data };
  });
  if (!files.length) throw new Refusal("a download must have contents");
  return files;
}

function decodeBase64(base64: string): BlobPart {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    throw new Refusal("a blob must be valid base64");
  }
}

/** The last part of a URI as a file name, without characters that are special in file systems. */
function fileName(uri: unknown): string {
  const last = String(uri).split(/[?#]/)[0]?.split(/[/\\]/).pop() ?? "";
  const name = last.replace(/[^\p{L}\p{N}._ -]/gu, "_").replace(/^\.+/, "");
  return name.slice(-100) || "file";
}
