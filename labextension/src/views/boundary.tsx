import type { ComponentChildren } from "preact";
import { Component } from "preact";
import { problemOf } from "../store";
import { Button, ProblemBox } from "./parts";

interface State {
  error: unknown;
}

/** What cannot be drawn, such as a state of another version, does not take the rest along. */
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
      <div class="mcp-none">
        <ProblemBox problem={{ message: `This cannot be drawn: ${message}` }} />
        <Button onClick={() => this.setState({ error: null })}>Try again</Button>
      </div>
    );
  }
}
