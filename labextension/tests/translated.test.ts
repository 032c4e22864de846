import { ESLint } from "eslint";
import { expect, test } from "vitest";

const SOURCE = `import { trans } from "../src/translation";
export const Bad = ({ notify }: { notify(text: string): void }) => (
  <p title="Close" class="mcp-row mcp-cursor" onClick={() => notify("Copied.")}>
    Nothing
    {\`The kernel has \${1} views\`}
  </p>
);
export const Good = () => <p title={trans.__("Close it")} class="mcp-row mcp-cursor">{"%load_ext ipymcp"}</p>;
`;

test("the linter finds words that people read and that are not translated", async () => {
  const rules = new ESLint({ ruleFilter: ({ ruleId }) => ruleId === "ipymcp/translated" });
  const [found] = await rules.lintText(SOURCE, { filePath: "src/words.tsx" });
  expect(found?.messages.map(({ line, ruleId }) => [line, ruleId])).toEqual([
    [3, "ipymcp/translated"],
    [3, "ipymcp/translated"],
    [3, "ipymcp/translated"],
    [5, "ipymcp/translated"],
  ]);
});
