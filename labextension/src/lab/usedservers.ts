/** The names of the servers that a notebook used, saved in the browser because the kernel has them only once ipymcp is loaded.
 *
 * The names are only shown. The kernel decides which servers are loaded again, from the user's own database.
 */

import { PageConfig } from "@jupyterlab/coreutils";
import type { PanelState } from "../store";

const MAX_NAMES = 50;

export class UsedServers {
  private saved = "";

  constructor(private readonly path: () => string) {}

  /** Save the names of the loaded servers, and of those that were used before and are still missing. */
  save({ synced, servers, used }: PanelState): void {
    if (!synced) return;
    const all = new Set([...Object.keys(servers), ...(used ? used.names : this.names())]);
    const names = [...all].slice(0, MAX_NAMES);
    const text = names.length ? JSON.stringify(names) : "";
    if (text === this.saved) return;
    this.saved = text;
    try {
      if (text) localStorage.setItem(this.key, text);
      else localStorage.removeItem(this.key);
    } catch {
      // There is no storage, or it is full. The kernel offers the servers once ipymcp is loaded.
    }
  }

  /** Handle the end of a kernel's connection: the saved names stay. */
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

  /** The storage key, with the Jupyter server and the notebook's path; a renamed notebook has no saved names. */
  private get key(): string {
    return `ipymcp:used:${PageConfig.getBaseUrl()}:${this.path()}`;
  }
}
