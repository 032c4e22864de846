/** Questions from the kernel: approvals, trust, forms and links. */

import type { ComponentChildren, JSX } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { FormState } from "../form/form";
import { SchemaForm } from "../form/form";
import { valueText } from "../form/schema";
import type { Value } from "../form/values";
import { argumentsOf, defaults } from "../form/values";
import type {
  AnswerFields,
  ApprovalAnswer,
  ApprovalPage,
  FieldError,
  FormPage,
  JsonObject,
  QuestionHead,
  QuestionRow,
  TrustPage,
  LinkPage,
  WantedCall,
} from "../protocol";
import { problemOf, questionsOf } from "../store";
import { count, singleLine, visible, webAddress } from "../text";
import { trans } from "../translation";
import { problemText, useAllowed, usePanel, useSelect } from "./context";
import { Emblem } from "./emblem";
import { MenuButton } from "./menu";
import { Button, Lines, SubmitButton } from "./parts";

/** Class of a question form below a waiting cell. */
export const CELL_FORM_CLASS = "mcp-cell-form";

/** The oldest open question, above the rest of the panel. */
export function Questions({ prefix }: { prefix: string }): JSX.Element {
  const all = useSelect((state) => state.questions);
  const [question, ...others] = questionsOf(all);
  return (
    <>
      <span class="mcp-visually-hidden" role="status">
        {question ? trans.__("A question: %1", headingOf(question)) : ""}
      </span>
      {question && <Dialog key={question.id} question={question} more={others.length} prefix={prefix} />}
    </>
  );
}

/** The heading of a question. For a single call it is a sentence with the caller and the tool. */
function headingOf(question: QuestionRow): string {
  const calls = question.type === "approve" ? question.calls : [];
  const [call, ...others] = calls;
  if (!call) return singleLine(question.title);
  const total = calls.reduce((sum, each) => sum + (each.count ?? 1), 0);
  return others.length ? trans.__("%1 calls need your consent", count(total)) : sentenceOf(call);
}

/** Milliseconds after a question moves the layout during which clicks are ignored. */
const CLICK_GUARD = 400;

/** Return a class that ignores clicks just after a question moved the panel's layout. */
export function useClickGuard(): string {
  const asked = useSelect((state) => Object.keys(state.questions).join());
  const before = useRef(asked);
  const [isGuarding, setGuarding] = useState(false);
  useLayoutEffect(() => {
    if (before.current === asked) return;
    before.current = asked;
    setGuarding(true);
    const timer = setTimeout(() => setGuarding(false), CLICK_GUARD);
    return () => {
      clearTimeout(timer);
      setGuarding(false);
    };
  }, [asked]);
  return isGuarding ? " mcp-click-guard" : "";
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

function Dialog({ question, more, prefix }: { question: QuestionRow; more: number; prefix: string }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const may = useAllowed("answer");
  const [problem, setProblem] = useState("");
  const { model } = usePanel();
  useEffect(() => (box.current ? focusQuestion(box.current) : undefined), []);
  const answer = useCallback(
    async (value: AnswerFields): Promise<unknown> => {
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
        {question.server && question.type !== "trust" && <Emblem server={question.server} />}
        {headingOf(question)}
        {more > 0 && <span class="mcp-muted">{` · ${trans.__("%1 more after this", more)}`}</span>}
      </h2>
      <div class="mcp-prose" id={`${prefix}-message`} hidden={!question.message}>
        {visible(question.message)}
      </div>
      {may ? (
        <Body question={question} answer={answer} />
      ) : (
        <p class="mcp-muted">{trans.__("This panel is read-only: answer in the notebook.")}</p>
      )}
      <div role="alert" class="mcp-field-error">
        {visible(problem)}
      </div>
    </div>
  );
}

type SendAnswer = (value: AnswerFields) => Promise<unknown>;

function Body({ question, answer }: { question: QuestionRow; answer: SendAnswer }): JSX.Element {
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
          <Button onClick={() => void answer({ question: question.id, action: "cancel" })}>{trans.__("Cancel")}</Button>
        </div>
      );
  }
}

/** A sentence with the caller and the tool of a call, worded as in the kernel's prompts. */
function sentenceOf({ caller, server, tool, code, count: times = 1 }: WantedCall): string {
  const one = singleLine(`${server}.${tool}`);
  const repeated = times ? trans.__("%1 %2 times", one, count(times)) : trans.__("%1 for every row", one);
  const name = times === 1 ? one : repeated;
  switch (caller) {
    case "server":
      return trans.__("The server %1 wants to use your model", singleLine(server));
    case "app":
      return trans.__("An app wants to run %1", name);
    case "user":
      return trans.__("Run %1?", name);
    default:
      return code && tool === "run_python"
        ? trans.__("The model wants to run code in this notebook")
        : trans.__("The model wants to run %1", name);
  }
}

const answerLabels = (): { [A in ApprovalAnswer]: string } => ({
  once: trans.__("Allow once"),
  answer: trans.__("Allow for the rest of this answer"),
  server: trans.__("Allow all tools of the server in this notebook"),
  notebook: trans.__("Allow the tool in this notebook"),
  always: trans.__("Always allow the tool"),
  never: trans.__("Never allow the tool"),
  no: trans.__("Deny"),
});

function Approve({ question, answer }: { question: QuestionHead & ApprovalPage; answer: SendAnswer }): JSX.Element {
  const { calls, answers } = question;
  const [isEditing, setEditing] = useState(false);
  const [call] = calls;
  const schema = calls.length === 1 ? call?.schema : null;
  if (isEditing && call && schema) {
    return (
      <AnswerForm
        schema={schema}
        initial={call.arguments}
        fields={{ question: question.id, answer: "once" }}
        answer={answer}
        submit={trans.__("Allow once with these arguments")}
        empty={trans.__("No arguments")}
      >
        <Button quiet onClick={() => setEditing(false)}>
          {trans.__("Back")}
        </Button>
      </AnswerForm>
    );
  }
  const choose = {
    offered: answers,
    send: (value: ApprovalAnswer) => void answer({ question: question.id, answer: value }),
  };
  return (
    <>
      {calls.map((call, index) => (
        <CallRequest key={index} call={call} isOneOfSeveral={calls.length > 1} />
      ))}
      <div class="mcp-actions">
        <AnswerButton first="once" others={["answer", "notebook", "server", "always"]} primary {...choose} />
        <AnswerButton first="no" others={["never"]} {...choose} />
        {schema && (
          <Button quiet onClick={() => setEditing(true)}>
            {trans.__("Edit arguments")}
          </Button>
        )}
      </div>
    </>
  );
}

const NO_ERRORS: FieldError[] = [];

interface AnswerFormProps {
  schema: JsonObject;
  initial: Value;
  /** The answer that the form's values complete. */
  fields: AnswerFields;
  answer: SendAnswer;
  submit: string;
  empty: string;
  /** Other answers. */
  children: ComponentChildren;
}

/** A form for an answer with values, which the kernel validates. */
function AnswerForm({ schema, initial, fields, answer, submit, empty, children }: AnswerFormProps): JSX.Element {
  const [form, setForm] = useState<FormState>({ value: initial, problems: NO_ERRORS });
  const [errors, setErrors] = useState(NO_ERRORS);
  const handleChange = useCallback((state: FormState) => setForm(state), []);
  const send = async (): Promise<void> => {
    if (form.problems.length) return setErrors(form.problems);
    const value = await answer({ ...fields, content: argumentsOf(form.value, schema) });
    const found = (value as { errors?: FieldError[] } | null | undefined)?.errors;
    setErrors(found?.length ? found : NO_ERRORS);
  };
  return (
    <SchemaForm
      schema={schema}
      initial={initial}
      errors={errors}
      onChange={handleChange}
      onSubmit={() => void send()}
      empty={empty}
    >
      <SubmitButton>{submit}</SubmitButton>
      {children}
    </SchemaForm>
  );
}

/** Buttons that give no answer. Only a server's own question can be declined without giving up what it is for. */
function Refusals(props: { question: QuestionHead; answer: SendAnswer; mayDecline: boolean }): JSX.Element {
  const { question, answer, mayDecline } = props;
  const refuse = (action: "decline" | "cancel"): void => void answer({ question: question.id, action });
  return (
    <>
      {mayDecline && <Button onClick={() => refuse("decline")}>{trans.__("Decline")}</Button>}
      <Button quiet onClick={() => refuse("cancel")}>
        {trans.__("Cancel")}
      </Button>
    </>
  );
}

/** A button for the usual answer, with a menu of answers that are valid for longer. */
function AnswerButton({
  first,
  others,
  offered,
  primary,
  send,
}: {
  first: ApprovalAnswer;
  others: readonly ApprovalAnswer[];
  offered: readonly ApprovalAnswer[];
  primary?: boolean;
  send(answer: ApprovalAnswer): void;
}): JSX.Element {
  const labels = answerLabels();
  const items = others
    .filter((each) => offered.includes(each))
    .map((each) => ({ label: labels[each], onChoose: () => send(each) }));
  return (
    <span class="mcp-split">
      <Button primary={primary === true} onClick={() => send(first)}>
        {labels[first]}
      </Button>
      {items.length > 0 && (
        <MenuButton
          items={() => items}
          kind={primary ? "mcp-primary" : ""}
          label={primary ? trans.__("Allow for longer") : trans.__("Deny for longer")}
        >
          {"\u25be"}
        </MenuButton>
      )}
    </span>
  );
}

function CallRequest({ call, isOneOfSeveral }: { call: WantedCall; isOneOfSeveral: boolean }): JSX.Element {
  const given = Object.entries(call.arguments);
  return (
    <div class="mcp-call-request">
      {isOneOfSeveral && <strong>{sentenceOf(call)}</strong>}
      <div class="mcp-muted">{singleLine(call.why)}</div>
      {(call.count ?? 1) !== 1 && <div class="mcp-muted">{trans.__("The arguments of the first call are shown.")}</div>}
      {call.hints && <div class="mcp-muted">{trans.__("The server says: %1", singleLine(call.hints))}</div>}
      {given.length > 0 && (
        <dl class="mcp-facts">
          {given.map(([name, value]) => [
            <dt key={`${name} name`}>{singleLine(name)}</dt>,
            <dd key={name}>
              <ArgumentValue name={name} value={valueText(value)} />
            </dd>,
          ])}
        </dl>
      )}
      {call.code && (
        <ol class="mcp-code-lines" aria-label={trans.__("The code that would run")}>
          {visible(call.code)
            .split("\n")
            .map((each, number) => (
              <li key={number}>
                <code>{each}</code>
              </li>
            ))}
        </ol>
      )}
      {!call.code && !given.length && <div class="mcp-muted">{trans.__("No arguments")}</div>}
      {call.samples && call.samples.length > 0 && (
        <>
          <div class="mcp-muted">{trans.__("Some of the others")}</div>
          <ul class="mcp-samples">
            {call.samples.map((sample, number) => (
              <li key={number}>
                <ArgumentValue name={String(number + 2)} value={JSON.stringify(sample)} />
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}

const MAX_INLINE = 200;

/** An argument's full value; long values scroll and are keyboard-accessible. */
function ArgumentValue({ name, value }: { name: string; value: string }): JSX.Element {
  const text = visible(value);
  return text.length > MAX_INLINE || text.includes("\n") ? (
    <Lines label={trans.__("Argument %1", singleLine(name))} text={text} />
  ) : (
    <code>{text}</code>
  );
}

/** Show line breaks as symbols, so that one line cannot pose as several. */
const withVisibleBreaks = (text: string): string => visible(text).replace(/\n/g, "\u23ce");

/** A line with a name and a value in columns. */
const COLUMNS = /^(\S+(?: \S+)*) {2,}(.*)$/s;

function Trust({ question, answer }: { question: QuestionHead & TrustPage; answer: SendAnswer }): JSX.Element {
  const names = question.candidates.map((each) => each.name);
  const agreed = question.candidates.filter((each) => each.is_agreed).map((each) => each.name);
  // The button for a single server names what it does; of several servers, the user chooses.
  const isSingle = names.length === 1;
  const [servers, setServers] = useState<readonly string[]>(isSingle ? names : agreed);
  const [secrets, setSecrets] = useState<readonly string[]>([]);
  const toggled = (all: readonly string[], name: string): string[] =>
    all.includes(name) ? all.filter((each) => each !== name) : [...all, name];
  const keyOf = (server: string, secret: string): string => JSON.stringify([server, secret]);
  const send = (chosen: readonly string[]): void => {
    const granted = secrets
      .map((each) => JSON.parse(each) as [string, string])
      .filter(([server]) => chosen.includes(server));
    void answer({ question: question.id, servers: [...chosen], secrets: granted });
  };
  const isAll = names.every((name) => servers.includes(name));
  return (
    <>
      {names.length > 1 && (
        <label class="mcp-check">
          <input type="checkbox" checked={isAll} onChange={() => setServers(isAll ? agreed : names)} />
          {trans.__("All")}
        </label>
      )}
      {question.candidates.map((candidate) => (
        <div key={candidate.name} class="mcp-call-request">
          {isSingle ? (
            <div>
              <Emblem server={candidate.name} />
              <strong>{singleLine(candidate.name)}</strong> {withVisibleBreaks(candidate.summary)}
            </div>
          ) : (
            <label class="mcp-check">
              <input
                type="checkbox"
                checked={servers.includes(candidate.name)}
                disabled={candidate.is_agreed === true}
                onChange={() => setServers(toggled(servers, candidate.name))}
              />
              <span>
                {trans.__("Run")} <Emblem server={candidate.name} />
                <strong>{singleLine(candidate.name)}</strong>
              </span>
            </label>
          )}
          {!isSingle && <div>{trans.__("It %1", withVisibleBreaks(candidate.summary))}</div>}
          <div
            class="mcp-pre"
            tabIndex={0}
            role="region"
            aria-label={trans.__("Definition of %1", singleLine(candidate.name))}
          >
            <dl class="mcp-facts">
              {candidate.lines.map((line, index) => {
                const [, name = "", value = line] = COLUMNS.exec(line) ?? [];
                return [
                  <dt key={`${index} name`}>{withVisibleBreaks(name)}</dt>,
                  <dd key={index}>{withVisibleBreaks(value)}</dd>,
                ];
              })}
            </dl>
          </div>
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
                {trans.__("Give it your secret")} <strong>{singleLine(secret)}</strong>
              </span>
            </label>
          ))}
        </div>
      ))}
      <div class="mcp-actions">
        <Button primary disabled={!servers.length} onClick={() => send(servers)}>
          {isSingle ? trans.__("Trust and start") : trans.__("Trust selected")}
        </Button>
        <Button onClick={() => send([])}>{trans.__("Don't trust")}</Button>
      </div>
    </>
  );
}

function Fill({ question, answer }: { question: QuestionHead & FormPage; answer: SendAnswer }): JSX.Element {
  const [initial] = useState(() => defaults(question.schema));
  return (
    <AnswerForm
      schema={question.schema}
      initial={initial}
      fields={{ question: question.id, action: "accept" }}
      answer={answer}
      submit={trans.__("Send")}
      empty={trans.__("There is nothing to fill in.")}
    >
      <Refusals question={question} answer={answer} mayDecline={question.kind === "form"} />
    </AnswerForm>
  );
}

function Visit({ question, answer }: { question: QuestionHead & LinkPage; answer: SendAnswer }): JSX.Element {
  const { services } = usePanel();
  const address = webAddress(question.url);
  const host = address === null ? question.domain : new URL(address).hostname;
  const named = question.domain === host || question.domain.endsWith(`(${host})`) ? question.domain : host;
  const open = (): void => {
    if (address === null) return;
    services.openExternal(address);
    void answer({ question: question.id, action: "accept" });
  };
  return (
    <>
      <p>
        {trans.__("This link leads to")} <strong>{singleLine(named)}</strong>
      </p>
      <Lines label={trans.__("Full address")} text={singleLine(question.url)} />
      {address === null && <p class="mcp-warning">{trans.__("This is not a web address, so it cannot be opened.")}</p>}
      <div class="mcp-actions">
        <Button primary disabled={address === null} onClick={open}>
          {trans.__("Open link")}
        </Button>
        <Refusals question={question} answer={answer} mayDecline={question.kind !== "login"} />
      </div>
    </>
  );
}
