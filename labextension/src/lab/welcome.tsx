/** What the sidebar says where there is no panel to show: why, and what to do. */

import type { ComponentChildren, JSX } from "preact";
import { h, render } from "preact";
import { createRoot } from "../root";
import { visible } from "../text";
import { Button } from "../views/parts";
import type { Standing } from "./standing";

export interface Deeds {
  load(): void;
  retry(): void;
  insert(text: string): void;
}

export interface Drawn {
  show(standing: Standing): void;
  remove(): void;
}

/** Draw it into an element. */
export function drawWelcome(element: HTMLElement, deeds: Deeds): Drawn {
  const root = createRoot(element, "sidebar");
  return {
    show: (standing) => render(h(Welcome, { standing, deeds }), root.element),
    remove: root.remove,
  };
}

function Welcome({ standing, deeds }: { standing: Standing; deeds: Deeds }): JSX.Element | null {
  switch (standing.is) {
    case "no-notebook":
      return <Saying title="No notebook is open">Its MCP servers are shown here.</Saying>;
    case "no-kernel":
      return <Saying title="This notebook has no kernel">Start one to use MCP servers in it.</Saying>;
    case "connecting":
      return <Saying title={"Connecting to the kernel\u2026"} />;
    case "other-language":
      return (
        <Saying title="Not a Python kernel">
          ipymcp works in Python notebooks; this one's kernel speaks {visible(standing.language)}.
        </Saying>
      );
    case "absent":
      return <Absent standing={standing} deeds={deeds} />;
    case "hindered":
      return (
        <Saying title={visible(standing.ended.message)}>
          {standing.ended.hint && <div>{visible(standing.ended.hint)}</div>}
          <div class="mcp-actions">
            <Button onClick={deeds.retry}>Try again</Button>
          </div>
        </Saying>
      );
    case "panel":
      return null;
  }
}

function Absent({ standing, deeds }: { standing: Extract<Standing, { is: "absent" }>; deeds: Deeds }): JSX.Element {
  const { command, loading, problem } = standing;
  return (
    <Saying title="ipymcp is not loaded in this notebook">
      <div>
        Load it to use MCP servers here: the button runs <code>{command}</code> in the kernel.
      </div>
      <div class="mcp-actions">
        <Button primary disabled={loading} onClick={deeds.load}>
          {loading ? "Loading\u2026" : "Load ipymcp"}
        </Button>
      </div>
      <div role="status" aria-live="polite">
        {loading && <div class="mcp-dim">If a cell runs, it comes first.</div>}
        {problem && (
          <div class="mcp-problem mcp-prose">
            <div>{visible(problem.message)}</div>
            {problem.remedy && <Remedy text={problem.remedy} deeds={deeds} />}
          </div>
        )}
      </div>
    </Saying>
  );
}

function Remedy({ text, deeds }: { text: string; deeds: Deeds }): JSX.Element {
  return (
    <>
      <div>
        Run <code>{text}</code> in a cell, then load it.
      </div>
      <div class="mcp-actions">
        <Button onClick={() => deeds.insert(text)}>Insert into a cell</Button>
      </div>
    </>
  );
}

function Saying({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <section class="mcp-panel mcp-beginning" aria-label="MCP panel">
      <h2>{title}</h2>
      {children}
    </section>
  );
}
