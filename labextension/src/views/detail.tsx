import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { trans } from "../translation";
import { Button } from "./parts";

interface Props {
  list: ComponentChildren;
  detail: ComponentChildren | null;
  /** Identifies the item shown; a new item starts scrolled to the top. */
  subject: string;
  hint: string;
  onBack(): void;
}

// eslint-disable-next-line ipymcp/translated -- a selector
const FIRST_FIELD = ".mcp-form :is(input, select, textarea, .mcp-primary):enabled";

/** Focus the first field of an item's form, or the button that sends it, once it is drawn, unless the focus moves before. */
function focusForm(pane: HTMLElement | null): (() => void) | undefined {
  const focused = document.activeElement;
  const find = (): boolean => {
    const field = pane?.querySelector<HTMLElement>(FIRST_FIELD);
    if (field && document.activeElement === focused) field.focus();
    return field !== null || document.activeElement !== focused;
  };
  if (!pane || find()) return;
  const observer = new MutationObserver(() => find() && observer.disconnect());
  observer.observe(pane, { childList: true, subtree: true });
  return () => observer.disconnect();
}

/** A list and the selected item's details: side by side, or one at a time in narrow panels. */
export function ListAndDetail({ list, detail, subject, hint, onBack }: Props): JSX.Element {
  const pane = useRef<HTMLDivElement>(null);
  const pair = useRef<HTMLDivElement>(null);
  const before = useRef(subject);
  const isByKey = useRef(false);
  useEffect(() => {
    if (before.current === subject) return;
    before.current = subject;
    if (pane.current) pane.current.scrollTop = 0;
    const back = pane.current?.querySelector<HTMLElement>(".mcp-back button");
    // In narrow panels the list is hidden, so move the focus to the visible part.
    if (back && back.offsetParent !== null) back.focus();
    else if (!isByKey.current) return;
    return focusForm(pane.current);
  }, [subject]);
  const goBack = (): void => {
    onBack();
    setTimeout(() => pair.current?.querySelector<HTMLElement>("[role=listbox], [role=tree]")?.focus());
  };
  const keys = (event: KeyboardEvent): void => {
    isByKey.current = event.key === "Enter";
    if (event.key !== "Escape" || detail === null || event.defaultPrevented) return;
    event.preventDefault();
    event.stopPropagation();
    goBack();
  };
  return (
    <div class={detail === null ? "mcp-list-and-detail" : "mcp-list-and-detail mcp-chosen"} ref={pair} onKeyDown={keys}>
      <div class="mcp-list" onPointerDown={() => (isByKey.current = false)}>
        {list}
      </div>
      <div class="mcp-detail" ref={pane}>
        {detail === null ? (
          <p class="mcp-empty">{hint}</p>
        ) : (
          <>
            <div class="mcp-back">
              <Button quiet onClick={goBack}>
                {"\u2039"} {trans.__("Back")}
              </Button>
            </div>
            {detail}
          </>
        )}
      </div>
    </div>
  );
}
