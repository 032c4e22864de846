// A server on the TypeScript SDK 2.x that asks its user for something in the middle of a call.
// Its argument is the environment's folder, whose modules it uses.

const require_ = require("node:module").createRequire(`${process.argv[2]}/`);
const { McpServer } = require_("@modelcontextprotocol/server");
const { serveStdio } = require_("@modelcontextprotocol/server/stdio");
const { z } = require_("zod");

const QUESTION = {
  message: "Your name?",
  requestedSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
};

serveStdio(() => {
  const server = new McpServer({ name: "pushing", version: "1.0.0" });
  for (const [name, annotations] of [["ask", { readOnlyHint: true }], ["ask_and_write", {}]]) {
    server.registerTool(name, { annotations, inputSchema: z.object({}) }, async () => {
      const answer = await server.server.elicitInput(QUESTION);
      return { content: [{ type: "text", text: `you are ${answer.content.name}` }] };
    });
  }
  return server;
});
