/** A button that opens a menu. */

import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useUniqueId } from "./context";

export interface MenuItem {
  label: string;
  onChoose: () => void;
  /** Whether a line separates the item from the previous ones. */
  isSeparate?: boolean;
}

interface MenuButtonProps {
  /** Called when the menu opens. */
  items(): readonly MenuItem[];
  /** The button's accessible name and tooltip, and the menu's name. */
  label: string;
  /** Additional classes of the button. */
  kind?: string;
  /** An element whose context menu also opens this menu. */
  area?: RefObject<HTMLElement | null>;
  children: ComponentChildren;
}

/** The item that a key moves the focus to, from the current index and the number of items; as in the WAI-ARIA menu pattern. */
const MOVES: { [key: string]: (index: number, count: number) => number } = {
  ArrowDown: (index, count) => (index + 1) % count,
  ArrowUp: (index, count) => (index - 1 + count) % count,
  Home: () => 0,
  End: (_, count) => count - 1,
};

/** A button that opens a menu of actions. */
export function MenuButton({ items, label, kind, area, children }: MenuButtonProps): JSX.Element {
  const [open, setOpen] = useState(false);
  const pointer = useRef<DOMRect | null>(null);
  const button = useRef<HTMLButtonElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  const id = useUniqueId();
  useLayoutEffect(() => {
    if (!open || !menu.current || !button.current) return;
    menu.current.showPopover?.();
    place(menu.current, pointer.current ?? button.current.getBoundingClientRect());
    pointer.current = null;
    menu.current.querySelector("button")?.focus();
  }, [open]);
  useEffect(() => {
    const element = area?.current;
    const openAt = (event: MouseEvent): void => {
      // With Shift the browser's own menu opens, as everywhere in JupyterLab.
      if (event.shiftKey || menu.current?.contains(event.target as Node)) return;
      event.preventDefault();
      event.stopPropagation();
      pointer.current = new DOMRect(event.clientX, event.clientY);
      setOpen(true);
    };
    element?.addEventListener("contextmenu", openAt);
    return () => element?.removeEventListener("contextmenu", openAt);
  }, [area]);
  const close = (): void => {
    setOpen(false);
    button.current?.focus();
  };
  const handleKey = (event: KeyboardEvent): void => {
    const all = [...(menu.current?.querySelectorAll("button") ?? [])];
    const to = MOVES[event.key]?.(all.indexOf(document.activeElement as HTMLButtonElement), all.length);
    if (to !== undefined) all[to]?.focus();
    else if (event.key === "Escape" || event.key === "Tab") close();
    else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  };
  return (
    <>
      <button
        type="button"
        class={`mcp-button ${kind ?? ""}`}
        ref={button}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        aria-label={label}
        title={label}
        onClick={() => setOpen(!open)}
        onKeyDown={(event) => {
          if (event.key !== "ArrowDown") return;
          event.preventDefault();
          setOpen(true);
        }}
      >
        {children}
      </button>
      {open && (
        <div
          class="mcp-menu"
          popover="manual"
          role="menu"
          id={id}
          aria-label={label}
          ref={menu}
          onKeyDown={handleKey}
          // Keeps the focus in the menu while an item is pressed.
          onMouseDown={(event) => event.preventDefault()}
          onFocusOut={(event) => {
            const to = event.relatedTarget as Node | null;
            if (!menu.current?.contains(to) && to !== button.current) setOpen(false);
          }}
        >
          {items().map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              class={item.isSeparate ? "mcp-separate" : ""}
              tabIndex={-1}
              onClick={() => {
                close();
                item.onChoose();
              }}
            >
              {item.label}
            </button>
          ))}
        </div>
      )}
    </>
  );
}

const MARGIN = 4;

/** Place a menu below a button, or above it if there is no room below, within the window. */
function place(menu: HTMLElement, at: DOMRect): void {
  const { width, height } = menu.getBoundingClientRect();
  const isAbove = at.bottom + height + MARGIN > innerHeight && at.top > height;
  menu.style.top = `${isAbove ? at.top - height : at.bottom}px`;
  menu.style.left = `${Math.max(MARGIN, Math.min(at.left, innerWidth - width - MARGIN))}px`;
}
