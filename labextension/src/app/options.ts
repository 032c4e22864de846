/** The data in an output that describes its app. */

import type { DisplayMode } from "./context";
import { DISPLAY_MODES } from "./context";

export interface AppOptions {
  /** The app's number in the kernel. */
  app: number;
  /** Height in pixels; null for the height that the app requests. */
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
