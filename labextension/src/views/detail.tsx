import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Button } from "./parts";

interface Props {
  list: ComponentChildren;
  detail: ComponentChildren | null;
  /** Of what is shown; another one begins at its top. */
  subject: string;
  hint: string;
  onBack(): void;
}

/** A list and what is chosen of it: side by side, or where it is narrow one after the other. */
export function ListAndDetail({ list, detail, subject, hint, onBack }: Props): JSX.Element {
  const pane = useRef<HTMLDivElement>(null);
  const pair = useRef<HTMLDivElement>(null);
  const before = useRef(subject);
  useEffect(() => {
    if (before.current === subject) return;
    before.current = subject;
    if (pane.current) pane.current.scrollTop = 0;
    // Where only one of the two is to be seen, the focus follows; it must not stay in what is hidden.
    const back = pane.current?.querySelector<HTMLElement>(".mcp-back button");
    if (back && back.offsetParent !== null) back.focus();
  }, [subject]);
  const goBack = (): void => {
    onBack();
    setTimeout(() => pair.current?.querySelector<HTMLElement>("[role=listbox]")?.focus());
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || detail === null || event.defaultPrevented) return;
    event.preventDefault();
    event.stopPropagation();
    goBack();
  };
  return (
    <div class={detail === null ? "mcp-pair" : "mcp-pair mcp-chosen"} ref={pair} onKeyDown={keys}>
      <div class="mcp-list">{list}</div>
      <div class="mcp-detail" ref={pane}>
        {detail === null ? (
          <p class="mcp-none">{hint}</p>
        ) : (
          <>
            <div class="mcp-back">
              <Button quiet onClick={goBack}>
                {"\u2039"} Back
              </Button>
            </div>
            {detail}
          </>
        )}
      </div>
    </div>
  );
}
