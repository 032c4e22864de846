/** What the build makes of JSX; see `build.mjs`. */
export { createElement, Fragment } from "preact";
