/** What the kernel wants to know before something goes on. */

import type { JSX } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { FormState } from "../form/form";
import { SchemaForm } from "../form/form";
import { shown } from "../form/schema";
import { argumentsOf, defaults } from "../form/values";
import type {
  Answer,
  ApprovalAnswer,
  ApproveQuestion,
  ArgumentError,
  FillQuestion,
  Question,
  TrustQuestion,
  VisitQuestion,
  WantedCall,
} from "../protocol";
import { problemOf, questionsOf } from "../store";
import { line, visible, webAddress } from "../text";
import { problemText, useMay, usePanel, useSelect } from "./context";
import { Button, Lines } from "./parts";

/** Round questions that a cell waits for. */
export const ASKING = "mcp-asking";

/** The oldest question there is, before everything else in the panel. */
export function Questions({ prefix }: { prefix: string }): JSX.Element {
  const all = useSelect((state) => state.questions);
  const [question, ...others] = questionsOf({ questions: all, servers: {}, calls: {} });
  return (
    <>
      <span class="mcp-unseen" role="status">
        {question ? `${line(question.server)} asks: ${line(question.title)}` : ""}
      </span>
      {question && <Dialog key={question.id} question={question} more={others.length} prefix={prefix} />}
    </>
  );
}

/** Milliseconds after a question has pushed what is below it, in which a click is meant for what stood there before. */
const SETTLING = 400;

/** Gives what keeps clicks from a panel whose layout a question has just changed. */
export function useSettling(): string {
  const asked = useSelect((state) => Object.keys(state.questions).join());
  const before = useRef(asked);
  const [settling, setSettling] = useState(false);
  useLayoutEffect(() => {
    if (before.current === asked) return;
    before.current = asked;
    setSettling(true);
    const timer = setTimeout(() => setSettling(false), SETTLING);
    return () => {
      clearTimeout(timer);
      setSettling(false);
    };
  }, [asked]);
  return settling ? " mcp-settling" : "";
}

/** A user who writes is not interrupted; one whose focus rests in the panel, or whose cell waits, is led to the question.
 *
 * @returns What leads back.
 */
function lead(dialog: HTMLElement): () => void {
  const panel = dialog.closest(".ipymcp");
  const focused = document.activeElement;
  const writes = focused?.matches("input, select, textarea, [contenteditable]") ?? false;
  const waits = dialog.closest(`.${ASKING}`) !== null;
  if (waits) dialog.scrollIntoView({ block: "nearest" });
  if (!writes && (waits || panel?.contains(focused))) dialog.focus();
  return () => {
    const now = document.activeElement;
    const isLost = now === null || now === document.body || dialog.contains(now);
    if (waits && isLost && focused instanceof HTMLElement) focused.focus();
  };
}

function Dialog({ question, more, prefix }: { question: Question; more: number; prefix: string }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const may = useMay("answer");
  const [problem, setProblem] = useState("");
  const { model } = usePanel();
  useEffect(() => (box.current ? lead(box.current) : undefined), []);
  const answer = useCallback(
    async (value: Answer): Promise<unknown> => {
      try {
        setProblem("");
        return await model.ask("answer", value);
      } catch (error) {
        setProblem(problemText(problemOf(error)));
        return undefined;
      }
    },
    [model],
  );
  return (
    <div
      class="mcp-question"
      role="alertdialog"
      aria-modal={false}
      aria-labelledby={`${prefix}-question`}
      aria-describedby={`${prefix}-message`}
      tabIndex={-1}
      ref={box}
    >
      <h2 id={`${prefix}-question`}>
        {line(question.title)}
        {more > 0 && <span class="mcp-dim">{` · ${more} more after this`}</span>}
      </h2>
      <div class="mcp-prose" id={`${prefix}-message`}>
        {visible(question.message)}
      </div>
      {may ? (
        <Body question={question} answer={answer} />
      ) : (
        <p class="mcp-dim">This panel can only look: answer in the notebook.</p>
      )}
      <div role="alert" class="mcp-wrong">
        {visible(problem)}
      </div>
    </div>
  );
}

type Answering = (value: Answer) => Promise<unknown>;

function Body({ question, answer }: { question: Question; answer: Answering }): JSX.Element {
  switch (question.type) {
    case "approve":
      return <Approve question={question} answer={answer} />;
    case "trust":
      return <Trust question={question} answer={answer} />;
    case "fill":
      return <Fill question={question} answer={answer} />;
    case "visit":
      return <Visit question={question} answer={answer} />;
    default:
      return (
        <div class="mcp-actions">
          <Button onClick={() => void answer({ question: question.id, action: "cancel" })}>Cancel</Button>
        </div>
      );
  }
}

const WHO = {
  user: "You call",
  model: "A model wants to call",
  app: "An app wants to call",
  server: "A server wants your model to answer",
};
const ANSWERS: { [A in ApprovalAnswer]: string } = {
  once: "Allow once",
  answer: "Allow for the rest of this answer",
  server: "Allow all tools of the server in this notebook",
  notebook: "Allow the tool in this notebook",
  always: "Always allow the tool",
  never: "Never allow the tool",
  no: "Deny",
};

function Approve({ question, answer }: { question: ApproveQuestion; answer: Answering }): JSX.Element {
  const [longer, setLonger] = useState<ApprovalAnswer | "">("");
  const short: ApprovalAnswer[] = ["once", "no"];
  const long = question.answers.filter((each) => !short.includes(each));
  const say = (value: ApprovalAnswer): void => void answer({ question: question.id, answer: value });
  return (
    <>
      {question.calls.map((call, index) => (
        <Wanted key={index} call={call} />
      ))}
      <div class="mcp-actions">
        {short
          .filter((each) => question.answers.includes(each))
          .map((each) => (
            <Button key={each} primary={each === "once"} onClick={() => say(each)}>
              {ANSWERS[each]}
            </Button>
          ))}
        {long.length > 0 && (
          <span class="mcp-actions mcp-flush">
            <select
              class="mcp-input mcp-select"
              aria-label="Other answers"
              value={longer}
              onChange={(event) => setLonger(event.currentTarget.value as ApprovalAnswer | "")}
            >
              <option value="">other answers{"\u2026"}</option>
              {long.map((each) => (
                <option key={each} value={each}>
                  {ANSWERS[each] ?? each}
                </option>
              ))}
            </select>
            <Button disabled={longer === ""} onClick={() => longer && say(longer)}>
              Answer
            </Button>
          </span>
        )}
      </div>
    </>
  );
}

function Wanted({ call }: { call: WantedCall }): JSX.Element {
  const given = Object.entries(call.arguments);
  return (
    <div class="mcp-wanted">
      <div>
        {WHO[call.caller] ?? "Somebody wants to call"} <strong>{line(`${call.server}.${call.tool}`)}</strong>{" "}
        <span class="mcp-dim">
          {line(call.why)}
          {call.hints && `; the server says that it ${line(call.hints)}`}
        </span>
      </div>
      {call.code ? (
        <ol class="mcp-whole" aria-label="The code that would run">
          {visible(call.code)
            .split("\n")
            .map((each, number) => (
              <li key={number}>
                <code>{each}</code>
              </li>
            ))}
        </ol>
      ) : given.length ? (
        <dl class="mcp-facts">
          {given.map(([name, value]) => [
            <dt key={`${name} name`}>{line(name)}</dt>,
            <dd key={name}>
              <Given name={name} value={shown(value)} />
            </dd>,
          ])}
        </dl>
      ) : (
        <div class="mcp-dim">no arguments</div>
      )}
    </div>
  );
}

const SHORT = 200;

/** A value as a whole; a long one scrolls, also by the keyboard. */
function Given({ name, value }: { name: string; value: string }): JSX.Element {
  const text = visible(value);
  return text.length > SHORT || text.includes("\n") ? (
    <Lines label={`Argument ${line(name)}`} text={text} />
  ) : (
    <code>{text}</code>
  );
}

/** One line, as it is: a break in it is shown for what it is, and begins no other. */
const whole = (text: string): string => visible(text).replace(/\n/g, "\u23ce");

function Trust({ question, answer }: { question: TrustQuestion; answer: Answering }): JSX.Element {
  const [servers, setServers] = useState<readonly string[]>([]);
  const [secrets, setSecrets] = useState<readonly string[]>([]);
  const toggled = (all: readonly string[], name: string): string[] =>
    all.includes(name) ? all.filter((each) => each !== name) : [...all, name];
  const keyOf = (server: string, secret: string): string => JSON.stringify([server, secret]);
  const say = (agreed: readonly string[]): void => {
    const granted = secrets
      .map((each) => JSON.parse(each) as [string, string])
      .filter(([server]) => agreed.includes(server));
    void answer({ question: question.id, servers: [...agreed], secrets: granted });
  };
  return (
    <>
      {question.candidates.map((candidate) => (
        <div key={candidate.name} class="mcp-wanted">
          <label class="mcp-check">
            <input
              type="checkbox"
              checked={servers.includes(candidate.name)}
              onChange={() => setServers(toggled(servers, candidate.name))}
            />
            <span>
              Run <strong>{line(candidate.name)}</strong>
            </span>
          </label>
          <Lines label={`What ${line(candidate.name)} is`} text={candidate.lines.map(whole).join("\n")} />
          {candidate.dangers.map((danger) => (
            <p key={danger} class="mcp-warning">
              {whole(danger)}
            </p>
          ))}
          {candidate.secrets.map((secret) => (
            <label key={secret} class="mcp-check">
              <input
                type="checkbox"
                disabled={!servers.includes(candidate.name)}
                checked={secrets.includes(keyOf(candidate.name, secret))}
                onChange={() => setSecrets(toggled(secrets, keyOf(candidate.name, secret)))}
              />
              <span>
                Give it your secret <strong>{line(secret)}</strong>
              </span>
            </label>
          ))}
        </div>
      ))}
      <div class="mcp-actions">
        <Button primary disabled={!servers.length} onClick={() => say(servers)}>
          Trust what is ticked
        </Button>
        <Button onClick={() => say([])}>Trust none</Button>
      </div>
    </>
  );
}

const NO_ERRORS: ArgumentError[] = [];

function Fill({ question, answer }: { question: FillQuestion; answer: Answering }): JSX.Element {
  const [initial] = useState(() => defaults(question.schema));
  const [form, setForm] = useState<FormState>({ value: initial, broken: false });
  const [errors, setErrors] = useState(NO_ERRORS);
  const changed = useCallback((state: FormState) => setForm(state), []);
  const accept = async (): Promise<void> => {
    if (form.broken) return setErrors([{ path: [], message: "Some of it is not JSON yet." }]);
    const content = argumentsOf(form.value, question.schema);
    const value = await answer({ question: question.id, action: "accept", content });
    const found = (value as { errors?: ArgumentError[] } | null | undefined)?.errors;
    setErrors(found?.length ? found : NO_ERRORS);
  };
  const refuse = (action: "decline" | "cancel"): void => void answer({ question: question.id, action });
  return (
    <SchemaForm
      schema={question.schema}
      initial={initial}
      errors={errors}
      onChange={changed}
      onSubmit={() => void accept()}
      empty="There is nothing to fill in."
    >
      <Button primary onClick={() => void accept()}>
        Send
      </Button>
      <Button onClick={() => refuse("decline")}>Decline</Button>
      <Button quiet onClick={() => refuse("cancel")}>
        Cancel
      </Button>
    </SchemaForm>
  );
}

function Visit({ question, answer }: { question: VisitQuestion; answer: Answering }): JSX.Element {
  const { services } = usePanel();
  const address = webAddress(question.url);
  const open = (): void => {
    if (address === null) return;
    services.openExternal(address);
    void answer({ question: question.id, action: "accept" });
  };
  const refuse = (action: "decline" | "cancel"): void => void answer({ question: question.id, action });
  return (
    <>
      <p>
        It leads to <strong>{line(question.domain)}</strong>
      </p>
      <Lines label="The whole address" text={line(question.url)} />
      {address === null && <p class="mcp-warning">This is not a web address: it is not opened.</p>}
      <div class="mcp-actions">
        <Button primary disabled={address === null} onClick={open}>
          Open it
        </Button>
        <Button onClick={() => refuse("decline")}>Decline</Button>
        <Button quiet onClick={() => refuse("cancel")}>
          Cancel
        </Button>
      </div>
    </>
  );
}
