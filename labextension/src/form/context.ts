import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { ArgumentError } from "../protocol";
import type { Schema } from "./schema";
import type { Path, Value } from "./values";

/** What every field of one form knows. */
export interface FormScope {
  root: Schema;
  /** Begins the ids of its elements. */
  prefix: string;
  change(path: Path, value: Value): void;
  /** Text that is not JSON yet; null once it is. */
  broken(path: Path, problem: string | null): void;
  errors: ReadonlyMap<string, string[]>;
}

export const FormContext = createContext<FormScope | null>(null);

export function useForm(): FormScope {
  const scope = useContext(FormContext);
  if (!scope) throw new Error("a field outside of a form");
  return scope;
}

export const keyOf = (path: Path): string => JSON.stringify(path);

export function errorsByPath(errors: ArgumentError[]): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const { path, message } of errors) {
    const key = keyOf(path);
    found.set(key, [...(found.get(key) ?? []), message]);
  }
  return found;
}

/** `options.rows[0]`. */
export function pathText(path: Path): string {
  return path.map((key, index) => (typeof key === "number" ? `[${key}]` : index ? `.${key}` : key)).join("");
}
