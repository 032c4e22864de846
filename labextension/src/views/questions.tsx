/** Questions from the kernel: approvals, trust, forms and links. */

import type { JSX } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { FormState } from "../form/form";
import { SchemaForm } from "../form/form";
import { valueText } from "../form/schema";
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
import { singleLine, visible, webAddress } from "../text";
import { problemText, useAllowed, usePanel, useSelect } from "./context";
import { Button, Lines } from "./parts";

/** Class of a question form below a waiting cell. */
export const CELL_FORM_CLASS = "mcp-cell-form";

/** The oldest open question, above the rest of the panel. */
export function Questions({ prefix }: { prefix: string }): JSX.Element {
  const all = useSelect((state) => state.questions);
  const [question, ...others] = questionsOf(all);
  return (
    <>
      <span class="mcp-visually-hidden" role="status">
        {question ? `${singleLine(question.server)} asks: ${singleLine(question.title)}` : ""}
      </span>
      {question && <Dialog key={question.id} question={question} more={others.length} prefix={prefix} />}
    </>
  );
}

/** Milliseconds after a question moves the layout during which clicks are ignored. */
const CLICK_GUARD = 400;

/** Return a class that ignores clicks just after a question moved the panel's layout. */
export function useClickGuard(): string {
  const asked = useSelect((state) => Object.keys(state.questions).join());
  const before = useRef(asked);
  const [settling, setSettling] = useState(false);
  useLayoutEffect(() => {
    if (before.current === asked) return;
    before.current = asked;
    setSettling(true);
    const timer = setTimeout(() => setSettling(false), CLICK_GUARD);
    return () => {
      clearTimeout(timer);
      setSettling(false);
    };
  }, [asked]);
  return settling ? " mcp-click-guard" : "";
}

/** Focus a new question if its cell waits or the panel has the focus, but never while the user is typing.
 *
 * @returns A function that restores the focus.
 */
function focusQuestion(dialog: HTMLElement): () => void {
  const panel = dialog.closest(".ipymcp");
  const focused = document.activeElement;
  const isTyping = focused?.matches("input, select, textarea, [contenteditable]") ?? false;
  const isCellForm = dialog.closest(`.${CELL_FORM_CLASS}`) !== null;
  if (isCellForm) dialog.scrollIntoView({ block: "nearest" });
  if (!isTyping && (isCellForm || panel?.contains(focused))) dialog.focus();
  return () => {
    const now = document.activeElement;
    const isLost = now === null || now === document.body || dialog.contains(now);
    if (isCellForm && isLost && focused instanceof HTMLElement) focused.focus();
  };
}

function Dialog({ question, more, prefix }: { question: Question; more: number; prefix: string }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const may = useAllowed("answer");
  const [problem, setProblem] = useState("");
  const { model } = usePanel();
  useEffect(() => (box.current ? focusQuestion(box.current) : undefined), []);
  const answer = useCallback(
    async (value: Answer): Promise<unknown> => {
      try {
        setProblem("");
        return await model.request("answer", value);
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
        {singleLine(question.title)}
        {more > 0 && <span class="mcp-muted">{` · ${more} more after this`}</span>}
      </h2>
      <div class="mcp-prose" id={`${prefix}-message`}>
        {visible(question.message)}
      </div>
      {may ? (
        <Body question={question} answer={answer} />
      ) : (
        <p class="mcp-muted">This panel is read-only: answer in the notebook.</p>
      )}
      <div role="alert" class="mcp-field-error">
        {visible(problem)}
      </div>
    </div>
  );
}

type SendAnswer = (value: Answer) => Promise<unknown>;

function Body({ question, answer }: { question: Question; answer: SendAnswer }): JSX.Element {
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

const CALLER_PHRASES = {
  user: "You call",
  model: "A model wants to call",
  app: "An app wants to call",
  server: "A server wants your model to answer",
};
const ANSWER_LABELS: { [A in ApprovalAnswer]: string } = {
  once: "Allow once",
  answer: "Allow for the rest of this answer",
  server: "Allow all tools of the server in this notebook",
  notebook: "Allow the tool in this notebook",
  always: "Always allow the tool",
  never: "Never allow the tool",
  no: "Deny",
};

function Approve({ question, answer }: { question: ApproveQuestion; answer: SendAnswer }): JSX.Element {
  const [longer, setLonger] = useState<ApprovalAnswer | "">("");
  const short: ApprovalAnswer[] = ["once", "no"];
  const long = question.answers.filter((each) => !short.includes(each));
  const send = (value: ApprovalAnswer): void => void answer({ question: question.id, answer: value });
  return (
    <>
      {question.calls.map((call, index) => (
        <CallRequest key={index} call={call} />
      ))}
      <div class="mcp-actions">
        {short
          .filter((each) => question.answers.includes(each))
          .map((each) => (
            <Button key={each} primary={each === "once"} onClick={() => send(each)}>
              {ANSWER_LABELS[each]}
            </Button>
          ))}
        {long.length > 0 && (
          <span class="mcp-actions mcp-no-padding">
            <select
              class="mcp-input mcp-select"
              aria-label="Other answers"
              value={longer}
              onChange={(event) => setLonger(event.currentTarget.value as ApprovalAnswer | "")}
            >
              <option value="">other answers{"\u2026"}</option>
              {long.map((each) => (
                <option key={each} value={each}>
                  {ANSWER_LABELS[each] ?? each}
                </option>
              ))}
            </select>
            <Button disabled={longer === ""} onClick={() => longer && send(longer)}>
              Answer
            </Button>
          </span>
        )}
      </div>
    </>
  );
}

function CallRequest({ call }: { call: WantedCall }): JSX.Element {
  const given = Object.entries(call.arguments);
  return (
    <div class="mcp-call-request">
      <div>
        {CALLER_PHRASES[call.caller] ?? "Someone wants to call"}{" "}
        <strong>{singleLine(`${call.server}.${call.tool}`)}</strong>{" "}
        <span class="mcp-muted">
          {singleLine(call.why)}
          {call.hints && `; the server says that it ${singleLine(call.hints)}`}
        </span>
      </div>
      {call.code ? (
        <ol class="mcp-code-lines" aria-label="The code that would run">
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
            <dt key={`${name} name`}>{singleLine(name)}</dt>,
            <dd key={name}>
              <ArgumentValue name={name} value={valueText(value)} />
            </dd>,
          ])}
        </dl>
      ) : (
        <div class="mcp-muted">no arguments</div>
      )}
    </div>
  );
}

const MAX_INLINE = 200;

/** An argument's full value; long values scroll and are keyboard-accessible. */
function ArgumentValue({ name, value }: { name: string; value: string }): JSX.Element {
  const text = visible(value);
  return text.length > MAX_INLINE || text.includes("\n") ? (
    <Lines label={`Argument ${singleLine(name)}`} text={text} />
  ) : (
    <code>{text}</code>
  );
}

/** Show line breaks as symbols, so that one line cannot pose as several. */
const withVisibleBreaks = (text: string): string => visible(text).replace(/\n/g, "\u23ce");

function Trust({ question, answer }: { question: TrustQuestion; answer: SendAnswer }): JSX.Element {
  const [servers, setServers] = useState<readonly string[]>([]);
  const [secrets, setSecrets] = useState<readonly string[]>([]);
  const toggled = (all: readonly string[], name: string): string[] =>
    all.includes(name) ? all.filter((each) => each !== name) : [...all, name];
  const keyOf = (server: string, secret: string): string => JSON.stringify([server, secret]);
  const send = (agreed: readonly string[]): void => {
    const granted = secrets
      .map((each) => JSON.parse(each) as [string, string])
      .filter(([server]) => agreed.includes(server));
    void answer({ question: question.id, servers: [...agreed], secrets: granted });
  };
  return (
    <>
      {question.candidates.map((candidate) => (
        <div key={candidate.name} class="mcp-call-request">
          <label class="mcp-check">
            <input
              type="checkbox"
              checked={servers.includes(candidate.name)}
              onChange={() => setServers(toggled(servers, candidate.name))}
            />
            <span>
              Run <strong>{singleLine(candidate.name)}</strong>
            </span>
          </label>
          <Lines
            label={`What ${singleLine(candidate.name)} is`}
            text={candidate.lines.map(withVisibleBreaks).join("\n")}
          />
          {candidate.dangers.map((danger) => (
            <p key={danger} class="mcp-warning">
              {withVisibleBreaks(danger)}
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
                Give it your secret <strong>{singleLine(secret)}</strong>
              </span>
            </label>
          ))}
        </div>
      ))}
      <div class="mcp-actions">
        <Button primary disabled={!servers.length} onClick={() => send(servers)}>
          Trust selected
        </Button>
        <Button onClick={() => send([])}>Trust none</Button>
      </div>
    </>
  );
}

const NO_ERRORS: ArgumentError[] = [];

function Fill({ question, answer }: { question: FillQuestion; answer: SendAnswer }): JSX.Element {
  const [initial] = useState(() => defaults(question.schema));
  const [form, setForm] = useState<FormState>({ value: initial, hasInvalidJson: false });
  const [errors, setErrors] = useState(NO_ERRORS);
  const handleChange = useCallback((state: FormState) => setForm(state), []);
  const accept = async (): Promise<void> => {
    if (form.hasInvalidJson) return setErrors([{ path: [], message: "Some fields contain invalid JSON." }]);
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
      onChange={handleChange}
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

function Visit({ question, answer }: { question: VisitQuestion; answer: SendAnswer }): JSX.Element {
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
        This link leads to <strong>{singleLine(question.domain)}</strong>
      </p>
      <Lines label="Full address" text={singleLine(question.url)} />
      {address === null && <p class="mcp-warning">This is not a web address, so it cannot be opened.</p>}
      <div class="mcp-actions">
        <Button primary disabled={address === null} onClick={open}>
          Open link
        </Button>
        <Button onClick={() => refuse("decline")}>Decline</Button>
        <Button quiet onClick={() => refuse("cancel")}>
          Cancel
        </Button>
      </div>
    </>
  );
}
