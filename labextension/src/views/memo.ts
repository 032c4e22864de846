import type { ComponentChild, FunctionComponent } from "preact";
import { Component, h } from "preact";

/** Create a component that rerenders only if its properties differ. */
export function memo<P extends object>(
  draw: FunctionComponent<P>,
  same: (one: P, other: P) => boolean,
): FunctionComponent<P> {
  class Memo extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      return !same(this.props as P, next);
    }
    override render(): ComponentChild {
      return h(draw, this.props as P);
    }
  }
  return Memo as unknown as FunctionComponent<P>;
}
