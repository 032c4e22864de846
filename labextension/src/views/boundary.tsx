import type { ComponentChildren } from "preact";
import { Component } from "preact";
import { problemOf } from "../store";
import { trans } from "../translation";
import { Button, ProblemBox } from "./parts";

interface State {
  error: unknown;
}

/** An error boundary: a view that fails to render does not break the others. */
export class Boundary extends Component<{ children: ComponentChildren }, State> {
  override state: State = { error: null };

  static override getDerivedStateFromError(error: unknown): State {
    return { error };
  }

  override render(): ComponentChildren {
    const { error } = this.state;
    if (error === null) return this.props.children;
    const { message } = problemOf(error);
    return (
      <div class="mcp-empty">
        <ProblemBox problem={{ message: trans.__("This view cannot be displayed: %1", message) }} />
        <Button onClick={() => this.setState({ error: null })}>{trans.__("Try again")}</Button>
      </div>
    );
  }
}
