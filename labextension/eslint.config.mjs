import tseslint from "typescript-eslint";

/** Two words, or a sentence of one. */
const READABLE = /[A-Za-z]{2,}[,;:]? [A-Za-z]{2,}|^[A-Z][a-z]+[.!?:\u2026]/;
/** A line of code, a declaration of CSS, or a value of `rel`. */
const CODE = /^%|: .*;|^noopener /;
const READ_ATTRIBUTES = /^(aria-label|title|label|placeholder|alt|hint|empty|action)$/;
const CODE_ATTRIBUTES = /^(class|style|d|viewBox)$/;
const CODE_CALLS = /^(__|_n|split|querySelector|querySelectorAll|closest|matches|matchMedia|setProperty)$/;

/** Find words of the panel's own that people read and that no one can translate. */
const translated = {
  meta: {
    type: "problem",
    schema: [],
    messages: { untranslated: "People read this: pass it to trans.__ or trans._n." },
  },
  create(context) {
    const isCode = (node) => {
      for (let at = node.parent; at && !/Statement$|^JSXElement$|Function/.test(at.type); at = at.parent) {
        if (at.type === "CallExpression" && CODE_CALLS.test(at.callee.property?.name)) return true;
        if (at.type === "JSXAttribute" && CODE_ATTRIBUTES.test(at.name.name)) return true;
        if (at.type === "AssignmentExpression" && /^class/.test(at.left.property?.name)) return true;
        // A fault of the panel's own, which no one should see.
        if (at.parent?.type === "ThrowStatement") return /^[a-z]/.test(node.value);
        if (/^TS.*Type$|^Import|^Export(All|Named)/.test(at.type)) return true;
      }
      return false;
    };
    const check = (node, text) => {
      const isRead = node.parent.type === "JSXAttribute" && READ_ATTRIBUTES.test(node.parent.name.name);
      const words = node.type === "JSXText" || isRead ? /[A-Za-z]{2}/ : READABLE;
      if (words.test(text) && !CODE.test(text) && !/^https?:/.test(text) && !isCode(node)) {
        context.report({ node, messageId: "untranslated" });
      }
    };
    return {
      Literal: (node) => typeof node.value === "string" && check(node, node.value),
      TemplateElement: (node) => check(node, node.value.cooked),
      JSXText: (node) => check(node, node.value.trim()),
    };
  },
};

export default tseslint.config(
  { ignores: ["node_modules", "lib", "tests/fixtures"] },
  ...tseslint.configs.strict,
  {
    rules: {
      "@typescript-eslint/no-unused-vars": [
        "error",
        { argsIgnorePattern: "^_", varsIgnorePattern: "^_", ignoreRestSiblings: true },
      ],
      "@typescript-eslint/no-dynamic-delete": "off",
      "@typescript-eslint/no-invalid-void-type": "off",
      "no-console": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-restricted-properties": [
        "error",
        { property: "innerHTML", message: "Text is text; the kernel's HTML goes through sanitise.ts." },
        { property: "dangerouslySetInnerHTML", message: "Text is text; the kernel's HTML goes through sanitise.ts." },
      ],
      eqeqeq: ["error", "smart"],
      curly: ["error", "multi-line"],
      "prefer-const": "error",
    },
  },
  {
    files: ["src/**"],
    plugins: { ipymcp: { rules: { translated } } },
    rules: { "ipymcp/translated": "error" },
  },
  { files: ["tests/**"], rules: { "no-restricted-properties": "off" } },
);
