/** The host context that an app receives: theme, style variables, locale, size. */

/** Jupyter's style variables, without `--jp-`, by the names that the extension io.modelcontextprotocol/ui defines. */
const VARIABLES: { [name: string]: string } = {
  "font-sans": "ui-font-family",
  "font-mono": "code-font-family",
  "font-text-xs-size": "ui-font-size0",
  "font-text-sm-size": "ui-font-size1",
  "font-text-md-size": "content-font-size1",
  "font-text-lg-size": "content-font-size2",
  "font-heading-sm-size": "content-font-size2",
  "font-heading-md-size": "content-font-size3",
  "font-heading-lg-size": "content-font-size4",
  "font-heading-xl-size": "content-font-size5",
  "font-text-md-line-height": "content-line-height",
  "border-radius-sm": "border-radius",
  "border-width-regular": "border-width",
  "color-background-inverse": "inverse-layout-color1",
  "color-text-inverse": "ui-inverse-font-color0",
};
for (const [index, name] of ["primary", "secondary", "tertiary"].entries()) {
  VARIABLES[`color-background-${name}`] = `layout-color${index + 1}`;
  VARIABLES[`color-text-${name}`] = `ui-font-color${index}`;
  VARIABLES[`color-border-${name}`] = `border-color${index + 1}`;
}
for (const [name, own] of Object.entries({ info: "info", danger: "error", success: "success", warning: "warn" })) {
  VARIABLES[`color-background-${name}`] = `${own}-color3`;
  VARIABLES[`color-text-${name}`] = `${own}-color0`;
  VARIABLES[`color-border-${name}`] = VARIABLES[`color-ring-${name}`] = `${own}-color1`;
}

export type DisplayMode = "inline" | "fullscreen" | "pip";
export const DISPLAY_MODES: readonly DisplayMode[] = ["inline", "fullscreen", "pip"];

/** Maximum height of an app in a cell, in pixels. */
export const MAX_HEIGHT = 2000;
/** WCAG's threshold between dark and light backgrounds. */
const DARK = 0.18;

/** Return the theme of the page and its style variables. */
export function themeOf(element: Element): {
  theme: "light" | "dark";
  styles: { variables: { [name: string]: string } };
} {
  const style = getComputedStyle(element);
  const variables: { [name: string]: string } = {};
  for (const [name, own] of Object.entries(VARIABLES)) {
    const value = style.getPropertyValue(`--jp-${own}`).trim();
    if (value) variables[`--${name}`] = value;
  }
  return { theme: isDark() ? "dark" : "light", styles: { variables } };
}

function isDark(): boolean {
  const { jpThemeLight } = document.body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "false";
  const rgb = /^rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?/.exec(getComputedStyle(document.body).backgroundColor);
  if (!rgb || rgb[4] === "0") return false;
  const [red = 255, green = 255, blue = 255] = rgb.slice(1, 4).map(Number);
  return (0.2126 * red ** 2.2 + 0.7152 * green ** 2.2 + 0.0722 * blue ** 2.2) / 255 ** 2.2 < DARK;
}

/** Return the parts of the host context that do not change. */
export function fixedContext(): { [key: string]: unknown } {
  const canHover = window.matchMedia("(hover: hover)").matches;
  return {
    locale: navigator.language,
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    userAgent: "ipymcp",
    platform: "web",
    deviceCapabilities: { touch: navigator.maxTouchPoints > 0, hover: canHover },
    availableDisplayModes: DISPLAY_MODES,
  };
}

/** Return the size of an app's container. */
export function sizeOf(mode: DisplayMode, element: HTMLElement, height: number | null): { [key: string]: number } {
  const width = Math.floor(element.clientWidth);
  if (mode !== "inline") return { width, height: Math.floor(element.clientHeight) };
  return height === null ? { width, maxHeight: MAX_HEIGHT } : { width, height };
}
