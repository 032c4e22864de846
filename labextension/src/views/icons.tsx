import type { JSX } from "preact";

const PATHS = {
  start: "M4.5 3v10l8.5-5z",
  stop: "M4 4h8v8H4z",
  restart: "M8 3a5 5 0 1 1-4.6 3l1.4.6A3.5 3.5 0 1 0 8 4.5V7L4.5 3.7 8 .5z",
  more: "M8 2.2a1.3 1.3 0 1 1 0 2.6 1.3 1.3 0 0 1 0-2.6zm0 4.5a1.3 1.3 0 1 1 0 2.6 1.3 1.3 0 0 1 0-2.6zm0 4.5a1.3 1.3 0 1 1 0 2.6 1.3 1.3 0 0 1 0-2.6z",
  trust: "M8 1.5 13.5 3.5V8c0 3-2.3 5.3-5.5 6.5C4.8 13.3 2.5 11 2.5 8V3.5zm-.7 8.9 3.7-3.7-1-1-2.7 2.6-1.3-1.3-1 1z",
  login: "M7 3h6v10H7v-1.5h4.5v-7H7zM5.5 5 8.5 8l-3 3V8.7H2V7.3h3.5z",
  open: "M3 3h4v1.5H4.5v7h7V9H13v4H3zm6 0h4v4h-1.5V5.6L8 9 7 8l3.4-3.5H9z",
  select: "M2 3h3v3H2zm0 7h3v3H2zm5-6.2h7v1.4H7zm0 7h7v1.4H7z",
} as const;

export type IconName = keyof typeof PATHS;

/** A decorative icon in the color of the text. Its button has a label. */
export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class="mcp-icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path fill="currentColor" fill-rule="evenodd" d={PATHS[name]} />
    </svg>
  );
}

interface IconButtonProps {
  icon: IconName;
  /** What it does, also as its tooltip. */
  label: string;
  onClick: () => void;
  pressed?: boolean;
}

export function IconButton({ icon, label, onClick, pressed }: IconButtonProps): JSX.Element {
  return (
    <button
      type="button"
      class="mcp-button mcp-icon-button"
      aria-label={label}
      title={label}
      aria-pressed={pressed}
      onClick={onClick}
    >
      <Icon name={icon} />
    </button>
  );
}
