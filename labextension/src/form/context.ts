import type { FunctionComponent } from "preact";
import { createContext } from "preact";
import { useContext, useEffect } from "preact/hooks";
import type { FieldError } from "../protocol";
import type { AnyControlProps } from "./inputs";
import type { Schema } from "./schema";
import type { Path, Value } from "./values";

/** State shared by the fields of a form. */
export interface FormContextValue {
  root: Schema;
  /** Prefix of element ids. */
  prefix: string;
  change(path: Path, value: Value): void;
  /** Report why a field cannot be sent as it is; null once it can. */
  setProblem(path: Path, problem: string | null): void;
  /** The fields with such a problem. */
  problems: ReadonlyMap<string, FieldError>;
  errors: ReadonlyMap<string, string[]>;
  /** Suggest values for a text field; absent if there are no suggestions. */
  suggest?: (path: Path, typed: string) => Promise<string[]>;
  controls: Controls;
}

/** Controls of properties that have others than their schemas have, by name. */
export type Controls = ReadonlyMap<string, FunctionComponent<AnyControlProps>>;

export const FormContext = createContext<FormContextValue | null>(null);

export function useForm(): FormContextValue {
  const scope = useContext(FormContext);
  if (!scope) throw new Error("a field outside of a form");
  return scope;
}

/** Keep the form from being sent while a field has a problem that its value does not show. */
export function useProblem(path: Path, problem: string | null): void {
  const { setProblem } = useForm();
  const key = keyOf(path);
  useEffect(() => {
    if (problem === null) return;
    setProblem(path, problem);
    return () => setProblem(path, null);
  }, [key, problem, setProblem]);
}

export const keyOf = (path: Path): string => JSON.stringify(path);

export function errorsByPath(errors: FieldError[]): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const { path, message } of errors) {
    const key = keyOf(path);
    found.set(key, [...(found.get(key) ?? []), message]);
  }
  return found;
}

/** Format a path: `options.rows[0]`. */
export function pathText(path: Path): string {
  return path.map((key, index) => (typeof key === "number" ? `[${key}]` : index ? `.${key}` : key)).join("");
}
