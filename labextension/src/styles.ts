const RULES = `
.ipymcp {
  --mcp-text: var(--jp-ui-font-color1, var(--vscode-foreground, #212121));
  --mcp-dim: var(--jp-ui-font-color2, var(--vscode-descriptionForeground, #616161));
  --mcp-back: var(--jp-layout-color1, var(--vscode-editor-background, #ffffff));
  --mcp-raised: var(--jp-layout-color2, var(--vscode-sideBar-background, #f3f3f3));
  --mcp-line: var(--jp-border-color2, var(--vscode-panel-border, #dcdcdc));
  --mcp-edge: var(--jp-border-color1, var(--vscode-input-border, #bdbdbd));
  --mcp-field: var(--jp-input-background, var(--vscode-input-background, transparent));
  --mcp-brand: var(--jp-brand-color1, var(--vscode-button-background, #1976d2));
  --mcp-on-brand: var(--jp-ui-inverse-font-color1, var(--vscode-button-foreground, #ffffff));
  --mcp-link: var(--jp-content-link-color, var(--vscode-textLink-foreground, #0d5aa7));
  --mcp-good-own: var(--jp-success-color1, var(--vscode-testing-iconPassed, #388e3c));
  --mcp-bad-own: var(--jp-error-color1, var(--vscode-errorForeground, #c62828));
  --mcp-ask-own: var(--jp-warn-color0, var(--vscode-editorWarning-foreground, #9a5b00));
  --mcp-good: color-mix(in srgb, var(--mcp-good-own) 70%, var(--mcp-text));
  --mcp-bad: color-mix(in srgb, var(--mcp-bad-own) 70%, var(--mcp-text));
  --mcp-ask: color-mix(in srgb, var(--mcp-ask-own) 70%, var(--mcp-text));
  --mcp-chosen: color-mix(in srgb, var(--mcp-raised) 50%, var(--mcp-back));
  --mcp-sans: var(--jp-ui-font-family, var(--vscode-font-family, system-ui, sans-serif));
  --mcp-mono: var(--jp-code-font-family, var(--vscode-editor-font-family, ui-monospace, monospace));
  color: var(--mcp-text); background: var(--mcp-back); font: 12px/1.45 var(--mcp-sans);
  container-type: inline-size; box-sizing: border-box; color-scheme: light dark; text-align: start;
}
[data-jp-theme-light="true"] .ipymcp { color-scheme: light; }
[data-jp-theme-light="false"] .ipymcp { color-scheme: dark; }
@media (prefers-color-scheme: dark) {
  .ipymcp {
    --mcp-text: var(--jp-ui-font-color1, var(--vscode-foreground, #e4e4e4));
    --mcp-dim: var(--jp-ui-font-color2, var(--vscode-descriptionForeground, #ababab));
    --mcp-back: var(--jp-layout-color1, var(--vscode-editor-background, #1b1b1b));
    --mcp-raised: var(--jp-layout-color2, var(--vscode-sideBar-background, #282828));
    --mcp-line: var(--jp-border-color2, var(--vscode-panel-border, #3f3f3f));
    --mcp-edge: var(--jp-border-color1, var(--vscode-input-border, #616161));
    --mcp-brand: var(--jp-brand-color1, var(--vscode-button-background, #1f6fbf));
    --mcp-link: var(--jp-content-link-color, var(--vscode-textLink-foreground, #7ab8f5));
    --mcp-good-own: var(--jp-success-color1, var(--vscode-testing-iconPassed, #66bb6a));
    --mcp-bad-own: var(--jp-error-color1, var(--vscode-errorForeground, #ef7370));
    --mcp-ask-own: var(--jp-warn-color0, var(--vscode-editorWarning-foreground, #e0a33e));
  }
}
.ipymcp *, .ipymcp *::before { box-sizing: border-box; }
.ipymcp [hidden] { display: none !important; }
.ipymcp-cell { border: 1px solid var(--mcp-line); }
.ipymcp-sidebar { height: 100%; }
.ipymcp .mcp-panel { position: relative; display: flex; flex-direction: column; min-width: 0; }
.ipymcp-cell .mcp-panel:not(.mcp-single) { height: 480px; min-height: 240px; max-height: 90vh; resize: vertical; overflow: hidden; }
.ipymcp-sidebar .mcp-panel { height: 100%; overflow: hidden; }
.ipymcp .mcp-page { flex: 1; min-height: 0; display: flex; flex-direction: column; }
.ipymcp .mcp-view, .ipymcp .mcp-list { flex: 1; min-height: 0; min-width: 0; display: flex; flex-direction: column; }
.ipymcp .mcp-scroll { flex: 1; min-height: 0; overflow-y: auto; }
.ipymcp :is(h2, h3) { margin: 0; font: 600 12px/1.45 var(--mcp-sans); color: inherit; overflow-wrap: anywhere; min-width: 0; }
.ipymcp h2 { font-size: 13px; }
.ipymcp p { margin: 0; }
.ipymcp :is(ul, li, dl, dt, dd) { margin: 0; padding: 0; list-style: none; float: none; width: auto; display: block; }
.ipymcp a { color: var(--mcp-link); text-decoration: underline; overflow-wrap: anywhere; }
.ipymcp code { font: 12px var(--mcp-mono); overflow-wrap: anywhere; background: none; color: inherit; padding: 0; border: 0; }
.ipymcp strong { font-weight: 600; overflow-wrap: anywhere; }
.ipymcp :is(button, input, select, textarea) { font: 12px/1.45 var(--mcp-sans); color: inherit; margin: 0; }
.ipymcp :focus-visible { outline: 2px solid var(--mcp-brand); outline-offset: -2px; }
.ipymcp .mcp-dim { color: var(--mcp-dim); font-weight: 400; }
.ipymcp .mcp-off { color: var(--mcp-dim); text-decoration: line-through; }
.ipymcp .mcp-figure { font-variant-numeric: tabular-nums; white-space: nowrap; }
.ipymcp .mcp-ellipsis { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; min-width: 0; unicode-bidi: isolate; }
.ipymcp .mcp-grow { flex: 1; min-width: 0; }
.ipymcp .mcp-space { flex: 1; }
.ipymcp .mcp-unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.ipymcp .mcp-none { padding: 16px 12px; color: var(--mcp-dim); }
.ipymcp .mcp-prose { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; }

.ipymcp .mcp-tabs { display: flex; flex: none; height: 29px; padding: 0 4px; border-bottom: 1px solid var(--mcp-line); background: var(--mcp-raised); overflow-x: auto; overflow-y: hidden; scrollbar-width: none; }
.ipymcp .mcp-tab { appearance: none; border: 0; background: none; padding: 0 8px; height: 29px; color: var(--mcp-dim); cursor: pointer; white-space: nowrap; border-bottom: 2px solid transparent; }
.ipymcp .mcp-tab:hover { color: var(--mcp-text); }
.ipymcp .mcp-tab[aria-selected="true"] { color: var(--mcp-text); border-bottom-color: var(--mcp-brand); }
.ipymcp .mcp-count { margin-inline-start: 4px; padding: 0 4px; border-radius: 7px; background: var(--mcp-brand); color: var(--mcp-on-brand); font-size: 10px; }

.ipymcp .mcp-button { appearance: none; height: 22px; padding: 0 8px; border: 1px solid var(--mcp-edge); border-radius: 2px; background: var(--mcp-back); cursor: pointer; white-space: nowrap; flex: none; line-height: 20px; }
.ipymcp .mcp-button:hover:not(:disabled, [aria-disabled="true"]) { background: var(--mcp-raised); }
.ipymcp .mcp-button:is(:disabled, [aria-disabled="true"]) { opacity: .5; cursor: default; }
.ipymcp .mcp-button[aria-pressed="true"] { background: var(--mcp-raised); border-color: var(--mcp-brand); }
.ipymcp .mcp-primary { background: var(--mcp-brand); border-color: var(--mcp-brand); color: var(--mcp-on-brand); }
.ipymcp .mcp-primary:hover:not(:disabled, [aria-disabled="true"]) { background: var(--mcp-brand); filter: brightness(1.1); }
.ipymcp .mcp-quiet { border-color: transparent; background: none; color: var(--mcp-link); padding: 0 2px; }
.ipymcp .mcp-actions { display: flex; flex-wrap: wrap; gap: 4px; align-items: center; padding: 6px 0; }
.ipymcp .mcp-actions .mcp-actions { min-width: 0; max-width: 100%; flex-wrap: nowrap; }
.ipymcp .mcp-form-head { display: flex; gap: 8px; justify-content: flex-end; min-height: 22px; margin-bottom: -6px; }
.ipymcp :is(.mcp-form, .mcp-question) > .mcp-actions { position: sticky; bottom: 0; background: var(--mcp-back); z-index: 1; }
.ipymcp .mcp-question > .mcp-actions, .ipymcp .mcp-question .mcp-form > .mcp-actions { bottom: -8px; margin-bottom: -8px; padding-bottom: 8px; }
.ipymcp .mcp-settling, .ipymcp .mcp-settling * { pointer-events: none !important; }
.ipymcp .mcp-flush, .ipymcp .mcp-toolbar.mcp-flush { padding: 0; }
.ipymcp .mcp-caret { appearance: none; border: 0; background: none; padding: 0; cursor: pointer; display: inline-flex; align-items: center; min-width: 0; height: 22px; text-align: start; }
.ipymcp .mcp-caret::before { content: ""; flex: none; width: 5px; height: 5px; margin: 0 7px 0 3px; border: solid var(--mcp-dim); border-width: 0 1.5px 1.5px 0; transform: rotate(-45deg); }
.ipymcp .mcp-caret[aria-expanded="true"]::before { transform: translateY(-2px) rotate(45deg); }

.ipymcp .mcp-toolbar { display: flex; flex: none; gap: 4px; align-items: center; padding: 4px 8px; min-width: 0; }
.ipymcp .mcp-slim { min-height: 26px; padding-block: 2px; }
.ipymcp .mcp-slim > .mcp-dim:first-child { padding-inline-start: 2px; }
.ipymcp .mcp-slim > .mcp-figure { min-width: 0; overflow: hidden; text-overflow: ellipsis; }
.ipymcp .mcp-ruled { border-top: 1px solid var(--mcp-line); gap: 12px; }
.ipymcp .mcp-input { height: 24px; padding: 1px 6px; border: 1px solid var(--mcp-edge); border-radius: 2px; background: var(--mcp-field); min-width: 0; }
.ipymcp .mcp-input::placeholder { color: var(--mcp-dim); opacity: 1; }
.ipymcp .mcp-input[aria-invalid="true"] { border-color: var(--mcp-bad); }
.ipymcp textarea.mcp-input { display: block; width: 100%; height: auto; min-height: 24px; max-height: 240px; resize: vertical; field-sizing: content; }
.ipymcp textarea.mcp-text[rows="1"] { resize: none; }
.ipymcp .mcp-code { font-family: var(--mcp-mono) !important; }
.ipymcp select.mcp-input { background: var(--mcp-back); max-width: 100%; padding-inline: 3px; text-overflow: ellipsis; }
.ipymcp input[type="checkbox"] { margin: 0 6px 0 0; flex: none; accent-color: var(--mcp-brand); }
.ipymcp .mcp-check { display: inline-flex; align-items: center; min-height: 24px; cursor: pointer; }
.ipymcp .mcp-field > input.mcp-input, .ipymcp .mcp-find, .ipymcp .mcp-item input.mcp-input { width: 100%; display: block; }

.ipymcp .mcp-card { border-bottom: 1px solid var(--mcp-line); }
.ipymcp .mcp-card-line { display: flex; align-items: center; gap: 8px; height: 30px; padding: 0 8px; min-width: 0; }
.ipymcp .mcp-card-name { flex: 1; min-width: 0; overflow: hidden; font-weight: 600; }
.ipymcp span.mcp-card-name { display: flex; flex: 0 1 auto; max-width: 55%; }
.ipymcp span.mcp-card-name + .mcp-ellipsis { flex: 1; text-align: end; }
.ipymcp .mcp-wide { width: 76px; text-align: end; }
.ipymcp .mcp-deed { width: 62px; flex: none; display: flex; justify-content: flex-end; }
.ipymcp .mcp-state { display: inline-flex; align-items: center; gap: 6px; width: 84px; flex: none; white-space: nowrap; }
.ipymcp .mcp-dot { width: 8px; height: 8px; border-radius: 50%; background: currentColor; flex: none; }
.ipymcp .mcp-tone-off .mcp-dot { background: none; border: 1.5px solid currentColor; }
.ipymcp .mcp-tone-ask .mcp-dot { border-radius: 0; transform: rotate(45deg); }
.ipymcp .mcp-tone-bad .mcp-dot { border-radius: 0; }
.ipymcp .mcp-tone-good { color: var(--mcp-text); } .ipymcp .mcp-tone-good .mcp-dot { background: var(--mcp-good-own); }
.ipymcp .mcp-tone-off { color: var(--mcp-dim); }
.ipymcp .mcp-tone-busy .mcp-dot { background: var(--mcp-brand); animation: mcp-pulse 1.2s ease-in-out infinite; }
.ipymcp .mcp-tone-bad { color: var(--mcp-bad); } .ipymcp .mcp-tone-ask { color: var(--mcp-ask); }
@keyframes mcp-pulse { 50% { opacity: .3; } }
.ipymcp .mcp-details { padding: 2px 8px 6px 23px; }
.ipymcp .mcp-facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 12px; align-items: baseline; }
.ipymcp .mcp-facts dt { color: var(--mcp-dim); font-weight: 400; max-width: 120px; overflow-wrap: anywhere; }
.ipymcp .mcp-facts dd { margin: 0; overflow-wrap: anywhere; }
.ipymcp .mcp-facts .mcp-button { height: 17px; line-height: 15px; }
.ipymcp .mcp-problem { margin: 2px 8px 8px 23px; padding: 2px 8px; border-inline-start: 3px solid var(--mcp-bad); white-space: pre-wrap; overflow-wrap: anywhere; max-height: 160px; overflow-y: auto; }
.ipymcp :is(.mcp-tool, .mcp-outcome) .mcp-problem { margin-inline: 0; }
.ipymcp .mcp-fix { color: var(--mcp-dim); }
.ipymcp .mcp-known { border-bottom: 1px solid var(--mcp-line); padding: 4px 0; background: var(--mcp-raised); }
.ipymcp .mcp-known > p { padding: 4px 8px; }
.ipymcp .mcp-beginning { padding: 16px 12px; } .ipymcp .mcp-beginning p { margin-top: 6px; }

.ipymcp .mcp-pair { flex: 1; min-height: 0; display: flex; }
.ipymcp .mcp-list { flex: 1; }
.ipymcp .mcp-detail { flex: 1.5; min-width: 0; overflow-y: auto; border-inline-start: 1px solid var(--mcp-line); }
.ipymcp .mcp-back { display: none; padding: 4px 4px 0; }
@container (max-width: 559px) {
  .ipymcp .mcp-detail { display: none; }
  .ipymcp .mcp-chosen .mcp-list { display: none; }
  .ipymcp .mcp-chosen .mcp-detail { display: block; border: 0; }
  .ipymcp .mcp-back { display: block; }
}
@container (max-width: 399px) {
  .ipymcp .mcp-tabs { padding: 0; }
  .ipymcp .mcp-tab { padding: 0 2px; font-size: 11px; flex: 1 0 auto; }
  .ipymcp .mcp-count { margin-inline-start: 2px; padding: 0 3px; font-size: 9px; }
  .ipymcp .mcp-filters { flex-wrap: wrap; }
  .ipymcp .mcp-filters > select { flex: 1 1 0; }
  .ipymcp .mcp-filters > input { flex: 1 0 100%; }
  .ipymcp .mcp-wide { display: none; }
  .ipymcp .mcp-details { padding-inline-start: 12px; }
  .ipymcp .mcp-problem { margin-inline-start: 12px; }
}
.ipymcp .mcp-rows { flex: 1; min-height: 0; overflow: auto; contain: strict; }
.ipymcp p.mcp-rows { contain: none; }
.ipymcp .mcp-row { display: flex; align-items: center; gap: 8px; padding: 0 8px; cursor: pointer; }
.ipymcp .mcp-row:hover { background: var(--mcp-chosen); }
.ipymcp .mcp-row[aria-selected="true"] { background: var(--mcp-chosen); box-shadow: inset 2px 0 var(--mcp-brand); }
.ipymcp .mcp-rows:focus-visible .mcp-cursor { outline: 1px solid var(--mcp-brand); outline-offset: -1px; }
.ipymcp .mcp-row > .mcp-ellipsis { flex: 1; }
.ipymcp .mcp-marks { display: inline-flex; gap: 4px; flex: none; max-width: 50%; overflow: hidden; white-space: nowrap; }
.ipymcp .mcp-badge { padding: 0 5px; border: 1px solid currentColor; border-radius: 8px; font-size: 10px; line-height: 14px; white-space: nowrap; }
.ipymcp .mcp-badge-neutral { color: var(--mcp-dim); } .ipymcp .mcp-badge-safe { color: var(--mcp-good); } .ipymcp .mcp-badge-danger { color: var(--mcp-bad); }
.ipymcp .mcp-tool { padding: 6px 12px 12px; display: flex; flex-direction: column; gap: 6px; min-width: 0; }
.ipymcp .mcp-head { display: flex; gap: 8px; align-items: baseline; justify-content: space-between; min-height: 22px; }
.ipymcp .mcp-head h3, .ipymcp .mcp-tool > h3 { font-size: 13px; }
.ipymcp .mcp-badges { display: flex; flex-wrap: wrap; gap: 4px; }
.ipymcp .mcp-badges:empty { display: none; }
.ipymcp .mcp-warning { padding: 3px 8px; border-inline-start: 3px solid var(--mcp-ask); overflow-wrap: anywhere; background: var(--mcp-raised); white-space: pre-wrap; }
.ipymcp .mcp-hindrance { flex: none; margin: 4px 8px; }
.ipymcp .mcp-pre { margin: 2px 0; padding: 6px 8px; max-height: 320px; overflow: auto; font: 12px/1.45 var(--mcp-mono); white-space: pre-wrap; overflow-wrap: anywhere; background: var(--mcp-raised); color: inherit; border: 0; }
.ipymcp .mcp-clipped { display: block; max-height: 120px; overflow: auto; white-space: pre-wrap; }
.ipymcp .mcp-runner { border-top: 1px solid var(--mcp-line); padding-top: 8px; }
.ipymcp .mcp-outcome { min-height: 60px; }

.ipymcp .mcp-form { display: flex; flex-direction: column; gap: 8px; }
.ipymcp .mcp-field { display: flex; flex-direction: column; gap: 2px; align-items: stretch; min-width: 0; }
.ipymcp .mcp-field > :is(select, .mcp-button, .mcp-check, code) { align-self: flex-start; }
.ipymcp .mcp-field > :is(.mcp-number, [type="date"], [type="time"], [type="datetime-local"]) { max-width: 240px; }
.ipymcp .mcp-label { display: flex; flex-wrap: wrap; gap: 0 8px; align-items: baseline; }
.ipymcp .mcp-name { font-weight: 600; overflow-wrap: anywhere; }
.ipymcp .mcp-null { min-height: 0; }
.ipymcp .mcp-about { color: var(--mcp-dim); white-space: pre-wrap; overflow-wrap: anywhere; }
.ipymcp .mcp-wrong { color: var(--mcp-bad); white-space: pre-wrap; overflow-wrap: anywhere; }
.ipymcp .mcp-complaints { border-inline-start: 3px solid var(--mcp-bad); padding: 2px 8px; }
.ipymcp .mcp-several { display: flex; flex-wrap: wrap; gap: 0 12px; }
.ipymcp .mcp-inside { display: flex; flex-direction: column; gap: 8px; align-items: flex-start; padding-inline-start: 10px; border-inline-start: 1px solid var(--mcp-line); }
.ipymcp .mcp-inside > :is(.mcp-field, .mcp-item, .mcp-table), .ipymcp .mcp-inside > :is(input, textarea).mcp-input { width: 100%; }
.ipymcp .mcp-form > .mcp-button { align-self: flex-start; }
.ipymcp .mcp-item { display: flex; gap: 8px; align-items: flex-start; margin-bottom: 4px; }
.ipymcp .mcp-item > .mcp-grow { display: flex; flex-direction: column; gap: 4px; }

.ipymcp .mcp-preview { display: flex; flex-direction: column; gap: 4px; min-width: 0; }
.ipymcp .mcp-picture { max-width: 100%; height: auto; align-self: flex-start; background: #fff; }
.ipymcp .mcp-foot { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; min-height: 22px; }
.ipymcp .mcp-call { height: 44px; }
.ipymcp .mcp-call-line { display: flex; align-items: center; gap: 8px; height: 30px; }
.ipymcp .mcp-call-line > .mcp-ellipsis { flex: 1; }
.ipymcp .mcp-bar { height: 4px; background: var(--mcp-line); overflow: hidden; border-radius: 2px; }
.ipymcp .mcp-bar > div { height: 100%; background: var(--mcp-brand); transition: width .2s; }
.ipymcp .mcp-bar-open > div { width: 30%; animation: mcp-run 1.6s linear infinite; }
@keyframes mcp-run { from { transform: translateX(-100%); } to { transform: translateX(340%); } }
.ipymcp .mcp-running { flex: none; height: 136px; overflow-y: auto; }
.ipymcp .mcp-running-call { padding: 6px 8px 0; }
.ipymcp .mcp-about-row { flex: none; max-height: 50%; padding: 6px 8px 8px; border-top: 1px solid var(--mcp-line); overflow: auto; overflow-wrap: anywhere; }
.ipymcp .mcp-stream { background: var(--mcp-back); font: 11px/18px var(--mcp-mono); border-top: 1px solid var(--mcp-line); }
.ipymcp .mcp-lines { width: max-content; min-width: 100%; }
.ipymcp .mcp-line { padding: 0 8px; white-space: pre; unicode-bidi: isolate; }
.ipymcp .mcp-level { display: inline-block; width: 8ch; overflow: hidden; vertical-align: top; }

.ipymcp .mcp-question { flex: none; max-height: 70%; overflow-y: auto; padding: 8px 12px; border-bottom: 2px solid var(--mcp-brand); background: var(--mcp-back); display: flex; flex-direction: column; gap: 6px; }
.ipymcp .mcp-single .mcp-question { max-height: 400px; }
.ipymcp .mcp-asking .mcp-question { max-height: none; }
.ipymcp .mcp-whole { margin: 4px 0; padding-left: 4em; }
.ipymcp .mcp-whole > li { display: list-item; list-style: decimal; min-height: 1.45em; }
.ipymcp .mcp-whole > li::marker { color: var(--mcp-dim); font-variant-numeric: tabular-nums; }
.ipymcp .mcp-whole code { white-space: pre-wrap; overflow-wrap: anywhere; }
.ipymcp .mcp-asking .mcp-clipped { max-height: 480px; }
.ipymcp .mcp-wanted { border-inline-start: 3px solid var(--mcp-line); padding-inline-start: 8px; }
.ipymcp .mcp-notice-place { position: absolute; inset: auto 8px 28px; z-index: 1; pointer-events: none; }
.ipymcp .mcp-notice { pointer-events: auto; display: flex; gap: 8px; align-items: flex-start; padding: 6px 8px; background: var(--mcp-raised); border: 1px solid var(--mcp-edge); border-radius: 2px; max-height: 140px; overflow-y: auto; box-shadow: 0 1px 4px rgb(0 0 0 / .25); }
.ipymcp .mcp-notice-bad { border-inline-start: 3px solid var(--mcp-bad); }
.ipymcp .mcp-status { flex: none; display: flex; gap: 12px; justify-content: space-between; align-items: center; height: 22px; padding: 0 8px; border-top: 1px solid var(--mcp-line); color: var(--mcp-dim); white-space: nowrap; font-size: 11px; }
.ipymcp .mcp-link-state { color: var(--mcp-ask); }

@media (prefers-reduced-motion: reduce) { .ipymcp * { animation: none !important; transition: none !important; } }
@media (forced-colors: active) {
  .ipymcp .mcp-dot, .ipymcp .mcp-bar > div { forced-color-adjust: none; background: CanvasText; }
  .ipymcp .mcp-tone-off .mcp-dot { background: none; }
  .ipymcp .mcp-tab { border-color: Canvas; }
  .ipymcp .mcp-tab[aria-selected="true"] { border-bottom-color: Highlight; }
  .ipymcp .mcp-row[aria-selected="true"] { outline: 2px solid Highlight; outline-offset: -2px; }
  .ipymcp :focus-visible { outline-color: Highlight; }
}
`;

/** How the panel looks: the page's own colours, where it says them. Pages style what is in an output as well, with more weight
 * than one class has. */
export const STYLES = RULES.replace(/\.ipymcp(?= )/g, ".ipymcp.ipymcp.ipymcp");
