import { LabIcon } from "@jupyterlab/ui-components";

/** A plug icon. */
export const icon = new LabIcon({
  name: "ipymcp:panel",
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3 jp-icon-selectable" ' +
    'fill="#616161" d="M8 2h2v5h4V2h2v5h2v5a6 6 0 0 1-5 5.9V22h-2v-4.1A6 6 0 0 1 6 12V7h2z"/></svg>',
});
