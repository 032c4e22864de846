/** What an output says of the app that it shows. */

import type { DisplayMode } from "./context";
import { DISPLAY_MODES } from "./context";

export interface AppOptions {
  /** The app's number in the kernel. */
  app: number;
  /** Pixels; null for the height that the app wants. */
  height: number | null;
  mode: DisplayMode;
}

/** Parse untrusted output data; null if it is invalid. */
export function parseApp(data: unknown): AppOptions | null {
  const { app, height, mode } = (typeof data === "object" && data !== null ? data : {}) as { [key: string]: unknown };
  if (typeof app !== "number" || !Number.isInteger(app)) return null;
  return {
    app,
    height: typeof height === "number" && height > 0 ? height : null,
    mode: DISPLAY_MODES.find((each) => each === mode) ?? "inline",
  };
}
