/** Connect through the Jupyter server's relay, which reaches the kernel even while a cell runs. */

import type { FromKernel } from "../protocol";
import { trans } from "../translation";
import type { ConnectionEnd, Connect, EndReason } from "./connection";

export interface RelayEndpoint {
  /** The WebSocket URL. */
  url: string;
  /** The Jupyter server's OAuth redirect URL. */
  callback: string;
  /** The URL of the document that contains an app's page, for a query that names the granted access. */
  frameUrl(query: string): string;
  WebSocket: typeof WebSocket;
  /** Return the HTTP status of a plain request to the same URL. */
  probe(): Promise<number>;
}

interface RelayMessage {
  kind: "relay";
  state: EndReason;
  message: string;
  hint: string;
}

const lost = (): ConnectionEnd => ({
  reason: "lost",
  message: trans.__("The connection to the Jupyter server was lost. Retrying."),
});
const noRelay = (): ConnectionEnd => ({
  reason: "none",
  message: trans.__("This Jupyter server has no ipymcp extension."),
  hint: trans.__("Install ipymcp where the Jupyter server runs, then restart it."),
});
const denied = (): ConnectionEnd => ({
  reason: "denied",
  message: trans.__("You do not have permission to run code on this Jupyter server, so you cannot use the panel."),
});
const UNAUTHORIZED = new Set([401, 403]);
const NOT_FOUND = 404;

export function connectByRelay(place: RelayEndpoint): Connect {
  return (events) => {
    const socket = new place.WebSocket(place.url);
    let relayEnd: ConnectionEnd | null = null;
    let wasOpen = false;
    let hasEnded = false;
    const end = (how: ConnectionEnd): void => {
      if (!hasEnded) events.ended(how);
      hasEnded = true;
    };
    socket.onopen = () => {
      wasOpen = true;
      if (!hasEnded) events.opened();
    };
    socket.onmessage = ({ data }) => {
      const message = parsed(data);
      if (message === null || hasEnded) return;
      if (message.kind === "relay") relayEnd = { reason: message.state, message: message.message, hint: message.hint };
      else events.received(message);
    };
    socket.onclose = () => {
      if (wasOpen) return end(relayEnd ?? lost());
      // Browsers do not report why a WebSocket failed to open.
      place.probe().then(
        (status) => end(status === NOT_FOUND ? noRelay() : UNAUTHORIZED.has(status) ? denied() : lost()),
        () => end(lost()),
      );
    };
    return {
      send(message) {
        const whole = message.kind === "hello" ? { ...message, callback: place.callback } : message;
        if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(whole));
      },
      close() {
        hasEnded = true;
        socket.close();
      },
    };
  };
}

function parsed(data: unknown): FromKernel | RelayMessage | null {
  try {
    const message: unknown = JSON.parse(String(data));
    return typeof message === "object" ? (message as FromKernel | RelayMessage | null) : null;
  } catch {
    return null;
  }
}
