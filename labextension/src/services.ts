/** What a panel needs of the page it is in. */
export interface Services {
  /** Put code where the user works; the clipboard where there is no such place. */
  insertCode(text: string): Promise<"inserted" | "copied">;
  copy(text: string): Promise<void>;
  /** Show an address, http or https, in another tab. */
  openExternal(url: string): void;
}

async function copy(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Pages over plain http have none, and are let copy what is selected.
  const field = document.createElement("textarea");
  field.value = text;
  field.style.cssText = "position: fixed; opacity: 0";
  const { activeElement } = document;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  if (activeElement instanceof HTMLElement) activeElement.focus();
  if (!isCopied) throw new Error("This browser lets no page copy that is not served over https.");
}

/** In any page: the clipboard, and another tab. */
export const pageServices: Services = {
  insertCode: async (text) => {
    await copy(text);
    return "copied";
  },
  copy,
  openExternal: (url) => void window.open(url, "_blank", "noopener,noreferrer"),
};
