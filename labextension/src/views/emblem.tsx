/** The icons of servers and of what they offer, which the kernel fetches. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Panel } from "../panelmodel";
import type { IconFields } from "../protocol";
import { usePanel, useSelect } from "./context";

/** The icons that were requested, by panel and by what they belong to. */
const requested = new WeakMap<Panel, Map<string, Promise<string | null>>>();

function iconOf(model: Panel, fields: IconFields): Promise<string | null> {
  const icons = requested.get(model) ?? new Map<string, Promise<string | null>>();
  requested.set(model, icons);
  const key = JSON.stringify(fields);
  const known = icons.get(key) ?? model.request("icon", fields).catch(() => null);
  icons.set(key, known);
  return known;
}

/** The icon of a tool, a prompt or a resource, once it has come; nothing before. */
export function OfferIcon(props: IconFields & { has: boolean | undefined }): JSX.Element | null {
  const { server, of, name = "", has } = props;
  const { model } = usePanel();
  const [source, setSource] = useState<string | null>(null);
  useEffect(() => {
    let isCurrent = has === true;
    setSource(null);
    if (isCurrent) void iconOf(model, { server, of, name }).then((found) => isCurrent && setSource(found));
    return () => {
      isCurrent = false;
    };
  }, [model, server, of, name, has]);
  return source === null ? null : <img class="mcp-emblem" src={source} alt="" />;
}

/** The icon of a server, or a coloured letter. */
export function Emblem({ server }: { server: string }): JSX.Element {
  const has = useSelect(({ servers }) => servers[server]?.state === "ready" && servers[server].has_icon === true);
  const letter = /[\p{L}\p{N}]/u.exec(server)?.[0] ?? "?";
  let hue = 0;
  for (const character of server) hue = (hue * 31 + (character.codePointAt(0) ?? 0)) % 360;
  return (
    <span class="mcp-emblem" aria-hidden="true" style={{ "--mcp-hue": hue }} data-letter={letter.toUpperCase()}>
      <OfferIcon server={server} of="server" has={has} />
    </span>
  );
}
