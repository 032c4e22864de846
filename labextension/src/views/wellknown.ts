/** Well-known servers, which are offered before anything is searched for. */
/* eslint-disable ipymcp/translated -- commands are the same in every language */

import { trans } from "../translation";

export interface WellKnown {
  title: string;
  about: string;
  /** The command or the address, which can be changed before it is tried. */
  what: string;
}

export const wellKnown = (): WellKnown[] => [
  {
    title: trans.__("Files"),
    about: trans.__("Reads and writes files in a folder"),
    what: "npx -y @modelcontextprotocol/server-filesystem .",
  },
  { title: "Git", about: trans.__("Reads and changes a repository"), what: "uvx mcp-server-git" },
  {
    title: "GitHub",
    about: trans.__("Issues, pull requests and code"),
    what: "https://api.githubcopilot.com/mcp/",
  },
  {
    title: trans.__("Web pages"),
    about: trans.__("Reads web pages as text"),
    what: "uvx mcp-server-fetch",
  },
  {
    title: "SQLite",
    about: trans.__("Queries a database"),
    what: "uvx --with 'mcp<2' mcp-server-sqlite --db-path data.db",
  },
  { title: trans.__("Time"), about: trans.__("Times and time zones"), what: "uvx mcp-server-time" },
  {
    title: trans.__("Memory"),
    about: trans.__("Keeps facts as a graph"),
    what: "npx -y @modelcontextprotocol/server-memory",
  },
  {
    title: trans.__("Everything"),
    about: trans.__("Has every feature of MCP, to try them"),
    what: "npx -y @modelcontextprotocol/server-everything",
  },
];
