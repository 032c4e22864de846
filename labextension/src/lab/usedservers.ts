/** The names of the servers that a notebook used, as its page remembers them: before ipymcp is loaded no kernel knows.
 *
 * They are only shown. What is loaded again, the kernel decides, by the user's own database.
 */

import { PageConfig } from "@jupyterlab/coreutils";
import type { PanelState } from "../store";

const MAX_NAMES = 50;

export class UsedServers {
  private saved = "";

  constructor(private readonly path: () => string) {}

  /** Remember the names while there are any; forget them when the last server is unloaded. */
  look({ synced, servers }: PanelState): void {
    if (!synced) return;
    const names = Object.keys(servers).slice(0, MAX_NAMES);
    const text = names.length ? JSON.stringify(names) : "";
    if (text === this.saved) return;
    this.saved = text;
    try {
      if (text) localStorage.setItem(this.key, text);
      else localStorage.removeItem(this.key);
    } catch {
      // No storage, or it is full: the kernel offers them once ipymcp is loaded.
    }
  }

  /** The kernel is gone: what is remembered stays. */
  end(): void {
    this.saved = "";
  }

  names(): string[] {
    try {
      const found: unknown = JSON.parse(localStorage.getItem(this.key) ?? "[]");
      return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
    } catch {
      return [];
    }
  }

  /** The user's server, and the notebook's path: a renamed notebook finds nothing. */
  private get key(): string {
    return `ipymcp:used:${PageConfig.getBaseUrl()}:${this.path()}`;
  }
}
