import type { ComponentChild, FunctionComponent } from "preact";
import { Component, h } from "preact";

/** A component that is drawn again only for other properties. */
export function memo<P extends object>(
  draw: FunctionComponent<P>,
  same: (one: P, other: P) => boolean,
): FunctionComponent<P> {
  class Kept extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      return !same(this.props as P, next);
    }
    override render(): ComponentChild {
      return h(draw, this.props as P);
    }
  }
  return Kept as unknown as FunctionComponent<P>;
}
