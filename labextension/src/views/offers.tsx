/** Resources and prompts: what servers offer beside tools. */

import type { ComponentChildren, JSX } from "preact";
import { useCallback, useState } from "preact/hooks";
import type { FormState } from "../form/form";
import { SchemaForm } from "../form/form";
import { argumentsOf } from "../form/values";
import type { JsonObject, Preview, Problem, Prompt, Resource, Server } from "../protocol";
import { problemOf, serversOf } from "../store";
import { bytes, line, visible } from "../text";
import { useLoaded, useMay, usePanel, useSelect } from "./context";
import { ListAndDetail } from "./detail";
import { Button, ProblemBox, ServerSelect } from "./parts";
import { PreviewView } from "./preview";
import { Rows } from "./rows";

type Kind = "resources" | "prompts";

function useOffering(kind: Kind): { servers: Server[]; server: string; choose: (name: string) => void } {
  const all = useSelect((state) => state.servers);
  const servers = serversOf({ servers: all, calls: {}, questions: {} }).filter(
    (each) => each.state === "ready" && each[kind] !== null,
  );
  const [chosen, choose] = useState("");
  const server = servers.some((each) => each.name === chosen) ? chosen : (servers[0]?.name ?? "");
  return { servers, server, choose };
}

/** What was fetched last, and the way to fetch. */
function useFetched(): {
  preview: Preview | null;
  problem: Problem | null;
  busy: boolean;
  wait: (ask: Promise<Preview>) => Promise<void>;
  clear: () => void;
} {
  const [state, setState] = useState<{ preview: Preview | null; problem: Problem | null; busy: boolean }>(NOTHING);
  const wait = async (ask: Promise<Preview>): Promise<void> => {
    setState({ ...NOTHING, busy: true });
    try {
      const preview = await ask;
      setState({ ...NOTHING, preview });
    } catch (error) {
      setState({ ...NOTHING, problem: problemOf(error) });
    }
  };
  return { ...state, wait, clear: () => setState(NOTHING) };
}
const NOTHING = { preview: null, problem: null, busy: false };

/** The choice of a server, and what it lists. */
function Listed<Row>({
  label,
  offering: { servers, server, choose },
  isLoaded,
  problem,
  rows,
  chosen,
  onSelect,
  draw,
}: {
  label: string;
  offering: ReturnType<typeof useOffering>;
  isLoaded: boolean;
  problem: Problem | null;
  rows: Row[];
  chosen: Row | null;
  onSelect: (row: Row) => void;
  draw: (row: Row) => ComponentChildren;
}): JSX.Element {
  return (
    <>
      <div class="mcp-toolbar">
        <ServerSelect servers={servers} value={server} label="Server" onChange={choose} />
      </div>
      {problem && <ProblemBox problem={problem} />}
      <Rows
        count={rows.length}
        height={26}
        label={label}
        selected={chosen ? rows.indexOf(chosen) : -1}
        empty={isLoaded ? "It lists none." : ""}
        onSelect={(index) => {
          const row = rows[index];
          if (row) onSelect(row);
        }}
        draw={(index) => {
          const row = rows[index];
          return row && draw(row);
        }}
      />
    </>
  );
}

function Nothing({ what }: { what: string }): JSX.Element {
  return <p class="mcp-none">{`No server that is ready offers ${what}.`}</p>;
}

/** A resource, or a template of some. */
interface Row extends Resource {
  template: boolean;
  parameters?: { name: string; required: boolean }[];
}

export function ResourcesView(): JSX.Element {
  const offering = useOffering("resources");
  const { server } = offering;
  const version = useSelect((state) => state.servers[server]?.resources ?? 0);
  const { model } = usePanel();
  const may = useMay("read");
  const { value, problem } = useLoaded("resources", server && may ? { server } : null, `${server}\n${version}`);
  const [uri, setUri] = useState<string | null>(null);
  const fetched = useFetched();
  if (!server) return <Nothing what="resources" />;
  if (!may) return <p class="mcp-none">This panel can only look at servers, tools and logs.</p>;
  const rows: Row[] = [
    ...(value?.resources ?? []).map((each) => ({ ...each, template: false })),
    ...(value?.templates ?? []).map((each) => ({ ...each, uri: each.template, template: true })),
  ];
  const chosen = rows.find((each) => each.uri === uri) ?? null;
  const list = (
    <Listed
      label="Resources"
      {...{ offering, problem, rows, chosen }}
      isLoaded={value !== null}
      onSelect={(row) => {
        setUri(row.uri);
        fetched.clear();
        if (!row.template) void fetched.wait(model.ask("read", { server, uri: row.uri }));
      }}
      draw={(row) => (
        <>
          <span class="mcp-ellipsis" title={line(row.uri)}>
            {line(row.title ?? row.name)}
          </span>
          <span class="mcp-dim mcp-marks">{row.template ? "template" : line(row.mime ?? "")}</span>
        </>
      )}
    />
  );
  const detail = chosen && (
    <div class="mcp-tool">
      <h3>{line(chosen.title ?? chosen.name)}</h3>
      {chosen.description && <div class="mcp-prose">{visible(chosen.description)}</div>}
      {chosen.size != null && <div class="mcp-dim">{bytes(chosen.size)}</div>}
      {chosen.parameters ? (
        <Parameters
          key={chosen.uri}
          template={chosen.uri}
          parameters={chosen.parameters}
          busy={fetched.busy}
          onRead={(values) => void fetched.wait(model.ask("read", { server, template: chosen.uri, arguments: values }))}
        />
      ) : (
        <Address
          key={chosen.uri}
          uri={chosen.uri}
          busy={fetched.busy}
          onRead={(address) => void fetched.wait(model.ask("read", { server, uri: address }))}
        />
      )}
      {fetched.problem && <ProblemBox problem={fetched.problem} />}
      {fetched.preview && <PreviewView preview={fetched.preview} label={chosen.name} />}
    </div>
  );
  return (
    <ListAndDetail
      list={list}
      detail={detail}
      subject={uri ?? ""}
      hint="Choose a resource to read it."
      onBack={() => setUri(null)}
    />
  );
}

/** A field for each parameter of a template; the kernel makes the address of them. */
function Parameters(props: {
  template: string;
  parameters: { name: string; required: boolean }[];
  busy: boolean;
  onRead(values: JsonObject): void;
}): JSX.Element {
  const [schema] = useState(() => textsOf(props.parameters));
  const [form, setForm] = useState<FormState>({ value: {}, broken: false });
  const changed = useCallback((state: FormState) => setForm(state), []);
  const read = (): void => {
    if (!props.busy && !form.broken) props.onRead(argumentsOf(form.value, schema));
  };
  return (
    <>
      <code>{line(props.template)}</code>
      <SchemaForm schema={schema} errors={NO_ERRORS} onChange={changed} onSubmit={read} empty="It takes no parameters.">
        <Button primary busy={props.busy} onClick={read}>
          Read
        </Button>
      </SchemaForm>
    </>
  );
}

/** The address to read. */
function Address({ uri, busy, onRead }: { uri: string; busy: boolean; onRead(uri: string): void }): JSX.Element {
  const [typed, setTyped] = useState(uri);
  return (
    <form
      class="mcp-toolbar mcp-flush"
      onSubmit={(event) => {
        event.preventDefault();
        onRead(typed);
      }}
    >
      <input
        class="mcp-input mcp-grow"
        aria-label="Address"
        value={typed}
        spellcheck={false}
        onInput={(event) => setTyped(event.currentTarget.value)}
      />
      <Button busy={busy} onClick={() => onRead(typed)}>
        Read
      </Button>
    </form>
  );
}

/** The arguments of a prompt, and the parameters of a template, are texts, all of them. */
function textsOf(parameters: Prompt["arguments"]): JsonObject {
  const properties = parameters.map(({ name, description }) => [
    name,
    { type: "string", description: description ?? "" },
  ]);
  return {
    type: "object",
    properties: Object.fromEntries(properties) as JsonObject,
    required: parameters.filter((each) => each.required).map((each) => each.name),
  };
}

export function PromptsView(): JSX.Element {
  const offering = useOffering("prompts");
  const { server } = offering;
  const version = useSelect((state) => state.servers[server]?.prompts ?? 0);
  const may = useMay("prompt");
  const { value, problem } = useLoaded("prompts", server && may ? { server } : null, `${server}\n${version}`);
  const [name, setName] = useState<string | null>(null);
  if (!server) return <Nothing what="prompts" />;
  if (!may) return <p class="mcp-none">This panel can only look at servers, tools and logs.</p>;
  const prompts = value ?? [];
  const chosen = prompts.find((each) => each.name === name) ?? null;
  const list = (
    <Listed
      label="Prompts"
      {...{ offering, problem, rows: prompts, chosen }}
      isLoaded={value !== null}
      onSelect={(prompt) => setName(prompt.name)}
      draw={(prompt) => <span class="mcp-ellipsis">{line(prompt.title ?? prompt.name)}</span>}
    />
  );
  return (
    <ListAndDetail
      list={list}
      detail={chosen && <PromptDetail key={`${server}\n${chosen.name}`} server={server} prompt={chosen} />}
      subject={name ?? ""}
      hint="Choose a prompt to fill it in."
      onBack={() => setName(null)}
    />
  );
}

function PromptDetail({ server, prompt }: { server: string; prompt: Prompt }): JSX.Element {
  const { model } = usePanel();
  const [schema] = useState(() => textsOf(prompt.arguments));
  const [form, setForm] = useState<FormState>({ value: {}, broken: false });
  const changed = useCallback((state: FormState) => setForm(state), []);
  const fetched = useFetched();
  const get = (): void => {
    if (form.broken) return;
    const given = Object.entries(argumentsOf(form.value, schema)).map(([key, value]) => [key, String(value)]);
    void fetched.wait(
      model.ask("prompt", {
        server,
        prompt: prompt.name,
        arguments: Object.fromEntries(given) as { [key: string]: string },
      }),
    );
  };
  return (
    <div class="mcp-tool">
      <h3>{line(prompt.title ?? prompt.name)}</h3>
      {prompt.description && <div class="mcp-prose">{visible(prompt.description)}</div>}
      <SchemaForm schema={schema} errors={NO_ERRORS} onChange={changed} onSubmit={get} empty="It takes no arguments.">
        <Button primary busy={fetched.busy} onClick={get}>
          Get
        </Button>
      </SchemaForm>
      {fetched.problem && <ProblemBox problem={fetched.problem} />}
      {fetched.preview && <PreviewView preview={fetched.preview} label={prompt.name} />}
    </div>
  );
}

const NO_ERRORS: never[] = [];
