import tseslint from "typescript-eslint";

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
  { files: ["tests/**"], rules: { "no-restricted-properties": "off" } },
);
