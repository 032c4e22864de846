/** Views of resources and prompts. */

import type { ComponentChildren, JSX } from "preact";
import { useCallback, useState } from "preact/hooks";
import type { FormState } from "../form/form";
import { SchemaForm } from "../form/form";
import { argumentsOf } from "../form/values";
import type { JsonObject, Preview, Problem, Prompt, Resource, Server } from "../protocol";
import { problemOf, serversOf } from "../store";
import { bytes, singleLine, visible } from "../text";
import { useLoaded, useAllowed, usePanel, useSelect } from "./context";
import { ListAndDetail } from "./detail";
import { Button, ProblemBox, ServerSelect } from "./parts";
import { PreviewView } from "./preview";
import { Rows } from "./rows";

type Kind = "resources" | "prompts";

function useServerChoice(kind: Kind): { servers: Server[]; server: string; choose: (name: string) => void } {
  const all = useSelect((state) => state.servers);
  const servers = serversOf(all).filter((each) => each.state === "ready" && each[kind] !== null);
  const [chosen, choose] = useState("");
  const server = servers.some((each) => each.name === chosen) ? chosen : (servers[0]?.name ?? "");
  return { servers, server, choose };
}

/** The last loaded preview and a function to load one. */
function usePreview(): {
  preview: Preview | null;
  problem: Problem | null;
  busy: boolean;
  load: (ask: Promise<Preview>) => Promise<void>;
  clear: () => void;
} {
  const [state, setState] = useState<{ preview: Preview | null; problem: Problem | null; busy: boolean }>(NO_PREVIEW);
  const wait = async (ask: Promise<Preview>): Promise<void> => {
    setState({ ...NO_PREVIEW, busy: true });
    try {
      const preview = await ask;
      setState({ ...NO_PREVIEW, preview });
    } catch (error) {
      setState({ ...NO_PREVIEW, problem: problemOf(error) });
    }
  };
  return { ...state, load: wait, clear: () => setState(NO_PREVIEW) };
}
const NO_PREVIEW = { preview: null, problem: null, busy: false };

/** A server dropdown and the list of what the server offers. */
function OfferList<ResourceRow>({
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
  offering: ReturnType<typeof useServerChoice>;
  isLoaded: boolean;
  problem: Problem | null;
  rows: ResourceRow[];
  chosen: ResourceRow | null;
  onSelect: (row: ResourceRow) => void;
  draw: (row: ResourceRow) => ComponentChildren;
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
        empty={isLoaded ? "This server lists none." : ""}
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

function NoServer({ what }: { what: string }): JSX.Element {
  return <p class="mcp-empty">{`No ready server offers ${what}.`}</p>;
}

/** A resource or a resource template. */
interface Row extends Resource {
  template: boolean;
  parameters?: { name: string; required: boolean }[];
}

export function ResourcesView(): JSX.Element {
  const choice = useServerChoice("resources");
  const { server } = choice;
  const version = useSelect((state) => state.servers[server]?.resources ?? 0);
  const { model } = usePanel();
  const may = useAllowed("read");
  const { value, problem } = useLoaded("resources", server && may ? { server } : null, `${server}\n${version}`);
  const [uri, setUri] = useState<string | null>(null);
  const fetched = usePreview();
  if (!server) return <NoServer what="resources" />;
  if (!may) return <p class="mcp-empty">This panel is read-only and shows only servers, tools and logs.</p>;
  const rows: Row[] = [
    ...(value?.resources ?? []).map((each) => ({ ...each, template: false })),
    ...(value?.templates ?? []).map((each) => ({ ...each, uri: each.template, template: true })),
  ];
  const chosen = rows.find((each) => each.uri === uri) ?? null;
  const list = (
    <OfferList
      label="Resources"
      {...{ offering: choice, problem, rows, chosen }}
      isLoaded={value !== null}
      onSelect={(row) => {
        setUri(row.uri);
        fetched.clear();
        if (!row.template) void fetched.load(model.request("read", { server, uri: row.uri }));
      }}
      draw={(row) => (
        <>
          <span class="mcp-ellipsis" title={singleLine(row.uri)}>
            {singleLine(row.title ?? row.name)}
          </span>
          <span class="mcp-muted mcp-row-badges">{row.template ? "template" : singleLine(row.mime ?? "")}</span>
        </>
      )}
    />
  );
  const detail = chosen && (
    <div class="mcp-tool">
      <h3>{singleLine(chosen.title ?? chosen.name)}</h3>
      {chosen.description && <div class="mcp-prose">{visible(chosen.description)}</div>}
      {chosen.size != null && <div class="mcp-muted">{bytes(chosen.size)}</div>}
      {chosen.parameters ? (
        <Parameters
          key={chosen.uri}
          template={chosen.uri}
          parameters={chosen.parameters}
          busy={fetched.busy}
          onRead={(values) =>
            void fetched.load(model.request("read", { server, template: chosen.uri, arguments: values }))
          }
        />
      ) : (
        <Address
          key={chosen.uri}
          uri={chosen.uri}
          busy={fetched.busy}
          onRead={(address) => void fetched.load(model.request("read", { server, uri: address }))}
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

/** A form for a template's parameters; the kernel expands the URI. */
function Parameters(props: {
  template: string;
  parameters: { name: string; required: boolean }[];
  busy: boolean;
  onRead(values: JsonObject): void;
}): JSX.Element {
  const [schema] = useState(() => stringSchema(props.parameters));
  const [form, setForm] = useState<FormState>({ value: {}, hasInvalidJson: false });
  const handleChange = useCallback((state: FormState) => setForm(state), []);
  const read = (): void => {
    if (!props.busy && !form.hasInvalidJson) props.onRead(argumentsOf(form.value, schema));
  };
  return (
    <>
      <code>{singleLine(props.template)}</code>
      <SchemaForm
        schema={schema}
        errors={NO_ERRORS}
        onChange={handleChange}
        onSubmit={read}
        empty="This template takes no parameters."
      >
        <Button primary busy={props.busy} onClick={read}>
          Read
        </Button>
      </SchemaForm>
    </>
  );
}

/** A text field for the URI to read. */
function Address({ uri, busy, onRead }: { uri: string; busy: boolean; onRead(uri: string): void }): JSX.Element {
  const [typed, setTyped] = useState(uri);
  return (
    <form
      class="mcp-toolbar mcp-no-padding"
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

/** Build a form schema of strings: prompt arguments and template parameters have no other type. */
function stringSchema(parameters: Prompt["arguments"]): JsonObject {
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
  const choice = useServerChoice("prompts");
  const { server } = choice;
  const version = useSelect((state) => state.servers[server]?.prompts ?? 0);
  const may = useAllowed("prompt");
  const { value, problem } = useLoaded("prompts", server && may ? { server } : null, `${server}\n${version}`);
  const [name, setName] = useState<string | null>(null);
  if (!server) return <NoServer what="prompts" />;
  if (!may) return <p class="mcp-empty">This panel is read-only and shows only servers, tools and logs.</p>;
  const prompts = value ?? [];
  const chosen = prompts.find((each) => each.name === name) ?? null;
  const list = (
    <OfferList
      label="Prompts"
      {...{ offering: choice, problem, rows: prompts, chosen }}
      isLoaded={value !== null}
      onSelect={(prompt) => setName(prompt.name)}
      draw={(prompt) => <span class="mcp-ellipsis">{singleLine(prompt.title ?? prompt.name)}</span>}
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
  const [schema] = useState(() => stringSchema(prompt.arguments));
  const [form, setForm] = useState<FormState>({ value: {}, hasInvalidJson: false });
  const handleChange = useCallback((state: FormState) => setForm(state), []);
  const fetched = usePreview();
  const get = (): void => {
    if (form.hasInvalidJson) return;
    const strings = Object.entries(argumentsOf(form.value, schema)).map(([key, value]) => [key, String(value)]);
    void fetched.load(
      model.request("prompt", {
        server,
        prompt: prompt.name,
        arguments: Object.fromEntries(strings) as { [key: string]: string },
      }),
    );
  };
  return (
    <div class="mcp-tool">
      <h3>{singleLine(prompt.title ?? prompt.name)}</h3>
      {prompt.description && <div class="mcp-prose">{visible(prompt.description)}</div>}
      <SchemaForm
        schema={schema}
        errors={NO_ERRORS}
        onChange={handleChange}
        onSubmit={get}
        empty="This prompt takes no arguments."
      >
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
