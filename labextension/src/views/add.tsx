/** Add a server: from the registry, by a command, a URL or JSON. The server is tried before it is kept. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type {
  JsonObject,
  Keep,
  Problem,
  RegistryPage,
  RegistryRow,
  StartProgress,
  Trial,
  TryFields,
} from "../protocol";
import type { Adding } from "../store";
import { problemOf } from "../store";
import { count, singleLine, visible } from "../text";
import { trans } from "../translation";
import { useLoaded, usePanel, useRequest, useUniqueId } from "./context";
import type { DefinitionKind } from "./definition";
import { DefinitionForm, kindOf, splitWords } from "./definition";
import { Button, Disclosure, Fact, Lines, ProblemBox, Tabs } from "./parts";
import { Progress } from "./starting";
import type { WellKnown } from "./wellknown";
import { wellKnown } from "./wellknown";

type Kind = Adding["kind"];
type Wanted = Pick<TryFields, "by" | "what" | "version" | "way">;

/** A definition in the form, and its number: the form begins anew with each. */
interface Begun {
  number: number;
  definition: JsonObject;
}

type Phase =
  | { step: "define"; problem: Problem | null; log: string[] }
  | { step: "try"; trial: number; what: string }
  | { step: "tried"; trial: number; outcome: Trial };

const NOTHING: JsonObject = {};
const NO_PROBLEM: Phase = { step: "define", problem: null, log: [] };

/** A counter for unique trial numbers, because the panels of a page may share a connection. */
let lastTrial = 0;

export function AddView({ adding, onClose }: { adding: Adding; onClose(): void }): JSX.Element {
  const { model } = usePanel();
  const [keep, setKeep] = useState<Keep>(adding.keep);
  const [name, setName] = useState(adding.name);
  const [kind, setKind] = useState<Kind>(adding.kind);
  const [phase, setPhase] = useState<Phase>(NO_PROBLEM);
  const [begun, setBegun] = useState<Begun>({ number: 0, definition: adding.definition });
  // What was typed in one form stays while another is looked at.
  const visited = useRef(new Set<Kind>());
  visited.current.add(kind);
  const current = useRef(0);
  const prefix = useUniqueId();
  const { replaces } = adding;
  const title = replaces ? trans.__("Edit %1", singleLine(replaces)) : trans.__("Add a server");

  const start = async (wanted: Wanted, typed: string): Promise<void> => {
    const trial = (current.current = ++lastTrial + Date.now());
    const isCurrent = (): boolean => current.current === trial;
    setPhase({ step: "try", trial, what: singleLine(typed).slice(0, 80) });
    try {
      const outcome = await model.request("try", { ...wanted, trial, keep, name, ...(replaces && { replaces }) });
      if (!isCurrent()) return;
      const { problem, log } = outcome;
      setPhase(problem ? { step: "define", problem, log } : { step: "tried", trial, outcome });
    } catch (error) {
      if (isCurrent()) setPhase({ step: "define", problem: problemOf(error), log: [] });
    }
  };
  const drop = (trial: number): void => {
    current.current = 0;
    setPhase(NO_PROBLEM);
    model.request("drop", { trial }).catch(() => undefined);
  };
  const close = (): void => {
    if (phase.step !== "define") drop(phase.trial);
    onClose();
  };
  const open = (to: Kind): void => {
    setKind(to);
    setPhase(NO_PROBLEM);
  };
  /** Fill the form in. */
  const begin = (definition: JsonObject): void => {
    setBegun({ number: begun.number + 1, definition });
    open(kindOf(definition) ?? kind);
  };
  const kinds = [
    { name: "registry" as const, title: trans.__("Search") },
    { name: "command" as const, title: trans.__("Command") },
    { name: "url" as const, title: trans.__("URL") },
    { name: "json" as const, title: trans.__("Paste JSON") },
  ];
  const where = (
    <div class="mcp-add-where">
      <Labelled label={trans.__("Save for")}>
        {(id) => (
          <select
            id={id}
            class="mcp-input"
            value={keep}
            disabled={replaces !== null}
            onChange={(event) => setKeep(event.currentTarget.value as Keep)}
          >
            <option value="me">{trans.__("All my notebooks")}</option>
            <option value="notebook">{trans.__("This notebook")}</option>
            <option value="project">{trans.__("This project (mcp.json)")}</option>
          </select>
        )}
      </Labelled>
      {!replaces && (
        <Labelled label={trans.__("Name")}>
          {(id) => (
            <input
              id={id}
              class="mcp-input"
              value={name}
              placeholder={trans.__("Optional")}
              onInput={(event) => setName(event.currentTarget.value)}
            />
          )}
        </Labelled>
      )}
    </div>
  );
  const isFields = kind === "command" || kind === "url";
  const problem = phase.step === "define" ? phase.problem : null;
  const submit = <Button primary>{problem ? trans.__("Try again") : trans.__("Start and test")}</Button>;
  const fields = (of: DefinitionKind): JSX.Element => (
    <DefinitionForm
      key={begun.number}
      kind={of}
      initial={kindOf(begun.definition) === of ? begun.definition : NOTHING}
      problem={problem}
      where={
        <>
          {of === "command" && <p class="mcp-muted">{runsIn()[keep]}</p>}
          {where}
        </>
      }
      submit={submit}
      onTry={(wanted, typed) => void start(wanted, replaces ?? typed)}
      onPaste={(pasted) => {
        if (!name && pasted.name) setName(pasted.name);
        begin(pasted.definition);
      }}
    />
  );
  const form: { [K in Kind]: () => JSX.Element } = {
    registry: () => (
      <Search
        where={where}
        onTry={(wanted) => void start(wanted, wanted.what)}
        onChoose={({ what }) => {
          const [command = "", ...args] = splitWords(what) ?? [];
          begin(what.startsWith("https:") ? { url: what } : { command, args });
        }}
      />
    ),
    command: () => fields("command"),
    url: () => fields("url"),
    json: () => (
      <Typed
        where={where}
        submit={submit}
        onTry={(what) => void start({ by: "json", what }, name || trans.__("the server"))}
      />
    ),
  };
  const root = useRef<HTMLDivElement>(null);
  // The view may be drawn only after the command that opens it has searched for a field to focus.
  useEffect(() => root.current?.querySelector<HTMLElement>("[type=search], [data-path] textarea")?.focus(), []);
  return (
    <div
      ref={root}
      class="mcp-view"
      onKeyDown={(event) => event.key === "Escape" && phase.step === "define" && close()}
    >
      <div class="mcp-toolbar">
        <h2 class="mcp-add-title">{title}</h2>
        <span class="mcp-spacer" />
        <Button onClick={close}>{trans.__("Close")}</Button>
      </div>
      <div class="mcp-scroll">
        {phase.step === "try" && (
          <div class="mcp-add-form" role="status">
            <p>{trans.__("Starting %1\u2026", phase.what)}</p>
            <TrialProgress trial={phase.trial} />
            <div class="mcp-actions">
              <Button onClick={() => drop(phase.trial)}>{trans.__("Cancel")}</Button>
            </div>
          </div>
        )}
        <div hidden={phase.step === "tried"} inert={phase.step === "try"}>
          {!replaces && (
            <Tabs names={kinds} now={kind} onChange={open} prefix={prefix} label={trans.__("Ways to add a server")} />
          )}
          {problem && !(problem.key && isFields) && (
            <div role="alert">
              <ProblemBox problem={problem} />
            </div>
          )}
          {phase.step === "define" && phase.log.length > 0 && (
            <div class="mcp-add-form">
              <Disclosure title={trans.__("Log")}>
                {() => <Lines label={trans.__("Log")} text={visible(phase.log.join("\n"))} />}
              </Disclosure>
            </div>
          )}
          {kinds.map((each) => (
            <div
              key={each.name}
              role={replaces ? undefined : "tabpanel"}
              id={`${prefix}-${each.name}`}
              aria-labelledby={replaces ? undefined : `${prefix}-tab-${each.name}`}
              hidden={each.name !== kind}
            >
              {visited.current.has(each.name) && form[each.name]()}
            </div>
          ))}
        </div>
        {phase.step === "tried" && (
          <TrialOutcome
            outcome={phase.outcome}
            trial={phase.trial}
            isTemporary={keep === "notebook"}
            onBack={() => drop(phase.trial)}
            onKept={() => {
              current.current = 0;
              onClose();
            }}
          />
        )}
      </div>
    </div>
  );
}

/** Where a command runs, by where its definition is kept. */
const runsIn = (): { [K in Keep]: string } => ({
  me: trans.__("It runs in a folder of its own, or in this notebook's folder if it names a file there."),
  notebook: trans.__("It runs in this notebook's folder."),
  project: trans.__("It runs in the project's folder, or in this notebook's folder if it names a file there."),
});

/** Milliseconds between two questions about how a start goes. */
const PROGRESS_INTERVAL = 1000;

/** The progress of the server's start. */
function TrialProgress({ trial }: { trial: number }): JSX.Element | null {
  const { model } = usePanel();
  const [starting, setStarting] = useState<StartProgress | null>(null);
  useEffect(() => {
    const ask = (): void => void model.request("trial_progress", { trial }).then(setStarting, () => undefined);
    ask();
    const timer = setInterval(ask, PROGRESS_INTERVAL);
    return () => clearInterval(timer);
  }, [trial]);
  return starting && <Progress starting={starting} />;
}

function Labelled({ label, children }: { label: string; children: (id: string) => ComponentChildren }): JSX.Element {
  const id = useUniqueId();
  return (
    <div class="mcp-add-field">
      <label for={id}>{label}</label>
      {children(id)}
    </div>
  );
}

interface TypedProps {
  /** The fields for the place and the name. */
  where: JSX.Element;
  submit: JSX.Element;
  onTry(text: string): void;
}

function Typed({ where, submit, onTry }: TypedProps): JSX.Element {
  const [text, setText] = useState("");
  return (
    <form
      class="mcp-add-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim()) onTry(text);
      }}
    >
      <Labelled label={trans.__("Definition as JSON")}>
        {(id) => (
          <textarea
            id={id}
            class="mcp-input mcp-code"
            required
            rows={8}
            spellcheck={false}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        )}
      </Labelled>
      <p class="mcp-muted">
        {trans.__("JSON or TOML of any program; also a command such as claude mcp add …, or an install link")}
      </p>
      {where}
      <div class="mcp-actions">{submit}</div>
    </form>
  );
}

interface WantedProps {
  /** The fields for the place and the name. */
  where: JSX.Element;
  onTry(wanted: Wanted): void;
}

// -- the registry

function Search({ where, onTry, onChoose }: WantedProps & { onChoose(known: WellKnown): void }): JSX.Element {
  const { model } = usePanel();
  const [words, setWords] = useState("");
  const [page, setPage] = useState<RegistryPage | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const [asked, setAsked] = useState("");
  const registry = useLoaded("registry", {}, "registry").value;
  const search = async (text: string, before: RegistryPage | null): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      const found = await model.request("search", { words: text, cursor: before?.cursor ?? "" });
      setPage({ ...found, entries: [...(before?.entries ?? []), ...found.entries] });
      setAsked(text);
    } catch (error) {
      if (!before) setPage(null);
      setProblem(problemOf(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <form
        class="mcp-add-form mcp-add-search"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          void search(words, null);
        }}
      >
        <input
          type="search"
          class="mcp-input"
          aria-label={trans.__("Search the MCP registry")}
          placeholder={trans.__("Search the MCP registry")}
          value={words}
          onInput={(event) => setWords(event.currentTarget.value)}
        />
        <Button busy={busy}>{trans.__("Search")}</Button>
      </form>
      <div role="status" class="mcp-add-notes mcp-muted">
        {busy && <p>{trans.__("Searching\u2026")}</p>}
        {!busy && !page && registry && (
          <p>{trans.__("Searches names, titles and descriptions in the MCP registry at %1.", singleLine(registry))}</p>
        )}
        {!busy && page && !page.entries.length && <p>{trans.__("No such server in %1.", singleLine(page.registry))}</p>}
        {page?.notes.map((note) => (
          <p key={note}>{singleLine(note)}</p>
        ))}
      </div>
      {problem && <ProblemBox problem={problem} />}
      {!busy && !page && (
        <ul aria-label={trans.__("Well-known servers")}>
          {wellKnown().map((known) => (
            <li key={known.title} class="mcp-card">
              <button type="button" class="mcp-caret mcp-add-entry" onClick={() => onChoose(known)}>
                <strong>{known.title}</strong>
              </button>
              <p class="mcp-add-description mcp-muted">{known.about}</p>
            </li>
          ))}
        </ul>
      )}
      {page && (
        <ul aria-label={trans.__("Servers of the registry")}>
          {page.entries.map((entry) => (
            <li key={entry.name}>
              <Entry entry={entry} where={where} onTry={onTry} />
            </li>
          ))}
        </ul>
      )}
      {page?.cursor && (
        <div class="mcp-actions">
          <Button busy={busy} onClick={() => void search(asked, page)}>
            {trans.__("More")}
          </Button>
        </div>
      )}
    </>
  );
}

function Entry({ entry, where, onTry }: WantedProps & { entry: RegistryRow }): JSX.Element {
  const [open, setOpen] = useState(false);
  const ready = entry.ways.findIndex((way) => way.problem === null);
  const [way, setWay] = useState(Math.max(0, ready));
  const id = useUniqueId();
  const chosen = entry.ways[way];
  return (
    <div class="mcp-card">
      <button
        type="button"
        class="mcp-caret mcp-add-entry"
        aria-expanded={open}
        aria-controls={id}
        onClick={() => setOpen(!open)}
      >
        <span class="mcp-ellipsis">
          <strong>{singleLine(entry.title)}</strong> <span class="mcp-muted">{singleLine(entry.version)}</span>
        </span>
        {entry.status && <span class="mcp-badge mcp-badge-danger">{singleLine(entry.status.split(":")[0] ?? "")}</span>}
      </button>
      <p class="mcp-add-description mcp-muted">
        {[entry.publisher, entry.description].map(singleLine).filter(Boolean).join(" \u00b7 ")}
      </p>
      <div id={id} hidden={!open}>
        {open && (
          <div class="mcp-details">
            <dl class="mcp-facts">
              <Fact name={trans.__("Name")}>{singleLine(entry.name)}</Fact>
              <Fact name={trans.__("Publisher")}>
                {entry.is_verified
                  ? singleLine(entry.publisher)
                  : trans.__("%1 (not verified)", singleLine(entry.publisher))}
              </Fact>
              {entry.status && <Fact name={trans.__("Status")}>{singleLine(entry.status)}</Fact>}
              {entry.website && <Fact name={trans.__("Source")}>{singleLine(entry.website)}</Fact>}
              {chosen?.runs && (
                <Fact name={/^https?:/.test(chosen.runs) ? trans.__("URL") : trans.__("Command")}>
                  <code>{singleLine(chosen.runs)}</code>
                </Fact>
              )}
              {chosen && chosen.inputs.length > 0 && (
                <Fact name={trans.__("Asks for")}>{singleLine(chosen.inputs.join(", "))}</Fact>
              )}
            </dl>
            {chosen?.problem && <p class="mcp-warning">{visible(chosen.problem)}</p>}
            {!chosen && <p class="mcp-warning">{trans.__("It lists neither a package nor an address.")}</p>}
            {where}
            <div class="mcp-actions">
              {entry.ways.length > 1 && (
                <select
                  class="mcp-input"
                  aria-label={trans.__("How to run %1", singleLine(entry.title))}
                  value={way}
                  onChange={(event) => setWay(Number(event.currentTarget.value))}
                >
                  {entry.ways.map((each, index) => (
                    <option key={index} value={index}>
                      {singleLine(each.label)}
                    </option>
                  ))}
                </select>
              )}
              <Button
                primary
                disabled={entry.is_deleted || !chosen || chosen.problem !== null}
                label={trans.__("Try %1", singleLine(entry.title))}
                onClick={() => onTry({ by: "registry", what: entry.name, version: entry.version, way })}
              >
                {trans.__("Start and test")}
              </Button>
            </div>
          </div>
        )}
      </div>
    </div>
  );
}

// -- the outcome

interface TrialOutcomeProps {
  outcome: Trial;
  trial: number;
  /** Whether the server is kept only until the kernel ends. */
  isTemporary: boolean;
  onBack(): void;
  onKept(): void;
}

function TrialOutcome({ outcome, trial, isTemporary, onBack, onKept }: TrialOutcomeProps): JSX.Element {
  const { model, services } = usePanel();
  const act = useRequest();
  const [inserts, setInserts] = useState(true);
  const [busy, setBusy] = useState(false);
  const name = singleLine(outcome.name);
  const total = outcome.tools.length + outcome.more_tools;
  const save = async (): Promise<void> => {
    setBusy(true);
    const added = await act("keep", { trial });
    setBusy(false);
    if (!added) return;
    const where = inserts ? await services.insertCode(added.cell, "mcp").catch(() => null) : null;
    const copied = where === "copied" ? ` ${trans.__("Its cell was copied: paste it into a cell.")}` : "";
    model.notify(trans.__("%1 was added.", singleLine(added.name)) + copied);
    onKept();
  };
  return (
    <div class="mcp-add-form">
      {outcome.notes.map((note) => (
        <p key={note} class="mcp-warning">
          {singleLine(note)}
        </p>
      ))}
      <p role="status">
        {trans._n("%2 has started: %3 tool.", "%2 has started: %3 tools.", total, name, count(total))}
      </p>
      <dl class="mcp-facts">
        <Fact name={outcome.folder ? trans.__("Command") : trans.__("URL")}>
          <code>{singleLine(outcome.runs)}</code>
        </Fact>
        {outcome.folder && <Fact name={trans.__("Folder")}>{singleLine(outcome.folder)}</Fact>}
        {outcome.python && (
          <Fact name={trans.__("In Python")}>
            <code>{outcome.python}</code>
          </Fact>
        )}
      </dl>
      <ul class="mcp-add-tools" aria-label={trans.__("Tools of %1", name)} tabIndex={0}>
        {outcome.tools.map((tool) => (
          <li key={tool.name}>
            <strong>{singleLine(tool.name)}</strong> <span class="mcp-muted">{singleLine(tool.description ?? "")}</span>
          </li>
        ))}
        {outcome.more_tools > 0 && <li class="mcp-muted">{trans.__("and %1 more", count(outcome.more_tools))}</li>}
      </ul>
      <label class="mcp-check">
        <input type="checkbox" checked={inserts} onChange={() => setInserts(!inserts)} />
        <span>{trans.__("Also insert the cell that loads it")}</span>
      </label>
      <div class="mcp-actions">
        <Button primary busy={busy} onClick={() => void save()}>
          {trans.__("Save")}
        </Button>
        <Button onClick={onBack}>{trans.__("Cancel")}</Button>
      </div>
      <p class={isTemporary && !inserts ? "mcp-warning" : "mcp-muted"}>
        {!isTemporary
          ? trans.__("Will be saved in %1", singleLine(outcome.place))
          : inserts
            ? trans.__("Lasts until the kernel stops. The cell loads it next time.")
            : trans.__("Lasts only until the kernel stops.")}
      </p>
    </div>
  );
}
