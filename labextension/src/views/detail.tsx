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

/** A list and the selected item's details: side by side, or one at a time in narrow panels. */
export function ListAndDetail({ list, detail, subject, hint, onBack }: Props): JSX.Element {
  const pane = useRef<HTMLDivElement>(null);
  const pair = useRef<HTMLDivElement>(null);
  const before = useRef(subject);
  useEffect(() => {
    if (before.current === subject) return;
    before.current = subject;
    if (pane.current) pane.current.scrollTop = 0;
    // In narrow panels the list is hidden, so move the focus to the visible part.
    const back = pane.current?.querySelector<HTMLElement>(".mcp-back button");
    if (back && back.offsetParent !== null) back.focus();
  }, [subject]);
  const goBack = (): void => {
    onBack();
    setTimeout(() => pair.current?.querySelector<HTMLElement>("[role=listbox], [role=tree]")?.focus());
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || detail === null || event.defaultPrevented) return;
    event.preventDefault();
    event.stopPropagation();
    goBack();
  };
  return (
    <div class={detail === null ? "mcp-list-and-detail" : "mcp-list-and-detail mcp-chosen"} ref={pair} onKeyDown={keys}>
      <div class="mcp-list">{list}</div>
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
