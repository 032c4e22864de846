/** The way through the Jupyter server: it reaches the kernel while a cell blocks it. */

import type { FromKernel } from "../protocol";
import type { Ended, OpenWay, Why } from "./way";

export interface RelayPlace {
  /** Where the WebSocket is. */
  url: string;
  /** Where the Jupyter server takes the answers to logins. */
  callback: string;
  WebSocket: typeof WebSocket;
  /** The status with which the server answers at the same address when no WebSocket is asked for. */
  probe(): Promise<number>;
}

interface RelayMessage {
  kind: "relay";
  state: Why;
  message: string;
  hint: string;
}

const LOST: Ended = { why: "lost", message: "The connection to the Jupyter server broke. It is tried again." };
const NONE: Ended = {
  why: "none",
  message: "This Jupyter server has no ipymcp extension.",
  hint: "pip install ipymcp where the Jupyter server runs, then restart it",
};
const DENIED: Ended = {
  why: "denied",
  message: "You may not run code on this Jupyter server, and so may not use the panel.",
};
const FORBIDDEN = new Set([401, 403]);
const NOT_FOUND = 404;

export function relayTo(place: RelayPlace): OpenWay {
  return (events) => {
    const socket = new place.WebSocket(place.url);
    let said: Ended | null = null;
    let wasOpen = false;
    let isOver = false;
    const end = (how: Ended): void => {
      if (!isOver) events.ended(how);
      isOver = true;
    };
    socket.onopen = () => {
      wasOpen = true;
      if (!isOver) events.opened();
    };
    socket.onmessage = ({ data }) => {
      const message = parsed(data);
      if (message === null || isOver) return;
      if (message.kind === "relay") said = { why: message.state, message: message.message, hint: message.hint };
      else events.heard(message);
    };
    socket.onclose = () => {
      if (wasOpen) return end(said ?? LOST);
      // A browser does not tell why a WebSocket did not open.
      place.probe().then(
        (status) => end(status === NOT_FOUND ? NONE : FORBIDDEN.has(status) ? DENIED : LOST),
        () => end(LOST),
      );
    };
    return {
      send(message) {
        const whole = message.kind === "hello" ? { ...message, callback: place.callback } : message;
        if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(whole));
      },
      close() {
        isOver = true;
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
