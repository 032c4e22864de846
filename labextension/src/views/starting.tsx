/** The progress of a server's start, or its error with the possible actions. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { ServerRow, StartProgress } from "../protocol";
import { singleLine, wholeDuration } from "../text";
import { trans } from "../translation";
import { useMode, useNow, useRequest, useUniqueId } from "./context";
import { ACTION_TITLES, Button, ProblemBox, stateView } from "./parts";

/** The attempt, duration and last output of a start in progress, or the error of the last start with buttons. */
export function StartView({ server, onLog }: { server: ServerRow; onLog?: () => void }): JSX.Element | null {
  const act = useRequest();
  const may = useMode();
  const [action] = stateView(server.state).actions;
  const canAct = may("start") && (action === "start" || action === "trust" || action === "login");
  const run = (): void => void (canAct && act(action, { server: server.name }));
  if (server.starting) return <Progress starting={server.starting} />;
  if (!server.error) return null;
  return (
    <ProblemBox
      problem={server.error}
      {...(canAct && { retry: action === "start" ? trans.__("Retry") : ACTION_TITLES[action](), onRetry: run })}
      {...(onLog && may("logs") && { onLog })}
    >
      {server.missing !== null && may("set_value") && <MissingValue server={server.name} name={server.missing} />}
    </ProblemBox>
  );
}

/** The attempt, duration and last output of a start in progress. */
export function Progress({ starting }: { starting: StartProgress }): JSX.Element {
  const now = useNow(true);
  const { attempt, attempts, since, line } = starting;
  const parts = [
    attempt > 1 && trans.__("attempt %1 of %2", attempt, attempts),
    wholeDuration(Math.max(0, now - since)),
    line !== null && singleLine(line),
  ];
  return <div class="mcp-starting mcp-muted mcp-ellipsis">{parts.filter(Boolean).join(" · ")}</div>;
}

/** A field for a value that the definition needs. */
function MissingValue({ server, name }: { server: string; name: string }): JSX.Element {
  const [value, setValue] = useState("");
  const act = useRequest();
  const id = useUniqueId();
  return (
    <form
      class="mcp-missing"
      onSubmit={(event) => {
        event.preventDefault();
        if (value !== "") void act("set_value", { server, name, value });
      }}
    >
      <label for={id}>{trans.__("Value of %1", singleLine(name))}</label>
      <input
        id={id}
        class="mcp-input"
        type="password"
        autocomplete="new-password"
        aria-describedby={`${id}-about`}
        value={value}
        onInput={(event) => setValue(event.currentTarget.value)}
      />
      <Button primary disabled={value === ""}>
        {trans.__("Set and start")}
      </Button>
      <span class="mcp-muted" id={`${id}-about`}>
        {trans.__("Kept as a secret, never in the file.")}
      </span>
    </form>
  );
}
