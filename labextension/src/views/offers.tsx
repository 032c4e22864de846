/** Views of resources and prompts. */

import type { JSX } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { FormState } from "../form/form";
import { SchemaForm } from "../form/form";
import { argumentsOf } from "../form/values";
import type {
  JsonObject,
  Preview,
  Problem,
  PromptRow,
  ResourceRow,
  ResourceRows,
  ResourceUpdate,
  StringParameter,
  Verbs,
} from "../protocol";
import { problemOf, serversOf, uriKey } from "../store";
import { bytes, count, singleLine } from "../text";
import { trans } from "../translation";
import { useAllowed, usePanel, useRequest, useSelect } from "./context";
import { ListAndDetail } from "./detail";
import type { Group } from "./offerlist";
import { OfferIcon } from "./emblem";
import { OfferLine, OfferList } from "./offerlist";
import { Button, ProblemBox, SubmitButton } from "./parts";
import { PreviewView } from "./preview";
import { Prose } from "./prose";

interface Props {
  /** Show only this server's rows; empty for all. */
  server: string;
  /** The control that selects tools, resources or prompts. */
  kinds: JSX.Element;
}

interface Listed<Row> {
  groups: Group<Row>[] | null;
  problems: Problem[];
}

/** The resources or prompts of the ready servers. Those of a server are listed again when they have changed. */
function useOffers<V extends "resources" | "prompts", Row>(
  verb: V,
  rowsOf: (value: Verbs[V][1], server: string) => Row[],
): Listed<Row> {
  const { model } = usePanel();
  const servers = useSelect((state) => state.servers);
  const helloCount = useSelect((state) => state.helloCount);
  const lists = useRef(new Map<string, { version: string; rows?: Row[]; problem?: Problem }>());
  const [, redraw] = useState(0);
  const offering = serversOf(servers).filter((each) => each.state === "ready" && each[verb] !== null);
  const versions = offering.map((each) => [each.name, `${helloCount} ${each[verb]} ${each.tools_version}`] as const);
  useEffect(() => {
    for (const [server, version] of versions) {
      const old = lists.current.get(server);
      if (old?.version === version) continue;
      const list = { ...old, version };
      lists.current.set(server, list);
      const finish = (found: { rows: Row[] } | { problem: Problem }): void => {
        if (lists.current.get(server) !== list) return;
        lists.current.set(server, { version, ...found });
        redraw((count) => count + 1);
      };
      model.request(verb, { server } as Verbs[V][0]).then(
        (value) => finish({ rows: rowsOf(value, server) }),
        (error: unknown) => finish({ problem: problemOf(error) }),
      );
    }
  }, [model, JSON.stringify(versions)]);
  const found = versions.map(([server]) => ({ server, ...lists.current.get(server) }));
  const groups = found.flatMap(({ server, rows }): Group<Row>[] => (rows?.length ? [[server, rows]] : []));
  return {
    groups: found.length && !found.some((each) => each.rows ?? each.problem) ? null : groups,
    problems: found.flatMap(({ problem }) => problem ?? []),
  };
}

/** The last loaded preview and a function to load one. */
function usePreview(): {
  preview: Preview | null;
  problem: Problem | null;
  busy: boolean;
  /** Show what is asked for; quietly leaves the old preview in place until then. */
  load: (ask: Promise<Preview>, quiet?: boolean) => Promise<void>;
  clear: () => void;
} {
  const [state, setState] = useState<{ preview: Preview | null; problem: Problem | null; busy: boolean }>(NO_PREVIEW);
  // A reply that comes after a newer request is not shown.
  const latest = useRef<Promise<Preview> | null>(null);
  const load = async (ask: Promise<Preview>, quiet = false): Promise<void> => {
    latest.current = ask;
    if (!quiet) setState({ ...NO_PREVIEW, busy: true });
    const loaded = await ask.then(
      (preview) => ({ ...NO_PREVIEW, preview }),
      (error: unknown) => ({ ...NO_PREVIEW, problem: problemOf(error) }),
    );
    if (latest.current === ask) setState(loaded);
  };
  const clear = (): void => {
    latest.current = null;
    setState(NO_PREVIEW);
  };
  return { ...state, load, clear };
}
const NO_PREVIEW = { preview: null, problem: null, busy: false };

function NoOffers({ kinds }: { kinds: JSX.Element }): JSX.Element {
  return (
    <>
      {kinds}
      <p class="mcp-empty">{trans.__("This panel is read-only and shows only servers, tools and logs.")}</p>
    </>
  );
}

const keyOf = ({ server, name }: { server: string; name: string }): string => `${server}\n${name}`;

/** The text of a row that is searched. */
const textOf = (row: { server: string; name: string; title?: string | null; description?: string | null }): string =>
  `${row.server} ${row.name} ${row.title ?? ""} ${row.description ?? ""}`.toLowerCase();

/** A resource or a resource template of a server. */
interface Resource extends ResourceRow {
  server: string;
  template: boolean;
  subscribable: boolean;
  parameters?: StringParameter[];
}

const resourcesOf = ({ resources, templates, subscribable = false }: ResourceRows, server: string): Resource[] => [
  ...resources.map((each) => ({ ...each, server, subscribable, template: false })),
  ...templates.map((each) => ({ ...each, server, subscribable, uri: each.template, template: true })),
];

export function ResourcesView(props: Props): JSX.Element {
  return useAllowed("read") ? <Resources {...props} /> : <NoOffers kinds={props.kinds} />;
}

function Resources({ server: shown, kinds }: Props): JSX.Element {
  const { model } = usePanel();
  const { groups, problems } = useOffers("resources", resourcesOf);
  const [key, setKey] = useState<string | null>(null);
  const fetched = usePreview();
  const subscribed = useSelect((state) => state.subscribed);
  const chosen = groups?.flatMap(([, rows]) => rows).find((each) => uriKey(each) === key) ?? null;
  const server = chosen?.server ?? "";
  const update = subscribed[key ?? ""];
  const updates = update?.updates ?? 0;
  /** The changes of each resource that were shown. */
  const seen = useRef(new Map<string, number>());
  if (key !== null) seen.current.set(key, updates);
  useEffect(() => {
    if (chosen && updates) void fetched.load(model.request("read", { server, uri: chosen.uri, again: true }), true);
  }, [updates]);
  const noteOf = (row: Resource): string => {
    const own = subscribed[uriKey(row)];
    if (!own) return row.template ? trans.__("template") : singleLine(row.mime ?? "");
    return own.updates === (seen.current.get(uriKey(row)) ?? 0) ? trans.__("subscribed") : trans.__("changed");
  };
  const list = (
    <OfferList<Resource>
      kinds={kinds}
      label={trans.__("Resources")}
      searchLabel={trans.__("Search resources")}
      groups={groups}
      server={shown}
      total={(length) => trans._n("%2 resource", "%2 resources", length, count(length))}
      empty={trans.__("No ready server has resources.")}
      problems={problems}
      textOf={(row) => `${textOf(row)} ${row.uri.toLowerCase()}`}
      keyOf={uriKey}
      hasSecondLine={({ description }) => Boolean(description)}
      draw={(row) => (
        <OfferLine
          name={row.title ?? row.name}
          title={row.uri}
          description={row.description}
          icon={<OfferIcon server={row.server} of="resources" name={row.uri} has={row.has_icon} />}
        >
          <span class="mcp-muted">{noteOf(row)}</span>
        </OfferLine>
      )}
      chosen={key}
      onChoose={(row) => {
        setKey(uriKey(row));
        fetched.clear();
        if (!row.template) void fetched.load(model.request("read", { server: row.server, uri: row.uri }));
      }}
    />
  );
  const detail = chosen && (
    <div class="mcp-tool">
      <div class="mcp-head">
        <h3>{singleLine(chosen.title ?? chosen.name)}</h3>
        {chosen.subscribable && !chosen.template && <Subscribe of={chosen} update={update} />}
      </div>
      {chosen.description && <Prose text={chosen.description} />}
      {chosen.size != null && <div class="mcp-muted">{bytes(chosen.size)}</div>}
      {chosen.parameters ? (
        <>
          <code>{singleLine(chosen.uri)}</code>
          <StringForm
            key={chosen.uri}
            parameters={chosen.parameters}
            busy={fetched.busy}
            action={trans.__("Read")}
            empty={trans.__("This template takes no parameters.")}
            of={{ server, template: chosen.uri }}
            onSubmit={(values) =>
              void fetched.load(model.request("read", { server, template: chosen.uri, arguments: values }))
            }
          />
        </>
      ) : (
        <Address
          key={chosen.uri}
          uri={chosen.uri}
          busy={fetched.busy}
          onRead={(address) => void fetched.load(model.request("read", { server, uri: address }))}
        />
      )}
      {update?.problem && <ProblemBox problem={update.problem} />}
      {fetched.problem && <ProblemBox problem={fetched.problem} />}
      {fetched.preview && <PreviewView preview={fetched.preview} label={chosen.name} />}
    </div>
  );
  return (
    <ListAndDetail
      list={list}
      detail={detail}
      subject={key ?? ""}
      hint={trans.__("Choose a resource to read it.")}
      onBack={() => setKey(null)}
    />
  );
}

/** A button that keeps a resource up to date here, or ends that. */
function Subscribe({ of, update }: { of: Resource; update?: ResourceUpdate | undefined }): JSX.Element {
  const { server, uri } = of;
  const act = useRequest();
  const [busy, setBusy] = useState(false);
  const toggle = async (): Promise<void> => {
    setBusy(true);
    await act("subscribe", { server, uri, on: !update });
    setBusy(false);
  };
  return (
    <>
      {update && (
        <span class="mcp-muted mcp-grow" role="status">
          {update.updates
            ? trans._n("changed %2 time", "changed %2 times", update.updates, count(update.updates))
            : trans.__("no change yet")}
        </span>
      )}
      <Button
        quiet
        busy={busy}
        title={trans.__("Read it again whenever the server says that it has changed")}
        onClick={() => void toggle()}
      >
        {update ? trans.__("Unsubscribe") : trans.__("Subscribe")}
      </Button>
    </>
  );
}

/** A form of strings: prompt arguments and template parameters have no other type. */
function StringForm(props: {
  parameters: StringParameter[];
  busy: boolean;
  action: string;
  empty: string;
  /** The server, and the prompt or template of the parameters. */
  of: { server: string; prompt?: string; template?: string };
  onSubmit(values: { [key: string]: string }): void;
}): JSX.Element {
  const { model } = usePanel();
  const suggest = (argument: string, typed: string, others: { [key: string]: string }): Promise<string[]> =>
    model.request("suggest", { ...props.of, argument, typed, others }).catch(() => []);

  const [schema] = useState(() => stringSchema(props.parameters));
  const [form, setForm] = useState<FormState>({ value: {}, problems: NO_ERRORS });
  const handleChange = useCallback((state: FormState) => setForm(state), []);
  const submit = (): void => {
    if (props.busy) return;
    const strings = Object.entries(argumentsOf(form.value, schema)).map(([key, value]) => [key, String(value)]);
    props.onSubmit(Object.fromEntries(strings) as { [key: string]: string });
  };
  return (
    <SchemaForm
      schema={schema}
      errors={NO_ERRORS}
      onChange={handleChange}
      onSubmit={submit}
      empty={props.empty}
      suggest={suggest}
    >
      <SubmitButton busy={props.busy}>{props.action}</SubmitButton>
    </SchemaForm>
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
        aria-label={trans.__("Address")}
        value={typed}
        spellcheck={false}
        onInput={(event) => setTyped(event.currentTarget.value)}
      />
      <Button busy={busy}>{trans.__("Read")}</Button>
    </form>
  );
}

function stringSchema(parameters: StringParameter[]): JsonObject {
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

interface Prompt extends PromptRow {
  server: string;
}

const promptsOf = (prompts: PromptRow[], server: string): Prompt[] => prompts.map((each) => ({ ...each, server }));

export function PromptsView(props: Props): JSX.Element {
  return useAllowed("prompt") ? <Prompts {...props} /> : <NoOffers kinds={props.kinds} />;
}

function Prompts({ server: shown, kinds }: Props): JSX.Element {
  const { groups, problems } = useOffers("prompts", promptsOf);
  const [key, setKey] = useState<string | null>(null);
  const chosen = groups?.flatMap(([, rows]) => rows).find((each) => keyOf(each) === key) ?? null;
  const list = (
    <OfferList<Prompt>
      kinds={kinds}
      label={trans.__("Prompts")}
      searchLabel={trans.__("Search prompts")}
      groups={groups}
      server={shown}
      total={(length) => trans._n("%2 prompt", "%2 prompts", length, count(length))}
      empty={trans.__("No ready server has prompts.")}
      problems={problems}
      textOf={textOf}
      keyOf={keyOf}
      hasSecondLine={({ description }) => Boolean(description)}
      draw={(row) => (
        <OfferLine
          name={row.title ?? row.name}
          title={row.name}
          description={row.description}
          icon={<OfferIcon server={row.server} of="prompts" name={row.name} has={row.has_icon} />}
        />
      )}
      chosen={key}
      onChoose={(row) => setKey(keyOf(row))}
    />
  );
  return (
    <ListAndDetail
      list={list}
      detail={chosen && <PromptDetail key={keyOf(chosen)} prompt={chosen} />}
      subject={key ?? ""}
      hint={trans.__("Choose a prompt to fill it in.")}
      onBack={() => setKey(null)}
    />
  );
}

function PromptDetail({ prompt }: { prompt: Prompt }): JSX.Element {
  const { server } = prompt;
  const { model } = usePanel();
  const fetched = usePreview();
  return (
    <div class="mcp-tool">
      <h3>{singleLine(prompt.title ?? prompt.name)}</h3>
      {prompt.description && <Prose text={prompt.description} />}
      <StringForm
        parameters={prompt.arguments}
        busy={fetched.busy}
        action={trans.__("Get")}
        empty={trans.__("This prompt takes no arguments.")}
        of={{ server, prompt: prompt.name }}
        onSubmit={(values) =>
          void fetched.load(model.request("prompt", { server, prompt: prompt.name, arguments: values }))
        }
      />
      {fetched.problem && <ProblemBox problem={fetched.problem} />}
      {fetched.preview && <PreviewView preview={fetched.preview} label={prompt.name} />}
    </div>
  );
}

const NO_ERRORS: never[] = [];
