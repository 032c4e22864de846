import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useUnique } from "./context";

/** A list of which only the rows in sight are drawn; all are equally high. */
interface WindowProps {
  count: number;
  /** Of a row, in pixels. */
  height: number;
  draw(index: number): ComponentChildren;
}

const MARGIN = 8;
const UNMEASURED = 400;

interface Sight {
  first: number;
  last: number;
}

function useSight(
  count: number,
  height: number,
): { box: { current: HTMLDivElement | null }; sight: Sight; look: () => void } {
  const box = useRef<HTMLDivElement>(null);
  const [place, setPlace] = useState({ top: 0, high: UNMEASURED });
  const look = (): void => {
    if (!box.current) return;
    const { scrollTop, clientHeight } = box.current;
    setPlace((old) => {
      const top = Math.floor(scrollTop / height) * height;
      const high = clientHeight || UNMEASURED;
      return old.top === top && old.high === high ? old : { top, high };
    });
  };
  // Without rows there is no box to measure.
  const isEmpty = count === 0;
  useLayoutEffect(() => {
    look();
    if (!box.current || typeof ResizeObserver === "undefined") return;
    const observer = new ResizeObserver(look);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [isEmpty]);
  const first = Math.max(0, Math.min(count - 1, Math.floor(place.top / height)) - MARGIN);
  const last = Math.min(count, Math.ceil((place.top + place.high) / height) + MARGIN);
  return { box, sight: { first, last }, look };
}

function range({ first, last }: Sight): number[] {
  return Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
}

interface ListProps extends WindowProps {
  label: string;
  selected: number;
  onSelect(index: number): void;
  empty: string;
}

/** Rows of which one is chosen, with the mouse or the arrow keys. */
export function Rows({ count, height, draw, label, selected, onSelect, empty }: ListProps): JSX.Element {
  const { box, sight, look } = useSight(count, height);
  const [cursor, setCursor] = useState(selected);
  const id = useUnique();
  useEffect(() => setCursor(selected), [selected]);
  const at = Math.max(0, Math.min(cursor, count - 1));
  const show = (index: number): void => {
    const list = box.current;
    if (!list) return;
    if (index * height < list.scrollTop) list.scrollTop = index * height;
    else if ((index + 1) * height > list.scrollTop + list.clientHeight) {
      list.scrollTop = (index + 1) * height - list.clientHeight;
    }
    look();
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
  if (count === 0) return <p class="mcp-rows mcp-none">{empty}</p>;
  return (
    <div
      class="mcp-rows"
      role="listbox"
      aria-label={label}
      tabIndex={0}
      aria-activedescendant={cursor >= 0 && at >= sight.first && at < sight.last ? `${id}-${at}` : undefined}
      ref={box}
      onScroll={look}
      onKeyDown={keys}
      onFocus={() => setCursor((old) => (old < 0 ? 0 : old))}
    >
      <div style={{ height: `${count * height}px` }} role="presentation">
        <div style={{ transform: `translateY(${sight.first * height}px)` }} role="presentation">
          {range(sight).map((index) => (
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
  /** Stay at the end as rows come. */
  follow: boolean;
  onFollow(follow: boolean): void;
  /** Changes as rows come. */
  version: unknown;
}

/** Rows that come at the end. Not read out as they come: a log chatters. */
export function Stream({ count, height, draw, label, follow, onFollow, version }: StreamProps): JSX.Element {
  const { box, sight, look } = useSight(count, height);
  const own = useRef(false);
  useLayoutEffect(() => {
    if (!follow || !box.current) return;
    own.current = true;
    box.current.scrollTop = count * height;
    look();
  }, [follow, count, version]);
  const scrolled = (): void => {
    look();
    const list = box.current;
    if (!list) return;
    if (own.current) {
      own.current = false;
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
        <div class="mcp-lines" style={{ transform: `translateY(${sight.first * height}px)` }}>
          {range(sight).map((index) => (
            <div key={index} class="mcp-line" style={{ height: `${height}px` }}>
              {draw(index)}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}
