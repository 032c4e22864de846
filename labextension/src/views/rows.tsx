import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useUniqueId } from "./context";

/** The rows of a virtual list, which renders only the visible rows. */
export interface WindowProps {
  count: number;
  draw(index: number): ComponentChildren;
}

const OVERSCAN_ROWS = 8;
const DEFAULT_HEIGHT = 400;
/** Pixels of scrolling that need no new rows. */
const SCROLL_STEP = 40;
/** Pixels that a pointer may move in a click. */
const CLICK_DISTANCE = 6;

interface VisibleRange {
  first: number;
  last: number;
}

/** Measure which rows are visible.
 *
 * @param top The offset of a row in pixels, or of the end for the count.
 * @param onSize Called when the list has another size.
 */
export function useVisibleRange(
  count: number,
  top: (index: number) => number,
  onSize?: (box: HTMLDivElement) => void,
): { box: { current: HTMLDivElement | null }; visibleRows: VisibleRange; measure: () => void } {
  const box = useRef<HTMLDivElement>(null);
  const [viewport, setViewport] = useState({ from: 0, high: DEFAULT_HEIGHT });
  const measure = (): void => {
    if (!box.current) return;
    const { scrollTop, clientHeight } = box.current;
    setViewport((old) => {
      const from = Math.floor(scrollTop / SCROLL_STEP) * SCROLL_STEP;
      const high = clientHeight || DEFAULT_HEIGHT;
      return old.from === from && old.high === high ? old : { from, high };
    });
  };
  // Another element stands for no rows. The observer measures before the first frame, without a layout of its own.
  const isEmpty = count === 0;
  useLayoutEffect(() => {
    if (!box.current || typeof ResizeObserver === "undefined") return measure();
    const observer = new ResizeObserver(() => {
      measure();
      if (box.current) onSize?.(box.current);
    });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [isEmpty]);
  /** The row at an offset, found by bisection. */
  const rowAt = (offset: number): number => {
    let [low, high] = [0, count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (top(middle + 1) <= offset) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const first = Math.max(0, Math.min(count - 1, rowAt(viewport.from)) - OVERSCAN_ROWS);
  const last = Math.min(count, rowAt(viewport.from + viewport.high + SCROLL_STEP) + 1 + OVERSCAN_ROWS);
  return { box, visibleRows: { first, last }, measure };
}

export function indexes({ first, last }: VisibleRange): number[] {
  return Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
}

/** The place of a row in a tree of groups and their members. */
export interface TreeItem {
  /** Whether a group is open; absent for a member. */
  expanded?: boolean;
  /** Whether the row is ticked; absent if rows cannot be ticked. */
  checked?: boolean | "mixed";
  /** The row's number among its siblings, from 1. */
  position: number;
  /** The number of siblings, with this row. */
  size: number;
}

interface ListProps extends WindowProps {
  /** A key that identifies a row while other rows are added and removed. */
  keyOf(index: number): string;
  /** Row height in pixels. */
  height: number | ((index: number) => number);
  label: string;
  selected: number;
  onSelect(index: number): void;
  empty: string;
  /** The rows' places in the tree; absent for a list. */
  item?: (index: number) => TreeItem;
  /** The row where the keyboard begins. */
  start?: number;
  /** The keyboard begins again when this changes. */
  version?: unknown;
  /** Open or close a group of the tree. */
  onToggle?(index: number): void;
  /** A number that grows by one with each row that is added at the top; the rows in sight then stay in place. */
  added?: number;
  /** Called when the last row comes into sight. */
  onEnd?(): void;
}

/** A list or a tree with one selectable row, by mouse or arrow keys. */
export function Rows({
  count,
  keyOf,
  height,
  draw,
  label,
  selected,
  onSelect,
  empty,
  item,
  onToggle,
  start = 0,
  version,
  added = 0,
  onEnd,
}: ListProps): JSX.Element {
  const tops = useTops(count, height);
  const top = (index: number): number => tops[index] ?? 0;
  const { box, visibleRows, measure } = useVisibleRange(count, top);
  const [cursor, setCursor] = useState(selected);
  const id = useUniqueId();
  // A row that is no longer selected keeps the cursor: Esc leads back to it.
  useEffect(() => setCursor((old) => (selected < 0 ? old : selected)), [selected]);
  // At once: a key may follow before the next frame.
  useLayoutEffect(() => setCursor(selected), [version]);
  const before = useRef(added);
  useLayoutEffect(() => {
    const more = added - before.current;
    before.current = added;
    if (more <= 0) return;
    setCursor((old) => (old < 0 ? old : old + more));
    if (!box.current?.scrollTop) return;
    box.current.scrollTop += top(more);
    measure();
  }, [added]);
  const isAtEnd = visibleRows.last === count;
  useEffect(() => {
    if (isAtEnd && count > 0) onEnd?.();
  }, [isAtEnd, count]);
  const at = Math.max(0, Math.min(cursor, count - 1));
  const show = (index: number): void => {
    const list = box.current;
    if (!list) return;
    if (top(index) < list.scrollTop) list.scrollTop = top(index);
    else if (top(index + 1) > list.scrollTop + list.clientHeight) {
      list.scrollTop = top(index + 1) - list.clientHeight;
    }
    measure();
  };
  /** Handle a left or right arrow in a tree: open or close a group, or return the row to move to. */
  const sideways = (key: string): number | undefined => {
    const expanded = item?.(at).expanded;
    if (item === undefined || (key !== "ArrowLeft" && key !== "ArrowRight")) return undefined;
    if (expanded === (key === "ArrowLeft")) onToggle?.(at);
    else if (key === "ArrowRight") return expanded === undefined ? at : at + 1;
    else if (expanded === undefined) return at - item(at).position;
    return at;
  };
  const keys = (event: KeyboardEvent): void => {
    const page = Math.max(1, visibleRows.last - visibleRows.first - 2 * OVERSCAN_ROWS);
    const to =
      {
        ArrowDown: cursor < 0 ? 0 : at + 1,
        ArrowUp: at - 1,
        PageDown: at + page,
        PageUp: at - page,
        Home: 0,
        End: count - 1,
      }[event.key] ?? sideways(event.key);
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
  /** The row and position where the pointer was pressed: another row may move there before it is released. */
  const pressed = useRef<{ key: string; x: number; y: number } | null>(null);
  const keyAt = (target: EventTarget | null): string =>
    (target as HTMLElement).closest<HTMLElement>(".mcp-row")?.dataset["key"] ?? "";
  const press = ({ clientX, clientY, target }: PointerEvent): void => {
    pressed.current = { key: keyAt(target), x: clientX, y: clientY };
  };
  const click = ({ clientX, clientY, target }: MouseEvent): void => {
    const down = pressed.current;
    pressed.current = null;
    const isSteady = down && Math.hypot(clientX - down.x, clientY - down.y) < CLICK_DISTANCE;
    const key = isSteady ? down.key : keyAt(target);
    const index = indexes(visibleRows).find((each) => keyOf(each) === key);
    if (index !== undefined) onSelect(index);
  };
  if (count === 0) {
    return (
      <div class="mcp-rows mcp-empty" ref={box}>
        {empty}
      </div>
    );
  }
  return (
    <div
      class="mcp-rows"
      role={item ? "tree" : "listbox"}
      aria-label={label}
      tabIndex={0}
      aria-activedescendant={
        cursor >= 0 && at >= visibleRows.first && at < visibleRows.last ? `${id}-${at}` : undefined
      }
      ref={box}
      onScroll={measure}
      onKeyDown={keys}
      onPointerDown={press}
      onClick={click}
      onFocus={() => setCursor((old) => (old < 0 ? start : old))}
    >
      <div style={{ height: `${top(count)}px` }} role="presentation">
        <div style={{ transform: `translateY(${top(visibleRows.first)}px)` }} role="presentation">
          {indexes(visibleRows).map((index) => {
            const place = item?.(index);
            const key = keyOf(index);
            return (
              <div
                key={key}
                data-key={key}
                id={`${id}-${index}`}
                role={place ? "treeitem" : "option"}
                class={index === at && cursor >= 0 ? "mcp-row mcp-cursor" : "mcp-row"}
                style={{ height: `${top(index + 1) - top(index)}px` }}
                aria-selected={index === selected}
                aria-level={place && (place.expanded === undefined ? 2 : 1)}
                aria-expanded={place?.expanded}
                aria-checked={place?.checked}
                aria-setsize={place?.size ?? count}
                aria-posinset={place?.position ?? index + 1}
              >
                {draw(index)}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

/** The offsets of all rows and of their end. */
export function useTops(count: number, height: number | ((index: number) => number)): number[] {
  return useMemo(() => {
    const tops = [0];
    for (let index = 0, sum = 0; index < count; index++) {
      sum += typeof height === "number" ? height : height(index);
      tops.push(sum);
    }
    return tops;
  }, [count, height]);
}
