/** Translate what people read. JupyterLab supplies the translations; elsewhere the text stays English. */

/** The part of JupyterLab's `TranslationBundle` that is used here; its tools find texts by the name `trans`. */
export interface Translations {
  /** Translate a text; `%1`, `%2`, … stand for the values. */
  __(text: string, ...values: (string | number)[]): string;
  /** Translate a text that depends on a count, which is `%1`. */
  _n(singular: string, plural: string, count: number, ...values: (string | number)[]): string;
}

const filled = (text: string, values: (string | number)[]): string =>
  text.replace(/%(\d+)/g, (whole, index: string) => String(values[Number(index) - 1] ?? whole));

const ENGLISH: Translations = {
  __: (text, ...values) => filled(text, values),
  _n: (singular, plural, count, ...values) => filled(count === 1 ? singular : plural, [count, ...values]),
};

/** The translations of this page. Use it when drawing, never in a constant: the language is set after modules load. */
export let trans: Translations = ENGLISH;

/** Set the language of all panels of this page. */
export function setTranslations(translations: Translations): void {
  trans = translations;
}
