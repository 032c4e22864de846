import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useUniqueId } from "./context";

/** A virtual list: renders visible rows only, all of equal height. */
interface WindowProps {
  count: number;
  /** Row height in pixels. */
  height: number;
  draw(index: number): ComponentChildren;
}

const OVERSCAN_ROWS = 8;
const DEFAULT_HEIGHT = 400;

interface VisibleRange {
  first: number;
  last: number;
}

function useVisibleRange(
  count: number,
  height: number,
): { box: { current: HTMLDivElement | null }; visibleRows: VisibleRange; measure: () => void } {
  const box = useRef<HTMLDivElement>(null);
  const [viewport, setViewport] = useState({ top: 0, high: DEFAULT_HEIGHT });
  const measure = (): void => {
    if (!box.current) return;
    const { scrollTop, clientHeight } = box.current;
    setViewport((old) => {
      const top = Math.floor(scrollTop / height) * height;
      const high = clientHeight || DEFAULT_HEIGHT;
      return old.top === top && old.high === high ? old : { top, high };
    });
  };
  // The element exists only if there are rows.
  const isEmpty = count === 0;
  useLayoutEffect(() => {
    measure();
    if (!box.current || typeof ResizeObserver === "undefined") return;
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [isEmpty]);
  const first = Math.max(0, Math.min(count - 1, Math.floor(viewport.top / height)) - OVERSCAN_ROWS);
  const last = Math.min(count, Math.ceil((viewport.top + viewport.high) / height) + OVERSCAN_ROWS);
  return { box, visibleRows: { first, last }, measure };
}

function indexes({ first, last }: VisibleRange): number[] {
  return Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
}

interface ListProps extends WindowProps {
  label: string;
  selected: number;
  onSelect(index: number): void;
  empty: string;
}

/** A list with one selectable row, by mouse or arrow keys. */
export function Rows({ count, height, draw, label, selected, onSelect, empty }: ListProps): JSX.Element {
  const { box, visibleRows, measure } = useVisibleRange(count, height);
  const [cursor, setCursor] = useState(selected);
  const id = useUniqueId();
  useEffect(() => setCursor(selected), [selected]);
  const at = Math.max(0, Math.min(cursor, count - 1));
  const show = (index: number): void => {
    const list = box.current;
    if (!list) return;
    if (index * height < list.scrollTop) list.scrollTop = index * height;
    else if ((index + 1) * height > list.scrollTop + list.clientHeight) {
      list.scrollTop = (index + 1) * height - list.clientHeight;
    }
    measure();
  };
  const keys = (event: KeyboardEvent): void => {
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 0) / height) - 1);
    const to = {
      ArrowDown: cursor < 0 ? 0 : at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: count - 1,
    }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      const index = Math.max(0, Math.min(to, count - 1));
      setCursor(index);
      show(index);
    } else if ((event.key === "Enter" || event.key === " ") && count > 0) {
      event.preventDefault();
      onSelect(at);
    }
  };
  if (count === 0) return <p class="mcp-rows mcp-empty">{empty}</p>;
  return (
    <div
      class="mcp-rows"
      role="listbox"
      aria-label={label}
      tabIndex={0}
      aria-activedescendant={
        cursor >= 0 && at >= visibleRows.first && at < visibleRows.last ? `${id}-${at}` : undefined
      }
      ref={box}
      onScroll={measure}
      onKeyDown={keys}
      onFocus={() => setCursor((old) => (old < 0 ? 0 : old))}
    >
      <div style={{ height: `${count * height}px` }} role="presentation">
        <div style={{ transform: `translateY(${visibleRows.first * height}px)` }} role="presentation">
          {indexes(visibleRows).map((index) => (
            <div
              key={index}
              id={`${id}-${index}`}
              role="option"
              class={index === at && cursor >= 0 ? "mcp-row mcp-cursor" : "mcp-row"}
              style={{ height: `${height}px` }}
              aria-selected={index === selected}
              aria-setsize={count}
              aria-posinset={index + 1}
              onClick={() => onSelect(index)}
            >
              {draw(index)}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}

interface StreamProps extends WindowProps {
  label: string;
  /** Scroll to the end as rows arrive. */
  follow: boolean;
  onFollow(follow: boolean): void;
  /** Changes as rows arrive. */
  version: unknown;
}

/** A list that grows at the end, such as a log. Screen readers do not announce new rows. */
export function Stream({ count, height, draw, label, follow, onFollow, version }: StreamProps): JSX.Element {
  const { box, visibleRows, measure } = useVisibleRange(count, height);
  const isProgrammatic = useRef(false);
  useLayoutEffect(() => {
    if (!follow || !box.current) return;
    isProgrammatic.current = true;
    box.current.scrollTop = count * height;
    measure();
  }, [follow, count, version]);
  const scrolled = (): void => {
    measure();
    const list = box.current;
    if (!list) return;
    if (isProgrammatic.current) {
      isProgrammatic.current = false;
      return;
    }
    const atEnd = list.scrollTop + list.clientHeight >= count * height - height;
    if (atEnd !== follow) onFollow(atEnd);
  };
  return (
    <div
      class="mcp-rows mcp-stream"
      role="log"
      aria-live="off"
      aria-label={label}
      tabIndex={0}
      ref={box}
      onScroll={scrolled}
    >
      <div style={{ height: `${count * height}px` }}>
        <div class="mcp-lines" style={{ transform: `translateY(${visibleRows.first * height}px)` }}>
          {indexes(visibleRows).map((index) => (
            <div key={index} class="mcp-line" style={{ height: `${height}px` }}>
              {draw(index)}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}
